"""Bytes on disk to lines of text and back: one set of rules for every file Triptych reads or writes.

The rules, chosen so that line N of the input is line N everywhere:

- UTF-8 only, whatever the locale says. A byte order mark at the very start is dropped; elsewhere it is data.
- LF alone ends a line. U+2028, U+0085, a form feed or a lone CR inside a line are data: ``str.splitlines``
  would split there and shift every later line.
- One CR before the LF (a Windows file) is dropped; a second one is data.
- A last line without LF counts; an LF at the end of the file starts no further line.
"""

from __future__ import annotations

import codecs
import gzip
import os
import secrets
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from triptych.errors import UserError, nearest

__all__ = [
    "check_file",
    "iter_lines",
    "read_lines",
    "stream_lines",
    "stream_pieces",
    "write_bytes_atomic",
    "write_lines_atomic",
    "write_text_atomic",
]


def read_lines(path: Path) -> list[str]:
    """All lines of a text file, without their line ends; ``.gz`` is unpacked on the way.

    A file of no bytes gives ``[]`` and a file of one LF gives ``[""]``: the caller decides what they mean.

    Raises:
        UserError: no such file, a directory, no permission, damaged gzip, or bytes that are not UTF-8
            (named by line, byte offset in the line counted from 0, and value).
    """
    data = _read_bytes(path).removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line_start = data.rfind(b"\n", 0, error.start) + 1
        number = data.count(b"\n", 0, error.start) + 1
        raise _not_utf8(data, str(path), number, error.start - line_start, data[error.start]) from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def iter_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """The lines of a binary stream as they arrive, by the rules of ``read_lines`` (made for stdin).

    Args:
        stream: any binary stream; iterating one splits on LF only.
        name: how to call the stream in an error, such as ``stdin``.

    Raises:
        UserError: bytes that are not UTF-8. The lines before them have been given already.
    """
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
            if not raw:  # nothing but a byte order mark, as in read_lines
                return
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(
                raw if number == 1 else b"", name, number, error.start, raw[error.start]
            ) from None
        yield line.removesuffix("\n").removesuffix("\r")


def stream_lines(path: Path) -> Iterator[str]:
    """The lines of ``read_lines`` one by one, for files too large to hold."""
    with _in_words(path), _open(path) as stream:
        yield from iter_lines(stream, str(path))


def check_file(path: Path) -> None:
    """Refuse what cannot be read more than once. Raises UserError."""
    if path.exists() and not path.is_dir() and not path.is_file():
        raise UserError("this is no plain file, and it is read more than once", str(path), "save it first")
    with _in_words(path), path.open("rb"):
        pass


def stream_pieces(path: Path, limit: int) -> Iterator[tuple[int, str, bool]]:
    """The text of ``read_lines`` for files too large to hold, of lines that may be so, too.

    Gives the number of a line (from 1), the line with its LF, and True; of a line of more than ``limit``
    bytes one part after the other, each cut before a blank or else before a character, and True with the
    last.
    """
    assert limit >= 8, "room for a byte order mark and a character"
    with _in_words(path), _open(path) as stream:
        number, offset, rest = 1, 0, b""
        while True:
            more = stream.readline(limit)
            raw = rest + more
            if (number, offset) == (1, 0):
                raw = raw.removeprefix(codecs.BOM_UTF8)
            ends = len(more) < limit or more.endswith(b"\n")
            cut = len(raw) if ends else _before_blank(raw)
            try:
                text = raw[:cut].decode("utf-8")
            except UnicodeDecodeError as error:
                start = raw if (number, offset) == (1, 0) else b""
                place = offset + error.start
                raise _not_utf8(start, str(path), number, place, raw[error.start]) from None
            if not raw:
                return
            if ends:
                text = text[:-1].removesuffix("\r") + "\n" if text[-1] == "\n" else text.removesuffix("\r")
            yield number, text, ends
            number, offset, rest = (number + 1, 0, b"") if ends else (number, offset + cut, raw[cut:])


def _before_blank(raw: bytes) -> int:
    """Where to cut a part of a line: before its last blank, else before its last character."""
    if (place := raw.rfind(b" ", 1)) > 0:
        return place
    place = len(raw) - 1
    while place > max(0, len(raw) - 4) and raw[place] & 0xC0 == 0x80:
        place -= 1
    return max(place, 1)


