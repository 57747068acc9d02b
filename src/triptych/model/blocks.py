"""Attention in blocks of queries when they see only near keys and the first: time and memory grow with
T · (w + g), not T².

keys     ░░░   ░░░░░░░░░░░░░░░░░░    a block of queries and its reach: the only products computed
queries           ▓▓▓▓▓▓ ← each block reaches back (and, in an encoder, ahead) by the window w,
          ↑ and to the first g keys of its sequence; queries there that see all keys are a block

Those are the first slots where a row is one sequence from its first slot on: in other rows (padded on the
left, packed, without what a cache has dropped) such attention is computed at once.
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
    """Queries ``start`` … ``stop`` - 1 see no key outside ``first`` … ``last`` - 1 and the ``head`` first."""

    start: int
    stop: int
    first: int
    last: int
    head: int = 0

    @property
    def keys(self) -> int:
        """How many they meet."""
        return self.head + self.last - self.first


def spans(reach: Reach, queries: int, keys: int) -> list[Span]:
    """The blocks for ``queries`` that are the last of ``keys``; one block when cutting does not pay."""
    back, ahead, head, wide = reach
    whole = [Span(0, queries, 0, keys)]
    if back is None or ahead is None:
        return whole
    # Half the reach: a third of the products are of keys that most of a block does not see.
    size = max(SMALLEST, -(-(back + ahead + 1 + head) // 2))
    if keys < 2 * size + back + ahead + head:
        return whole
    offset = keys - queries
    wide = min(queries, max(0, wide - offset))
    out = [Span(0, wide, 0, keys)] if wide else []
    for start in range(wide, queries, size):
        stop = min(start + size, queries)
        first, last = offset + start - back, max(head, min(keys, offset + stop + ahead))
        out.append(Span(start, stop, first, last, head) if first > head else Span(start, stop, 0, last))
    return out


def products(reach: Reach, queries: int, keys: int) -> int:
    """(Query, key) pairs that are computed."""
    return sum((s.stop - s.start) * s.keys for s in spans(reach, queries, keys))


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
    reach = visible.reach
    cut = spans(reach, query.length, key.length)
    whole = len(cut) == 1 and cut[0].keys == key.length
    if whole or not (key.placed if reach.first else key.contiguous):
        return meet(q, k, v, query, key)
    alike = relative and query.plain and key.plain and is_relative(visible)
    twins: dict[tuple[int, ...], Span] = {}
    qs, out = torch.split(q, [s.stop - s.start for s in cut], 2), []
    for own, span in zip(qs, cut, strict=True):
        start, stop, first, last, head = span
        twin = twins.setdefault((stop - start, start - first, last - first), span) if alike else span
        some, near = query.part(twin.start, twin.stop), key.part(twin.first, twin.last, head)
        near_k, k = _Slice.apply(k, first, last, head)  # type: ignore[no-untyped-call]
        near_v, v = _Slice.apply(v, first, last, head)  # type: ignore[no-untyped-call]
        out.append(meet(own, near_k, near_v, some, near))
    return torch.cat(out, 2)


class _Slice(torch.autograd.Function):
    """``x[:, :, first:last]`` after its ``head`` first, and x to take the next from. Gradients of slices that
    overlap are added to one tensor as they come: each alone would be as long as x, and all of them together
    as T²."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, first: int, last: int, head: int) -> tuple[Tensor, Tensor]:
        ctx.ends, near = (first, last, head), x[:, :, first:last]
        return torch.cat((x[:, :, :head], near), 2) if head else near, x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (first, last, head), (own, whole) = ctx.ends, grads
        whole[:, :, first:last] += own[:, :, head:]
        if head:
            whole[:, :, :head] += own[:, :, :head]
        return whole, None, None, None
