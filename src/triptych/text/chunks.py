"""From a file to the documents in it, each in chunks: a file of any size is read in little memory.

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

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any, Literal

from triptych.errors import UserError
from triptych.text.characters import is_blank
from triptych.text.files import check_file, stream_lines, stream_pieces
from triptych.text.records import field, is_json, parse, shown, suffix, text_of

__all__ = ["CHUNK", "Chunk", "Unit", "chunks_of", "files_of"]

Unit = Literal["file", "paragraph", "line"]

CHUNK = 1 << 20
"""Characters of a chunk, about; and bytes of a line that is read at once."""
BETWEEN = -1
"""The key of what parts documents."""


@dataclass(frozen=True)
class Chunk:
    """Text of a document: the next about ``CHUNK`` characters, cut at a line end where there is one.

    Attributes:
        ends: the document ends here.
    """

    text: str
    ends: bool


def files_of(path: Path) -> list[Path]:
    """The files of a folder, or the file itself.

    Raises:
        UserError: no such file, no files in the folder, or what cannot be read.
    """
    if not path.is_dir():
        check_file(path)
        return [path]

    def refuse(error: OSError) -> None:
        what = f"cannot list this folder: {error.strerror}"
        raise UserError(what, str(error.filename), "check that you may read it")

    found: list[Path] = []
    known: set[str] = set()  # links may lead back up; a folder is read once
    for folder, below, names in os.walk(path, onerror=refuse, followlinks=True):
        if (real := os.path.realpath(folder)) in known:
            below.clear()
            continue
        known.add(real)
        below[:] = sorted(name for name in below if not name.startswith("."))
        found += [Path(folder, name) for name in sorted(names) if not name.startswith(".")]
    for file in found:
        check_file(file)
    if not found:
        raise UserError("there are no files in this folder", str(path), "hidden ones are not read; check it")
    return found


def chunks_of(file: Path, unit: Unit, field: str) -> Iterator[Chunk | None]:
    """The documents of a file; None for each of which nothing can be seen.

    Args:
        unit: what a document is in a plain text file.
        field: the key or column that holds the text, in JSON and Parquet.

    Raises:
        UserError: what is no text, by file and line.
    """
    if suffix(file) == ".parquet":
        return _records(_parquet(file, field))
    if is_json(file):
        return _records(_json(file, field))
    return _plain(file, unit)


def _plain(file: Path, unit: Unit) -> Iterator[Chunk | None]:
    """A text file. The pieces of one document have one key, and its neighbours another."""
    empty = True
    for key, pieces in groupby(_keyed(file, unit), lambda pair: pair[0]):
        empty = False
        if key != BETWEEN:
            yield from _chunks(text for _, text in pieces)
    if empty:
        yield None


def _keyed(file: Path, unit: Unit) -> Iterator[tuple[int, str]]:
    """The pieces of a file, each with a number that its document alone has among neighbours."""
    begins = True
    for number, text, ends in stream_pieces(file, CHUNK):
        if "\0" in text:
            raise UserError(
                "this is no text: a byte that is zero stands here, as in binary files",
                f"{file}:{number}",
                "leave the file out or move it elsewhere; UTF-16 text is converted with "
                "`iconv -f UTF-16 -t UTF-8`, other formats are saved as text first",
            )
        parts = unit == "paragraph" and begins and ends and is_blank(text)
        yield BETWEEN if parts else number if unit == "line" else 0, text
        begins = ends


def _chunks(pieces: Iterable[str]) -> Iterator[Chunk | None]:
    """The pieces of one document, joined to chunks. What is still blank waits for what can be seen."""
    lines: list[str] = []
    size, blank = 0, True
    for text in pieces:
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
            batches = table.iter_batches(batch_size=16, columns=[name])
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
