"""Word vectors in text files: formats, dirty input, pieces of a vocabulary."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text import piece_vectors, vector_width
from triptych.text.vectors import read_vectors

LINES = ["the 1 2.5 -3", "cat 0.1 0.2 0.3", ", 4 5 6"]


def _write(path: Path, lines: list[str], end: str = "\n") -> Path:
    data = end.join(lines) + end
    path.write_bytes(gzip.compress(data.encode()) if path.suffix == ".gz" else data.encode())
    return path


def _read(path: Path, *words: str) -> dict[str, list[float]]:
    return {word: row.tolist() for word, row in read_vectors(path, set(words)).items()}


@pytest.mark.parametrize("header", [[], ["3 3"]], ids=["glove", "word2vec"])
@pytest.mark.parametrize("name", ["v.txt", "v.vec.gz"])
@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"])
def test_formats(tmp_path: Path, header: list[str], name: str, end: str) -> None:
    """With and without a first line of count and width; a blank at a line's end; Windows lines; gzip."""
    path = _write(tmp_path / name, header + LINES, end)
    assert vector_width(path) == 3
    assert _read(path, "the", ",", "dog") == {"the": [1, 2.5, -3], ",": [4, 5, 6]}


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    path = _write(tmp_path / "v.txt", ["\ufeffthe 1 2", "cat 3 4"])
    assert _read(path, "the") == {"the": [1, 2]}


def test_words_with_spaces_are_words(tmp_path: Path) -> None:
    """As in GloVe 840B: what counts are the last numbers; ``at`` is not ``at x@y.com``."""
    path = _write(tmp_path / "v.txt", ["the 1 2", "at x@y.com 3 4", ". . . 5 6", "at 7 8", "\u00a0 9 9"])
    assert _read(path, "at", ".") == {"at": [7, 8]}
    assert _read(path, "\u00a0") == {"\u00a0": [9, 9]}
    assert _read(path, "at x@y.com", ". . .") == {"at x@y.com": [3, 4], ". . .": [5, 6]}


def test_the_first_of_two_counts(tmp_path: Path) -> None:
    assert _read(_write(tmp_path / "v.txt", ["a 1 2", "b 3 4", "a 5 6"]), "a") == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("lines", "line", "what"),
    [
        (["a 1 2 3", "b 1 2"], 2, "2 numbers, where others have 3"),
        (["a 1 2 3", "b 1 2 3 4"], 2, "4 numbers, where others have 3"),
        (["2 3", "a 1 2", "b 1 2 3"], 2, "2 numbers, where others have 3"),
        (["a 1 2 3", "", "b 1 2 3"], 2, "0 numbers"),
        (["a 1 2 3", "b 1 x 3"], 2, "'x' stands where a number should"),
        (["a 1 2 3", "b 1 nan 3"], 2, "not finite"),
        (["a 1 2 3", "b 1 1e99 3"], 2, "not finite"),
        (["no vectors at all"], 1, "no word with its vector"),
        (["word"], 1, "no word with its vector"),
        ([""], 1, "no word with its vector"),
        (["a\t1\t2"], 1, "no word with its vector"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, lines: list[str], line: int, what: str) -> None:
    path = _write(tmp_path / "v.txt", lines)
    with pytest.raises(UserError, match=what) as caught:
        read_vectors(path, {"a", "b"})
    assert caught.value.where == f"{path}:{line}" and caught.value.mend


def test_bytes_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    path.write_bytes(b"a 1 2\nb\xff 3 4\n")
    with pytest.raises(UserError, match="0xFF") as caught:
        read_vectors(path, {"a"})
    assert caught.value.where == f"{path}:2"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        vector_width(tmp_path / "none.txt")
    with pytest.raises(UserError, match="directory"):
        vector_width(tmp_path)
    cut = _write(tmp_path / "v.vec.gz", LINES * 200)
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(UserError, match="gzip"):
        read_vectors(cut, {"the"})
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(UserError, match="this file is empty"):
        vector_width(tmp_path / "empty.txt")


def test_pieces(tmp_path: Path) -> None:
    """A piece is looked up as it is written, else as the word that it begins."""
    path = _write(tmp_path / "v.txt", ["the 1 2", "ing 3 4", "▁the 5 6", "cat 7 8", "</s> 9 9"])
    pieces = ["<pad>", "</s>", "▁the", "▁cat", "ing", "▁", "▁dog", "cat"]
    found = {i: row.tolist() for i, row in piece_vectors(path, pieces).items()}
    assert found == {1: [9, 9], 2: [5, 6], 3: [7, 8], 4: [3, 4], 7: [7, 8]}


words = st.text(st.characters(codec="utf-8", exclude_characters="\n\r "), min_size=1, max_size=6)


@given(st.dictionaries(words, st.integers(0, 99), min_size=1, max_size=8), st.integers(2, 5))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[str, int], dim: int
) -> None:
    path = tmp_path_factory.mktemp("v") / "v.txt"
    lines = [" ".join([word, *(str(n + i) for i in range(dim))]) for word, n in rows.items()]
    _write(path, [f"{len(rows)} {dim}", *lines])
    found = read_vectors(path, set(rows))
    assert set(found) == set(rows)
    for word, n in rows.items():
        np.testing.assert_array_equal(found[word], np.arange(n, n + dim, dtype=np.float32))
