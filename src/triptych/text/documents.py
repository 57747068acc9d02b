"""Running text as a stream of documents, from files of any size; what is held out of it; its ids.

    folders, files ─ pieces of lines ─ documents ─ Chunk, Chunk, … Chunk(ends) ─ Chunk(ends) ─ …

What a document is, and how it is cut, is ruled in ``triptych.text.chunks``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np

from triptych.errors import UserError
from triptych.text.characters import is_blank
from triptych.text.chunks import CHUNK, Chunk, Unit, chunks_of, files_of
from triptych.text.tokenizer import Tokenizer

__all__ = ["Chunk", "Documents", "Summary", "Unit", "encode_documents", "read_documents"]

MOST, MOST_LINES = 1_000, 10_000
"""Documents, or lines of a document, that are held out at most where no number is asked for: a score of more
is hardly truer, and takes longer."""
FEW = 20
"""Of fewer documents none is held out whole unless a number of them is asked for."""
PARTS = ("train", "valid", "test")

Keys = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True)
class Summary:
    """What one pass over documents saw; ``blank`` ones were left out."""

    documents: int
    characters: int
    blank: int


class Documents:
    """Documents that can be gone through any number of times; each time the files are read anew.

    Args:
        read: begins a pass. None stands for a document of which nothing can be seen.
        name: what to call them in errors.
    """

    def __init__(self, read: Callable[[], Iterator[Chunk | None]], name: str) -> None:
        self._read, self.name = read, name

    def __iter__(self) -> Iterator[Chunk]:
        return (chunk for chunk in self._read() if chunk is not None)

    def lines(self) -> Iterator[str]:
        """Line by line, line ends included."""
        return (line for chunk in self for line in _lines(chunk.text))

    def summary(self) -> Summary:
        """How much there is, by going through it."""
        documents = characters = blank = 0
        for chunk in self._read():
            if chunk is None:
                blank += 1
            else:
                documents, characters = documents + chunk.ends, characters + len(chunk.text)
        return Summary(documents, characters, blank)

    def count(self) -> int:
        """How many documents there are, by going through them."""
        return self.summary().documents

    def split(self, valid: int | None, test: int | None, seed: int) -> tuple[Documents, Documents, Documents]:
        """Training, validation and test documents.

        Whole documents are held out, chosen by a hash of seed and text: equal ones stay together, and the
        same documents give the same parts in any order. Of fewer than ``FEW`` documents, unless a number is
        asked for, the end of each is held out: its last twentieth by lines (``MOST_LINES`` at the most) is
        tested on, the twentieth before it validated on. Two passes here; none afterwards but those of the
        parts.

        Args:
            valid, test: how many documents to hold out, 0 for none; None for a twentieth, ``MOST`` at the
                most. Reached unless equal documents stand in the way, never exceeded.

        Raises:
            UserError: not so many documents, or nothing to hold out.
        """
        keys = np.fromiter(_keys(self, seed), np.uint64)
        wanted = {"test": test, "valid": valid}
        if len(keys) < FEW and not (valid or test):
            return _tails(self, valid is None, test is None)
        share = max(1, min(len(keys) // 20, MOST))
        return _wholes(self, keys, {k: share if size is None else size for k, size in wanted.items()})


def read_documents(files: Sequence[Path], documents: Unit = "file", field: str = "text") -> Documents:
    """The documents of files and folders.

    Args:
        files: files, or folders to be walked; ``.gz`` of any of them.
        documents: what a document is in a plain text file.
        field: the key or column that holds the text, in JSON and Parquet.

    Raises:
        UserError: no such file, a folder without files, and while they are gone through: a file that is not
            text (with file and line), a record without text, nothing in any file.
    """
    if not files:
        raise UserError("no file of text was named", "data.train", "name one or more files or folders")
    found = list(chain.from_iterable(map(files_of, files)))
    name = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"

    def read() -> Iterator[Chunk | None]:
        empty = True
        for file in found:
            for chunk in chunks_of(file, documents, field):
                empty = empty and chunk is None
                yield chunk
        if empty:
            what = f"there is no text in {'this file' if len(found) == 1 else f'these {len(found)} files'}"
            raise UserError(what, name, "check that it was written or copied completely")

    return Documents(read, name)


def encode_documents(documents: Iterable[Chunk], tokenizer: Tokenizer) -> Iterator[tuple[list[int], bool]]:
    """The ids of each chunk, and whether its document ends there; what goes on gets no prefix of its own."""
    begins, batch, size = True, [], 0
    for chunk in documents:
        if begins and chunk.ends:
            batch.append(chunk.text)
            size += len(chunk.text)
        if batch and (size > CHUNK or not (begins and chunk.ends)):
            yield from ((ids, True) for ids in tokenizer.encode_batch(batch))
            batch, size = [], 0
        if not (begins and chunk.ends):
            yield tokenizer.encode(chunk.text, begins=begins), chunk.ends
        begins = chunk.ends
    yield from ((ids, True) for ids in tokenizer.encode_batch(batch))


def _keys(documents: Documents, seed: int) -> Iterator[int]:
    """A 64-bit hash of each document."""
    begun = hashlib.blake2b(f"{seed} ".encode(), digest_size=8)
    digest = begun.copy()
    for chunk in documents:
        digest.update(chunk.text.encode())
        if chunk.ends:
            yield int.from_bytes(digest.digest(), "big")
            digest = begun.copy()


def _wholes(
    documents: Documents, keys: Keys, wanted: dict[str, int]
) -> tuple[Documents, Documents, Documents]:
    """Groups of equal documents, by their hash from low to high, go to the first part with room for them."""
    if min(wanted.values()) < 0:
        raise UserError(f"cannot hold out {min(wanted.values())} documents", "data", "ask for 0 or more")
    if sum(wanted.values()) >= len(keys):
        what = f"cannot hold out {wanted['valid']:,} + {wanted['test']:,} of {len(keys):,} documents"
        mend = "ask for fewer; of few documents, the ends are held out when no number is asked for"
        raise UserError(what, documents.name, mend)
    room = dict(wanted)
    held: dict[str, list[int]] = {name: [] for name in wanted}
    for key, size in zip(*np.unique(keys, return_counts=True), strict=True):
        if (name := next((name for name in room if size <= room[name]), None)) is not None:
            room[name] -= size
            held[name].append(key)
        if not any(room.values()):
            break
    codes = np.zeros(len(keys), np.uint8)
    for name, size in wanted.items():
        if size and not held[name]:
            what = f"no {size:,} documents for {name} differ from all others"
            raise UserError(what, documents.name, f"ask for more, or give files as data.{name}")
        codes[np.isin(keys, np.array(held[name], np.uint64))] = PARTS.index(name)
    return _three(documents, lambda: _chosen(documents, codes.tobytes()))


def _chosen(documents: Documents, codes: bytes) -> Iterator[tuple[int, Chunk]]:
    """Each chunk with the number of its part."""
    number = 0
    for chunk in documents:
        if number == len(codes):
            raise _changed(documents)
        yield codes[number], chunk
        number += chunk.ends
    if number < len(codes):
        raise _changed(documents)


def _changed(documents: Documents) -> UserError:
    return UserError("files have changed since they were read", documents.name, "begin again")


def _tails(documents: Documents, valid: bool, test: bool) -> tuple[Documents, Documents, Documents]:
    """Lines of the end of each document, blank ones not counted; those of fewer than three train whole."""
    borders: list[tuple[int, int, int]] = []  # of each document: lines before validation, before test, in all
    lines = 0
    for chunk in documents:
        lines += sum(not is_blank(line) for line in _lines(chunk.text))
        if chunk.ends:
            share = max(1, min(lines // 20, MOST_LINES)) if lines > 2 else 0
            borders.append((lines - share * (valid + test), lines - share * test, lines))
            lines = 0
    if (valid or test) and all(first == lines for first, _, lines in borders):
        what = "no document has the three lines it takes to train on some and hold out the others"
        raise UserError(what, documents.name, "add text, or give files as data.valid and data.test")
    return _three(documents, lambda: _cut(documents, borders))


def _cut(documents: Documents, borders: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, Chunk]]:
    """Each document in up to three, with the numbers of their parts. Blank lines go with what follows."""
    number = seen = 0

    def part() -> int:
        first, second, lines = borders[number]
        return sum(min(seen, lines - 1) >= border for border in (first, second))

    for chunk in documents:
        if number == len(borders):
            raise _changed(documents)
        coded: list[tuple[int, str]] = []
        for line in _lines(chunk.text):
            coded.append((part(), line))
            seen += not is_blank(line)
        for code, run in groupby(coded, lambda pair: pair[0]):
            text = "".join(line for _, line in run)
            last = code == coded[-1][0]
            over = not last or code != part()
            yield code, Chunk(text.removesuffix("\n") if over else text, over or chunk.ends)
        if chunk.ends:
            number, seen = number + 1, 0
    if number < len(borders):
        raise _changed(documents)


def _three(
    documents: Documents, coded: Callable[[], Iterator[tuple[int, Chunk]]]
) -> tuple[Documents, Documents, Documents]:
    def part(code: int) -> Documents:
        name = f"{documents.name} ({PARTS[code]})"
        return Documents(lambda: (chunk for number, chunk in coded() if number == code), name)

    return part(0), part(1), part(2)


def _lines(text: str) -> list[str]:
    """Lines with their LF."""
    *whole, last = text.split("\n")
    return [*(line + "\n" for line in whole), *([last] if last or not whole else [])]
