"""The law of search: beam 1 is greedy, a wide beam is exhaustive, sampling draws what it says."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from triptych.config import DecodingConfig
from triptych.decoding import Chain, search
from triptych.insight.laws.decoded import SETTINGS, SPECIAL, outputs, rescored
from triptych.insight.laws.registry import DECODERS, law
from triptych.insight.laws.subject import Subject
from triptych.insight.laws.verdict import SINGLE, Compared, Skip, close, true

SEARCH = "src/triptych/decoding/search.py"
RULES = "src/triptych/decoding/rules.py"
WORDS = 6  # of the small vocabulary that can be searched to the end: pad, unk, bos, eos and two more
DRAWS = 3000
BEFORE = (4, 7)  # the prompt of draws, for what counts it
RARE = 4.75  # standard deviations: one sound sampler in a million is called faulty


@law(
    18,
    "search",
    "hypotheses, their scores or the state's rows are mixed up",
    SEARCH,
    DECODERS,
    "an encoder says nothing",
)
def searched(s: Subject) -> Iterator[Compared | str]:
    """Strategies agree with each other, with the model without a cache, and with the definition."""
    if not s.config.says_words:
        raise Skip(f"a model whose output is {s.config.output.kind} says no words")
    yield from on_the_model(s)
    yield from exhaustive(s)
    yield from sampled(s)


def on_the_model(s: Subject) -> Iterator[Compared]:
    """Beam 1 is greedy, and a hypothesis' log-probability is what the model says of its tokens."""
    rows = s.rows(4)
    greedy = outputs(s, rows, "greedy", range(4))
    narrow = outputs(s, rows, "beam", range(4), DecodingConfig(strategy="beam", beam=1))
    for i, (one, other) in enumerate(zip(narrow, greedy, strict=True)):
        same = one[0].ids == other[0].ids
        yield true(
            "a beam of 1 and greedy", same, "" if same else f"row {i}: {one[0].ids} and {other[0].ids}"
        )
    for strategy in SETTINGS:
        found = outputs(s, rows, strategy, range(4))
        got = torch.tensor([h.logprob for group in found for h in group])
        want = torch.tensor([rescored(s, rows, i, h) for i, group in enumerate(found) for h in group])
        cause = "tokens went on from another row's state: rows of the state did not follow the hypotheses"
        yield close(
            f"log-probabilities of {strategy} output, and by one pass without a cache",
            got,
            want,
            SINGLE,
            cause,
        )


class Table:
    """Steps over random logits that depend on the source and on all tokens so far."""

    device = torch.device("cpu")

    def __init__(self, sources: int, beams: int, seed: int) -> None:
        self.past = [(seed, n) for n in range(sources) for _ in range(beams)]
        self.known: dict[tuple[int, ...], Tensor] = {}

    def logits(self, past: tuple[int, ...]) -> Tensor:
        """The logits after ``past`` (seed, source, tokens), ``[V]``."""
        if past not in self.known:
            mixed = 0
            for x in past:
                mixed = (mixed * 1_000_003 + x + 1) % 2**61
            generator = torch.Generator().manual_seed(mixed)
            self.known[past] = 1.5 * torch.randn(WORDS, generator=generator)
        return self.known[past]

    def step(self, tokens_R: Tensor) -> Tensor:
        """Logits of the next token."""
        self.past = [(*p, t) for p, t in zip(self.past, tokens_R.tolist(), strict=True)]  # type: ignore[misc]
        return torch.stack([self.logits(p) for p in self.past])

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Keep these rows."""
        self.past = [self.past[r] for r in rows.tolist()]


def exhaustive(s: Subject) -> Iterator[Compared]:
    """A beam as wide as the number of all outputs finds the best of them."""
    limits, best = (3, 2), 5
    for penalty, alpha in (("gnmt", 0.6), ("power", 1.0), ("power", 0.0)):
        data = {"strategy": "beam", "beam": 64, "n_best": best, "penalty": penalty, "alpha": alpha}
        settings = DecodingConfig.parse(data)
        table = Table(len(limits), settings.beam, s.seed)
        found = search(table, limits, settings, SPECIAL)
        for n, limit in enumerate(limits):
            want = every(table, s.seed, n, limit, settings)[:best]
            same = [h.ids for h in found[n]] == [ids for ids, _ in want]
            figure = "" if same else f"found {[h.ids for h in found[n]]}, best are {[ids for ids, _ in want]}"
            yield true(f"a wide beam and exhaustive search, {penalty} {alpha}", same, figure)
            scores = torch.tensor([h.score for h in found[n]]), torch.tensor([x for _, x in want])
            yield close(f"scores, {penalty} {alpha}", *scores, SINGLE, place=RULES)


def every(
    table: Table, seed: int, source: int, limit: int, settings: DecodingConfig
) -> list[tuple[tuple[int, ...], float]]:
    """All outputs of up to ``limit`` tokens with their scores, best first."""
    words = [t for t in range(WORDS) if t not in (*SPECIAL.banned, SPECIAL.eos)]
    out = []
    for length in range(limit + 1):
        for ids in itertools.product(words, repeat=length):
            past, logprob = (seed, source, SPECIAL.bos), 0.0
            for token in (*ids, SPECIAL.eos):
                logits = table.logits(past).clone()
                logits[list(SPECIAL.banned)] = -math.inf
                logprob += float(logits.log_softmax(-1)[token])
                past = (*past, token)  # type: ignore[assignment]
            said = length + 1  # the end counts
            base = (5 + said) / 6 if settings.penalty == "gnmt" else said
            out.append((ids, logprob / base**settings.alpha))
    return sorted(out, key=lambda pair: -pair[1])


class Fixed:
    """Steps whose logits are the same after everything."""

    device = torch.device("cpu")

    def __init__(self, logits_V: Tensor, rows: int) -> None:
        self.logits, self.rows = logits_V, rows

    def step(self, tokens_R: Tensor) -> Tensor:
        """Logits of the next token."""
        return self.logits.repeat(self.rows, 1)

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Keep these rows."""
        self.rows = len(rows)


