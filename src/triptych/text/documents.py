"""Running text as a stream of documents, from files of any size.

    folders, files ─ pieces of lines ─ documents ─ Chunk, Chunk, … Chunk(ends) ─ Chunk(ends) ─ …

The rules, beside those for lines in ``triptych.text.files``:

- A folder is read file by file, in the order of names, then folder by folder, whatever the names end in;
  hidden ones are left out.
- ``.jsonl``, ``.ndjson``, ``.json``: one JSON object a line, ``.parquet``: one row, is one document. In any
  other file a document is the whole of it, a paragraph (between blank lines) or a line.
- The LF after a document's last line is not part of it. All else is: the chunks of a document, joined, are
  its text.
- A document of which nothing can be seen (an empty file, a blank line) is left out and counted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from triptych.errors import UserError
from triptych.text.characters import is_blank
from triptych.text.files import check_file, stream_lines, stream_pieces
from triptych.text.records import field, is_json, parse, shown, suffix, text_of
from triptych.text.tokenizer import Tokenizer

__all__ = ["Chunk", "Documents", "Summary", "Unit", "encode_documents", "read_documents"]

Unit = Literal["file", "paragraph", "line"]

CHUNK = 1 << 20
"""Characters of a chunk, about; and bytes of a line that is read at once."""
FEW = 20
"""Of fewer documents none is held out whole unless a number of them is asked for."""
PARTS = ("train", "valid", "test")

Keys = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True)
class Chunk:
    """Text of a document: the next about ``CHUNK`` characters, cut at a line end where there is one.

    Attributes:
        ends: the document ends here.
    """

    text: str
    ends: bool


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
        asked for, the end of each is held out: its last twentieth by lines, cut at line ends, is tested on,
        the twentieth before it validated on. Two passes here; none afterwards but those of the parts.

        Args:
            valid, test: how many documents to hold out, 0 for none; None for a twentieth. Reached unless
                equal documents stand in the way, never exceeded.

        Raises:
            UserError: not so many documents, or nothing to hold out.
        """
        keys = np.fromiter(_keys(self, seed), np.uint64)
        wanted = {"test": test, "valid": valid}
        if len(keys) < FEW and not (valid or test):
            return _tails(self, valid is None, test is None)
        share = max(1, len(keys) // 20)
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
    found = list(chain.from_iterable(map(_walk, files)))
    name = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"

    def read() -> Iterator[Chunk | None]:
        empty = True
        for file in found:
            for chunk in _of_file(file, documents, field):
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


def _walk(path: Path) -> list[Path]:
    """The files of a folder, or the file itself."""
    if not path.is_dir():
        check_file(path)
        return [path]

    def refuse(error: OSError) -> None:
        what = f"cannot list this folder: {error.strerror}"
        raise UserError(what, str(error.filename), "check that you may read it")

    found: list[Path] = []
    known: set[str] = set()  # links may lead back up
    for folder, below, names in os.walk(path, onerror=refuse, followlinks=True):
        known.add(os.path.realpath(folder))
        seen = [name for name in sorted(below) if os.path.realpath(Path(folder, name)) not in known]
        below[:] = [name for name in seen if not name.startswith(".")]
        found += [Path(folder, name) for name in sorted(names) if not name.startswith(".")]
    for file in found:
        check_file(file)
    if not found:
        raise UserError("there are no files in this folder", str(path), "hidden ones are not read; check it")
    return found


def _of_file(file: Path, unit: Unit, field: str) -> Iterator[Chunk | None]:
    if suffix(file) == ".parquet":
        return _records(_parquet(file, field))
    if is_json(file):
        return _records(_json(file, field))
    return _plain(file, unit)


def _plain(file: Path, unit: Unit) -> Iterator[Chunk | None]:
    """A text file. Pieces of one document have one key, and neighbours another."""
    keys: dict[Unit, Callable[[tuple[int, str]], object]] = {
        "file": lambda piece: None,
        "paragraph": lambda piece: is_blank(piece[1]),
        "line": lambda piece: piece[0],
    }
    any_lines = False
    for key, pieces in groupby(_text(file), keys[unit]):
        any_lines = True
        if unit != "paragraph" or not key:
            yield from _chunks(pieces)
    if not any_lines:
        yield None


def _text(file: Path) -> Iterator[tuple[int, str]]:
    for number, text in stream_pieces(file, CHUNK):
        if "\0" in text:
            raise UserError(
                "this is no text: a byte that is zero stands here, as in binary files",
                f"{file}:{number}",
                "leave the file out or move it elsewhere; UTF-16 text is converted with "
                "`iconv -f UTF-16 -t UTF-8`, other formats are saved as text first",
            )
        yield number, text


def _chunks(pieces: Iterable[tuple[int, str]]) -> Iterator[Chunk | None]:
    """The pieces of one document, joined to chunks. What is still blank waits for what can be seen."""
    lines: list[str] = []
    size, blank = 0, True
    for _, text in pieces:
        if size >= CHUNK and not blank:
            yield Chunk("".join(lines), False)
            lines, size = [], 0
        blank = blank and is_blank(text)
        lines.append(text)
        size += len(text)
    yield None if blank else Chunk("".join(lines).removesuffix("\n"), True)


def _records(texts: Iterable[str]) -> Iterator[Chunk | None]:
    """One document a record; a long one is cut as a file is."""
    for text in texts:
        cuts = _cuts(text)
        if is_blank(text):
            yield None
        else:
            yield from (Chunk(text[i:j], j == len(text)) for i, j in pairwise(cuts))


def _cuts(text: str) -> list[int]:
    """Where to cut a text into chunks: after a line end, else before a blank, else anywhere."""
    cuts = [0]
    while len(text) - cuts[-1] > CHUNK:
        start, stop = cuts[-1], cuts[-1] + CHUNK
        line, blank = text.rfind("\n", start, stop) + 1, text.rfind(" ", start + 1, stop)
        cuts.append(next(place for place in (line, blank, stop) if place > start))
    return [*cuts, len(text)]


def _json(file: Path, name: str) -> Iterator[str]:
    mend = "name the field that holds the text with data.fields"
    for number, line in enumerate(stream_lines(file), start=1):
        where = f"{file}:{number}"
        yield "" if is_blank(line) else text_of(field(parse(line, where), name, where, mend), name, where)


def _parquet(file: Path, name: str) -> Iterator[str]:
    """A column of a Parquet file, a few rows at a time; a packed one is unpacked whole."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        what = "reading Parquet takes pyarrow, which is not installed"
        raise UserError(what, str(file), "pip install 'triptych[data]', or write JSON lines") from None
    try:
        packed = file.suffix.lower() == ".gz"
        source = pa.BufferReader(pa.input_stream(file, "gzip").read()) if packed else file
        with parquet.ParquetFile(source) as table:
            if name not in table.schema_arrow.names:
                known = ", ".join(map(repr, table.schema_arrow.names))
                mend = "name the column that holds the text with data.fields"
                raise UserError(f"no column {name!r}; found {known or 'none at all'}", str(file), mend)
            batches = table.iter_batches(batch_size=256, columns=[name])
            cells = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
            for number, cell in enumerate(cells, start=1):
                yield _cell(cell, name, f"{file}: row {number}")
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"cannot be read as Parquet: {reason}", str(file), "copy or write it again") from None


def _cell(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        what = f"column {name!r} holds {'nothing' if value is None else shown(str(value))} here, not text"
        raise UserError(what, where, "drop the row, or name a column of text with data.fields")
    return value


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
            share = max(1, lines // 20) if lines > 2 else 0
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
