"""Spans taken out: the numbers by the paper's rules, all ways alike, nothing lost, the seeds' example."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading import chance, check_reading, documents, stored
from triptych.config.objectives import DenoiseObjective
from triptych.data import BOS, EOS, IGNORE, PAD, SpanData, TokenStore, sentinel_ids
from triptych.data.spans import corrupted, segmented
from triptych.errors import UserError
from triptych.text import train_tokenizer

SENTINELS = range(50_000, 50_100)
densities = st.sampled_from([0.05, 0.15, 0.5, 0.9])
means = st.sampled_from([1.0, 2.5, 3.0, 10.0])


def _data(store: TokenStore, length: int = 64, seed: int = 1, count: int = 100, **kwargs: Any) -> SpanData:
    return SpanData(store, length, 8 * length, seed, DenoiseObjective(**kwargs), SENTINELS[:count])


def restored(source: list[int], target: list[int]) -> list[int]:
    """The text that was: each sentinel of the source replaced by what the target tells after it."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in SENTINELS:
            spans[token] = last = []
        else:
            last.append(token)
    assert list(spans) == list(SENTINELS[: len(spans)]) and spans.popitem()[1] == []
    assert [token for token in source if token in SENTINELS] == list(spans)
    return [i for token in source for i in spans.get(token, [token])]


def _rows(data: SpanData, epoch: int = 0) -> list[tuple[list[int], list[int]]]:
    """Source and target of every row without specials, in the order of rows; specials are checked."""
    found = {}
    for index in data.plan(epoch):
        batch = data.batch(index, epoch)
        source, layout = batch.given
        assert (source[~layout.real] == PAD).all() and (batch.targets[~batch.layout.real] == IGNORE).all()
        for n, i in enumerate(index):
            own = source[n][layout.real[n]].tolist()
            read = batch.ids[n][batch.layout.real[n]].tolist()
            said = batch.targets[n][batch.layout.real[n]].tolist()
            assert own[-1] == said[-1] == EOS and read == [BOS, *said[:-1]]
            assert (len(own), len(said)) == tuple(data.sizes[i])
            found[i] = own[:-1], said[:-1]
    return [found[i] for i in sorted(found)]


@given(documents, st.integers(6, 40), densities, means)
def test_source_and_target_give_the_text_back(
    sizes: list[int], length: int, density: float, mean: float
) -> None:
    """Every token of every document, once, whatever was taken out; and both sides fit."""
    store = stored(sizes)
    rows = _rows(_data(store, length, density=density, mean_length=mean), epoch=2)
    assert [i for row in rows for i in restored(*row)] == [
        i for n in range(len(sizes)) for i in store.document(n)
    ]
    assert all(len(source) < length and len(target) < length for source, target in rows)


def test_the_seeds_example() -> None:
    """我 爱 机器 学习 和 自然 语言 处理."""
    text = np.array([11, 12, 13, 14, 15, 16, 17, 18])
    out = np.array([0, 0, 1, 1, 0, 1, 1, 0], bool)
    source, target = corrupted(text, out, np.array([100, 101, 102, 103]))
    assert source.tolist() == [11, 12, 100, 15, 101, 18]
    assert target.tolist() == [100, 13, 14, 101, 16, 17, 102]


@pytest.mark.parametrize(
    ("out", "source", "target"),
    [
        ("xx..", [100, 13, 14], [100, 11, 12, 101]),
        ("..xx", [11, 12, 100], [100, 13, 14, 101]),
        ("xxxx", [100], [100, 11, 12, 13, 14, 101]),
        ("x.x.", [100, 12, 101, 14], [100, 11, 101, 13, 102]),
    ],
)
def test_spans_at_the_ends(out: str, source: list[int], target: list[int]) -> None:
    mask = np.array([c == "x" for c in out])
    got = corrupted(np.array([11, 12, 13, 14]), mask, np.arange(100, 110))
    assert [side.tolist() for side in got] == [source, target]