def sampled(s: Subject) -> Iterator[Compared]:
    """Draws follow the distribution that the settings define, by a χ² test."""
    logits = torch.tensor([0.5, 1.2, 0.3, 0.1, 2.0, 1.0, 0.0, -0.8])
    for change in (
        {},
        {"temperature": 0.5},
        {"top_k": 3},
        {"top_p": 0.7},
        {"min_p": 0.3},
        {"temperature": 2.0, "top_k": 4, "top_p": 0.8},
        {"repetition_penalty": 2.0},
    ):
        settings = DecodingConfig.parse({"strategy": "sample", "seed": s.seed + 1, **change})
        chain = Chain(Fixed(logits, DRAWS), [1] * DRAWS, settings, SPECIAL, prompts=[BEFORE] * DRAWS)
        count = torch.bincount(torch.tensor([token for _, token in chain.step()]), minlength=len(logits))
        p = kept(logits, settings)
        name = ", ".join(f"{key} {value}" for key, value in change.items()) or "plain"
        never = int(count[p == 0].sum())
        cause = "the filter keeps too many or too few tokens, or filters in another order"
        yield true(
            f"{name}: tokens that may not be drawn", never == 0, f"{never} of {DRAWS} draws", cause, RULES
        )
        expected = p[p > 0] * DRAWS
        statistic = float(((count[p > 0] - expected) ** 2 / expected).sum())
        most = quantile(len(expected) - 1)
        figure = f"χ² {statistic:.1f} with {len(expected) - 1} degrees of freedom, at most {most:.1f}"
        yield true(f"{name}: draws follow the distribution", statistic <= most, figure, cause, RULES)


def kept(logits: Tensor, settings: DecodingConfig) -> Tensor:
    """The distribution that sampling should follow, token by token from the definitions."""
    allowed = [t for t in range(len(logits)) if t not in SPECIAL.banned]
    logit = {t: float(logits[t]) for t in allowed}
    for t in BEFORE:
        logit[t] *= settings.repetition_penalty ** (-1 if logit[t] > 0 else 1)
    weight = {t: math.exp(logit[t] / settings.temperature) for t in allowed}
    order = sorted(allowed, key=lambda t: -weight[t])
    if settings.top_k:
        order = order[: settings.top_k]
    total, mass, nucleus = sum(weight[t] for t in order), 0.0, []
    for t in order:
        if mass >= settings.top_p:
            break
        nucleus.append(t)
        mass += weight[t] / total
    order = [t for t in nucleus if weight[t] >= settings.min_p * weight[nucleus[0]]]
    p = torch.zeros(len(logits), dtype=torch.float64)
    for t in order:
        p[t] = weight[t] / sum(weight[u] for u in order)
    return p


def quantile(freedom: int) -> float:
    """What χ² passes once in a million times (Wilson and Hilferty 1931)."""
    k = max(freedom, 1)
    return k * (1 - 2 / (9 * k) + RARE * math.sqrt(2 / (9 * k))) ** 3