def write_text_atomic(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, line ends as they are; see ``write_bytes_atomic``."""
    write_bytes_atomic(path, text.encode("utf-8"))


def write_lines_atomic(path: Path, lines: Iterable[str]) -> None:
    """Write texts one after the other as UTF-8, as they come; see ``write_bytes_atomic``."""
    _write_atomic(path, (line.encode("utf-8") for line in lines))


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part of it.

    The bytes go to a temporary name in the same folder, are flushed to the disk, and take the name at the
    end. A link is followed, the permissions of an existing file are kept, and something that is not a plain
    file (``/dev/stdout``, a named pipe) is written to in place, since renaming would replace it.

    Raises:
        UserError: the folder does not exist or may not be written, the disk is full, the name is a directory.
            The file keeps its old content and the temporary file is gone.
    """
    _write_atomic(path, [data])


def _write_atomic(path: Path, parts: Iterable[bytes]) -> None:
    final = Path(os.path.realpath(path))
    temporary = final.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        mode = _mode(final)
        if mode is not None and stat.S_ISDIR(mode):
            raise UserError(
                "this is a directory, so no file can be written here", str(path), "name a file in it"
            )
        if mode is not None and not stat.S_ISREG(mode):
            with final.open("wb") as stream:
                stream.writelines(parts)
            return
        with temporary.open("xb") as stream:
            stream.writelines(parts)
            stream.flush()
            os.fsync(stream.fileno())
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        os.replace(temporary, final)
    except OSError as error:
        raise _cannot("write", path, error) from None
    finally:
        with suppress(OSError):  # after the rename there is nothing left under this name
            temporary.unlink(missing_ok=True)


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _read_bytes(path: Path) -> bytes:
    with _in_words(path):
        if path.suffix.lower() != ".gz":
            return path.read_bytes()
        with _open(path) as stream:
            return stream.read()


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if path.suffix.lower() == ".gz" else path.open("rb")


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """What goes wrong in reading a file is said in words."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(
            f"this is not a whole gzip file ({error})",
            str(path),
            "copy or download it again (`gzip -t` checks it), or drop `.gz` from its name if it is text",
        ) from None
    except OSError as error:
        raise _cannot("read", path, error) from None


def _cannot(verb: str, path: Path, error: OSError) -> UserError:
    """Say in words why the system would not read or write ``path``."""
    if isinstance(error, IsADirectoryError):
        return UserError("this is a directory, not a file", str(path), "name a file in it")
    if isinstance(error, FileNotFoundError) and verb == "read":
        return UserError("no such file", str(path), _nearest(path))
    if isinstance(error, FileNotFoundError):
        return UserError(f"there is no folder {path.parent} to write to", str(path), "make the folder first")
    reason = error.strerror or str(error)
    return UserError(
        f"cannot {verb} this file: {reason}", str(path), f"check that you may {verb} it and the disk's room"
    )


def _nearest(path: Path) -> str:
    """A file of the same folder whose name is close to the one asked for."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no folder {path.parent} that can be listed either"
    close = nearest(path.name, names)
    return f"did you mean {path.with_name(close[0])}?" if close else "check the path"


def _not_utf8(start: bytes, name: str, line: int, offset: int, value: int) -> UserError:
    """The error for a byte that is not UTF-8; ``start`` is how the file begins, as far as known."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        mend = "it looks like UTF-16: convert it with `iconv -f UTF-16 -t UTF-8`"
    elif start.startswith(b"\x1f\x8b"):
        mend = "it looks like gzip: give it a name that ends in `.gz`"
    elif start.startswith(b"PAR1"):
        mend = "it is Parquet, which is read as running text alone: write it out as JSON lines"
    elif start.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8")):
        mend = "it is an image: folders of images, one for each class, are for --objective classify"
    else:
        mend = (
            "convert it to UTF-8, for example with `iconv -f WINDOWS-1252 -t UTF-8` (name its real encoding)"
        )
    return UserError(
        f"not UTF-8: byte 0x{value:02X} at byte {offset} of this line (from 0)", f"{name}:{line}", mend
    )
