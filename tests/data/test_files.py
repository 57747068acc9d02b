"""Reading and writing lines: the same rules for files, gzip and streams, and no half-written file."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text.files import iter_lines, read_lines, write_bytes_atomic, write_text_atomic

# Characters on which splitlines() would split, and others that readers like to eat.
LINE_TEXT = st.text(
    st.sampled_from("a é字\u2028\u2029\x85\x0b\x0c\x1c\x1e\ufeff\u200b\"'\t\r\x00😀") | st.characters()
)
LINE = LINE_TEXT.map(lambda text: text.replace("\n", "").encode("utf-8", "ignore").decode("utf-8"))


def lines_of(data: bytes, folder: Path, name: str = "in.txt") -> list[str]:
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return read_lines(path)


def reference(data: bytes) -> list[str]:
    """The rules spelt out on bytes, slowly."""
    lines, line = [], bytearray()
    for byte in data[3:] if data[:3] == b"\xef\xbb\xbf" else data:
        if byte == 0x0A:
            lines.append(bytes(line))
            line.clear()
        else:
            line.append(byte)
    if line:
        lines.append(bytes(line))
    return [(line[:-1] if line[-1:] == b"\r" else line).decode() for line in lines]


@given(st.lists(LINE), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_lines_survive_and_streams_agree(tmp_path_factory, lines, end, last_end, mark):
    folder = tmp_path_factory.mktemp("lines")
    text = end.join(lines) + (end if last_end else "")
    data = (b"\xef\xbb\xbf" if mark else b"") + text.encode()
    expected = reference(data)
    assert lines_of(data, folder) == expected
    assert lines_of(data, folder, "in.txt.gz") == expected
    assert list(iter_lines(io.BytesIO(data), "stdin")) == expected
    # Whatever the characters, the count is that of the line ends.
    if last_end and not (mark and not text):
        assert len(expected) == max(len(lines), 1)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"a\rb\n", ["a\rb"]),
        ("\ufeffa\n\ufeffb\n".encode(), ["a", "\ufeffb"]),
        ("\ufeff\ufeffa".encode(), ["\ufeffa"]),
        ("a\u2028b\x85c\x0cd\n".encode(), ["a\u2028b\x85c\x0cd"]),
    ],
)
def test_rules(tmp_path, data, expected):
    assert lines_of(data, tmp_path) == expected
    assert list(iter_lines(io.BytesIO(data), "stdin")) == expected


@pytest.mark.parametrize("bad", [b"\xff", b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xf5", b"\xc0\xaf"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_bytes_that_are_not_utf8_are_named(tmp_path, bad, mark):
    data = mark + "fine\nü ".encode() + bad + b"rest\nfine\n"
    for read in (lambda: lines_of(data, tmp_path), lambda: list(iter_lines(io.BytesIO(data), "stdin"))):
        with pytest.raises(UserError) as error:
            read()
        assert error.value.where.endswith(("in.txt:2", "stdin:2"))
        assert f"byte 0x{bad[0]:02X} at byte 3 " in error.value.what
        assert error.value.mend


def test_offset_on_the_first_line_does_not_count_the_byte_order_mark(tmp_path):
    data = b"\xef\xbb\xbfab\xff\n"
    for read in (lambda: lines_of(data, tmp_path), lambda: list(iter_lines(io.BytesIO(data), "stdin"))):
        with pytest.raises(UserError, match="0xFF at byte 2 "):
            read()


def test_a_stream_gives_the_lines_before_a_bad_one():
    stream = iter_lines(io.BytesIO(b"one\ntwo\n\xff\n"), "stdin")
    assert [next(stream), next(stream)] == ["one", "two"]
    with pytest.raises(UserError, match="stdin:3"):
        next(stream)


def test_utf16_and_hidden_gzip_are_recognised(tmp_path):
    with pytest.raises(UserError, match="UTF-16"):
        lines_of("hello\n".encode("utf-16"), tmp_path)
    with pytest.raises(UserError, match=r"\.gz"):
        lines_of(gzip.compress(b"hello\n"), tmp_path)
    for image in (b"\x89PNG\r\n", b"\xff\xd8\xff\xe0", b"GIF89a\xff"):
        with pytest.raises(UserError, match="folders of images"):
            lines_of(image, tmp_path)


def test_damaged_gzip(tmp_path):
    packed = gzip.compress(os.urandom(2000))
    flipped = packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:]
    torn = packed[:50] + b"\xff" * 30 + packed[80:]
    for index, data in enumerate([packed[:1000], b"plain text\n", flipped, torn, packed + b"more"]):
        path = tmp_path / f"{index}.gz"
        path.write_bytes(data)
        with pytest.raises(UserError, match="gzip") as error:
            read_lines(path)
        assert error.value.where == str(path)
    (tmp_path / "two.gz").write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b\n"))
    assert read_lines(tmp_path / "two.gz") == ["a", "b"]


def test_missing_directory_and_unreadable(tmp_path, monkeypatch):
    (tmp_path / "train.tsv").write_text("x")
    with pytest.raises(UserError, match=r"did you mean .*train\.tsv"):
        read_lines(tmp_path / "trian.tsv")
    with pytest.raises(UserError, match="no such file"):
        read_lines(tmp_path / "no" / "where.txt")
    with pytest.raises(UserError, match="directory"):
        read_lines(tmp_path)

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UserError, match="Permission denied"):
        read_lines(tmp_path / "train.tsv")


@given(LINE_TEXT.map(lambda text: text.encode("utf-8", "ignore").decode()))
def test_written_text_comes_back_byte_by_byte(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("out") / "out.txt"
    write_text_atomic(path, text)
    assert path.read_bytes() == text.encode()
    assert [entry.name for entry in path.parent.iterdir()] == ["out.txt"]


@pytest.mark.parametrize("fails", ["fsync", "replace"])
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_failed_write_keeps_the_old_file_and_no_trace(tmp_path, monkeypatch, fails, interrupted):
    path = tmp_path / "out.txt"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt if interrupted else OSError(28, "No space left on device")

    monkeypatch.setattr(os, fails, fail)
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            write_bytes_atomic(path, b"new")
    else:
        with pytest.raises(UserError, match="No space left") as error:
            write_bytes_atomic(path, b"new")
        assert error.value.where == str(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_where_nothing_can_be_written(tmp_path):
    with pytest.raises(UserError, match="no folder"):
        write_text_atomic(tmp_path / "none" / "out.txt", "x")
    with pytest.raises(UserError, match="directory"):
        write_text_atomic(tmp_path, "x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError):
        write_text_atomic(tmp_path / "file" / "out.txt", "x")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file"]


def test_permissions_links_and_long_names(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    write_text_atomic(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    long = tmp_path / ("x" * 255)
    write_text_atomic(long, "fits")
    assert long.read_text() == "fits"


def test_something_that_is_no_plain_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text_atomic(pipe, "through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("tatoeba_eng_cmn/cmn.txt", 28_447),
        ("tatoeba_eng_cmn/cmn_2col_older.txt", 20_403),  # no newline at the end
        ("lowres_eng_yor/train.yor", 6_644),
        ("lowres_spa_aym/dev.es", 996),
        ("floresv1_si_en/dev.si-en.si", 2_898),
    ],
)
def test_line_counts_of_real_files(data_folder, name, lines):
    path = data_folder / name
    found = read_lines(path)
    assert len(found) == lines
    with path.open("rb") as stream:
        assert list(iter_lines(stream, name)) == found
