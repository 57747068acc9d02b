"""Pairs from TSV, JSON lines and two aligned files: nothing lost, every refusal named."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text.alignment import find_divergence
from triptych.text.files import read_lines
from triptych.text.pairs import Pairs, read_aligned, read_pairs

FIELD = st.text(st.characters(exclude_characters="\t\n\r\ufeff", exclude_categories=["Cs"]))
VISIBLE = FIELD.map(lambda text: f"x{text}")


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def refusal(read, *args, **options) -> UserError:
    with pytest.raises(UserError) as error:
        read(*args, **options)
    return error.value


@pytest.mark.parametrize("name", ["p.tsv", "p.txt", "p", "p.jsonl", "p.json", "p.tsv.gz", "p.jsonl.gz"])
@given(pairs=st.lists(st.tuples(VISIBLE, FIELD), min_size=1), extra=st.booleans())
def test_every_format_gives_the_same_pairs(tmp_path_factory, name, pairs, extra):
    folder = tmp_path_factory.mktemp("pairs")
    if "json" in name:
        text = "".join(json.dumps({"target": t, "id": 3, "source": s}) + "\n" for s, t in pairs)
    else:
        more = "\tCC-BY\t#3" if extra else ""
        text = "".join(f"{s}\t{t}{more}\n" for s, t in pairs)
    path = write(folder, name, text)
    found = read_pairs([path])
    assert list(zip(found.source, found.target, strict=True)) == pairs
    assert found.origin == [(str(path), line) for line in range(1, len(pairs) + 1)]
    assert len(found) == len(pairs)


@given(st.lists(st.tuples(FIELD, FIELD), min_size=1).filter(lambda pairs: any(s.strip() for s, _ in pairs)))
def test_aligned_files_keep_blank_lines_in_place(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("aligned")
    pairs = [("first", "first"), *pairs]
    source = write(folder, "a.en", "".join(s + "\n" for s, _ in pairs))
    target = write(folder, "a.de.gz", "".join(t + "\n" for _, t in pairs))
    found = read_aligned(source, target)
    assert list(zip(found.source, found.target, strict=True)) == pairs


def test_quotes_are_characters_and_blank_lines_are_empty_pairs(tmp_path):
    path = write(tmp_path, "p.tsv", '"Hi" he said.\t"Salut."\n\na\tb\tc\n\t\n  \nlast\t\n')
    found = read_pairs([path])
    assert found.source == ['"Hi" he said.', "", "a", "", "  ", "last"]
    assert found.target == ['"Salut."', "", "b", "", "", ""]
    assert found.place(5) == f"{path}:6"
    assert found.select([2, 0]) == Pairs(
        ["a", '"Hi" he said.'], ["b", '"Salut."'], [(str(path), 3), (str(path), 1)]
    )
    blank_json = write(tmp_path, "p.jsonl", '{"source": "a", "target": "b"}\n\n')
    assert read_pairs([blank_json]).source == ["a", ""]


def test_several_files_follow_each_other(tmp_path):
    first = write(tmp_path, "a.tsv", "1\tone\n")
    second = write(tmp_path, "b.jsonl", '{"en": "2", "translation": {"fr": "deux"}}\n')
    found = read_pairs([first, second], fields=("en", "translation.fr"))
    assert (found.source, found.target) == (["1", "2"], ["one", "deux"])
    assert found.origin == [(str(first), 1), (str(second), 1)]


def test_a_line_with_one_column_is_named(tmp_path):
    path = write(tmp_path, "p.tsv", "a\tb\nno tab here\n\nc\td\nnor here\n")
    error = refusal(read_pairs, [path])
    assert error.where == f"{path}:2"
    assert "2 of 5 lines" in error.what and "'no tab here'" in error.what


def test_two_aligned_files_passed_as_pairs_are_recognised(tmp_path):
    source, target = write(tmp_path, "a.en", "One.\nTwo.\n"), write(tmp_path, "a.de", "Eins.\nZwei.\n")
    error = refusal(read_pairs, [source, target])
    assert "two line-aligned files" in error.mend and str(source) in error.mend and str(target) in error.mend
    # Not with one file, nor when the other is a file of pairs.
    assert "aligned" not in refusal(read_pairs, [source]).mend
    tsv = write(tmp_path, "c.tsv", "a\tb\n")
    assert "aligned" not in refusal(read_pairs, [tsv, source]).mend
    assert "aligned" not in refusal(read_pairs, [source, tmp_path / "none"]).mend


@pytest.mark.parametrize(
    ("name", "line", "hint"),
    [("a.txt", "Hi ||| Salut", "|||"), ("a.txt", '{"source": "a"}', ".jsonl"), ("a.csv", '"a","b"', "CSV")],
)
def test_other_formats_get_a_fitting_mend(tmp_path, name, line, hint):
    assert hint in refusal(read_pairs, [write(tmp_path, name, line + "\n")]).mend


@pytest.mark.parametrize("text", ["", "\ufeff"])
def test_empty_files(tmp_path, text):
    empty, full = write(tmp_path, "e", text), write(tmp_path, "f", "x\n")
    for read, args in (read_pairs, [[empty]]), (read_aligned, [empty, full]), (read_aligned, [full, empty]):
        error = refusal(read, *args)
        assert "empty" in error.what and error.where == str(empty)
    assert "no file" in refusal(read_pairs, []).what


def test_files_of_blanks(tmp_path):
    blanks, full = write(tmp_path, "b", "\n \t\u200b\n\n"), write(tmp_path, "f", "x\ny\nz\n")
    for read, args in (
        (read_pairs, [[blanks]]),
        (read_aligned, [blanks, full]),
        (read_aligned, [full, blanks]),
    ):
        error = refusal(read, *args)
        assert "blank" in error.what and error.where == str(blanks)


def test_json_refusals_name_the_place(tmp_path):
    good = '{"source": "a", "target": "b"}\n'

    def second(line: str, **options) -> UserError:
        error = refusal(read_pairs, [write(tmp_path, "p.jsonl", good + line + "\n")], **options)
        assert error.where.startswith(f"{tmp_path / 'p.jsonl'}:2")
        assert error.mend
        return error

    assert second('{"source": "a", "target" "b"}').where.endswith(":2:26")
    assert "list" in second('[{"source": "a"}]').what
    assert "a number" in second("3").what
    missing = second('{"source": "a", "tgt": "b", "target_": 1}')
    assert "'target'" in missing.what and "'tgt'" in missing.what and "'target_'" in missing.mend
    assert "none at all" in second("{}").what
    assert "a number" in second('{"source": 3, "target": "b"}').what
    assert "null" in second('{"source": "a", "target": null}').what
    assert "surrogate" in second('{"source": "\\ud83d", "target": "b"}').what
    second('{"source": ' + "9" * 5000 + "}")
    second("[" * 100_000)
    second("nan")


def test_json_fields_by_name_and_path(tmp_path):
    path = write(tmp_path, "p.jsonl", '{"en.x": "dotted", "t": {"en": "a", "zh": "b"}}\n')
    assert read_pairs([path], fields=("t.en", "t.zh")).target == ["b"]
    assert read_pairs([path], fields=("en.x", "t.zh")).source == ["dotted"]
    error = refusal(read_pairs, [path], fields=("t.en", "t.cn"))
    assert "'t.zh'" in error.what
    # An emoji written as a surrogate pair is one character.
    emoji = write(tmp_path, "e.jsonl", '{"source": "\\ud83d\\ude00", "target": "b"}\n')
    assert read_pairs([emoji]).source == ["😀"]


# ---- where two files part ------------------------------------------------------------------------


def made_up(seed: int, lines: int = 400) -> tuple[list[str], list[str]]:
    """Lines and "translations": word for word, with a word left out now and then, numbers kept."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 9))) for _ in range(200)]
    longer = {word: max(2, len(word) + draw.randint(-1, 2)) for word in words}
    other = {word: "".join(draw.choices("klmnopqrst", k=length)) for word, length in longer.items()}
    source, target = [], []
    for _ in range(lines):
        sentence = draw.choices(words, k=draw.randint(3, 25))
        if draw.random() < 0.2:
            sentence.append(str(draw.randint(1, 2000)))
        source.append(" ".join(sentence))
        target.append(" ".join(other.get(word, word) for word in sentence if draw.random() < 0.93))
    return source, target


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("missing", [1, 7])
def test_the_break_is_found(seed, missing):
    source, target = made_up(seed)
    at = random.Random(seed).randint(30, 350)
    shorter = target[:at] + target[at + missing :]
    for guess in (find_divergence(source, shorter), find_divergence(shorter, source)):
        assert guess.confident and not guess.several
        assert abs(guess.aligned - at) <= 5
        assert guess.low - 1 <= at <= guess.high + 1
        assert guess.high - guess.low <= 20


