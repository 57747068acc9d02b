"""Batches: every pair once, a budget that holds, an order that repeats, a cursor that resumes."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triptych.data import BOS, EOS, PAD, Batch, Cursor, ParallelData, pad, translation_batch

id_rows = st.lists(st.integers(4, 50), max_size=12)
pairs = st.lists(st.tuples(id_rows, id_rows), min_size=1, max_size=40)
sides = st.sampled_from(["left", "right"])
budgets = st.integers(1, 100)
seeds = st.integers(-5, 5)


def _data(rows: list[tuple[list[int], list[int]]], tokens: int, seed: int = 1) -> ParallelData:
    return ParallelData([s for s, _ in rows], [t for _, t in rows], tokens, seed)


def _corpus(size: int, seed: int = 0) -> ParallelData:
    """Lengths like those of sentences: 1 to about 60, the target near the source."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.distributions.Gamma(3.0, 0.2).sample((size,)).int().add(1).tolist()
    drift = torch.randint(-2, 3, (size,), generator=generator).tolist()
    source = [[5] * n for n in lengths]
    target = [[6] * max(1, n + d) for n, d in zip(lengths, drift, strict=True)]
    return ParallelData(source, target, 1024)


def _real(ids: torch.Tensor, mask: torch.Tensor) -> list[list[int]]:
    return [row[keep].tolist() for row, keep in zip(ids, mask, strict=True)]


# -- one batch


@given(st.lists(id_rows, min_size=1, max_size=6), sides)
def test_pad(rows: list[list[int]], side: Any) -> None:
    ids, layout = pad(rows, side)
    assert ids.dtype == torch.int64 and ids.shape == (len(rows), max(map(len, rows)))
    assert _real(ids, layout.real) == rows
    assert (ids[~layout.real] == PAD).all()
    for row, positions in zip(layout.real, layout.position, strict=True):
        assert positions[row].tolist() == list(range(int(row.sum())))


@given(pairs, sides)
def test_targets_are_inputs_shifted_once(rows: list[tuple[list[int], list[int]]], side: Any) -> None:
    source, target = [s for s, _ in rows], [t for _, t in rows]
    batch = translation_batch(source, target, range(len(rows)), side)
    real = batch.layout.real
    assert _real(batch.source, batch.source_layout.real) == [[*s, EOS] for s in source]
    assert _real(batch.ids, real) == [[BOS, *t] for t in target]
    assert _real(batch.targets, real) == [[*t, EOS] for t in target]
    for inputs, outputs in zip(_real(batch.ids, real), _real(batch.targets, real), strict=True):
        assert inputs[1:] == outputs[:-1]
    assert batch.index == tuple(range(len(rows)))


def test_moving_keeps_everything() -> None:
    batch = translation_batch([[5], [6, 7]], [[8, 9], []], (4, 2))
    moved = batch.to("cpu")
    for name in ("source", "ids", "targets"):
        assert torch.equal(getattr(batch, name), getattr(moved, name))
    assert torch.equal(batch.layout.position, moved.layout.position)
    assert moved.index == (4, 2)


# -- an epoch


@given(pairs, budgets, seeds, st.integers(0, 3))
def test_every_pair_once(rows: list[tuple[list[int], list[int]]], tokens: int, seed: int, epoch: int) -> None:
    plan = _data(rows, tokens, seed).plan(epoch)
    assert sorted(itertools.chain(*plan)) == list(range(len(rows)))
    assert all(plan)


@given(pairs, budgets, seeds)
def test_budget_holds(rows: list[tuple[list[int], list[int]]], tokens: int, seed: int) -> None:
    """Padded slots of the larger side, in the batch as made; only a pair too long by itself is over."""
    data = _data(rows, tokens, seed)
    for index in data.plan(0):
        batch = data.batch(index)
        assert max(batch.source.numel(), batch.ids.numel()) <= tokens or len(index) == 1


def test_the_budget_is_used() -> None:
    """A plan that put one pair in a batch would hold any budget."""
    data = _corpus(3000)
    used = [data.batch(index) for index in data.plan(0)]
    full = sum(max(b.source.numel(), b.ids.numel()) for b in used) / len(used)
    assert full > 0.9 * data.tokens


def test_one_long_source_costs_one_batch() -> None:
    """It is read early, its target being short; the batches after it are as full as ever."""
    data = _data([([5] * 90, [6]), *[([5] * 4, [6] * 4)] * 400], tokens=100)
    assert len(data.plan(0)) <= 1 + 400 // (100 // 5) + 1


