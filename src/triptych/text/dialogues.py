"""Instructions and conversations from files of JSON: a list of records, or a record a line, plain or ``.gz``.

    {"instruction": "Translate.", "input": "two cats", "output": "zwei Katzen"}               shape: alpaca
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}    messages

Records of one call have one shape. Keys that these shapes do not know are not read; which, is kept. Nothing
is trimmed. An assistant's turn may be empty: such conversations are listed, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, overload

from triptych.errors import UserError
from triptych.text.characters import is_blank
from triptych.text.files import read_lines
from triptych.text.records import field, kind_of, shown, text_of

__all__ = ["Dialogue", "Dialogues", "Shape", "read_dialogues"]

Shape = Literal["alpaca", "messages"]
ROLES = ("system", "user", "assistant")
KEYS: dict[Shape, tuple[str, ...]] = {"alpaca": ("instruction", "input", "output"), "messages": ("messages",)}
SHAPES = '{"instruction": …, "input": …, "output": …} or {"messages": [{"role": …, "content": …}, …]}'


@dataclass(frozen=True)
class Dialogue:
    """A conversation.

    Attributes:
        turns: role (system, user or assistant) and text of each.
        input: what the first user's turn is about, where it is given apart from it; "" is nothing.
    """

    turns: tuple[tuple[str, str], ...]
    input: str = ""


@dataclass(frozen=True)
class Dialogues(Sequence[Dialogue]):
    """Conversations and where each came from.

    Attributes:
        origin: file and line (from 1) where each record begins.
        shape: the shape of all records.
        ignored: keys that some records have and that were not read.
    """

    dialogues: list[Dialogue]
    origin: list[tuple[str, int]]
    shape: Shape
    ignored: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.dialogues)

    @overload
    def __getitem__(self, index: int) -> Dialogue: ...
    @overload
    def __getitem__(self, index: slice) -> list[Dialogue]: ...
    def __getitem__(self, index: int | slice) -> Dialogue | list[Dialogue]:
        return self.dialogues[index]

    @property
    def empty(self) -> list[int]:
        """Those with an assistant's turn that says nothing: learned from them is to end at once."""
        return [
            i
            for i, dialogue in enumerate(self.dialogues)
            if any(role == "assistant" and is_blank(text) for role, text in dialogue.turns)
        ]

    def place(self, index: int) -> str:
        """``file:line`` where a record begins."""
        name, line = self.origin[index]
        return f"{name}:{line}"

    def select(self, indices: Sequence[int]) -> Dialogues:
        """The conversations at ``indices``, in that order."""
        picked = [self.dialogues[i] for i in indices]
        return Dialogues(picked, [self.origin[i] for i in indices], self.shape, self.ignored)


def read_dialogues(files: Sequence[Path]) -> Dialogues:
    """Read files of conversations, one after the other.

    Raises:
        UserError: no JSON, a record of neither shape (it shows its keys), a missing text, an unknown role,
            nothing asked or nothing answered, two shapes, no record at all; each with file and line.
    """
    if not files:
        raise UserError("no file of conversations was named", "data.train", "name one or more files")
    found: list[Dialogue] = []
    origin: list[tuple[str, int]] = []
    ignored: dict[str, None] = {}
    shapes: dict[Shape, str] = {}
    for file in files:
        before = len(found)
        for line, record in _records(file):
            where = f"{file}:{line}"
            shape = _shape(record, where)
            assert isinstance(record, dict)
            shapes.setdefault(shape, where)
            if len(shapes) > 1:
                other = next(place for known, place in shapes.items() if known != shape)
                what = f"this record is of shape {shape}, the one at {other} is not"
                raise UserError(what, where, "bring all records into one shape")
            found.append((_alpaca if shape == "alpaca" else _messages)(record, where))
            origin.append((str(file), line))
            ignored.update(dict.fromkeys(key for key in record if key not in KEYS[shape]))
        if len(found) == before:
            raise UserError(
                "no record stands here", str(file), "check that it was written or copied completely"
            )
    return Dialogues(found, origin, next(iter(shapes)), tuple(ignored))


