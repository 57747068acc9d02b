"""What may be said next, and the distributions that sampling draws from."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st
from torch import Tensor

from triptych.config import DecodingConfig
from triptych.decoding import Special, keep_likely, search
from triptych.decoding.rules import NEVER, at_least, ban, no_repeat, rules
from triptych.decoding.search import _draw, largest

V, EOS = 6, 3
histories = st.integers(0, 9).flatmap(
    lambda t: st.lists(st.lists(st.integers(0, V - 1), min_size=t, max_size=t), min_size=1, max_size=4)
)


def _tokens(rows: list[list[int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64).view(len(rows), -1)


def _banned(logits: Tensor) -> list[set[int]]:
    return [set((row == NEVER).nonzero()[:, 0].tolist()) for row in logits]


# -- rules


@given(histories, st.integers(1, 4))
def test_no_repeat_is_brute_force(rows: list[list[int]], n: int) -> None:
    """Banned is what would make an n-gram stand twice; never the end, never anything else."""
    before = torch.randn(len(rows), V)
    after = no_repeat(n, EOS)(before.clone(), _tokens(rows))
    for row, banned in zip(rows, _banned(after), strict=True):
        grams = {tuple(row[i : i + n]) for i in range(len(row) - n + 1)}
        assert banned == {v for v in range(V) if v != EOS and (*row[max(0, len(row) - n + 1) :], v) in grams}
    assert torch.equal(after[after > NEVER], before[after > NEVER])


def test_no_repeat_leaves_a_banned_end_banned() -> None:
    """The end that another rule forbids stays forbidden."""
    logits = at_least(9, EOS)(torch.zeros(1, V), _tokens([[EOS, 4, EOS, 4]]))
    assert _banned(no_repeat(2, EOS)(logits, _tokens([[EOS, 4, EOS, 4]]))) == [{EOS}]


@given(histories, st.integers(0, 12))
def test_at_least(rows: list[list[int]], length: int) -> None:
    after = at_least(length, EOS)(torch.zeros(len(rows), V), _tokens(rows))
    assert _banned(after) == [{EOS} if len(rows[0]) < length else set()] * len(rows)


@given(st.sets(st.integers(0, V - 1)))
def test_ban(ids: set[int]) -> None:
    assert _banned(ban(sorted(ids))(torch.zeros(2, V), _tokens([[1], [2]]))) == [ids, ids]


def test_rules_join() -> None:
    settings = DecodingConfig(min_length=4, no_repeat_ngram=2)
    after = rules(settings, (0, 2), EOS)(torch.zeros(1, V), _tokens([[4, 5, 4]]))
    assert _banned(after) == [{0, 2, EOS, 5}]


def test_something_can_always_be_said() -> None:
    """Where rules contradict one another, the end is left."""
    settings = DecodingConfig(min_length=9, no_repeat_ngram=1)
    after = rules(settings, (0, 2), EOS)(torch.zeros(2, V), _tokens([[1, 4, 5], [1, 1, 4]]))
    assert _banned(after) == [set(range(V)) - {EOS}, {0, 1, 2, EOS, 4}]


# -- what sampling draws from


def _assume(fits: bool) -> None:
    if not fits:
        reject()


def _likely(logits: np.ndarray, settings: DecodingConfig) -> np.ndarray:
    """From the definitions, one token after another; ambiguous borders are not for this test."""
    scaled = logits / settings.temperature
    order = sorted(range(len(logits)), key=lambda i: (-scaled[i], i))
    p = np.exp(scaled - scaled.max())
    kept = [i for i in order if p[i] > 0]
    if settings.top_k:
        kept = kept[: settings.top_k]
    if settings.top_p < 1:
        share, smallest = p[kept] / p[kept].sum(), []
        for i, q in zip(kept, share, strict=True):
            smallest.append(i)
            mass = share[: len(smallest)].sum()
            _assume(abs(mass - settings.top_p) > 1e-9)
            if mass > settings.top_p:
                break
            assert q > 0
        kept = smallest
    if settings.min_p:
        ratio = p[kept] / p[kept].max()
        _assume(bool((abs(ratio - settings.min_p) > 1e-9).all()))
        kept = [i for i, r in zip(kept, ratio, strict=True) if r > settings.min_p]
    out = np.zeros(len(logits))
    out[kept] = p[kept] / p[kept].sum()
    return out


@given(
    st.lists(st.integers(-24, 24), min_size=1, max_size=8),
    st.sampled_from([0.3, 1.0, 1.7]),
    st.integers(0, 9),
    st.floats(0.01, 1.0),
    st.sampled_from([0.0, 0.05, 0.3, 0.9]),
)
def test_keep_likely_is_its_definition(
    eighths: list[int], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Temperature, then top-k, top-p, min-p, each on what the one before left; ties by lower id."""
    settings = DecodingConfig(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = torch.tensor(eighths).double()[None] / 8
    want = _likely(logits[0].numpy(), settings)
    got = keep_likely(logits.clone(), settings)
    np.testing.assert_allclose(got[0].exp().numpy(), want, atol=1e-12)
    assert ((got[0] == NEVER).numpy() == (want == 0)).all()


def _kept(p: list[float], **settings: Any) -> list[int]:
    kept = keep_likely(torch.tensor([p]).double().log(), DecodingConfig(**settings))
    assert float(kept.exp().sum()) == pytest.approx(1)
    return (kept[0] > NEVER).nonzero()[:, 0].tolist()


def test_ties() -> None:
    """Of tied tokens those of lower id stay: exactly k, and the smallest set that reaches p."""
    quarters = [0.25] * 4
    assert _kept(quarters, top_k=2) == [0, 1]
    assert _kept([0.1, 0.3, 0.3, 0.3], top_k=1) == [1]
    assert _kept(quarters, top_p=0.5) == [0, 1]  # half is reached exactly: no third
    assert _kept(quarters, top_p=0.51) == [0, 1, 2]
    assert _kept([0.5, 0.25, 0.25], min_p=0.5) == [0, 1, 2]  # as likely as asked is likely enough
    assert _kept(quarters, temperature=0) == [0]


def test_many_ties() -> None:
    """Low precision ties whole vocabularies: still the lowest ids."""
    flat = [1 / 5000] * 5000
    assert _kept(flat, top_k=3) == [0, 1, 2]
    assert _kept([*flat[:4000], 0.9, *flat[4001:]], top_k=2) == [0, 4000]


def test_extremes() -> None:
    p = [0.5, 0.3, 0.15, 0.05]
    for nothing in ({}, {"top_p": 1.0}, {"top_k": 0}, {"top_k": 4}, {"top_k": 99}, {"min_p": 0.0}):
        assert _kept(p, **nothing) == [0, 1, 2, 3]
    for one in ({"top_p": 1e-9}, {"top_k": 1}, {"temperature": 0}, {"min_p": 0.999}):
        assert _kept(p, **one) == [0]
    assert _kept(p, top_p=0.499) == [0]
    assert _kept(p, top_p=0.501) == [0, 1]


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300, 5e-324])
def test_cold_is_greedy(temperature: float) -> None:
    """On the way to 0 the distribution closes on the most likely token, and stays a distribution."""
    logits = torch.tensor([[1.0, 3.0, 2.0, -50.0], [-2e4, 1e4, NEVER, 9999.0]])
    for settings in ({}, {"top_p": 0.9}, {"top_k": 3, "min_p": 0.1}):
        p = keep_likely(logits, DecodingConfig(temperature=temperature, **settings)).exp()
        torch.testing.assert_close(p, torch.eye(4).double()[[1, 1]])


