"""Tagged words: sentences, words and tags as they stand, what is no word left out, errors by line."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text.bio import repaired
from triptych.text.conll import Tagged, check_bio, read_conll

UNIVERSAL = """# sent_id = 1
# text = don't go
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\tVBP\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
2.1\tgone\tgo\tVERB\tVB\t_\t_\t_\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_

# a second
1\t10 000\t_\tNUM\tCD\t_\t0\troot\t_\t_
2\t#\t_\tSYM\tSYM\t_\t1\tdep\t_\t_

"""


def written(folder: Path, text: str, name: str = "a.conll") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def read(folder: Path, text: str, column: int | None = None, name: str = "a.conll") -> Tagged:
    return read_conll([written(folder, text, name)], column)


WORD = st.text(st.sampled_from('ab#é字\u200b\xa0"-.12'), min_size=1).filter(
    lambda word: not word.startswith("-DOC")
)
SENTENCES = st.lists(st.lists(st.tuples(WORD, st.sampled_from("NVX")), min_size=1), min_size=1)


@given(
    sentences=SENTENCES,
    gaps=st.sampled_from(["\n", "\n\n\n", "\t\n", " \n\n"]),
    sep=st.sampled_from("\t "),
    end=st.sampled_from(["\n", "\r\n"]),
    middle=st.booleans(),
)
def test_sentences_come_back(tmp_path_factory, sentences, gaps, sep, end, middle):
    gap = gaps if sep == "\t" else gaps.replace("\t", "")
    between = f"{sep}m{sep}" if middle else sep
    text = gap.join("".join(f"{word}{between}{tag}\n" for word, tag in rows) for rows in sentences)
    folder = tmp_path_factory.mktemp("conll")
    found = read(folder, text.replace("\n", end))
    assert found.words == [[word for word, _ in rows] for rows in sentences]
    assert found.tags == [[tag for _, tag in rows] for rows in sentences]
    lines = text.split("\n")
    for i, rows in enumerate(sentences):
        for k, (word, tag) in enumerate(rows):
            line = int(found.place(i, k).rsplit(":", 1)[1])
            assert lines[line - 1] == f"{word}{between}{tag}"
    assert [f"{name}:{line}" for name, line in found.origin] == [found.place(i) for i in range(len(found))]


@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.gz", "a.txt"])
def test_universal_dependencies(tmp_path, name):
    text = UNIVERSAL if name != "a.txt" else UNIVERSAL.replace("1-2\t", "9-9\t")
    found = read(tmp_path, text, name=name)
    assert found.words == [["do", "n't", "go"], ["10 000", "#"]]
    assert found.tags == [["AUX", "PART", "VERB"], ["NUM", "SYM"]]
    assert found.skipped == {"comments": 3, "multiword rows": 1, "empty nodes": 1}
    assert [found.place(0), found.place(0, 2), found.place(1)] == [
        f"{tmp_path / name}:{line}" for line in (4, 7, 10)
    ]
    assert read(tmp_path, text, 5, name).tags == [["VBP", "RB", "VB"], ["CD", "SYM"]]
    assert read(tmp_path, text, -3, name).tags == [["aux", "advmod", "root"], ["root", "dep"]]


def test_other_files_have_no_comments(tmp_path):
    found = read(tmp_path, "# O\nphotography O\n\n#tag B-x\n")
    assert found.words == [["#", "photography"], ["#tag"]]
    assert found.skipped == {}


def test_conll_2003(tmp_path):
    mark = "-DOCSTART- -X- O O\n\n"
    text = f"{mark}EU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n{mark}Peter NNP I-NP I-PER\n"
    found = read(tmp_path, text)
    assert found.words == [["EU", "rejects"], ["Peter"]]
    assert found.tags == [["I-ORG", "O"], ["I-PER"]]
    assert found.skipped == {"document marks": 2}
    assert read(tmp_path, text, 2).tags == [["NNP", "VBZ"], ["NNP"]]
    picked = found.select([1])
    assert (picked.words, picked.tags, picked.place(0)) == ([["Peter"]], [["I-PER"]], found.place(1))
    assert found.names == ["I-ORG", "I-PER", "O"]


@pytest.mark.parametrize(
    ("text", "column", "place", "message", "mend"),
    [
        ("", None, "a.conll", "no tagged sentence", "copied"),
        ("\n\t\n \n", None, "a.conll", "no tagged sentence", "copied"),
        ("-DOCSTART- O\n\n", None, "a.conll", "no tagged sentence", "copied"),
        ("one\ntwo\n", None, "a.conll:1", "one column", "part them with a tab"),
        ("a O\n\nb N O\n", None, "a.conll:3", "3 columns where line 1 has 2", "mend the row"),
        ("a\tO\nb O\n", None, "a.conll:2", "one column where line 1 has 2", "mend the row"),
        ("a\tO\n\tO\n", None, "a.conll:2", "no word", "take the row out"),
        ("a\tO\nb\t\n", None, "a.conll:2", "'b' has no tag in column 2", "take the row out"),
        ("a\tx\tO\n", 0, "data.column", "no column 0", "from 1 to 3"),
        ("a\tx\tO\n", 4, "data.column", "no column 4: rows such as .*a.conll:1 have 3", "-1 is the last"),
        ("a\tx\tO\n", -4, "data.column", "no column -4", "from 1 to 3"),
        ("a\tx\tO\n", 1, "data.column", "column 1 holds the words", "column of the tags"),
        (UNIVERSAL, 2, "data.column", "column 2 holds the words", "column of the tags"),
        (UNIVERSAL + "x" + "\t_" * 9 + "\n", None, "a.conll:13", "'x' is no number of a word", "CoNLL-U"),
        (UNIVERSAL + "1\t_\n", None, "a.conll:13", "2 columns where line 3 has 10", "mend the row"),
    ],
)
def test_bad_rows_are_named(tmp_path, text, column, place, message, mend):
    with pytest.raises(UserError) as caught:
        read(tmp_path, text, column)
    assert caught.value.where.endswith(place)
    assert re.search(message, caught.value.what) and mend in caught.value.mend


def test_no_files(tmp_path):
    with pytest.raises(UserError, match="no file of tagged words"):
        read_conll([])
    with pytest.raises(UserError, match="no such file"):
        read_conll([tmp_path / "none.conll"])
    fine, bare = written(tmp_path, "a O\n"), written(tmp_path, "\n", "b.conll")
    with pytest.raises(UserError, match=r"b\.conll: no tagged sentence"):
        read_conll([fine, bare])


def tagged(*tags: str) -> Tagged:
    rows = [list(one.split()) for one in tags]
    lines = [[10 * i + k for k in range(len(row))] for i, row in enumerate(rows)]
    return Tagged(rows, rows, [("f", line[0]) for line in lines], lines)


@pytest.mark.parametrize(
    ("tags", "place", "message"),
    [
        (("O B-x I-x I-x", "O O I-x"), "f:12", "'I-x' goes on .* after 'O'"),
        (("I-x", "O"), "f:0", "'I-x' goes on .* at the start of a sentence"),
        (("B-x I-y",), "f:1", "'I-y' goes on .* after 'B-x'"),
        (("B-x E-x I-x",), "f:2", "'I-x' goes on .* after 'E-x'"),
        (("S-x I-x", "I-y I-y"), "f:1", "after 'S-x', the first of 2 such tags"),
    ],
)
def test_spans_that_have_not_begun_are_named(tags, place, message):
    with pytest.raises(UserError, match=message) as caught:
        check_bio(tagged(*tags))
    assert caught.value.where == place
    assert "write 'B-" in caught.value.mend
    check_bio(tagged(*(" ".join(repaired(one.split())) for one in tags)))


@pytest.mark.parametrize(
    "tags", [("O O",), ("B-x I-x B-x O S-y B-y E-y",), ("NOUN X PROPN I",), ("-LRB- , I-x",)]
)
def test_spans_that_begin_and_other_tags_pass(tags):
    check_bio(tagged(*tags))


@pytest.mark.parametrize(
    ("name", "sentences", "words", "tags", "skipped"),
    [
        ("ud_english_ewt/en_ewt-ud-dev.conllu", 2_001, 25_147, 17, (359, 4)),
        ("ud_english_ewt/en_ewt-ud-test.conllu", 2_077, 25_094, 17, (354, 2)),
        ("wnut17_ner/wnut17train.conll", 3_394, 62_730, 13, (0, 0)),
        ("wnut17_ner/emerging.dev.conll", 1_009, 15_733, 13, (0, 0)),
        ("wnut17_ner/emerging.test.annotated", 1_287, 23_394, 13, (0, 0)),
    ],
)
def test_real_files(data_folder, name, sentences, words, tags, skipped):
    found = read_conll([data_folder / name])
    assert (len(found), sum(map(len, found.words)), len(found.names)) == (sentences, words, tags)
    assert tuple(found.skipped.get(kind, 0) for kind in ("multiword rows", "empty nodes")) == skipped
    check_bio(found)
