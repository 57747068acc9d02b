"""``Layout`` and ``Visible`` against loops over single tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triptych.config import ModelConfig
from triptych.layout import Layout
from triptych.model.visible import Causal, Everything, SameSegment, Visible, Window, sight

LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def grid(draw: st.DrawFn, batch: int, length: int, low: int, high: int) -> torch.Tensor:
    """``[batch, length]`` integers."""
    flat = draw(st.lists(st.integers(low, high), min_size=batch * length, max_size=batch * length))
    return torch.tensor(flat, dtype=torch.int64).view(batch, length)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """A query and a key layout of one batch: any positions and segments, or plain ones."""
    batch, T, S = draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    if draw(st.booleans()):
        query = Layout.full(batch, T)
        return query, draw(st.sampled_from([query, Layout.full(batch, T), Layout.full(batch, S)]))
    pair = [Layout(grid(draw, batch, n, 0, 4), grid(draw, batch, n, -1, 1)) for n in (T, S)]
    return pair[0], pair[1]


PREDICATES = st.recursive(
    st.one_of(st.sampled_from([Everything(), SameSegment(), Causal()]), st.integers(1, 4).map(Window)),
    lambda inner: st.tuples(st.sampled_from("&|"), inner, inner),
    max_leaves=4,
)


def build(tree: Any) -> Visible:
    """A tree of predicates as one."""
    if isinstance(tree, Visible):
        return tree
    one, other = build(tree[1]), build(tree[2])
    return one & other if tree[0] == "&" else one | other


def sees(tree: Any, query: tuple[int, int], key: tuple[int, int]) -> bool:
    """The same for one query and one key, each (position, segment)."""
    match tree:
        case Everything():
            return True
        case SameSegment():
            return query[1] == key[1] and query[1] != -1
        case Causal():
            return key[0] <= query[0]
        case Window(width):
            return key[0] in range(query[0] - width + 1, query[0] + width)
        case (sign, one, other):
            both = (sees(one, query, key), sees(other, query, key))
            return all(both) if sign == "&" else any(both)
    raise AssertionError(tree)


@given(PREDICATES, layouts())
def test_predicates_compose(tree: Any, pair: tuple[Layout, Layout]) -> None:
    query, key = pair
    visible = build(tree)
    want = torch.tensor(
        [
            [
                [sees(tree, (int(qp), int(qs)), (int(kp), int(ks))) for kp, ks in zip(*k, strict=True)]
                for qp, qs in zip(*q, strict=True)
            ]
            for q, k in zip(zip(query.position, query.segment), zip(key.position, key.segment))  # noqa: B905
        ]
    )
    assert torch.equal(visible(query, key), want)
    mask = visible.lower(query, key)
    seen = want[:, None] if mask.seen is None else mask.seen.expand_as(want[:, None])
    assert torch.equal(seen, want[:, None])
    if mask.seen is None:
        assert bool(want.all())
    if mask.causal:
        assert torch.equal(want, torch.ones_like(want).tril())
    rows = torch.ones_like(seen.any(-1, keepdim=True)) if mask.rows is None else mask.rows
    assert torch.equal(rows.expand_as(seen[..., :1]), seen.any(-1, keepdim=True))
    bias = mask.bias(torch.float64)
    assert bias is None or (torch.equal((bias == 0).expand_as(seen), seen) and bool(bias.isfinite().all()))
    assert build(tree).lower(query, key) is mask  # equal predicates share their mask


@pytest.mark.parametrize("causal", [True, False])
@given(st.data())
def test_sight_is_what_the_settings_say(causal: bool, data: st.DataObject) -> None:
    query, key = data.draw(layouts())
    width = data.draw(st.one_of(st.none(), st.integers(1, 4)))
    seen: dict[str, Any] = {"kind": "window", "width": width} if width else {"kind": "everything"}
    config = ModelConfig.parse({"dim": 8, "heads": 2, "attention": {"visible": seen}})
    got = sight(config.attention.visible, causal)(query, key)
    for b, t, s in torch.cartesian_prod(*map(torch.arange, got.shape)).tolist():
        same = int(query.segment[b, t]) == int(key.segment[b, s]) != -1
        back = int(query.position[b, t]) - int(key.position[b, s])
        want = same and (back >= 0 or not causal) and (width is None or abs(back) < width)
        assert bool(got[b, t, s]) == want


@given(LENGTHS, st.sampled_from(["left", "right"]), st.integers(0, 8))
def test_padded(lengths: list[int], side: Any, width: int) -> None:
    layout = Layout.padded(lengths, side, width)
    assert layout.length == max(width, *lengths, 0)
    for row, n in enumerate(lengths):
        pad = layout.length - n
        want = [*range(n)]
        order = [-1] * pad + want if side == "left" else want + [-1] * pad
        assert layout.segment[row].tolist() == [0 if p >= 0 else -1 for p in order]
        assert layout.position[row][layout.real[row]].tolist() == want
    assert layout.plain == all(n == layout.length for n in lengths)
    if layout.plain:
        assert torch.equal(layout.position, Layout.full(layout.batch, layout.length).position)


@given(LENGTHS, st.sampled_from(["left", "right"]))
def test_next_goes_on_after_the_last_token(lengths: list[int], side: Any) -> None:
    after = Layout.padded(lengths, side).next()
    assert after.position[:, 0].tolist() == lengths
    assert after.segment[:, 0].tolist() == [0] * len(lengths)


@given(LENGTHS, st.sampled_from(["left", "right"]), st.data())
def test_narrow_and_select(lengths: list[int], side: Any, data: st.DataObject) -> None:
    layout = Layout.padded(lengths, side)
    start = data.draw(st.integers(0, layout.length - 1))
    stop = data.draw(st.integers(start + 1, layout.length))
    rows = torch.tensor(data.draw(st.lists(st.integers(0, layout.batch - 1), min_size=1, max_size=4)))
    part = layout.narrow(start, stop).select(rows)
    assert torch.equal(part.position, layout.position[rows, start:stop])
    assert torch.equal(part.segment, layout.segment[rows, start:stop])
    if part.plain:  # what plain promises
        assert torch.equal(part.position, Layout.full(part.batch, part.length).position)
        assert bool(part.real.all())


def test_memo_computes_once_and_by_key() -> None:
    layout, calls = Layout.full(1, 2), []

    def make() -> int:
        calls.append(1)
        return len(calls)

    assert [layout.memo("a", make), layout.memo("a", make), layout.memo("b", make)] == [1, 1, 2]
    assert layout.narrow(0, 1).memo("a", make) == 3  # another layout remembers nothing of this one
