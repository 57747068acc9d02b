"""Conversations: every record with its line, both shapes, and what cannot be one named by file and line."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text.dialogues import Dialogue, Dialogues, read_dialogues

TEXT = st.text(st.sampled_from('ab é字😀\n\r"[]{},\u2028'), min_size=1).map(lambda text: text + "x")
ALPACA = st.fixed_dictionaries(
    {"instruction": TEXT, "output": TEXT}, optional={"input": TEXT | st.just(""), "chosen": st.just([1])}
)
MESSAGES = st.lists(st.tuples(st.sampled_from(["system", "user"]), TEXT)).map(
    lambda turns: {
        "messages": [{"role": role, "content": text} for role, text in [*turns, ("assistant", "ok")]]
    }
)


def written(folder: Path, text: str, name: str = "a.json") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def read(folder: Path, text: str, name: str = "a.json") -> Dialogues:
    return read_dialogues([written(folder, text, name)])


@given(
    records=st.lists(ALPACA, min_size=1, max_size=5) | st.lists(MESSAGES, min_size=1, max_size=5),
    layout=st.sampled_from(["list", "indented", "lines", "objects"]),
    packed=st.booleans(),
    space=st.sampled_from(["", "\n", " \n\t"]),
)
def test_every_record_comes_back_with_its_line(tmp_path_factory, records, layout, packed, space):
    indent = 2 if layout in ("indented", "objects") else None
    text = json.dumps(records, indent=indent, ensure_ascii=packed)
    if layout in ("lines", "objects"):
        text = "\n".join(json.dumps(record, indent=indent) for record in records)
    text = space + text + space
    found = read(tmp_path_factory.mktemp("talk"), text, "a.json.gz" if packed else "a.json")
    assert len(found) == len(records) and list(found) == found[:]
    lines = text.split("\n")
    for i, record in enumerate(records):
        line = lines[int(found.place(i).rsplit(":", 1)[1]) - 1]
        assert line.lstrip(" \t[").startswith("{") if layout != "list" else True
        if found.shape == "messages":
            assert found[i].turns == tuple((m["role"], m["content"]) for m in record["messages"])
            continue
        assert found[i].turns == (("user", record["instruction"]), ("assistant", record["output"]))
        assert found[i].input == record.get("input", "")
        assert ("chosen" in found.ignored) == any("chosen" in other for other in records)
    if layout == "lines":
        start = space.count("\n")
        assert [line for _, line in found.origin] == [start + n + 1 for n in range(len(records))]
    if layout == "objects":
        assert [lines[line - 1].strip(" \t") for _, line in found.origin] == ["{"] * len(records)


def record(**more: Any) -> str:
    return json.dumps({"instruction": "a", "input": "", "output": "b", **more})


def message(*messages: Any, **more: Any) -> str:
    return json.dumps({"messages": list(messages), **more})


def said(role: Any, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def test_empty_answers_are_kept_and_listed(tmp_path):
    found = read(tmp_path, "\n".join([record(), record(output=""), record(output=" \n"), record()]))
    assert (len(found), found.empty) == (4, [1, 2])
    assert found[1] == Dialogue((("user", "a"), ("assistant", "")))
    assert found.select([1]).empty == [0] and found.select([3, 1]).origin == [
        found.origin[3],
        found.origin[1],
    ]


ANSWER = said("assistant", "b")


@pytest.mark.parametrize(
    ("text", "place", "message", "mend"),
    [
        ("", "a.json", "no record", "copied"),
        ("[]", "a.json", "no record", "copied"),
        ("\n \n", "a.json", "no record", "copied"),
        (
            '{"conversations": [], "id": 1}',
            "a.json:1",
            "neither 'instruction' nor 'messages'; its first keys are 'conversations', 'id'",
            '"instruction"',
        ),
        (json.dumps({f"k{n}": 1 for n in range(20)}), "a.json:1", "keys are 'k0', .*'k7', …$", "messages"),
        ("{}", "a.json:1", "keys are none at all", "messages"),
        ("[\n" + record() + ",\n 3]", "a.json:3", "this record is a number", "messages"),
        (record() + "\n" + json.dumps({"instruction": "a", "response": "b"}), "a.json:2",
         "no field 'output'; found 'instruction', 'response'", "write"),
        (record(output=None), "a.json:1", "field 'output' is null, not text", "string"),
        (record(input=["x"]), "a.json:1", "field 'input' is a list, not text", "string"),
        (record(output="\ud83d"), "a.json:1", "surrogate", "both halves"),
        (record(instruction=" ", input="\n"), "a.json:1", "nothing is asked", "drop it"),
        (record() + "\n\n" + message(ANSWER), "a.json:3", "of shape messages, the one at .*a.json:1 is not",
         "one shape"),
        (message(said("user", "a"), said("tool", "b")), "a.json:1", "message 2 has the role 'tool'",
         "system, user, assistant"),
        (message(said(3, "a")), "a.json:1", "message 1 has the role a number", "system, user, assistant"),
        (message({"from": "human", "value": "a"}), "a.json:1", "no field 'role'; found 'from'", "role"),
        (message(said("user", [1])), "a.json:1", "field 'content' is a list, not text", "string"),
        (message("hello"), "a.json:1", "message 1 is text, not an object", "messages"),
        ('{"messages": "hello"}', "a.json:1", "'messages' is text, not a list", "messages"),
        (message(), "a.json:1", "without a turn", "drop"),
        (message(said("user", "a")), "a.json:1", "no turn of an assistant", "drop"),
        (record() + "\n{'instruction'}", "a.json:2:2", "this is not JSON", "a record a line"),
        ("instruction: x", "a.json:1:1", "this is not JSON", "a record a line"),
        (record()[:-3], "a.json:1:", "this is not JSON", "a record a line"),
        ("[" + record(), "a.json:1:", "the list does not end", "list of records"),
        ("[\n" + record() + ",", "a.json:2:", "the list does not end", "list of records"),
        ("[\n" + record() + "\n" + record() + "]", "a.json:3:1", "a comma is missing", "list of records"),
        ("[" + record() + "]\n[" + record() + "]", "a.json:2:1", "after the end of the list", "without"),
        ("[" * 100_000, "a.json:1", "cannot be read as JSON", "simplify"),
        ('{"instruction": ' + "9" * 5_000 + "}", "a.json:1", "cannot be read as JSON", "simplify"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)  # fmt: skip
def test_what_is_no_conversation_is_named(tmp_path, text, place, message, mend):
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    assert place in caught.value.where and caught.value.where.startswith(str(tmp_path / "a.json"))
    assert re.search(message, caught.value.what), caught.value.what
    assert mend in caught.value.mend


def test_several_files(tmp_path):
    one, two = written(tmp_path, record(), "1.json"), written(tmp_path, record(x=1) + record(), "2.jsonl")
    found = read_dialogues([one, two])
    assert found.origin == [(str(one), 1), (str(two), 1), (str(two), 1)]
    assert found.ignored == ("x",)
    with pytest.raises(UserError, match="no file of conversations"):
        read_dialogues([])
    with pytest.raises(UserError, match=r"3\.json: no record"):
        read_dialogues([one, written(tmp_path, "[]", "3.json")])
    with pytest.raises(UserError, match="no such file"):
        read_dialogues([tmp_path / "none.json"])


@pytest.mark.parametrize(
    ("name", "records", "without"),
    [
        ("sft_alpaca_demo/alpaca_en_demo.json", 999, 587),
        ("sft_alpaca_demo/alpaca_zh_demo.json", 1_000, 861),
        ("sft_alpaca_demo/identity.json", 91, 91),
        ("sft_instruction_en/instruction-data.json", 1_100, 775),
        ("sft_instruction_en/instruction-data-with-preference.json", 1_100, 775),
    ],
)
def test_real_files(data_folder, name, records, without):
    found = read_dialogues([data_folder / name])
    assert (len(found), sum(not dialogue.input for dialogue in found)) == (records, without)
    assert found.shape == "alpaca" and not found.empty
    assert set(found.ignored) == ({"chosen", "rejected"} if "preference" in name else set())
