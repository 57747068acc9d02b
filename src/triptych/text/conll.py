"""Tagged words from files: a word and its tags a line in columns, a blank line between sentences.

    From       O            2  From  from  ADP  IN  …        ← CoNLL-U: ten columns, the second is the word,
    Green      O            3  the   the   DET  DT  …           the fourth the tag (UPOS)
    Newsfeed   B-group
                            any other: the first column is the word, the last the tag

The rules:

- Columns are parted by tabs where the first row has one, else by blanks; all rows have as many.
- A file is CoNLL-U when its name says ``.conllu``, or its first row has ten columns by tabs and begins with
  the number of a word. There, lines that begin with ``#`` are comments, ``3-4`` (what two words are written
  as together) and ``8.1`` (a word that is not written) are no words: they are counted, not read.
- A line of white space parts sentences, too. A sentence that is ``-DOCSTART-`` is a mark, counted, not read.

CoNLL-U: universaldependencies.org/format. CoNLL-2003: Tjong Kim Sang and De Meulder 2003.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from triptych.errors import UserError
from triptych.text.bio import is_bio, parts
from triptych.text.characters import is_blank
from triptych.text.files import read_lines
from triptych.text.records import columns, shown, suffix

__all__ = ["Tagged", "check_bio", "read_conll"]

WIDTH = 10
"""Columns of CoNLL-U."""
_ID = re.compile(r"\d+(-\d+|\.\d+)?")
_BLANKS = re.compile(" +")
_MARKS = {"-DOCSTART-": "document marks"}


@dataclass(frozen=True)
class Tagged:
    """Sentences of words and their tags.

    Attributes:
        words, tags: one tag a word.
        origin: file and line (from 1) of each sentence's first word.
        lines: the line of each word.
        skipped: how many rows of each kind were not read, by the rules at the top.
    """

    words: list[list[str]]
    tags: list[list[str]]
    origin: list[tuple[str, int]]
    lines: list[list[int]]
    skipped: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert len(self.words) == len(self.tags) == len(self.origin) == len(self.lines)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def names(self) -> list[str]:
        """The different tags, by name."""
        return sorted({tag for tags in self.tags for tag in tags})

    def place(self, index: int, word: int = 0) -> str:
        """``file:line`` of a sentence, or of one of its words."""
        return f"{self.origin[index][0]}:{self.lines[index][word]}"

    def select(self, indices: Sequence[int]) -> Tagged:
        """The sentences at ``indices``, in that order."""
        return Tagged(
            [self.words[i] for i in indices],
            [self.tags[i] for i in indices],
            [self.origin[i] for i in indices],
            [self.lines[i] for i in indices],
        )


def read_conll(files: Sequence[Path], column: int | None = None) -> Tagged:
    """Read files of tagged words, one after the other.

    Args:
        files: at least one file, plain or ``.gz``.
        column: the column of the tags, from 1, or from the end (-1 is the last).

    Raises:
        UserError: rows of different width, no word, no tag, no such column, no sentence; by file, line.
    """
    if not files:
        raise UserError("no file of tagged words was named", "data.train", "name one or more files")
    found = Tagged([], [], [], [])
    skipped: Counter[str] = Counter()
    for file in files:
        before = len(found)
        _read(file, column, found, skipped)
        if len(found) == before:
            what = "no tagged sentence stands here"
            raise UserError(what, str(file), "check that it was written or copied completely")
    return Tagged(found.words, found.tags, found.origin, found.lines, dict(skipped))


def check_bio(tagged: Tagged) -> None:
    """Refuse tags that mark spans, where one goes on that has not begun: ``I-X`` after ``O`` or another type.

    Tags that are not BIO, such as parts of speech, are left alone. ``triptych.text.bio`` reads such spans all
    the same, and repairs them.

    Raises:
        UserError: the first such tag, by file and line, and how many there are.
    """
    if not is_bio({tag for tags in tagged.tags for tag in tags}):
        return
    wrong = [(i, k) for i, tags in enumerate(tagged.tags) for k in _unbegun(tags)]
    if wrong:
        (i, k), count = wrong[0], len(wrong)
        tag, kind = tagged.tags[i][k], parts(tagged.tags[i][k])[1]
        before = f"after {tagged.tags[i][k - 1]!r}" if k else "at the start of a sentence"
        more = f", the first of {count:,} such tags" if count > 1 else ""
        raise UserError(
            f"{tag!r} goes on with a span that has not begun: it stands {before}{more}",
            tagged.place(i, k),
            f"write 'B-{kind}' where a span begins, or set data.repair=true",
        )


def _unbegun(tags: Sequence[str]) -> Iterator[int]:
    before = ("O", "")
    for place, now in enumerate(map(parts, tags)):
        if now[0] in ("I", "E") and not (before[0] in ("B", "I") and before[1] == now[1]):
            yield place
        before = now


def _read(file: Path, column: int | None, found: Tagged, skipped: Counter[str]) -> None:
    """Add the sentences of a file."""
    lines = read_lines(file)
    universal = _is_universal(file, lines)
    begins = True
    for number, cells in _rows(file, lines, universal, skipped):
        if not cells:
            begins = True
            continue
        where = f"{file}:{number}"
        place = _tag_column(len(cells), column, universal, where)
        word, tag = cells[int(universal)], cells[place].strip()
        if not word or not tag:
            what = "this row has no word" if not word else f"{shown(word)} has no tag in column {place + 1}"
            raise UserError(what, where, "write it, or take the row out")
        if begins:
            found.words.append([])
            found.tags.append([])
            found.lines.append([])
            found.origin.append((str(file), number))
            begins = False
        found.words[-1].append(word)
        found.tags[-1].append(tag)
        found.lines[-1].append(number)


def _rows(
    file: Path, lines: Sequence[str], universal: bool, skipped: Counter[str]
) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row that is read, with its line; none between sentences."""
    tabs = universal or "\t" in next((line for line in lines if not is_blank(line)), "")
    first: tuple[int, int] | None = None  # line and width of the first row
    for number, line in enumerate(lines, start=1):
        if is_blank(line):
            yield number, []
            continue
        if universal and line.startswith("#"):
            skipped["comments"] += 1
            continue
        cells = line.split("\t") if tabs else _BLANKS.split(line.strip(" "))
        first = first or (number, len(cells))
        if len(cells) != first[1]:
            what = f"{columns(len(cells))} where line {first[0]} has {first[1]}"
            mend = "mend the row: a word and its tags, and a blank line between sentences"
            raise UserError(what, f"{file}:{number}", mend)
        kind = _no_word(cells[0], f"{file}:{number}") if universal else _MARKS.get(cells[0], "")
        if kind:
            skipped[kind] += 1
        else:
            yield number, cells