def _records(file: Path) -> Iterator[tuple[int, object]]:
    """Each value in a file, and the line where it begins: those of one list, or one after the other."""
    text = "\n".join(read_lines(file))
    at = _skip(text, 0)
    listed = text.startswith("[", at)
    at = _skip(text, at + listed)
    line, counted = 1, 0
    while at < len(text) and not (listed and text[at] == "]"):
        line, counted = line + text.count("\n", counted, at), at
        value, at = _value(text, at, f"{file}:{line}", file)
        yield line, value
        if listed and text.startswith(",", at):
            at = _skip(text, at + 1)
        elif listed and at < len(text) and text[at] != "]":
            raise _broken(file, text, at, "a comma is missing between two records")
    if listed and at >= len(text):
        raise _broken(file, text, at, "the list does not end")
    if listed and _skip(text, at + 1) < len(text):
        raise _broken(file, text, _skip(text, at + 1), "something stands after the end of the list")


def _value(text: str, at: int, where: str, file: Path) -> tuple[object, int]:
    """The value that begins there, and the place of what follows it."""
    try:
        value, at = json.JSONDecoder().raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _broken(file, text, error.pos, f"this is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets nested too deep
        raise UserError(f"this cannot be read as JSON: {error}", where, "simplify or drop it") from None
    return value, _skip(text, at)


def _broken(file: Path, text: str, at: int, what: str) -> UserError:
    line = text.count("\n", 0, at) + 1
    mend = "write a list of records, or a record a line without brackets around them"
    return UserError(what, f"{file}:{line}:{at - text.rfind(chr(10), 0, at)}", mend)


def _skip(text: str, at: int) -> int:
    """Past white space, as JSON has it."""
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _shape(record: object, where: str) -> Shape:
    if not isinstance(record, dict):
        raise UserError(f"this record is {kind_of(record)}, not an object", where, f"write {SHAPES}")
    for shape, (key, *_) in KEYS.items():
        if key in record:
            return shape
    keys = ", ".join(map(repr, list(record)[:8])) + (", …" if len(record) > 8 else "")
    what = f"this record has neither 'instruction' nor 'messages'; its first keys are {keys or 'none at all'}"
    raise UserError(what, where, f"write {SHAPES}")


def _alpaca(record: dict[str, object], where: str) -> Dialogue:
    mend = f"write {SHAPES}"
    instruction, output = (
        text_of(field(record, key, where, mend), key, where) for key in ("instruction", "output")
    )
    about = text_of(record.get("input", ""), "input", where)
    if is_blank(instruction) and is_blank(about):
        raise UserError("nothing is asked: instruction and input are empty", where, "write them, or drop it")
    return Dialogue((("user", instruction), ("assistant", output)), "" if is_blank(about) else about)


def _messages(record: dict[str, object], where: str) -> Dialogue:
    messages = record["messages"]
    if not isinstance(messages, list):
        raise UserError(f"'messages' is {kind_of(messages)}, not a list", where, f"write {SHAPES}")
    turns = tuple(_turn(message, n, where) for n, message in enumerate(messages, start=1))
    if not any(role == "assistant" for role, _ in turns):
        what = "no turn of an assistant, so nothing to learn" if turns else "a conversation without a turn"
        raise UserError(what, where, "write one, or drop the record")
    return Dialogue(turns)


def _turn(message: object, number: int, where: str) -> tuple[str, str]:
    if not isinstance(message, dict):
        what = f"message {number} is {kind_of(message)}, not an object"
        raise UserError(what, where, f"write {SHAPES}")
    mend = "write role and content of every message"
    role, content = (
        field(cast("dict[str, object]", message), key, where, mend) for key in ("role", "content")
    )
    if role not in ROLES:
        said = shown(role) if isinstance(role, str) else kind_of(role)
        raise UserError(f"message {number} has the role {said}", where, f"roles are {', '.join(ROLES)}")
    return str(role), text_of(content, "content", where)
