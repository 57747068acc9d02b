"""Sequences of many lengths side by side in rows of one length, isolated from each other.

    segment   0 0 0 0 0 0 0 1 1 1 1 1 2 2 2 -1        sequences of 7, 5 and 3 in a row of 16
    position  0 1 2 3 4 5 6 0 1 2 3 4 0 1 2  0        positions begin anew in each

A row is filled by best fit: the longest sequence that waits opens it, then ever the longest that still fits.
Those that wait are few (``WAITING``) and come in random order, so neighbours differ from epoch to epoch.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import chain, islice

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.data.batches import IGNORE, Batch, Dataset, Plan
from triptych.data.store import Numbers, runs
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.text.vocabulary import PAD

WAITING = 1024
"""Among so many sequences of natural lengths one nearly always fits exactly."""


class Rows(Dataset):
    """Rows of up to ``length`` tokens, nearly all full, in any order: batches need no buckets."""

    def __init__(self, length: int, tokens: int, seed: int) -> None:
        super().__init__((), tokens, seed)
        check_budget(length, tokens)
        self.length = length

    @abstractmethod
    def filled(self, epoch: int) -> Numbers:
        """How many tokens each row of an epoch holds."""

    def sizes_in(self, epoch: int) -> Numbers:
        """The rows of an epoch."""
        return self.filled(epoch)[:, None]

    def plan(self, epoch: int) -> Plan:
        """The rows of an epoch in random order, as many a batch as the budget takes."""
        order = self.draws(epoch).permutation(len(self.filled(epoch)))
        begin = np.arange(0, len(order), self.tokens // self.length)
        return Plan(order, begin, np.append(begin[1:], len(order)))


class PackedRows(Rows):
    """Sequences packed in rows.

    Attributes:
        spans: how many tokens each sequence has, 1 to ``length``.
    """

    def __init__(self, spans: Numbers, length: int, tokens: int, seed: int) -> None:
        super().__init__(length, tokens, seed)
        assert not len(spans) or 0 < spans.min() <= spans.max() <= length, "a sequence is never cut here"
        self.spans = spans
        self._packed: tuple[int, Numbers, Numbers] = (-1, spans, spans)
        self.sizes = self.sizes_in(0)

    @abstractmethod
    def text(self, sequence: Numbers) -> tuple[Numbers, Numbers]:
        """What is read and what is to be said in these sequences, one after the other."""

    def packing(self, epoch: int) -> tuple[Numbers, Numbers]:
        """Sequence numbers row by row, and where each row begins among them (and the last one ends)."""
        if self._packed[0] != epoch:
            self._packed = (epoch, *pack(self.spans, self.length, self.draws(epoch, "packing")))
        return self._packed[1:]

    def filled(self, epoch: int) -> Numbers:
        """How many tokens each row of an epoch holds."""
        sequence, border = self.packing(epoch)
        return np.add.reduceat(self.spans[sequence], border[:-1]) if len(sequence) else sequence

    def batch(self, index: Sequence[int], epoch: int = 0) -> Batch:
        """The batch of these rows of an epoch."""
        sequence, border = self.packing(epoch)
        rows = np.asarray(index)
        count = border[rows + 1] - border[rows]
        chosen = sequence[runs(border[rows], count)]
        return laid(*self.text(chosen), self.spans[chosen], np.repeat(np.arange(len(rows)), count), index)


def check_budget(length: int, tokens: int) -> None:
    """Refuses a budget that a single row goes beyond."""
    if tokens < length:
        what = f"a row of {length} tokens (data.length) is more than a batch of {tokens}"
        raise UserError(what, "data.tokens", f"set data.tokens to {length} or more, or lower data.length")


def pack(size: Numbers, length: int, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Sequences of these sizes in rows of ``length``: their numbers row by row, and the rows' borders."""
    kind = np.int32 if len(size) < 2**31 else np.int64
    full = np.flatnonzero(size == length).astype(kind)
    rest = rng.permutation(np.flatnonzero(size < length).astype(kind))
    base = len(rest)

    def keys(begin: int) -> list[int]:
        """One number holds a size and a place in the random order: sorted by size, and at random within one.
        There may be millions, so they are made piece by piece."""
        sizes = size[rest[begin : begin + WAITING]].astype(np.int64)
        key: list[int] = (sizes * base + np.arange(begin, begin + len(sizes))).tolist()
        return key

    coming = chain.from_iterable(map(keys, range(0, base, WAITING)))
    waiting = sorted(islice(coming, WAITING))
    packed, border = array(np.dtype(kind).char), array(np.dtype(kind).char, [len(full)])
    while waiting:
        space = length
        while place := bisect_right(waiting, space * base + base - 1):
            taken, number = divmod(waiting.pop(place - 1), base)
            space -= taken
            packed.append(number)
            if (key := next(coming, None)) is not None:
                insort(waiting, key)
        border.append(len(full) + len(packed))
    row_by_row = np.concatenate([full, rest[np.asarray(packed)]])
    return row_by_row, np.concatenate([np.arange(len(full), dtype=kind), np.asarray(border)])


def laid(read: Numbers, said: Numbers, size: Numbers, row: Numbers, index: Sequence[int]) -> Batch:
    """Sequences of these sizes, each in its row, as a batch.

    Args:
        read, said: the ids and targets of all sequences, one after the other.
        row: of each sequence, ascending.
        index: the rows' names.
    """
    before = size.cumsum() - size
    opens = np.searchsorted(row, row)  # the first sequence of its row
    B, T = len(index), int(np.bincount(row, size).max())
    position = runs(np.zeros_like(size), size)
    place = np.repeat(row * T + before - before[opens], size) + position
    segment = np.repeat(np.arange(len(row)) - opens, size)

    def spread(values: Numbers, fill: int) -> torch.Tensor:
        slots: NDArray[np.int64] = np.full(B * T, fill, np.int64)
        slots[place] = values
        return torch.from_numpy(slots).view(B, T)

    plain = len(row) == B and bool((size == T).all())
    layout = Layout.full(B, T) if plain else Layout(spread(position, 0), spread(segment, -1))
    return Batch(spread(read, PAD), layout, spread(said, IGNORE), tuple(index))