def _is_universal(file: Path, lines: Sequence[str]) -> bool:
    """CoNLL-U, by its name or its first row."""
    rows = (line.split("\t") for line in lines if not is_blank(line) and not line.startswith("#"))
    cells = next(rows, [""])
    return suffix(file) == ".conllu" or (len(cells) == WIDTH and _ID.fullmatch(cells[0]) is not None)


def _no_word(number: str, where: str) -> str:
    """What a row of CoNLL-U is that is no word."""
    if (match := _ID.fullmatch(number)) is None:
        what = f"{shown(number)} is no number of a word"
        raise UserError(
            what, where, "CoNLL-U numbers words from 1 in the first of its columns, parted by tabs"
        )
    return {"": "", "-": "multiword rows", ".": "empty nodes"}[(match[1] or "")[:1]]


def _tag_column(width: int, column: int | None, universal: bool, where: str) -> int:
    """The tags' column, from 0."""
    if width == 1:
        what = "one column, where a word and its tag are needed"
        raise UserError(what, where, "part them with a tab, and sentences with a blank line")
    asked = column if column is not None else 4 if universal else -1
    place = asked - 1 if asked > 0 else width + asked
    if asked == 0 or not 0 <= place < width:
        raise UserError(
            f"there is no column {asked}: rows such as {where} have {width}",
            "data.column",
            f"count from 1 to {width}, or from the end: -1 is the last",
        )
    if place == int(universal):
        raise UserError(f"column {asked} holds the words", "data.column", "name the column of the tags")
    return place
