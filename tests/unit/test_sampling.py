"""The repetition penalty, the ends of every filter's range, and a chain that is asked step by step."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import RepetitionPenaltyLogitsProcessor

from triptych.config import DecodingConfig
from triptych.decoding import Chain, Special, keep_likely, search
from triptych.decoding.rules import NEVER, repeat_less, rules
from triptych.errors import UserError

V, EOS = 7, 3
rows = st.integers(0, 6).flatmap(
    lambda t: st.lists(st.lists(st.integers(0, V - 1), min_size=t, max_size=t), min_size=1, max_size=4)
)


def table(ids: list[list[int]]) -> Tensor:
    return torch.tensor(ids, dtype=torch.int64).view(len(ids), -1)


# -- the repetition penalty


@given(rows, st.floats(0.2, 5), st.integers(0, 99))
def test_the_penalty_is_that_of_transformers(ids: list[list[int]], penalty: float, seed: int) -> None:
    logits = torch.randn(len(ids), V, generator=torch.Generator().manual_seed(seed))
    logits[:, 5] = NEVER
    want = RepetitionPenaltyLogitsProcessor(penalty)(table(ids), logits.clone())
    torch.testing.assert_close(repeat_less(penalty)(logits.clone(), table(ids)), want)


@given(rows, st.integers(0, 5))
def test_padding_is_nothing_that_was_said(ids: list[list[int]], more: int) -> None:
    """However many columns of no token stand before, and whatever ids there are."""
    logits = torch.linspace(-3, 3, V).repeat(len(ids), 1)
    padded = table([[-1] * more + row for row in ids])
    bare = repeat_less(2.0, EOS)(logits.clone(), table(ids))
    assert torch.equal(repeat_less(2.0, EOS)(logits.clone(), padded), bare)
    assert torch.equal(bare[:, EOS], logits[:, EOS]), "the end stays as likely as it was"


def test_the_prompt_counts_for_the_penalty_alone() -> None:
    """n-grams and the least length are of what was produced."""
    settings = DecodingConfig(repetition_penalty=2.0, no_repeat_ngram=1, min_length=2)
    tokens = table([[-1, 4, 5]])  # a prompt of 4, then 5 was said
    got = rules(settings, (0, 2), EOS, prompt=2)(torch.ones(1, V), tokens)
    assert got[0].tolist() == [NEVER, 1, NEVER, NEVER, 0.5, NEVER, 1]


@pytest.mark.parametrize("strategy", ["greedy", "sample", "beam"])
def test_a_penalty_of_1_changes_nothing(strategy: str) -> None:
    plain = search(Steps(4), [5] * 4, DecodingConfig(strategy=strategy, beam=1))
    off = DecodingConfig(strategy=strategy, beam=1, repetition_penalty=1)
    assert search(Steps(4), [5] * 4, off) == plain
    on = DecodingConfig(strategy=strategy, beam=1, repetition_penalty=50)
    assert search(Steps(4), [5] * 4, on) != plain


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_a_strong_penalty_says_everything_once(strategy: str) -> None:
    """Until the end, which is never less likely than it was."""
    settings = DecodingConfig(strategy=strategy, beam=1, repetition_penalty=1e4)
    ((best,),) = search(Steps(1), [9], settings)
    assert best.ids == (6, 5, 4) and best.reason == "eos"


# -- ends of ranges

CASES: dict[str, tuple[list[float], dict[str, Any], list[float]]] = {
    "p of 1 keeps all": ([1, 2, 3], {"top_p": 1.0}, [0.0900, 0.2447, 0.6652]),
    "k of V keeps all": ([1, 2, 3], {"top_k": 3}, [0.0900, 0.2447, 0.6652]),
    "k above V keeps all": ([1, 2, 3], {"top_k": 99}, [0.0900, 0.2447, 0.6652]),
    "k of 1 is greedy": ([1, 3, 2], {"top_k": 1}, [0, 1, 0]),
    "k of 1 takes the first of ties": ([1, 3, 3], {"top_k": 1}, [0, 1, 0]),
    "tiny p is greedy": ([1, 3, 2], {"top_p": 1e-300}, [0, 1, 0]),
    "min_p of 1 keeps the likeliest": ([1, 3, 2], {"min_p": 1.0}, [0, 1, 0]),
    "min_p of 1 keeps all ties": ([3, 1, 3], {"min_p": 1.0}, [0.5, 0, 0.5]),
    "temperature 0 is greedy": ([1, 3, 3], {"temperature": 0.0}, [0, 1, 0]),
    "temperature near 0 shares among ties": ([1, 3, 3], {"temperature": 1e-300}, [0, 0.5, 0.5]),
    "equal logits are uniform": ([2, 2, 2], {}, [1 / 3, 1 / 3, 1 / 3]),
    "equal logits, p": ([2, 2, 2], {"top_p": 0.5}, [0.5, 0.5, 0]),
    "equal logits, k": ([2, 2, 2], {"top_k": 2}, [0.5, 0.5, 0]),
    "equal logits, min_p": ([2, 2, 2], {"min_p": 1.0}, [1 / 3, 1 / 3, 1 / 3]),
    "-inf stays out": ([NEVER, 1, 1], {"temperature": 1e9}, [0, 0.5, 0.5]),
    "-inf stays out of k": ([NEVER, 1, NEVER], {"top_k": 2}, [0, 1, 0]),
    "-inf stays out of p": ([NEVER, 1, NEVER], {"top_p": 0.9999}, [0, 1, 0]),
    "-inf stays out of min_p": ([NEVER, 1, NEVER], {"min_p": 1e-9}, [0, 1, 0]),
    "huge logits": ([3e38, -3e38, 0], {"temperature": 1e-3}, [1, 0, 0]),
}


@pytest.mark.parametrize("case", CASES)
def test_ends_of_ranges(case: str) -> None:
    logits, settings, want = CASES[case]
    p = keep_likely(torch.tensor([logits]).float(), DecodingConfig(**settings)).exp()[0]
    torch.testing.assert_close(p, torch.tensor(want).double(), atol=1e-4, rtol=0)
    assert [x == 0 for x in p.tolist()] == [x == 0 for x in want]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("top_p", 0), ("top_p", 1.01), ("min_p", -0.1), ("min_p", 1.01), ("top_k", -1), ("temperature", -1),
        ("repetition_penalty", 0), ("repetition_penalty", -1), ("repetition_penalty", math.inf),
        ("stop", [""]), ("stop", ["a", ""]), ("stop", 3),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(UserError) as caught:
        DecodingConfig.parse({key: value})
    assert caught.value.where.startswith(f"decoding.{key}")


def test_one_stop_text_needs_no_list() -> None:
    assert DecodingConfig.parse({"stop": "###"}).stop == ("###",)
    assert DecodingConfig.parse(DecodingConfig(stop=("a", "b")).dump()).stop == ("a", "b")


# -- a chain


class Steps:
    """The same logits after everything: 6 is likeliest, then 5, 4 and the end."""

    device = torch.device("cpu")

    def __init__(self, count: int) -> None:
        self.count = count

    def step(self, tokens_R: Tensor) -> Tensor:
        assert len(tokens_R) == self.count
        return torch.tensor([9, -9, 9, 0.5, 1, 2, 3.0]).repeat(self.count, 1)

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.count = len(rows)


def test_a_row_that_is_ended_says_no_more() -> None:
    chain = Chain(Steps(3), [99] * 3, DecodingConfig(strategy="greedy"), Special())
    assert chain.step() == [(0, 6), (1, 6), (2, 6)]
    chain.end(1)
    assert chain.step() == [(0, 6), (2, 6)]
    chain.end(0)
    chain.end(2)
    assert not chain.going
    found = [h for (h,) in chain.found()]
    assert [len(h.ids) for h in found] == [2, 1, 2]
    assert found[1].logprob == pytest.approx(found[0].logprob / 2), "an end that nobody said costs nothing"


def test_other_ends_end() -> None:
    """They are counted in the log-probability, are no tokens of the output, and wait for the least length."""
    settings = DecodingConfig(strategy="greedy", min_length=2)
    chain = Chain(Steps(1), [9], settings, Special(ends=(6,)))
    assert [chain.step() for _ in range(3)] == [[(0, 5)], [(0, 5)], [(0, 6)]]
    assert not chain.going
    assert chain.found()[0][0].ids == (5, 5) and chain.found()[0][0].reason == "eos"


def test_draws_after_a_prompt_follow_the_penalised_law() -> None:
    """χ² over 4,000 draws: 5 and 6 stand in the prompt, as does padding of another row's."""
    settings = DecodingConfig(strategy="sample", repetition_penalty=1.7, seed=3)
    prompts = [[5, 6, 6]] + [[5, 6]] * 3999
    chain = Chain(Steps(4000), [1] * 4000, settings, Special(), prompts=prompts)
    seen = Counter(token for _, token in chain.step())
    logits = {1: -9, 3: 0.5, 4: 1, 5: 2 / 1.7, 6: 3 / 1.7}
    total = sum(math.exp(x) for x in logits.values())
    likely = {t: 4000 * math.exp(logits[t]) / total for t in (3, 4, 5, 6)}
    statistic = sum((seen[t] - want) ** 2 / want for t, want in likely.items())
    assert statistic < 16.3, "3 degrees of freedom, one sound sampler in a thousand"
    plain = {t: 4000 * math.exp(x) / 34.5 for t, x in {3: 0.5, 4: 1, 5: 2, 6: 3}.items()}
    assert sum((seen[t] - want) ** 2 / want for t, want in plain.items()) > 100, "the test can fail"