@pytest.mark.parametrize("seed", range(6))
def test_of_several_breaks_the_first_is_given(seed):
    source, target = made_up(seed, lines=900)
    guess = find_divergence(source, target[:200] + target[201:600] + target[603:])
    assert guess.confident and guess.several
    assert abs(guess.aligned - 200) <= 15


def test_a_longer_file_that_only_goes_on():
    source, target = made_up(1)
    guess = find_divergence(source, target[:-30])
    assert guess.high == len(target) - 30 and guess.low >= len(target) - 35


@pytest.mark.parametrize("at", [3, 395])
def test_a_break_close_to_an_end(at):
    source, target = made_up(5)
    guess = find_divergence(source, target[:at] + target[at + 1 :])
    assert guess.confident and abs(guess.aligned - at) <= 5


def test_no_guess_is_claimed_where_nothing_tells():
    source, target = made_up(2)
    random.Random(3).shuffle(target)
    assert not find_divergence(source, target[:-10]).confident
    assert not find_divergence(["same length"] * 50, ["same length"] * 49).confident


def test_unequal_files_are_refused_with_counts_place_and_suspect(tmp_path):
    source, target = made_up(4)
    source[120] = ""  # a blank line kept here and dropped there
    target = target[:120] + target[121:]
    en = write(tmp_path, "t.en", "".join(line + "\n" for line in source))
    de = write(tmp_path, "t.de", "".join(line + "\n" for line in target))
    error = refusal(read_aligned, en, de)
    assert f"{en} has 400" in error.what and f"{de} has 399" in error.what
    assert "look aligned up to about line 12" in error.what
    assert "suspect: line 121 is the first that is blank in one file only" in error.what
    assert "account for the whole difference" in error.what
    assert repr(target[120][:50])[1:-1] in error.what  # the lines around are shown
    assert error.where.startswith(f"{en}:12")