@pytest.mark.parametrize(
    ("text", "density", "mean", "taken", "spans"),
    [
        (512, 0.15, 3.0, 77, 26),  # the paper's setting: 76.8 and 25.7
        (568, 0.15, 3.0, 85, 28),  # T5's 512 tokens of source
        (30, 0.15, 3.0, 4, 1),  # 4.5 is rounded to the even number
        (50, 0.15, 3.0, 8, 3),  # so is 7.5
        (10, 0.15, 3.0, 2, 1),
        (2, 0.15, 3.0, 1, 1),
        (1, 0.15, 3.0, 1, 1),
        (10, 0.9, 1.0, 9, 2),  # one gap at most between two spans
        (10, 0.99, 3.0, 9, 2),
    ],
)
def test_numbers_are_the_papers(text: int, density: float, mean: float, taken: int, spans: int) -> None:
    data = _data(stored([1]), density=density, mean_length=mean)
    assert [int(n) for n in data.noise(np.array(text))] == [taken, spans]
    mask = data.chosen(text, np.random.default_rng(0))
    begins = mask & ~np.r_[False, mask[:-1]]
    assert (mask.sum(), begins.sum(), len(mask)) == (taken, spans, text)


def test_a_full_row_is_as_long_as_may_be() -> None:
    """T5's 512 tokens of source are 568 tokens of text."""
    data = _data(stored([5680]), 512)
    assert set((data.stop - data.begin).tolist()) == {568}
    assert {size[0] for size in data.sizes} == {512}


@given(st.integers(1, 9), st.integers(1, 9))
def test_segmented_sums_up(items: int, parts: int) -> None:
    parts = min(items, parts)
    sizes = segmented(items, parts, np.random.default_rng(0))
    assert len(sizes) == parts and sizes.sum() == items and sizes.min() >= 1


def test_every_way_is_equally_likely() -> None:
    """χ² over all masks of 7 tokens with 3 taken out in 2 spans: 2 ways to cut 3, times 10 for the gaps."""
    data = _data(stored([1]), density=0.45, mean_length=1.5)
    rng = np.random.default_rng(5)
    assert [int(n) for n in data.noise(np.array(7))] == [3, 2]
    seen = Counter("".join("x" if out else "." for out in data.chosen(7, rng)) for _ in range(4000))
    every = {
        mask
        for mask in map("".join, itertools.product("x.", repeat=7))
        if mask.count("x") == 3 and sum(bool(run) for run in mask.split(".")) == 2
    }
    assert set(seen) == every and len(every) == 20
    assert chance(list(seen.values()), [4000 / 20] * 20) > 1e-3


def test_texts_begin_and_end_in_either() -> None:
    """A blank at the start can be filled, and so can one at the end."""
    rows = _rows(_data(stored([40] * 300)))
    for end in (0, -1):
        share = np.mean([source[end] in SENTINELS for source, _ in rows])
        assert 0.02 < share < 0.3


@settings(max_examples=20)
@given(documents.filter(sum), st.integers(6, 30), st.integers(-3, 3))
def test_reading(sizes: list[int], length: int, seed: int) -> None:
    store = stored(sizes)
    check_reading(*(_data(store, length, seed) for _ in range(2)))


def test_spans_are_fresh_each_epoch() -> None:
    data = _data(stored([60] * 50))
    one, other = _rows(data, 0), _rows(data, 1)
    assert np.mean([a != b for a, b in zip(one, other, strict=True)]) > 0.95
    assert one == _rows(data, 0)


def test_sentinels_of_a_tokenizer() -> None:
    symbols = [f"<extra_id_{n}>" for n in range(12)] + ["<other>"]
    tokenizer = train_tokenizer(["a b c"] * 9, kind="byte", size=300, symbols=symbols)
    assert sentinel_ids(tokenizer) == list(range(260, 272))


@pytest.mark.parametrize(
    ("length", "count", "where", "said"),
    [
        (3, 100, "data.length", "no text fits in 3 tokens"),
        (512, 28, "objective.sentinels", "28 spans, which take 29 sentinels; there are 28"),
    ],
)
def test_refusals(length: int, count: int, where: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        _data(stored([9]), length, count=count)
    assert caught.value.where == where and caught.value.mend
    _data(stored([9]), length + 1 if length == 3 else length, count=29)


def test_a_budget_below_a_row_is_refused() -> None:
    with pytest.raises(UserError, match="more than a batch of 63"):
        SpanData(stored([9]), 64, 63, 1, DenoiseObjective(), SENTINELS)
