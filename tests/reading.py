"""What every ``Dataset`` has to hold, for the tests of each; and stores of documents to read."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hypothesis import strategies as st

from triptych.data import Batch, Cursor, Dataset, TokenStore
from triptych.layout import Layout

documents = st.lists(st.integers(0, 30), min_size=1, max_size=25)
"""Sizes of documents; see ``stored``."""


def stored(sizes: Sequence[int], first: int = 100) -> TokenStore:
    """Documents of these sizes; all their tokens differ: ``first``, ``first + 1``, …"""
    number = itertools.count(first)
    with TemporaryDirectory() as folder:
        return TokenStore.write(
            Path(folder) / "ids", [([next(number) for _ in range(size)], True) for size in sizes]
        )


def same(one: Batch, other: Batch) -> bool:
    """Nothing differs between two batches."""
    for field in fields(Batch):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, Layout):
            assert isinstance(b, Layout)
            if not (torch.equal(a.position, b.position) and torch.equal(a.segment, b.segment)):
                return False
        elif not (torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b):
            return False
    return True


def check_reading(data: Dataset, again: Dataset, exact: bool = True, scale: int = 1) -> None:
    """Every example of an epoch once; sizes that hold; a budget that holds; the same batches from the same
    seed, in any order of asking; and from any cursor on. Sizes that are not ``exact`` are upper bounds;
    ``scale``: how many rows of a side an example has."""
    for epoch in (1, 0):
        plan = data.plan(epoch)
        sizes = data.sizes_in(epoch)
        assert Counter(i for batch in plan for i in batch) == dict.fromkeys(range(len(sizes)), 1)
        padded = real = 0
        for index in plan:
            batch = data.batch(index, epoch)
            assert batch.index == tuple(index) and batch.targets.dtype == torch.int64
            assert batch.ids.dtype == (torch.int64 if batch.ids.dim() == 2 else torch.float32)
            sides = [batch.layout.real] if batch.source is None else [batch.given[1].real, batch.layout.real]
            rows = [side.sum(1).tolist() for side in sides]
            real_here, stated = sum(map(sum, rows)), sum(sum(sizes[i]) for i in index)
            assert real_here == stated if exact else real_here <= stated
            assert all(side.any(0).all() for side in sides), "padded to the longest row and no further"
            assert len(index) == 1 or max(side.numel() for side in sides) <= data.tokens * scale
            padded, real = padded + sum(side.numel() for side in sides), real + real_here
        assert not exact or abs(data.padding(epoch) - (1 - real / padded)) < 1e-9
    count = len(data.plan(0)) + len(data.plan(1)) + 2
    whole = list(itertools.islice(data.read(Cursor()), count))
    for stop in sorted({0, 1, count // 2, len(data.plan(0)), count - 1}):
        cursor = whole[stop - 1][1] if stop else Cursor()
        rest = list(itertools.islice(again.read(cursor), count - stop))
        for (got, after), (want, next_) in zip(rest, whole[stop:], strict=True):
            assert after == next_ and same(got, want)
    assert [b.index for b in data.once()] == [b.index for b in again.once()]
    assert (
        data.largest().ids.numel() == max(b.ids.numel() for b in data.once())
        or data.largest().source is not None
    )


def chance(seen: Sequence[float], expected: Sequence[float]) -> float:
    """Of counts that differ at least so much from what is expected, by Pearson's χ² test."""
    assert min(expected) > 5 and abs(sum(seen) - sum(expected)) < 1e-6 * sum(expected)
    statistic = sum((s - e) ** 2 / e for s, e in zip(seen, expected, strict=True))
    half = torch.tensor([(len(seen) - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