def test_hot_is_uniform() -> None:
    p = keep_likely(torch.tensor([[1.0, 3.0, NEVER, 2.0]]), DecodingConfig(temperature=1e9)).exp()
    torch.testing.assert_close(p, torch.tensor([[1 / 3, 1 / 3, 0, 1 / 3]]).double())


def test_what_is_banned_stays_out() -> None:
    logits = torch.tensor([[NEVER, 0.0, NEVER, 0.0]])
    for settings in ({"top_k": 3}, {"top_p": 0.99}, {"min_p": 0.01}, {"temperature": 2.0}):
        assert (keep_likely(logits, DecodingConfig(**settings)).exp()[0, [0, 2]] == 0).all()


# -- draws

P = [0.0, 0.02, 0.0, 0.08, 0.4, 0.25, 0.15, 0.1]  # pad and bos are banned anyway


class _Fixed:
    """The same distribution at every step."""

    device = torch.device("cpu")

    def __init__(self, count: int) -> None:
        self.count = count
        self.logits = torch.tensor(P).log()

    def step(self, tokens_R: Tensor) -> Tensor:
        assert len(tokens_R) == self.count
        return self.logits.repeat(self.count, 1)

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.count = len(rows)


def _first_words(draws: int, **settings: Any) -> Counter[int]:
    decoding = DecodingConfig(strategy="sample", **settings)
    found = search(_Fixed(draws), [1] * draws, decoding, Special())
    return Counter(h.ids[0] if h.ids else EOS for (h,) in found)