def test_little_padding() -> None:
    data = _corpus(3000)
    slots = real = 0
    for index in data.plan(2):
        batch = data.batch(index)
        for ids, layout in ((batch.source, batch.source_layout), (batch.ids, batch.layout)):
            slots, real = slots + ids.numel(), real + int(layout.real.sum())
    assert data.padding(2) == pytest.approx(1 - real / slots)
    assert data.padding(2) < 0.08


def test_largest_is_largest() -> None:
    data = _corpus(500)
    sizes = [b.source.numel() + b.ids.numel() for b in data.once()]
    largest = data.largest()
    assert largest.source.numel() + largest.ids.numel() == max(sizes)


def test_longest() -> None:
    assert _data([([5] * 3, [6]), ([5], [6] * 7)], 100).longest == 8  # with its end


# -- the order


def test_order_depends_on_seed_and_epoch_alone() -> None:
    data = _corpus(300)
    again = ParallelData(data.source, data.target, data.tokens, data.seed)
    assert [list(again.plan(e)) for e in (2, 0, 1)] == [list(data.plan(e)) for e in (2, 0, 1)]
    other = ParallelData(data.source, data.target, data.tokens, seed=2)
    assert list(data.plan(0)) not in (list(data.plan(1)), list(other.plan(0)))


def test_epochs_mix_anew() -> None:
    """Batches differ from epoch to epoch, not only their order: else the same pairs would always meet."""
    data = _corpus(2000)
    one, other = ({frozenset(b) for b in data.plan(e)} for e in (0, 1))
    assert len(one & other) < 0.2 * len(one)
    lengths = [max(data.sizes[b[0]]) for b in data.plan(0)]
    assert lengths != sorted(lengths), "short batches first would be a curriculum nobody asked for"


def test_order_is_the_same_in_every_process() -> None:
    """Whatever the hash seed, and whatever the global random state."""
    code = (
        "import random\nrandom.random()\n"
        "from triptych.data import ParallelData\n"
        "rows = [[5] * (i * 7 % 13 + 1) for i in range(60)]\n"
        "print(list(ParallelData(rows, rows, 40, seed=3).plan(5)))"
    )
    rows = [[5] * (i * 7 % 13 + 1) for i in range(60)]
    want = str(list(ParallelData(rows, rows, 40, seed=3).plan(5)))
    path = ":".join(p for p in sys.path if p)
    for hash_seed in ("0", "12345"):
        out = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        assert out.stdout.strip() == want


# -- the cursor


def _take(data: ParallelData, cursor: Cursor, count: int) -> list[tuple[Batch, Cursor]]:
    return list(itertools.islice(data.read(cursor), count))


@given(pairs, budgets, st.integers(0, 60))
def test_cursor_resumes_exactly(rows: list[tuple[list[int], list[int]]], tokens: int, stop: int) -> None:
    """Read on from any point: the very batches that an unbroken reading gives, over epochs' ends too."""
    whole = _take(_data(rows, tokens), Cursor(), stop + 10)
    cursor = whole[stop - 1][1] if stop else Cursor()
    rest = _take(_data(rows, tokens), cursor, 10)
    assert [(b.index, c) for b, c in rest] == [(b.index, c) for b, c in whole[stop:]]
    for (got, _), (want, _) in zip(rest, whole[stop:], strict=True):
        assert torch.equal(got.source, want.source) and torch.equal(got.targets, want.targets)


@given(pairs, budgets)
def test_reading_goes_through_epochs(rows: list[tuple[list[int], list[int]]], tokens: int) -> None:
    data = _data(rows, tokens)
    count = len(data.plan(0)) + len(data.plan(1))
    read = _take(data, Cursor(), count)
    assert Counter(i for b, _ in read for i in b.index) == dict.fromkeys(range(len(rows)), 2)
    assert read[-1][1] == Cursor(2, 0)


def test_once_is_every_pair_once() -> None:
    data = _corpus(100)
    assert sorted(i for b in data.once() for i in b.index) == list(range(100))


def test_reading_nothing_is_refused() -> None:
    """Not a loop without end: no pairs, or a cursor from another corpus."""
    with pytest.raises(ValueError):
        next(ParallelData([], [], 100).read(Cursor()))
    with pytest.raises(ValueError):
        next(_data([([5], [6])], 100).read(Cursor(0, 7)))


def test_sides_must_pair() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ParallelData([[5]], [], 100)
