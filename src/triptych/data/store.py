"""The ids of many documents in one file, mapped into memory: as much text as the disk holds.

    header │ eos  t t t t eos  t t eos  t t t eos │ borders
             0            5        8            12   0 5 8 12

Each document stands between two eos. Read from a border up to the next, its tokens are what follows each
place: document k is what is said at ``borders[k]`` … ``borders[k + 1] - 1``, its eos included.
"""

from __future__ import annotations

import itertools
import os
import secrets
import struct
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from triptych.errors import UserError
from triptych.text.vocabulary import EOS

Numbers = NDArray[np.int64]

HEADER = struct.Struct("<8s4Q")  # magic, bytes an id, ids, documents, bytes of text
MAGIC = b"TRIPTOK1"
BLOCK = 1 << 20  # ids


class Encoded(NamedTuple):
    """A part of a document.

    Attributes:
        ids: its tokens, without specials.
        ends: it is the document's last part.
        bytes: of its text in UTF-8; 0 where nobody asks.
    """

    ids: Sequence[int]
    ends: bool
    bytes: int = 0


class TokenStore:
    """Documents as ids, in a file that is mapped and not read.

    Attributes:
        ids: all ids in a row, an eos before the first document and one after each.
        borders: the place of the eos before each document, and of the last.
        bytes: of the text in UTF-8, if the writer counted them.
    """

    def __init__(self, ids: NDArray[np.unsignedinteger], borders: Numbers, size: int) -> None:
        self.ids, self.borders, self.bytes = ids, borders, size

    @property
    def documents(self) -> int:
        """How many there are."""
        return len(self.borders) - 1

    @property
    def places(self) -> int:
        """What is to be said in all: the tokens of all documents and the eos of each."""
        return len(self.ids) - 1

    @property
    def tokens(self) -> int:
        """Tokens of all documents, without any eos."""
        return self.places - self.documents

    def document(self, number: int) -> NDArray[np.unsignedinteger]:
        """The tokens of a document, without eos."""
        return self.ids[self.borders[number] + 1 : self.borders[number + 1]]

    def cut(self, limit: int) -> tuple[Numbers, Numbers, Numbers]:
        """Each document in as few rows of at most ``limit`` tokens as hold it, all of nearly one size.

        Returns:
            Where the tokens of each row begin and stop in ``ids``, and its document.
        """
        tokens = np.diff(self.borders) - 1
        rows = -(-tokens // limit)
        document = np.repeat(np.arange(self.documents), rows)
        first, size, count = self.borders[document] + 1, tokens[document], rows[document]
        row = runs(np.zeros_like(rows), rows)
        return first + row * size // count, first + (row + 1) * size // count, document

    @classmethod
    def write(cls, path: Path, documents: Iterable[Encoded | tuple[Sequence[int], bool]]) -> TokenStore:
        """Write documents as they come; the file takes its name when it is whole.

        Raises:
            OSError: the folder cannot be written, or the disk is full; nothing is left under any name.
        """
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            with temporary.open("x+b") as file:
                _fill(file, documents)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> TokenStore:
        """What ``write`` wrote.

        Raises:
            UserError: another kind of file, or one that was cut short.
        """
        with path.open("rb") as file:
            start = file.read(HEADER.size)
        magic, width, count, documents, size = HEADER.unpack(start.ljust(HEADER.size, b"\0"))
        stop = HEADER.size + width * count
        if magic != MAGIC or path.stat().st_size != stop + 8 * (documents + 1):
            raise UserError("this is not a whole file of tokens", str(path), "delete it, and it is made anew")
        ids = np.memmap(path, f"<u{width}", "r", HEADER.size, (count,))
        return cls(np.asarray(ids), np.fromfile(path, "<i8", offset=stop), size)


def _fill(file: BinaryIO, documents: Iterable[Encoded | tuple[Sequence[int], bool]]) -> None:
    file.write(HEADER.pack(b"", 0, 0, 0, 0))  # the place of what is known at the end
    width, count, size, ended, borders = 2, 0, 0, True, array("q")
    for part in itertools.chain([((), True)], documents):  # the first eos ends nothing
        ids, ended, length = Encoded(*part)
        row = np.asarray([*ids, EOS] if ended else ids, np.int64)
        assert not row.size or row.min() >= 0
        if width == 2 and row.size and row.max() > 0xFFFF:
            _widen(file, count)
            width = 4
        file.write(row.astype(f"<u{width}").tobytes())
        count, size = count + len(row), size + length
        if ended:
            borders.append(count - 1)
    assert ended, "the last part of a document says that it ends"
    file.write(np.asarray(borders, "<i8").tobytes())
    file.seek(0)
    file.write(HEADER.pack(MAGIC, width, count, len(borders) - 1, size))


def _widen(file: BinaryIO, count: int) -> None:
    """Ids of two bytes to four, from the last back, so that none is overwritten before it is read."""
    for start in reversed(range(0, count, BLOCK)):
        file.seek(HEADER.size + 2 * start)
        narrow = np.frombuffer(file.read(2 * min(BLOCK, count - start)), "<u2")
        file.seek(HEADER.size + 4 * start)
        file.write(narrow.astype("<u4").tobytes())
    file.seek(HEADER.size + 4 * count)


def runs(start: Numbers, size: Numbers) -> Numbers:
    """``start[0], start[0] + 1, …`` (``size[0]`` of them), then those of ``start[1]``, and on."""
    return np.repeat(start - np.cumsum(size) + size, size) + np.arange(size.sum())