def _chi_square(seen: Counter[int], p: np.ndarray) -> tuple[float, float]:
    """The statistic, and its 0.999 quantile (Wilson and Hilferty 1931)."""
    draws = sum(seen.values())
    some = [i for i in range(len(p)) if p[i] > 0]
    statistic = sum((seen[i] - draws * p[i]) ** 2 / (draws * p[i]) for i in some)
    df = max(len(some) - 1, 1)
    return statistic, df * (1 - 2 / (9 * df) + 3.09 * math.sqrt(2 / (9 * df))) ** 3


def test_draws_at_the_ends() -> None:
    """The lowest and the highest numbers give tokens that can be said, whatever stands around them."""
    logp = torch.tensor([NEVER, 0.5, NEVER, 0.5, NEVER]).log_softmax(0).double().expand(4, -1)
    uniform = torch.tensor([0.0, 0.4999, 0.5001, 1 - 2**-53]).double()
    assert _draw(logp, uniform).tolist() == [1, 1, 3, 3]


@given(st.integers(1, 700), st.integers(1, 6), st.booleans(), st.integers(0, 99))
def test_largest_is_topk(vocab: int, k: int, ties: bool, seed: int) -> None:
    """The same values in the same order, and places that hold them, each once."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, vocab, generator=generator)
    x = x.round() if ties else x
    x[0, vocab // 3 :] = NEVER  # a row of which little is allowed
    k = min(k, vocab)
    values, places = largest(x, k, group=8)
    assert torch.equal(values, x.topk(k, -1).values)
    assert torch.equal(x.gather(1, places), values)
    assert all(len(set(row)) == k for row in places.tolist())


LAWS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 3},
    {"top_p": 0.7},
    {"min_p": 0.3},
    {"temperature": 1.5, "top_k": 5, "top_p": 0.9, "min_p": 0.2},
]


@pytest.mark.parametrize("settings", LAWS, ids=str)
def test_draws_follow_their_law(settings: dict[str, Any]) -> None:
    """χ² over 4,000 draws against probabilities computed by hand; nothing is drawn that was cut off."""
    want = _likely(np.log(np.array(P) + 1e-300), DecodingConfig(**settings))
    seen = _first_words(4000, **settings)
    assert all(want[i] > 0 for i in seen)
    statistic, bound = _chi_square(seen, want)
    assert statistic < bound


def test_the_law_can_be_broken() -> None:
    """The χ² test sees a temperature that is a little off."""
    wrong = _likely(np.log(np.array(P) + 1e-300), DecodingConfig(temperature=1.15))
    statistic, bound = _chi_square(_first_words(4000), wrong)
    assert statistic > bound
