"""Where each token is: the one word that data, masks, positions and caches have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Layout:
    """Position and segment of every token of a batch.

    Built once a batch and carried everywhere, so that padding on either side, packing, chunks, cached
    keys and reordered beams are one case: nothing downstream counts positions by itself.

    Attributes:
        position: ``[B, T]`` int64, the token's place in its own sequence, from 0.
        segment: ``[B, T]`` int64, which sequence of its row the token belongs to; -1 is padding.
        plain: known without looking: every row is one sequence at 0 … T-1 without padding.
        alike: known without looking: all rows have the same positions and segments.
    """

    position: Tensor
    segment: Tensor
    plain: bool = False
    alike: bool = False
    _memo: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        assert self.position.shape == self.segment.shape and self.position.dim() == 2
        object.__setattr__(self, "alike", self.alike or self.plain)

    @staticmethod
    def full(batch: int, length: int, device: torch.device | None = None) -> Layout:
        """``batch`` rows of ``length`` tokens without padding."""
        position = torch.arange(length, device=device).expand(batch, length)
        return Layout(position, torch.zeros_like(position), plain=True)

    @staticmethod
    def padded(lengths: Sequence[int], side: Literal["left", "right"] = "right", width: int = 0) -> Layout:
        """Rows of the given lengths, padded to the longest (or to ``width``) on one side."""
        width = max(width, *lengths) if len(lengths) > 1 else max(width, lengths[0])
        length = torch.tensor(lengths)[:, None]
        slot = torch.arange(width)[None]
        place = slot if side == "right" else slot - (width - length)
        real = (place >= 0) & (place < length)
        position = torch.where(real, place, 0)
        return Layout(position, torch.where(real, 0, -1), plain=min(lengths) == width)

    @property
    def batch(self) -> int:
        """Rows."""
        return self.position.shape[0]

    @property
    def length(self) -> int:
        """Slots in a row."""
        return self.position.shape[1]

    @property
    def real(self) -> Tensor:
        """``[B, T]`` bool: not padding."""
        return self.segment >= 0

    def next(self) -> Layout:
        """One more token a row, after the last position of the row's last segment: ``[B, 1]``."""
        last = self.segment.amax(1, keepdim=True).clamp(min=0)
        newest = self.position.masked_fill(self.segment != last, -1).amax(1, keepdim=True) + 1
        return Layout(newest, last)

    def select(self, rows: Tensor) -> Layout:
        """The given rows, in the given order."""
        return Layout(self.position[rows], self.segment[rows], self.plain, self.alike)

    def narrow(self, start: int, stop: int) -> Layout:
        """Slots ``start`` … ``stop`` - 1 of every row."""
        plain = self.plain and start == 0
        return Layout(self.position[:, start:stop], self.segment[:, start:stop], plain, self.alike)

    def part(self, start: int, stop: int, head: int = 0) -> Layout:
        """``narrow``, after the first ``head`` slots; the same object each time: what is remembered of it is
        shared by all layers."""

        def make() -> Layout:
            if not head:
                return self.narrow(start, stop)
            own = self.position, self.segment
            position, segment = (torch.cat((x[:, :head], x[:, start:stop]), 1) for x in own)
            return Layout(position, segment, alike=self.alike)

        return self.memo(("part", start, stop, head), make)

    def first(self) -> Layout:
        """The first row alone."""
        return self.memo("first", lambda: Layout(self.position[:1], self.segment[:1], self.plain))

    @property
    def contiguous(self) -> bool:
        """Each sequence stands in one run of slots, in order, and sequences in the order of their numbers:
        tokens that are near in position are near in slots."""
        return self.plain or self.memo("contiguous", self._contiguous)

    def _contiguous(self) -> bool:
        before, now = self.segment[:, :-1], self.segment[:, 1:]
        goes_on = (now >= 0) & (now == before)
        begins = (now >= 0) & ~goes_on
        newer = now > before.cummax(1).values
        step = self.position[:, 1:] == self.position[:, :-1] + 1
        return bool((~begins | newer).all() & (~goes_on | step).all())

    @property
    def placed(self) -> bool:
        """Each token stands in the slot of its position: one sequence a row, from the first slot on."""
        return self.plain or self.memo("placed", self._placed)

    def _placed(self) -> bool:
        slot = torch.arange(self.length, device=self.position.device)
        return bool(((self.position == slot) | ~self.real).all())

    def to(self, device: torch.device | str) -> Layout:
        """The same on another device."""
        return Layout(self.position.to(device), self.segment.to(device), self.plain, self.alike)

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, computed once a layout: masks and rotations are shared by all layers.

        ``key`` must hold whatever else the value depends on; the value may not depend on anything that
        changes.
        """
        if key not in self._memo:
            self._memo[key] = make()
        value: T = self._memo[key]
        return value
