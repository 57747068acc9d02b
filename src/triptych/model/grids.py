"""Sequences as grids: position p of a sequence is row p // width, column p % width.

    0 1 2 3      axial, from 5:  . x . .    cells of 2:  a a b b    shifted:  a b b c
    4 5 6 7                      x x x x                 a a b b              d e e f
    8 9 …                        . x . .                 c c d d              d e e f

Shapes: B rows, T tokens, S keys; … any shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from triptych.config import parts
from triptych.layout import Layout
from triptych.model.registry import carries_out
from triptych.model.visible import Causal, Everything, Reach, Visible


@dataclass(frozen=True)
class Axial(Visible):
    """Keys in the query's row, in its column, or in either (Ho et al. 2019, section 2.2)."""

    width: int
    axis: str = "both"

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        q, k = query.position[:, :, None], key.position[:, None, :]
        row, column = q // self.width == k // self.width, q % self.width == k % self.width
        return {"both": row | column, "row": row, "column": column}[self.axis]

    @property
    def reach(self) -> Reach:
        most = self.width - 1 if self.axis == "row" else None
        return Reach(most, most)


@dataclass(frozen=True)
class Cells(Visible):
    """Keys in the query's cell; borders stand ``shift`` rows and columns further. Cells cut off by the edge
    are smaller: Swin's cyclic shift and its mask are the same (Liu et al. 2021, section 3.2, figure 4)."""

    width: int
    size: int
    shift: int = 0

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        def cell(position: Tensor) -> tuple[Tensor, Tensor]:
            row, column = position // self.width, position % self.width
            return (row - self.shift) // self.size, (column - self.shift) // self.size

        (a, b), (c, d) = cell(query.position[:, :, None]), cell(key.position[:, None, :])
        return (a == c) & (b == d)

    @property
    def reach(self) -> Reach:
        most = (self.size - 1) * (self.width + 1)
        return Reach(most, most)


@carries_out(parts.SeeAxial)
def _axial(settings: parts.SeeAxial, causal: bool) -> Visible:
    return (Causal() if causal else Everything()) & Axial(settings.width, settings.axis)


@carries_out(parts.SeeCells)
def _cells(settings: parts.SeeCells, causal: bool) -> Visible:
    shift = settings.size // 2 if settings.shifted else 0
    return (Causal() if causal else Everything()) & Cells(settings.width, settings.size, shift)


def slots(layout: Layout, width: int, row: Tensor, column: Tensor) -> Tensor:
    """``[B, T, …]`` the slot of the token that stands at ``row`` and ``column`` (which broadcast) in the
    sequence of each token t; T where none does."""

    def make() -> tuple[Tensor, int]:
        last, size = layout.segment.clamp(min=0).max(), layout.position.where(layout.real, 0).max() + 1
        place = torch.where(layout.real, layout.segment * size + layout.position, (last + 1) * size)
        table = place.new_full((layout.batch, int((last + 1) * size) + 1), layout.length)
        table.scatter_(1, place, torch.arange(layout.length, device=place.device).expand_as(place))
        table[:, -1] = layout.length  # where padding went, and where nothing stands
        return table, int(size)

    table, size = layout.memo("slot of each position", make)
    place = row * width + column
    segment = layout.segment.view(*layout.segment.shape, *[1] * (place.dim() - 2))
    inside = (segment >= 0) & (column >= 0) & (column < width) & (place >= 0) & (place < size)
    found = torch.where(inside, segment * size + place, table.shape[1] - 1)
    return table.gather(1, found.flatten(1)).view(found.shape)


def pick(x_BTHD: Tensor, slots_BTHK: Tensor) -> Tensor:
    """``[B, T, H, K, D]`` what stands in slots, head by head; zeros in slot T."""
    B, _, H, _ = x_BTHD.shape
    edged = torch.cat((x_BTHD, x_BTHD.new_zeros(B, 1, *x_BTHD.shape[2:])), 1)
    rows = torch.arange(B, device=x_BTHD.device)[:, None, None, None]
    return edged[rows, slots_BTHK, torch.arange(H, device=x_BTHD.device)[:, None]]
