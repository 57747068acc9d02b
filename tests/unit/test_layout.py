"""``Layout``: where each token is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triptych.layout import Layout

lengths = st.lists(st.integers(0, 7), min_size=1, max_size=5)
sides = st.sampled_from(["left", "right"])


def _rows(layout: Layout) -> list[list[tuple[int, int]]]:
    """(segment, position) of the real tokens of each row, in slot order."""
    return [
        [(s, p) for s, p in zip(segment, position, strict=True) if s >= 0]
        for segment, position in zip(layout.segment.tolist(), layout.position.tolist(), strict=True)
    ]


@given(lengths, sides, st.integers(0, 9))
def test_padded(sizes: list[int], side: Any, width: int) -> None:
    layout = Layout.padded(sizes, side, width)
    wide = max(width, *sizes, 0)
    assert (layout.batch, layout.length) == (len(sizes), wide)
    assert _rows(layout) == [[(0, p) for p in range(n)] for n in sizes]
    for row, n in zip(layout.real.tolist(), sizes, strict=True):
        gap = [False] * (wide - n)
        assert row == ([True] * n + gap if side == "right" else gap + [True] * n)
    assert layout.plain == all(n == wide for n in sizes)
    assert layout.position.dtype == layout.segment.dtype == torch.int64
    assert int(layout.position.min() if wide else 0) >= 0, "padding too has a position that tables know"


@given(st.integers(1, 4), st.integers(1, 6))
def test_full_is_padded_without_padding(batch: int, length: int) -> None:
    full, padded = Layout.full(batch, length), Layout.padded([length] * batch)
    assert torch.equal(full.position, padded.position) and torch.equal(full.segment, padded.segment)
    assert full.plain and padded.plain


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), sides)
def test_next_follows_the_last_token(sizes: list[int], side: Any) -> None:
    after = Layout.padded(sizes, side).next()
    assert after.position.tolist() == [[n] for n in sizes]
    assert after.segment.tolist() == [[0]] * len(sizes)


def test_next_in_a_packed_row() -> None:
    """After the row's last segment, though an earlier one is longer."""
    position = torch.tensor([[0, 1, 2, 0, 0], [0, 0, 1, 2, 3]])
    segment = torch.tensor([[0, 0, 0, 1, -1], [0, 1, 1, 1, 1]])
    after = Layout(position, segment).next()
    assert after.position.tolist() == [[1], [4]] and after.segment.tolist() == [[1], [1]]


def test_next_of_an_empty_row_is_its_first_token() -> None:
    after = Layout.padded([0, 2]).next()
    assert after.position.tolist() == [[0], [2]] and after.segment.tolist() == [[0], [0]]


@given(lengths, sides, st.data())
def test_select(sizes: list[int], side: Any, data: Any) -> None:
    layout = Layout.padded(sizes, side)
    rows = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=6))
    chosen = layout.select(torch.tensor(rows))
    assert _rows(chosen) == [_rows(layout)[r] for r in rows]
    assert not chosen.plain or layout.plain


@given(lengths, sides, st.data())
def test_narrow(sizes: list[int], side: Any, data: Any) -> None:
    """Slots, not positions; plain only where it begins at the beginning."""
    layout = Layout.padded(sizes, side)
    start = data.draw(st.integers(0, layout.length))
    stop = data.draw(st.integers(start, layout.length))
    part = layout.narrow(start, stop)
    assert part.length == stop - start
    assert torch.equal(part.position, layout.position[:, start:stop])
    assert torch.equal(part.segment, layout.segment[:, start:stop])
    if part.plain and part.length:
        assert torch.equal(part.position, Layout.full(part.batch, part.length).position) and part.real.all()


def test_memo_is_a_layouts_own() -> None:
    """Made once; never seen by another layout, not even by an equal one or by a part of it."""
    layout, calls = Layout.full(2, 3), []

    def make() -> int:
        calls.append(1)
        return len(calls)

    assert [layout.memo("a", make), layout.memo("a", make)] == [1, 1]
    assert layout.memo("b", make) == 2
    others = [Layout.full(2, 3), layout.select(torch.tensor([0, 1])), layout.narrow(0, 2), layout.to("cpu")]
    assert [other.memo("a", make) for other in others] == [3, 4, 5, 6]
    assert layout.memo("a", make) == 1


def test_none_is_remembered() -> None:
    layout, calls = Layout.full(1, 1), []
    for _ in range(2):
        assert layout.memo("k", lambda: calls.append(1)) is None
    assert len(calls) == 1


def test_shapes_must_agree() -> None:
    with pytest.raises(AssertionError):
        Layout(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(AssertionError):
        Layout(torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))


@given(lengths, sides, st.data())
def test_part_after_a_head(sizes: list[int], side: Any, data: Any) -> None:
    """The first slots and some later ones; the same object each time; never plain, and alike as before."""
    layout = Layout.padded(sizes, side)
    head, start, stop = sorted(data.draw(st.tuples(*[st.integers(0, layout.length)] * 3)))
    part, slots = layout.part(start, stop, head), [*range(head), *range(start, stop)]
    assert part is layout.part(start, stop, head) and part.alike == layout.alike
    assert torch.equal(part.position, layout.position[:, slots])
    assert torch.equal(part.segment, layout.segment[:, slots])
    assert not (part.plain and head)


@given(lengths, sides, st.integers(0, 3))
def test_placed(sizes: list[int], side: Any, later: int) -> None:
    """Each real token in the slot of its position, whatever stands in padding."""
    layout = Layout.padded(sizes, side)
    moved = Layout(layout.position + later, layout.segment)
    for own in (layout, moved, Layout(layout.position.where(layout.real, 9), layout.segment)):
        assert own.placed == bool((own.position == torch.arange(own.length))[own.real].all())