@pytest.mark.parametrize(("left", "right"), [(["a"], ["a", "b"]), (["a", "b", "c"], ["a"]), ([""], ["", ""])])
def test_tiny_unequal_files(tmp_path, left, right):
    a, b = (write(tmp_path, n, "".join(line + "\n" for line in ls)) for n, ls in (("a", left), ("b", right)))
    assert "same number of lines" in refusal(read_aligned, a, b).what


# ---- real data ------------------------------------------------------------------------------------


def test_tatoeba(data_folder):
    found = read_pairs([data_folder / "tatoeba_eng_cmn" / "cmn.txt"])
    assert len(found) == 28_447
    assert len(set(found.source)) == 27_056 and len(set(found.target)) == 25_287
    assert sum(text.startswith('"') for text in found.source) == 80
    assert sum(text.startswith('"') for text in found.target) == 17
    assert not any("CC-BY" in text for text in found.target)
    assert len(read_pairs([data_folder / "tatoeba_eng_cmn" / "cmn_2col_older.txt"])) == 20_403
    assert len(read_pairs([data_folder / "tatoeba_eng_fra" / "fra.txt.gz"])) > 160_000


@pytest.mark.parametrize(
    ("source", "target", "lines"),
    [
        ("lowres_eng_yor/train.en", "lowres_eng_yor/train.yor", 6_644),
        ("lowres_spa_aym/dev.es", "lowres_spa_aym/dev.aym", 996),
        ("floresv1_si_en/dev.si-en.si", "floresv1_si_en/dev.si-en.en", 2_898),
    ],
)
def test_aligned_real_files(data_folder, source, target, lines):
    found = read_aligned(data_folder / source, data_folder / target)
    assert len(found) == lines
    if "dev.es" in source:
        assert found.source[249].strip() == "" and found.source[749].strip() == ""


def test_the_break_is_found_in_real_files(data_folder):
    source = read_lines(data_folder / "lowres_spa_aym" / "train.es")
    target = read_lines(data_folder / "lowres_spa_aym" / "train.aym")
    for at in (700, 3_000, 6_000):
        guess = find_divergence(source, target[:at] + target[at + 1 :])
        assert guess.confident and abs(guess.aligned - at) <= 10
