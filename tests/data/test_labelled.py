"""Labelled texts: which column is what, by stated rules; nothing lost; and what is no example is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text.labelled import Labelled, read_labelled

CELL = st.text(st.sampled_from("ab é字\"'\r\u2028\x0c ")).map(lambda text: text + "x")


def written(folder: Path, text: str, name: str = "a.tsv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def read(folder: Path, text: str, *fields: str, name: str = "a.tsv") -> Labelled:
    return read_labelled([written(folder, text, name)], fields)


def records(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@given(
    rows=st.lists(st.tuples(CELL, CELL, st.sampled_from("pq")), min_size=1, max_size=9),
    pairs=st.booleans(),
    header=st.booleans(),
    packed=st.booleans(),
)
def test_every_example_comes_back(tmp_path_factory, rows, pairs, header, packed):
    folder = tmp_path_factory.mktemp("labelled")
    cells = [(a, b, label) if pairs else (a, label) for a, b, label in rows]
    names = (("premise", "hypothesis", "label") if pairs else ("sentence", "label"),) if header else ()
    text = "\n".join("\t".join(row) for row in (*names, *cells))
    fields = () if header or pairs else ("1", "2")
    found = read(folder, text, *fields, name="a.tsv.gz" if packed else "a.tsv")
    assert [(*texts, label) for texts, label in zip(found.texts, found.labels, strict=True)] == cells
    assert found.origin == [(found.origin[0][0], n + 1 + header) for n in range(len(rows))]
    again = read_labelled([Path(found.origin[0][0])], found.fields)
    assert again == found
    keys = ("premise", "hypothesis", "label") if pairs else ("text", "label")
    lines = records(*(dict(zip(keys, row, strict=True)) for row in cells))
    assert read(folder, lines, name="b.jsonl").texts == found.texts


def test_the_label_is_the_column_of_fewer_values(tmp_path):
    texts = [f"text {n}" for n in range(6)]
    last = "".join(f"{text}\t{n % 2}\n" for n, text in enumerate(texts))
    first = "".join(f"{n % 2}\t{text}\n" for n, text in enumerate(texts))
    for data, fields in ((last, ("1", "2")), (first, ("2", "1"))):
        found = read(tmp_path, data)
        assert found.fields == fields
        assert found.texts == [(text,) for text in texts]
        assert found.labels == list("010101")
    assert read(tmp_path, "a\tb\nc\td\n").labels == ["b", "d"], "as many: the last"
    # All files of a call are read alike, and others can be.
    few = written(tmp_path, "1\tone\n0\ttwo\n", "few.tsv")
    assert read_labelled([few]).labels == ["one", "two"]
    assert read_labelled([few, written(tmp_path, first)]).labels == ["1", "0", *"010101"]
    assert read_labelled([few], ("2", "1")).labels == ["1", "0"]


def test_columns_are_read_by_name(tmp_path):
    data = "id\tsentence2\tlabel\tsentence1\n7\tb\tyes\ta\n8\td\tno\tc\n"
    assert read(tmp_path, data).texts == [("a", "b"), ("c", "d")]
    found = read(tmp_path, data, "id", "label")
    assert (found.texts, found.labels) == ([("7",), ("8",)], ["yes", "no"])
    assert found.place(1).endswith("a.tsv:3")
    numbers = read(tmp_path, "a\tx\tb\ty\n" * 2, "3", "1", "2")
    assert (numbers.texts, numbers.labels) == ([("b", "a")] * 2, ["x", "x"])


def test_json_fields(tmp_path):
    rows = [
        {"sentence1": "a", "sentence2": "b", "label": 1},
        {"sentence1": "c", "sentence2": "", "label": True},
    ]
    found = read(tmp_path, records(*rows) + "\n\n", name="a.jsonl")
    assert found.texts == [("a", "b"), ("c", "")]
    assert (found.labels, found.blank) == (["1", "true"], 2)
    nested = read(tmp_path, records({"x": {"t": "deep"}, "y": "k"}), "x.t", "y", name="b.json")
    assert (nested.texts, nested.labels) == ([("deep",)], ["k"])


def test_blank_lines_labels_and_classes(tmp_path):
    found = read(tmp_path, "\na\t 10 \n \t \nb\t9\n\tc\n", "1", "2")
    assert (found.labels, found.blank) == (["10", "9", "c"], 2)
    assert found.texts[2] == ("",), "an empty text is an example"
    assert found.classes == ["10", "9", "c"]
    assert found.select([0, 1]).classes == ["9", "10"]
    assert found.select([2, 0]).origin == [found.origin[2], found.origin[0]]


MANY = "".join(f"text {n}\t{n % 2}\n" for n in range(12))


@pytest.mark.parametrize(
    ("text", "fields", "place", "message", "mend"),
    [
        ("", (), "a.tsv", "empty", "copied"),
        ("\n \n", (), "a.tsv", "no example", "copied"),
        ("text\tlabel\n", (), "a.tsv", "no example", "copied"),
        ("only text\n", (), "a.tsv:1", "one column; the first is 'only text'", "a tab and its label"),
        ("a\tb\tc\td\n", (), "a.tsv:1", "4 columns; .*which of them is the label", "data.fields"),
        ("a\t1\nb\t\t2\n", (), "a.tsv:2", "3 columns where line 1 has 2", "a tab inside a text"),
        ("\na\t1\nb\n", (), "a.tsv:3", "one column where line 2 has 2", "as many columns"),
        ("text\tlabel\na\t1\tx\n", (), "a.tsv:2", "3 columns where line 1 has 2", "as many columns"),
        ("a\t1\nb\t\n", ("1", "2"), "a.tsv:2", "label, field '2', is empty", "write it, or drop"),
        ("text\tlabel\na\t1\nb\t \n", (), "a.tsv:3", "label, field 'label', is empty", "write it, or drop"),
        ("text\tlabel\na\t1\n", ("text", "lable"), "a.tsv:1", "no column 'lable'", "did you mean 'label'"),
        ("a\t1\n", ("text", "label"), "a.tsv:1", "no column 'text'", r"data.fields=\[1,2\]"),
        ("a\t1\n", ("1", "3"), "a.tsv:1", "no field '3'", "data.fields"),
        ("a\t1\n", ("label",), "data.fields", "1 field is named", "one or two texts"),
        ("a\t1\n", tuple("abcd"), "data.fields", "4 fields are named", "one or two texts"),
        ("review\tmood\n" + MANY, (), "a.tsv:1", "looks like a line of names .'review', 'mood'", r"\[1,2\]"),
    ],
)
def test_bad_columns_are_named(tmp_path, text, fields, place, message, mend):
    with pytest.raises(UserError) as caught:
        read(tmp_path, text, *fields)
    assert caught.value.where.endswith(place)
    assert _matches(caught.value, message, mend)


def _matches(error: UserError, message: str, mend: str) -> bool:
    import re

    assert re.search(message, error.what), error.what
    assert re.search(mend, error.mend), error.mend
    return True


def test_labels_that_no_line_can_hold(tmp_path):
    for label in ("a\tb", "a\nb", "a\u2028b", "a\rb", "\x1b[31mred", "a\0b"):
        with pytest.raises(UserError, match="a tab, a line end") as caught:
            read(tmp_path, records({"text": "x", "label": label}), name="a.jsonl")
        assert caught.value.where.endswith(":1")


def test_a_header_of_unknown_names_can_be_an_example(tmp_path):
    found = read(tmp_path, "review\tmood\n" + MANY, "1", "2")
    assert (found.texts[0], found.labels[0]) == (("review",), "mood")
    named = read(tmp_path, "review\tmood\n" + MANY, "review", "mood")
    assert len(named) == 12
    rare = MANY.replace("text 3\t1", "text 3\tmood")
    assert len(read(tmp_path, rare)) == 12, "elsewhere than in the first line it is a rare class"


@pytest.mark.parametrize(
    ("line", "place", "message", "mend"),
    [
        ('{"text": "b"}', ":2", "no field 'label'; found 'text'", "data.fields"),
        ('{"text": "b", "label": null}', ":2", "label, field 'label', is null", "drop examples without one"),
        ('{"text": "b", "label": 0.5}', ":2", "label, field 'label', is a number", "whole number"),
        ('{"text": "b", "label": ""}', ":2", "label, field 'label', is empty", "write it"),
        ('{"text": 5, "label": "x"}', ":2", "field 'text' is a number, not text", "string"),
        ('{"text": "b" "label"}', ":2:14", "this line is not JSON", "one JSON object a line"),
        ("[1, 2]", ":2", "a JSON list", "jq"),
    ],
)
def test_bad_records_are_named(tmp_path, line, place, message, mend):
    with pytest.raises(UserError) as caught:
        read(tmp_path, '{"text": "a", "label": "x"}\n' + line, name="a.jsonl")
    assert caught.value.where.endswith(f"a.jsonl{place}")
    assert _matches(caught.value, message, mend)


def test_unknown_keys_and_no_files(tmp_path):
    with pytest.raises(UserError, match="no label and text of a known name; found 'body', 'stars'") as caught:
        read(tmp_path, records({"body": "x", "stars": 1}), name="a.jsonl")
    assert "data.fields" in caught.value.mend
    with pytest.raises(UserError, match="CSV is not read"):
        read(tmp_path, "a,1\nb,2\n", name="a.csv")
    with pytest.raises(UserError, match="no file of labelled texts"):
        read_labelled([])
    with pytest.raises(UserError, match="no such file"):
        read_labelled([tmp_path / "none.tsv"])
    pairs = written(tmp_path, "a\tb\t1\n", "pairs.tsv")
    with pytest.raises(UserError, match=r"pairs.tsv:1|no field"):
        read_labelled([written(tmp_path, "text\tlabel\na\t1\n"), pairs])


@pytest.mark.parametrize(
    ("name", "count", "positive"), [("train", 6_920, 3_610), ("dev", 872, 444), ("test", 1_821, 909)]
)
def test_real_labels(data_folder, name, count, positive):
    found = read_labelled([data_folder / "sst2_binary" / f"{name}.tsv"])
    assert (len(found), found.labels.count("1"), found.classes) == (count, positive, ["0", "1"])
    assert found.blank == 0
