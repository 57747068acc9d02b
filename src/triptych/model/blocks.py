"""Attention in blocks of queries when they see only near keys: time and memory grow with T · w, not T².

keys     ░░░░░░░░░░░░░░░░░░          a block of queries and its reach: the only products computed
queries      ▓▓▓▓▓▓ ← each block reaches back (and, in an encoder, ahead) by the window
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triptych.layout import Layout
from triptych.model.visible import Reach, Visible, is_relative

# Attention of some queries over some keys: (q, k, v, query layout, key layout) → [B, H, T, D].
Meet = Callable[[Tensor, Tensor, Tensor, Layout, Layout], Tensor]

# Smaller blocks waste time on calls.
SMALLEST = 64


class Span(NamedTuple):
    """Queries ``start`` … ``stop`` - 1 see no key outside ``first`` … ``last`` - 1."""

    start: int
    stop: int
    first: int
    last: int


def spans(reach: Reach, queries: int, keys: int) -> list[Span]:
    """The blocks for ``queries`` that are the last of ``keys``; one block when cutting does not pay."""
    back, ahead = reach
    whole = [Span(0, queries, 0, keys)]
    if back is None or ahead is None:
        return whole
    # Half the reach: a third of the products are of keys that most of a block does not see.
    size = max(SMALLEST, -(-(back + ahead + 1) // 2))
    if keys < 2 * size + back + ahead:
        return whole
    offset, out = keys - queries, []
    for start in range(0, queries, size):
        stop = min(start + size, queries)
        out.append(Span(start, stop, max(0, offset + start - back), min(keys, offset + stop + ahead)))
    return out


def products(reach: Reach, queries: int, keys: int) -> int:
    """(Query, key) pairs that are computed."""
    return sum((s.stop - s.start) * (s.last - s.first) for s in spans(reach, queries, keys))


def in_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Visible,
    query: Layout,
    key: Layout,
    meet: Meet,
    relative: bool = False,
) -> Tensor:
    """``meet`` in blocks where what is visible allows it, else at once: ``[B, H, T, D]``.

    ``relative``: beside what is visible, only differences of positions matter to ``meet``. Blocks that lie
    alike in rows without padding then have one mask.
    """
    cut = spans(visible.reach, query.length, key.length)
    if (len(cut) == 1 and cut[0].last - cut[0].first == key.length) or not key.contiguous:
        return meet(q, k, v, query, key)
    alike = relative and query.plain and key.plain and is_relative(visible)
    twins: dict[tuple[int, ...], Span] = {}
    qs, out = torch.split(q, [s.stop - s.start for s in cut], 2), []
    for own, span in zip(qs, cut, strict=True):
        start, stop, first, last = span
        twin = twins.setdefault((stop - start, start - first, last - first), span) if alike else span
        some, near = query.part(twin.start, twin.stop), key.part(twin.first, twin.last)
        near_k, k = _Slice.apply(k, first, last)  # type: ignore[no-untyped-call]
        near_v, v = _Slice.apply(v, first, last)  # type: ignore[no-untyped-call]
        out.append(meet(own, near_k, near_v, some, near))
    return torch.cat(out, 2)


class _Slice(torch.autograd.Function):
    """``x[:, :, first:last]``, and x to take the next from. Gradients of slices that overlap are added to one
    tensor as they come: each alone would be as long as x, and all of them together as T²."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
        ctx.ends = first, last
        return x[:, :, first:last], x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (first, last), (own, whole) = ctx.ends, grads
        whole[:, :, first:last] += own
        return whole, None, None
