"""Running text: nothing lost, nothing held, the same parts whatever the order, and what is no text named."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text import chunks as module
from triptych.text.characters import is_blank
from triptych.text.documents import Chunk, Documents, encode_documents, read_documents
from triptych.text.files import read_lines, stream_pieces
from triptych.text.tokenizer import train_tokenizer

parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: pip install 'triptych[data]'")
pa = pytest.importorskip("pyarrow")

LINE = st.text(st.sampled_from("ab é字😀 \t\r\u2028\x0c\ufeff")).map(lambda text: text.replace("\n", ""))
UNITS = ("file", "paragraph", "line")


def texts(documents: Iterable[Chunk]) -> list[str]:
    """The documents, joined from their chunks."""
    out, open_ = [], ""
    for chunk in documents:
        open_ += chunk.text
        if chunk.ends:
            out.append(open_)
            open_ = ""
    assert not open_, "a document does not end"
    return out


def written(folder: Path, name: str, data: bytes | str) -> Path:
    data = data.encode() if isinstance(data, str) else data
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 1, mtime=0) if name.endswith(".gz") else data)
    return path


def made(items: list[str], size: int = 2) -> Documents:
    """Documents in memory, in chunks of ``size`` characters."""

    def read() -> Iterable[Chunk]:
        for item in items:
            for at in range(0, len(item), size):
                yield Chunk(item[at : at + size], at + size >= len(item))

    return Documents(lambda: iter(read()), "here")


def wanted(lines: list[str], unit: str) -> list[str]:
    """The rules spelt out on lines."""
    if unit == "line":
        return [line for line in lines if not is_blank(line)]
    if unit == "file":
        return [] if all(map(is_blank, lines)) else ["\n".join(lines)]
    out: list[list[str]] = [[]]
    for line in lines:
        out = [*out, []] if is_blank(line) else [*out[:-1], [*out[-1], line]]
    return ["\n".join(paragraph) for paragraph in out if paragraph]


@given(
    lines=st.lists(LINE), end=st.sampled_from(["\n", "\r\n"]), last=st.booleans(), unit=st.sampled_from(UNITS)
)
@pytest.mark.parametrize("chunk", [8, 1 << 20])
@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
def test_documents_are_the_lines_of_the_file(tmp_path_factory, name, chunk, lines, end, last, unit):
    # A blank line that is read in parts is none.
    assume(unit != "paragraph" or all(len(line.encode()) < chunk - 2 for line in lines if is_blank(line)))
    data = end.join(lines) + (end if last else "")
    path = written(tmp_path_factory.mktemp("docs"), name, data)
    expected = wanted(read_lines(path), unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        documents = read_documents([path], unit)
        if not expected:
            with pytest.raises(UserError, match="no text in this file"):
                list(documents)
            return
        assert texts(documents) == expected
        assert texts(documents) == expected, "a second pass is like the first"
        summary = documents.summary()
    assert (summary.documents, summary.characters) == (len(expected), sum(map(len, expected)))
    if unit == "line":
        assert summary.blank == len(read_lines(path)) - len(expected)


@given(data=st.text(st.sampled_from("ab é字😀\n\r")), limit=st.integers(8, 14))
def test_pieces_are_lines_however_they_are_cut(tmp_path_factory, data, limit):
    path = written(tmp_path_factory.mktemp("pieces"), "a.txt", b"\xef\xbb\xbf" + data.encode())
    pieces = list(stream_pieces(path, limit))
    lines: dict[int, str] = {}
    for number, text, _ in pieces:
        lines[number] = lines.get(number, "") + text
    assert [line.removesuffix("\n") for line in lines.values()] == read_lines(path)
    assert list(lines) == list(range(1, len(lines) + 1))
    assert [number for number, _, ends in pieces if ends] == list(lines)


def test_a_long_line_is_cut_before_a_blank(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 16)
    path = written(tmp_path, "a.txt", "one two three four five six seven\nend")
    chunks = list(read_documents([path]))
    assert len(chunks) > 1
    assert all(chunk.text[0] in " \n" or chunk.text == "end" for chunk in chunks[1:])
    assert texts(chunks) == ["one two three four five six seven\nend"]


def test_chunks_are_cut_at_line_ends(tmp_path):
    text = "".join(f"{n} " * 30 + "\n" for n in range(60_000))
    chunks = list(read_documents([written(tmp_path, "a.txt", text)]))
    assert len(chunks) > 5
    assert all(chunk.text.endswith("\n") and not chunk.ends for chunk in chunks[:-1])
    assert all(len(chunk.text) < 1.1 * module.CHUNK for chunk in chunks)
    assert "".join(chunk.text for chunk in chunks) == text.removesuffix("\n")
    records = written(tmp_path, "b.jsonl", json.dumps({"text": text}))
    chunks = list(read_documents([records]))
    assert all(chunk.text.endswith("\n") and not chunk.ends for chunk in chunks[:-1])
    assert "".join(chunk.text for chunk in chunks) == text


def test_one_token_is_a_document(tmp_path):
    assert texts(read_documents([written(tmp_path, "a.txt", "x")])) == ["x"]
    many = read_documents([written(tmp_path, "b.txt", "\n".join(map(str, range(40))))], "line")
    parts = many.split(None, None, 1)
    assert sum(part.count() for part in parts) == 40


def test_folders_are_walked_in_order(tmp_path):
    for name in (
        "b.txt",
        "a.md",
        "no_ending",
        "sub/z.txt",
        "sub/deep/y.jsonl",
        ".hidden",
        ".git/x.txt",
        "c.gz",
    ):
        written(tmp_path, name, '{"text": "y.jsonl"}' if name.endswith("jsonl") else name)
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "other").symlink_to(tmp_path / "sub")
    found = texts(read_documents([tmp_path / "b.txt", tmp_path]))
    assert found[:5] == ["b.txt", "a.md", "b.txt", "c.gz", "no_ending"]
    assert sorted(found[5:]) == ["sub/z.txt", "y.jsonl"]


def test_records(tmp_path):
    lines = [{"text": "one\ntwo"}, {"text": " "}, {"text": "three", "other": 1}]
    data = "\n".join(map(json.dumps, lines)) + "\n\n"
    for name in ("a.jsonl", "b.json", "c.ndjson.gz"):
        documents = read_documents([written(tmp_path, name, data)], "line")
        assert texts(documents) == ["one\ntwo", "three"]
        assert documents.summary().blank == 2
    nested = written(tmp_path, "d.jsonl", '{"a": {"b": "deep"}}')
    assert texts(read_documents([nested], field="a.b")) == ["deep"]


def test_parquet(tmp_path):
    rows = [f"row {n}\nline" for n in range(1000)] + [" "]
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"text": rows, "n": list(range(1001))}), path, row_group_size=100)
    for file in (path, written(tmp_path, "b.parquet.gz", path.read_bytes())):
        documents = read_documents([file])
        assert texts(documents) == rows[:-1]
        assert documents.summary().blank == 1
    with pytest.raises(UserError, match=r"no column 'body'; found 'text', 'n'") as caught:
        list(read_documents([path], field="body"))
    assert caught.value.where == str(path) and "data.fields" in caught.value.mend
    with pytest.raises(UserError, match="column 'n' holds '0' here, not text") as caught:
        list(read_documents([path], field="n"))
    assert caught.value.where == f"{path}: row 1"
    parquet.write_table(pa.table({"text": ["a", None]}), path)
    with pytest.raises(UserError, match="row 2: column 'text' holds nothing here"):
        list(read_documents([path]))
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match="cannot be read as Parquet"):
        list(read_documents([path]))


def test_parquet_without_its_library(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"text": ["a"]}), path)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pip install 'triptych\[data\]'"):
        list(read_documents([path]))


@pytest.mark.parametrize(
    ("data", "line", "message", "mend"),
    [
        (b"fine\nbin\0ary\n", 2, "a byte that is zero", "leave the file out"),
        (b"\x89PNG\r\n\x1a\n\0\0", 1, "not UTF-8: byte 0x89 at byte 0 of this line", "it is an image"),
        ("fine\ncafé\n".encode("latin-1"), 2, "byte 0xE9 at byte 3", "iconv"),
        ("hello\n".encode("utf-16"), 1, "not UTF-8", "UTF-16"),
        ("hello\n".encode("utf-16-le"), 1, "a byte that is zero", "UTF-16"),
        (gzip.compress(b"hello", mtime=0), 1, "not UTF-8", ".gz"),
        (b"x" * 100 + b"\xff\n", 1, "byte 0xFF at byte 100", "iconv"),
        (b"a\xe5\xad", 1, "byte 0xE5 at byte 1", "iconv"),
    ],
)
def test_what_is_no_text_is_named(tmp_path, monkeypatch, data, line, message, mend):
    monkeypatch.setattr(module, "CHUNK", 32)
    path = written(tmp_path, "x.dat", data)
    for unit in UNITS:
        with pytest.raises(UserError) as caught:
            list(read_documents([tmp_path], unit))
        assert caught.value.where == f"{path}:{line}"
        assert message in caught.value.what and mend in caught.value.mend


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"body": "x"}', r":2: no field 'text'; found 'body'"),
        ('{"text": 3}', r":2: field 'text' is a number, not text"),
        ('{"text": null}', r":2: field 'text' is null"),
        ('{"text": "\\ud83d"}', r":2: .*surrogate"),
        ("plain", r":2:1: this line is not JSON"),
        ("[1]", r":2: this line is a JSON list"),
        ("[", r":2:2: this line is not JSON(.|\n)*jq -c"),
    ],
)
def test_records_without_text_are_named(tmp_path, line, message):
    path = written(tmp_path, "a.jsonl", '{"text": "fine"}\n' + line)
    with pytest.raises(UserError, match=f"a.jsonl{message}"):
        list(read_documents([path]))


def test_nothing_to_read(tmp_path):
    with pytest.raises(UserError, match="no file of text was named"):
        read_documents([])
    with pytest.raises(UserError, match="no files in this folder"):
        read_documents([tmp_path])
    with pytest.raises(UserError, match="no such file"):
        read_documents([tmp_path / "none.txt"])
    written(tmp_path, "empty.txt", "")
    written(tmp_path, "blank.txt", " \n\n")
    for unit in UNITS:
        with pytest.raises(UserError, match="no text in these 2 files"):
            list(read_documents([tmp_path], unit))
    os.mkfifo(tmp_path / "pipe")
    for files in ([tmp_path / "pipe"], [tmp_path]):
        with pytest.raises(UserError, match="no plain file"):
            read_documents(files)


@pytest.mark.parametrize("name", ["lines.txt", "line.txt", "packed.gz", "a.jsonl", "a.parquet"])
def test_a_large_file_is_never_held(tmp_path, name):
    size = 40 << 20
    block = ("word " * 2_000 + ("\n" if name != "line.txt" else "")) * 50
    count = size // len(block)
    path = tmp_path / name
    if name == "a.parquet":
        with parquet.ParquetWriter(path, pa.schema([("text", pa.string())])) as writer:
            for _ in range(count):
                writer.write_table(pa.table({"text": [block]}))
    else:
        with gzip.open(path, "wb", 1) if name == "packed.gz" else path.open("wb") as stream:
            for _ in range(count):
                record = json.dumps({"text": block}) + "\n" if name == "a.jsonl" else block
                stream.write(record.encode())
            stream.write(b"end" if name != "a.jsonl" else b"")
    seen = 0
    tracemalloc.start()
    try:
        for chunk in read_documents([path]):
            seen += len(chunk.text)
            del chunk
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen >= count * len(block) > 0.9 * size
    assert peak < size / 4


@given(
    items=st.lists(st.text("ab\n", min_size=1).filter(lambda t: not is_blank(t)), min_size=20, max_size=60),
    seed=st.integers(-3, 3),
    valid=st.none() | st.integers(0, 8),
    test=st.none() | st.integers(0, 8),
    order=st.randoms(),
)
def test_whole_documents_are_held_out(items, seed, valid, test, order):
    share = max(1, len(items) // 20)
    sizes = {"valid": share if valid is None else valid, "test": share if test is None else test}
    try:
        parts = made(items).split(valid, test, seed)
    except UserError as error:
        # Only where every group of equal documents that is left is larger than the part.
        assert "differ from all others" in error.what
        assert sorted(Counter(items).values())[0] > 1 or len(set(items)) <= sum(sizes.values())
        return
    found = [texts(part) for part in parts]
    assert sorted(itertools.chain(*found)) == sorted(items)
    assert not (
        set(found[0]) & set(found[1]) or set(found[0]) & set(found[2]) or set(found[1]) & set(found[2])
    )
    for part, size in zip(found[1:], sizes.values(), strict=True):
        assert len(part) <= size and (part or not size)
        assert len(part) == size or len(set(items)) < len(items)
    shuffled = order.sample(items, len(items))
    again = [texts(part) for part in made(shuffled).split(valid, test, seed)]
    assert [sorted(part) for part in again] == [sorted(part) for part in found]


def test_the_seed_chooses():
    items = [f"document {n}" for n in range(200)]
    picked = {tuple(texts(made(items).split(10, 10, seed)[1])) for seed in range(5)}
    assert len(picked) == 5


@given(
    items=st.lists(st.lists(LINE, min_size=1, max_size=50).map("\n".join), min_size=1, max_size=6),
    wants=st.sampled_from([(None, None), (None, 0), (0, None), (0, 0)]),
    size=st.integers(8, 40),
)
def test_of_few_documents_the_ends_are_held_out(tmp_path_factory, items, wants, size):
    items = [item for item in items if not is_blank(item)]
    folder = tmp_path_factory.mktemp("few")
    for n, item in enumerate(items):
        written(folder, f"{n}.txt", item)
    if not items:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", size)
        documents = read_documents([folder])
        whole = texts(documents)
        try:
            found = [texts(part) for part in documents.split(*wants, 1)]
        except UserError as error:
            assert "three lines" in error.what and any(want is None for want in wants)
            return
    assert len(found[0]) == len(whole)
    assert [bool(part) for part in found[1:]] == [want is None for want in wants]
    # Each document is its parts in order, with nothing but a line end (or, in a long line, nothing) between.
    held = [iter(part) for part in found[1:]]
    for train, text in zip(found[0], whole, strict=True):
        rest = text.removeprefix(train)
        assert text.startswith(train)
        for part in held if rest else ():
            piece = next(part, "")
            rest = rest.removeprefix("\n") if not rest.startswith(piece) or rest == "\n" + piece else rest
            assert rest.startswith(piece)
            assert not is_blank(piece) or not piece
            rest = rest.removeprefix(piece)
        assert rest in ("", "\n") or is_blank(rest)
    assert all(next(part, None) is None for part in held)


def test_the_end_is_a_twentieth_by_lines(tmp_path):
    lines = [f"line {n}" for n in range(200)]
    document = read_documents([written(tmp_path, "a.txt", "\n\n".join(lines) + "\n")])
    train, valid, test = (texts(part) for part in document.split(None, None, 1))
    assert train == ["\n\n".join(lines[:180])]
    assert valid == ["\n" + "\n\n".join(lines[180:190])]
    assert test == ["\n" + "\n\n".join(lines[190:])]
    short = read_documents([written(tmp_path, "b.txt", "one\ntwo\nthree")])
    assert [texts(part) for part in short.split(None, None, 1)] == [["one"], ["two"], ["three"]]
    blank = read_documents([written(tmp_path, "c.txt", "one\ntwo\nthree\n\n\n")])
    assert [texts(part) for part in blank.split(None, 0, 1)] == [["one\ntwo"], ["three\n\n"], []]


@pytest.mark.parametrize(
    ("items", "sizes", "message"),
    [
        (["a"] * 3, (1, 2), r"cannot hold out 1 \+ 2 of 3 documents"),
        (["a", "b"], (5, 0), r"cannot hold out 5 \+ 0 of 2 documents"),
        (["a", "b"], (-1, 5), "cannot hold out -1 documents"),
        (["a"] * 30, (1, 1), "no 1 documents for .* differ from all others"),
        (["one line", "two\nlines"], (None, None), "three lines"),
    ],
)
def test_too_little_to_split(items, sizes, message):
    with pytest.raises(UserError, match=message) as caught:
        made(items, 100).split(*sizes, 1)
    assert caught.value.mend


def test_files_that_change_are_noticed(tmp_path):
    path = written(tmp_path, "a.txt", "\n".join(map(str, range(50))))
    parts = read_documents([path], "line").split(5, 5, 1)
    for text in ("\n".join(map(str, range(51))), "1\n2"):
        path.write_text(text)
        with pytest.raises(UserError, match="have changed"):
            list(parts[0])


@given(items=st.lists(st.text("ab \n", min_size=1), min_size=1))
def test_encoded_documents_decode_to_their_text(items):
    tokenizer = train_tokenizer(["ab ba abba\n"] * 3, kind="bpe", size=270)
    out: list[list[int]] = [[]]
    for ids, ends in encode_documents(made(items), tokenizer):
        out[-1] += ids
        out += [[]] if ends else []
    assert [tokenizer.decode(ids) for ids in out] == [*items, ""]
    whole = [chunk.ends for chunk in made(items)]
    assert [ends for _, ends in encode_documents(made(items), tokenizer)] == whole


@pytest.mark.parametrize(
    ("name", "unit", "count", "blank"),
    [
        ("tinyshakespeare/input.txt", "line", 32_777, 7_223),
        ("wikitext2_valid_test/wiki.valid.txt", "line", 2_461, 1_299),
        ("zh_hongloumeng/hongloumeng.txt", "line", 2_654, 2_937),
        ("zh_hongloumeng/hongloumeng.txt", "file", 1, 0),
    ],
)
def test_counts_of_real_files(data_folder, name, unit, count, blank):
    summary = read_documents([data_folder / name], unit).summary()
    assert (summary.documents, summary.blank) == (count, blank)
