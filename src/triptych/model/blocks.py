"""Attention in blocks of queries when they see only near keys: time and memory grow with T · w, not T².

keys     ░░░░░░░░░░░░░░░░░░          a block of queries and its reach: the only products computed
queries      ▓▓▓▓▓▓ ← each block reaches back (and, in an encoder, ahead) by the window
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from triptych.layout import Layout
from triptych.model.visible import Reach, Visible

# Attention of some queries over some keys: (q, k, v, query layout, key layout) → [B, H, T, D].
Meet = Callable[[Tensor, Tensor, Tensor, Layout, Layout], Tensor]

# Smaller blocks waste time on calls, and fewer keys than this are not worth cutting.
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
    size = max(SMALLEST, back + 1)
    if keys < 2 * size + ahead:
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
    q: Tensor, k: Tensor, v: Tensor, visible: Visible, query: Layout, key: Layout, meet: Meet
) -> Tensor:
    """``meet`` in blocks where what is visible allows it, else at once: ``[B, H, T, D]``."""
    cut = spans(visible.reach, query.length, key.length)
    if (len(cut) == 1 and cut[0].last - cut[0].first == key.length) or not key.contiguous:
        return meet(q, k, v, query, key)
    out = []
    for start, stop, first, last in cut:
        some = query.part(start, stop)
        near = some if key is query and (start, stop) == (first, last) else key.part(first, last)
        out.append(meet(q[:, :, start:stop], k[:, :, first:last], v[:, :, first:last], some, near))
    return torch.cat(out, 2)
