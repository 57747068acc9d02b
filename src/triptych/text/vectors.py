"""Word vectors in the text format of word2vec, GloVe and fastText.

    400000 3                 ← count and width; GloVe has no such line
    the 0.418 0.250 -0.412   ← a word, which may hold spaces, and as many numbers as the width says

word2vec: Mikolov et al. 2013. GloVe: Pennington et al. 2014. fastText: Bojanowski et al. 2017.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from triptych.errors import UserError
from triptych.text.files import stream_lines

__all__ = ["piece_vectors", "read_vectors", "vector_width"]

Vector = np.ndarray[Any, np.dtype[np.float32]]
BLANK = "\u2581"  # how SentencePiece writes the blank before a word


def vector_width(path: Path) -> int:
    """How many numbers a vector of the file has. Only its start is read.

    Raises:
        UserError: no such file, or its start is not of this format.
    """
    return _start(path)[1]


def read_vectors(path: Path, wanted: Collection[str]) -> dict[str, Vector]:
    """The vectors of the ``wanted`` words that the file has; of a word that comes twice, the first. The file
    (``.gz`` or not) is read line by line: it may be larger than memory.

    Raises:
        UserError: a line of another width, a field that is no number, bytes that are not UTF-8, each named by
            file and line.
    """
    skip, width = _start(path)
    found: dict[str, Vector] = {}
    for number, line in enumerate(itertools.islice(stream_lines(path), skip, None), start=skip + 1):
        line = line.rstrip(" ")
        spaces = line.count(" ")
        if spaces != width and (spaces < width or _numbers(line.split(" ")[1 : spaces + 1 - width])):
            raise UserError(
                f"a word with {spaces} numbers, where others have {width}",
                f"{path}:{number}",
                "download the file again; all vectors of a file are equally wide",
            )
        if spaces == width and line[: line.index(" ")] not in wanted:  # most words, and quickly
            continue
        word, *fields = line.rsplit(" ", width)
        if word in wanted and word not in found:
            found[word] = _vector(fields, f"{path}:{number}")
    return found


def piece_vectors(path: Path, pieces: Sequence[str]) -> dict[int, Vector]:
    """Vectors for the entries of a vocabulary, by their number: of the piece as it is written, else of the
    word that it begins with a blank. A piece from the middle of a word is looked up as it is."""
    keys = [(piece, piece.removeprefix(BLANK)) for piece in pieces]
    found = read_vectors(path, {key for both in keys for key in both if key})
    rows = {i: found.get(piece, found.get(word)) for i, (piece, word) in enumerate(keys)}
    return {i: row for i, row in rows.items() if row is not None}


def _start(path: Path) -> tuple[int, int]:
    """How many lines come before the vectors, and the width."""
    first = next(stream_lines(path), None)
    if first is None:
        raise UserError("this file is empty", str(path), "give a file with a word and its numbers a line")
    fields = first.rstrip(" ").split(" ")
    if len(fields) == 2 and all(field.isdecimal() for field in fields):
        return 1, int(fields[1])
    if len(fields) < 2 or not _numbers(fields[-1:]):
        raise UserError(
            "this line is no word with its vector",
            f"{path}:1",
            "give vectors as text: a word and its numbers a line, separated by single spaces",
        )
    return 0, len(fields) - 1


def _numbers(fields: list[str]) -> bool:
    try:
        return bool([float(field) for field in fields])
    except ValueError:
        return False


def _vector(fields: list[str], where: str) -> Vector:
    try:
        with np.errstate(over="ignore"):  # becomes infinite, and is said below
            row = np.array([float(field) for field in fields], dtype=np.float32)
    except ValueError:
        bad = next(field for field in fields if not _numbers([field]))
        raise UserError(f"{bad!r} stands where a number should", where, "download the file again") from None
    if not np.isfinite(row).all():
        raise UserError("a vector with a value that is not finite", where, "mend or remove this line")
    return row
