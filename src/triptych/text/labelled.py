"""Labelled texts, or pairs of texts, from files: tab-separated columns or JSON lines, plain or ``.gz``.

    a fine film<TAB>1     {"text": "a fine film", "label": 1}     {"premise": …, "hypothesis": …, "label": …}

Which columns or keys are read is the same for all files of a call. The rules, when it is not said:

- A file whose first line (its keys, in JSON) names the columns of one of ``KNOWN`` is read by these names.
- Else every line holds two columns, of which the label is the one with fewer different values and the last
  where they have as many; or three: two texts and a label.

All lines of a file have as many columns as the first; there is no quoting. White space around a label does
not count, texts stay as they are, blank lines are left out and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from triptych.errors import UserError, nearest
from triptych.text.characters import is_blank
from triptych.text.files import read_lines
from triptych.text.records import columns, field, is_json, kind_of, parse, shown, text_of

__all__ = ["Labelled", "read_labelled"]

KNOWN = (
    ("premise", "hypothesis", "label"),
    ("sentence1", "sentence2", "label"),
    ("text1", "text2", "label"),
    ("text_a", "text_b", "label"),
    ("question1", "question2", "label"),
    ("text", "label"),
    ("sentence", "label"),
)
FIELDS = "name them with data.fields, texts first and the label last, such as data.fields=[sentence,label]"
_APART = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
SURE = 10
"""Of fewer examples no first line is taken for a header that was not recognised."""


def in_order(labels: Iterable[str]) -> list[str]:
    """The different ones: numbers by value, others by name."""
    found = set(labels)
    whole = all(label.removeprefix("-").isdecimal() for label in found)
    return sorted(found, key=lambda label: (int(label) if whole else 0, label))


@dataclass(frozen=True)
class Labelled:
    """Texts and their labels.

    Attributes:
        texts: one or two texts an example, the same number in all.
        labels: one an example, without white space around it.
        origin: file and line (from 1) of each example.
        fields: what was read, as ``read_labelled`` takes it: other files can be read alike.
        blank: blank lines that were left out.
    """

    texts: list[tuple[str, ...]]
    labels: list[str]
    origin: list[tuple[str, int]]
    fields: tuple[str, ...] = ()
    blank: int = 0

    def __post_init__(self) -> None:
        assert len(self.texts) == len(self.labels) == len(self.origin)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def classes(self) -> list[str]:
        """The different labels: numbers by value, others by name."""
        return in_order(self.labels)

    def place(self, index: int) -> str:
        """``file:line`` of one example."""
        name, line = self.origin[index]
        return f"{name}:{line}"

    def select(self, indices: Sequence[int]) -> Labelled:
        """The examples at ``indices``, in that order."""
        return Labelled(
            [self.texts[i] for i in indices],
            [self.labels[i] for i in indices],
            [self.origin[i] for i in indices],
            self.fields,
        )


@dataclass(frozen=True)
class _Rows:
    """The cells of a file, before it is known which of them count."""

    file: Path
    lines: list[int]
    rows: list[dict[str, object]]
    blank: int
    header: bool

    def place(self, index: int) -> str:
        return f"{self.file}:{self.lines[index]}"


def read_labelled(files: Sequence[Path], fields: Sequence[str] = ()) -> Labelled:
    """Read files of labelled texts, one after the other.

    Args:
        files: at least one file; JSON by its name (``.jsonl``, ``.ndjson``, ``.json``), else columns.
        fields: the names of one or two texts and the label: keys, names in a file's first line, or numbers of
            columns from 1 in a file without such a line.

    Raises:
        UserError: a line that is no example, lines of different width, a column that is missing, an empty
            label, no example at all; each with file and line.
    """
    if not files:
        raise UserError("no file of labelled texts was named", "data.train", "name one or more files")
    if fields and len(fields) not in (2, 3):
        what = f"{len(fields)} field is named" if len(fields) == 1 else f"{len(fields)} fields are named"
        raise UserError(what, "data.fields", "name one or two texts and then the label")
    found = [_json(file) if is_json(file) else _table(file, fields) for file in files]
    chosen = tuple(fields) or _choose(found)
    out = Labelled([], [], [], chosen, sum(part.blank for part in found))
    for part in found:
        for i, row in enumerate(part.rows):
            where = part.place(i)
            *texts, label = (field(row, name, where, FIELDS) for name in chosen)
            named = zip(texts, chosen, strict=False)
            out.texts.append(tuple(text_of(text, name, where) for text, name in named))
            out.labels.append(_label(label, chosen[-1], where))
            out.origin.append((str(part.file), part.lines[i]))
    if not fields:
        _no_header(found, out)
    return out


def _json(file: Path) -> _Rows:
    lines = list(enumerate(read_lines(file), start=1))
    kept = [(number, line) for number, line in lines if not is_blank(line)]
    rows = [parse(line, f"{file}:{number}") for number, line in kept]
    return _some(_Rows(file, [number for number, _ in kept], rows, len(lines) - len(kept), True))


def _table(file: Path, fields: Sequence[str]) -> _Rows:
    """Columns by the names in the first line, or by number from 1."""
    lines = list(enumerate(read_lines(file), start=1))
    kept = [(number, line.split("\t")) for number, line in lines if not is_blank(line)]
    names = kept[0][1] if kept else []
    for number, cells in kept:
        if len(cells) != len(names):
            what = f"{columns(len(cells))} where line {kept[0][0]} has {len(names)}"
            mend = "a tab inside a text? write a blank for it; all lines have as many columns"
            raise UserError(what, f"{file}:{number}", mend)
    header = _header([name.strip() for name in names], fields, file)
    names = [name.strip() for name in names] if header else [str(n + 1) for n in range(len(names))]
    kept = kept[1:] if header else kept
    rows: list[dict[str, object]] = [dict(zip(names, cells, strict=True)) for _, cells in kept]
    return _some(_Rows(file, [number for number, _ in kept], rows, len(lines) - len(kept) - header, header))


def _header(names: list[str], fields: Sequence[str], file: Path) -> bool:
    """Whether a first line names the columns."""
    if not fields:
        return any(set(known) <= set(names) for known in KNOWN)
    if set(fields) <= set(names):
        return True
    if not all(name.isdecimal() for name in fields):
        missing = next(name for name in fields if name not in names)
        near = nearest(missing, names)
        said = f"did you mean {near[0]!r}? " if near else ""
        what = f"no column {missing!r}; the first line names {', '.join(map(shown, names))}"
        raise UserError(what, f"{file}:1", f"{said}without such a line, give numbers: data.fields=[1,2]")
    return False


def _some(rows: _Rows) -> _Rows:
    if not rows.rows:
        what = "no example stands here" if rows.blank or rows.header else "this file is empty"
        raise UserError(what, str(rows.file), "check that it was written or copied completely")
    return rows


def _choose(found: list[_Rows]) -> tuple[str, ...]:
    """The fields of all files, by the rules at the top."""
    if found[0].header:
        keys = found[0].rows[0]
        chosen = next((known for known in KNOWN if set(known) <= set(keys)), None)
        if chosen is None:
            what = f"no label and text of a known name; found {', '.join(map(repr, list(keys)[:20]))}"
            raise UserError(what, found[0].place(0), FIELDS)
        return chosen
    width = len(found[0].rows[0])
    if width == 2:
        values = [{row.get(name) for part in found for row in part.rows} for name in ("1", "2")]
        return ("2", "1") if len(values[0]) < len(values[1]) else ("1", "2")
    if width == 3:
        return ("1", "2", "3")
    text = next(iter(found[0].rows[0].values()))
    what = f"{columns(width)}; the first is {shown(str(text))}"
    if width > 3:
        raise UserError(f"{what}: which of them is the label is not known", found[0].place(0), FIELDS)
    mend = "write the text, a tab and its label on every line"
    if ".csv" in found[0].file.name.lower():
        mend = "CSV is not read: write it out with tabs between columns and no quoting"
    raise UserError(what, found[0].place(0), mend)


def _label(found: object, name: str, where: str) -> str:
    """A label as text: a whole number and true or false in JSON are written as JSON writes them."""
    if isinstance(found, bool):
        return str(found).lower()
    if not isinstance(found, int | str):
        what = f"the label, field {name!r}, is {kind_of(found)}"
        raise UserError(what, where, "write it as text or a whole number; drop examples without one")
    label = text_of(str(found), name, where).strip()
    if is_blank(label):
        raise UserError(f"the label, field {name!r}, is empty", where, "write it, or drop the line")
    check_label(label, where)
    return label


def check_label(label: str, where: str) -> None:
    """Refuse a name that cannot be written on a line."""
    if _APART.search(label):
        what = f"the label {shown(label)} holds a tab, a line end or another control character"
        raise UserError(what, where, "labels are written on lines, between tabs: give it another name")
    if label.encode("utf-8", "replace").decode() != label:
        raise UserError(f"the label {shown(label)} is not UTF-8", where, "give it another name")


def _no_header(found: list[_Rows], out: Labelled) -> None:
    """Refuse a first line that looks like a header of unknown names: its label is on no other line, and there
    are few labels."""
    times = Counter(out.labels)
    at = 0
    for part in found:
        label = out.labels[at]
        if not part.header and times[label] == 1 and len(out) >= SURE and len(times) <= len(out) // 4:
            row = ", ".join(shown(str(cell), 20) for cell in part.rows[0].values())
            what = f"this looks like a line of names ({row}): its label is on no other line"
            mend = f"if it is, {FIELDS}; if it is an example, data.fields=[{','.join(out.fields)}]"
            raise UserError(what, part.place(0), mend)
        at += len(part.rows)
