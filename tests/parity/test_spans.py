"""Spans taken out, against a writer made from the paper alone (Raffel et al. 2020, section 3.1.4)."""

from __future__ import annotations

import numpy as np
import pytest

from reading import stored
from triptych.config.objectives import DenoiseObjective
from triptych.data import EOS, SpanData
from triptych.data.spans import corrupted

SENTINEL = 50_000


def written(text: list[int], out: list[bool]) -> tuple[list[int], list[int]]:
    """Token by token: a sentinel in the source for each span, and before it in the target; one more, eos."""
    source: list[int] = []
    target: list[int] = []
    spans = 0
    for place, (token, gone) in enumerate(zip(text, out, strict=True)):
        if not gone:
            source.append(token)
            continue
        if place == 0 or not out[place - 1]:
            source.append(SENTINEL + spans)
            target.append(SENTINEL + spans)
            spans += 1
        target.append(token)
    return [*source, EOS], [*target, SENTINEL + spans, EOS]


def theirs_mask(text: int, density: float, mean: float, rng: np.random.Generator) -> list[bool]:
    """A mask by the rules that the paper's authors published: gaps and spans alternate, a gap first."""
    taken = min(max(int(np.round(text * density)), 1), text - 1)
    spans = max(int(np.round(taken / mean)), 1)

    def cut(items: int) -> list[int]:
        firsts = rng.permutation([1] * (spans - 1) + [0] * (items - spans))
        return np.bincount(np.cumsum([0, *firsts])).tolist()

    return [
        out for gap, span in zip(cut(text - taken), cut(taken), strict=True) for out in [0] * gap + [1] * span
    ]


@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.5, 3.0), (0.15, 8.0), (0.3, 1.0)])
def test_batches_are_what_the_paper_writes(density: float, mean: float) -> None:
    """The same text and the same spans: the same source and target."""
    store = stored([3, 50, 61, 200, 1, 17])
    settings = DenoiseObjective(density=density, mean_length=mean)
    data = SpanData(store, 64, 256, 3, settings, range(SENTINEL, SENTINEL + 100))
    for index in data.plan(1):
        batch = data.batch(index, 1)
        source, layout = batch.given
        for n, i in enumerate(index):
            text = store.ids[data.begin[i] : data.stop[i]].tolist()
            out = data.chosen(len(text), data.draws(1, i)).tolist()
            got = source[n][layout.real[n]].tolist(), batch.targets[n][batch.layout.real[n]].tolist()
            assert got == written(text, out)


@pytest.mark.parametrize(("density", "mean"), [(0.15, 3.0), (0.3, 1.0)])
def test_numbers_and_texts_are_those_of_the_authors_masks(density: float, mean: float) -> None:
    """As many tokens and spans as their rules take out; and their masks are written alike."""
    rng = np.random.default_rng(0)
    data = SpanData(
        stored([1]),
        64,
        64,
        1,
        DenoiseObjective(density=density, mean_length=mean),
        range(SENTINEL, SENTINEL + 100),
    )
    for text in (2, 7, 20, 30, 50, 60):
        out = theirs_mask(text, density, mean, rng)
        begins = sum(a and not b for a, b in zip(out, [0, *out[:-1]], strict=True))
        assert [int(n) for n in data.noise(np.array(text))] == [sum(out), begins]
        ids = list(range(200, 200 + text))
        source, target = corrupted(np.array(ids), np.array(out, bool), np.arange(SENTINEL, SENTINEL + 100))
        assert ([*source.tolist(), EOS], [*target.tolist(), EOS]) == written(ids, [bool(o) for o in out])
