"""Sparse attention, and prefixes: what else a query may see, alone or joined by ``&`` and ``|``.

    window of 3     dilated 2, 3    blocks of 2     global 2        random of 2     prefix of 3
    x . . . . .     x . . . . .     x . . . . .     x . . . . .     x . . . . .     x x x . . .
    x x . . . .     . x . . . .     x x . . . .     x x . . . .     x x . . . .     x x x . . .
    x x x . . .     . . x . . .     x x x . . .     x x . . . .     x x x . . .     x x x . . .
    . x x x . .     x . . x . .     x x x x . .     x x . . . .     x x x x . .     x x x x . .
    . . x x x .     . x . . x .     . . x x x .     x x . . . .     x x . . x .     x x x x x .
    . . . x x x     . . x . . x     . . x x x x     x x . . . .     x x . . x x     x x x x x x

Rows are queries of a decoder; an encoder's see as much ahead. Shapes: B batch, T queries, S keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from operator import and_, or_
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triptych.config import parts
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model.registry import carries_out, part_of
from triptych.model.visible import Reach, Shape, Visible, all_of_few, direction, near


@dataclass(frozen=True)
class Dilated(Visible):
    """Every ``step``-th key of a window: ``width`` of them with the query's own, on each side (Beltagy et
    al. 2020, section 3.1)."""

    width: int
    step: int
    relative = True

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        q, k = query.position[:, :, None] % self.step, key.position[:, None, :] % self.step
        return near(query.position, key.position, (self.width - 1) * self.step) & (q == k)

    @property
    def reach(self) -> Reach:
        return Reach((self.width - 1) * self.step, (self.width - 1) * self.step)


@dataclass(frozen=True)
class Blocks(Visible):
    """Keys of the query's block of ``size`` positions and of ``neighbours`` blocks on each side (Zaheer et
    al. 2020, appendix D)."""

    size: int
    neighbours: int

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        return near(query.position // self.size, key.position // self.size, self.neighbours)

    def shape(self, query: Layout, key: Layout) -> Shape:
        return all_of_few(query, key, self.size * (self.neighbours + 1))

    @property
    def reach(self) -> Reach:
        most = self.size * (self.neighbours + 1) - 1
        return Reach(most, most)


@dataclass(frozen=True)
class First(Visible):
    """Keys at the first ``count`` positions of their sequence."""

    count: int

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        return (key.position < self.count)[:, None, :].expand(-1, query.length, -1)

    def shape(self, query: Layout, key: Layout) -> Shape:
        return all_of_few(query, key, self.count)

    @property
    def reach(self) -> Reach:
        return Reach(0, 0, self.count)


def whole_prefix(layout: Layout, length: int) -> None:
    """Raises UserError when a pass over a state goes on within a prefix: what its first tokens saw is then
    not what they should have seen."""
    if not length:
        return
    first = layout.real.long().argmax(1, keepdim=True)
    begins = layout.position.masked_fill(~layout.real, 0).gather(1, first)
    if bool(((begins > 0) & (begins < length)).any()):
        raise UserError(
            f"a prefix of {length} tokens, which see each other, was not given as a whole",
            "model.attention.visible.length",
            f"give the first {length} tokens of a sequence in one pass: a prompt no shorter than that",
        )


@dataclass(frozen=True)
class Global(Visible):
    """The first ``count`` positions see all keys, and all queries see them (Beltagy et al. 2020, section
    3.1)."""

    count: int

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        return (query.position < self.count)[:, :, None] | (key.position < self.count)[:, None, :]

    def shape(self, query: Layout, key: Layout) -> Shape:
        return all_of_few(query, key, self.count)

    @property
    def reach(self) -> Reach:
        return Reach(0, 0, self.count, self.count)


@dataclass(frozen=True)
class Random(Visible):
    """Keys of the query's block of ``size`` positions, of the ``count`` earlier blocks that it has drawn, and
    of the later ones that have drawn it (Zaheer et al. 2020, section 2).

    Block i draws those blocks j before it whose ``hash(seed, i, j)`` is least: any chunk, any cache and any
    device draws the same.
    """

    size: int
    count: int
    seed: int

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        # Whatever stands in padding: a table for it could be of any size.
        q, k = (x.position.masked_fill(~x.real, 0) // self.size for x in (query, key))
        # A power of two of blocks: few tables are made while a sequence grows.
        blocks = 1 << int(torch.maximum(q.max(), k.max())).bit_length()
        drawn = torch.as_tensor(_drawn(self.seed, self.count, blocks), device=q.device)
        return drawn[q[:, :, None], k[:, None, :]]

    def shape(self, query: Layout, key: Layout) -> Shape:
        return all_of_few(query, key, 2 * self.size)


@lru_cache(maxsize=16)
def _drawn(seed: int, count: int, blocks: int) -> Any:
    """``bool[blocks, blocks]``: which blocks see each other. An array: a tensor that is kept would be of the
    mode it was made in."""
    n = np.arange(blocks)
    before = n[None, :] < n[:, None]
    hashed = _hash(_hash(_hash(np.array(seed)) ^ n)[:, None] ^ n)
    least = np.where(before, hashed, 1 << 32).argsort(axis=1, kind="stable")[:, :count]
    drawn = np.zeros_like(before)
    np.put_along_axis(drawn, least, True, axis=1)
    drawn &= before
    return drawn | drawn.T | (n[None, :] == n[:, None])


def _hash(x: Any) -> Any:
    """32 bits mixed, by products that 63 bits can hold."""
    for _ in range(2):
        x = ((x >> 16) ^ x) * 73244475 & 0xFFFFFFFF
    return (x >> 16) ^ x


def _restricted(predicate: type[Visible], settings: parts.Sight, causal: bool) -> Visible:
    return direction(causal) & predicate(**settings.model_dump(exclude={"kind"}))


_PREDICATES: dict[type[parts.Sight], type[Visible]] = {
    parts.SeeDilated: Dilated,
    parts.SeeBlocks: Blocks,
    parts.SeeGlobal: Global,
    parts.SeeRandom: Random,
}
for _kind, _predicate in _PREDICATES.items():
    carries_out(_kind)(partial(_restricted, _predicate))


@carries_out(parts.SeePrefix)
def _prefix(settings: parts.SeePrefix, causal: bool) -> Visible:
    beside: Visible = part_of(settings.beside)(settings.beside, causal)
    return beside | First(settings.length)


@carries_out(parts.SeeAll)
@carries_out(parts.SeeAny)
def _joined(settings: parts.SeeAll | parts.SeeAny, causal: bool) -> Visible:
    join = and_ if isinstance(settings, parts.SeeAll) else or_
    seen: Visible = reduce(join, [part_of(one)(one, causal) for one in settings.of])
    return seen
