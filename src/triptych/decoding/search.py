"""Greedy, sampling and beam search over ``Steps``.

N sources, B beams, R = N · B rows, V vocabulary. No row's result depends on its neighbours: random numbers
belong to a source, and finished rows only leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from triptych.config import DecodingConfig
from triptych.decoding.rules import NEVER, Rule, keep_likely, length_penalty, rules
from triptych.decoding.steps import Steps

Reason = Literal["eos", "length"]

MOST = 2**62  # no limit above it fits into an integer of a tensor
PIECE = 64  # random numbers drawn at a time


@dataclass(frozen=True)
class Hypothesis:
    """One output.

    Attributes:
        ids: produced tokens, without start and end.
        logprob: sum of the tokens' log-probabilities in nats, the end's included.
        score: ``logprob`` over the length penalty: what beams are ranked by.
        reason: it ended by itself (eos) or at the limit (length).
    """

    ids: tuple[int, ...]
    logprob: float
    score: float
    reason: Reason


@dataclass(frozen=True)
class Special:
    """Ids the search must know: what begins, what ends, what is never said.

    ``ends``: what ends beside eos, in greedy search and sampling.
    """

    bos: int = 2
    eos: int = 3
    banned: tuple[int, ...] = (0, 2)
    ends: tuple[int, ...] = ()


def search(
    steps: Steps,
    limits: Sequence[int],
    settings: DecodingConfig,
    special: Special | None = None,
    index: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """The ``n_best`` hypotheses of each source, best first.

    Args:
        steps: rows for ``rows(settings)`` hypotheses a source.
        limits: most tokens each source may get, the end not counted; ``min_length`` goes before them.
        index: a number for each source that its random draws depend on (its place in the input).
    """
    special = special or Special()
    if settings.strategy == "beam":
        limits = [_limit(limit, settings) for limit in limits]
        return _Beam(steps, limits, settings, special, rules(settings, special.banned, special.eos)).run()
    chain = Chain(steps, limits, settings, special, index)
    while chain.going:
        chain.step()
    return [sorted(group, key=lambda h: -h.score) for group in chain.found()]


def rows(settings: DecodingConfig) -> int:
    """Rows a source needs under these settings."""
    return {"beam": settings.beam, "sample": settings.n_best, "greedy": 1}[settings.strategy]


def _limit(limit: int, settings: DecodingConfig) -> int:
    return min(max(limit, settings.min_length), MOST)


class Chain:
    """Greedy search and sampling, a step at a time: each row says one token after another until it ends.

    Rows are numbered from 0, ``rows(settings)`` of them a source, and keep their numbers.
    """

    def __init__(
        self,
        steps: Steps,
        limits: Sequence[int],
        settings: DecodingConfig,
        special: Special,
        index: Sequence[int] | None = None,
        prompts: Sequence[Sequence[int]] = (),
    ) -> None:
        """
        Args:
            prompts: of each source, the tokens that the repetition penalty counts as said before.
        """
        self.steps, self.settings, self.special = steps, settings, special
        self.N, self.each, device = len(limits), rows(settings), steps.device
        R = self.N * self.each
        before = _before(prompts, self.N, device).repeat_interleave(self.each, 0)
        self.rule = rules(settings, special.banned, special.eos, *special.ends, prompt=before.shape[1])
        self.limit = torch.tensor([_limit(n, settings) for n in limits], device=device)
        self.limit = self.limit.repeat_interleave(self.each)
        sampling, numbers = settings.strategy == "sample", index or range(self.N)
        self.draws = _Draws(settings.seed, numbers, self.each, device) if sampling else None
        self.ends = torch.tensor([special.eos, *special.ends], device=device)
        self.said: list[list[int]] = [[] for _ in range(R)]
        self.logprob = [0.0] * R
        self.reason: list[Reason] = ["eos"] * R
        self.ended = torch.zeros(R, dtype=torch.bool, device=device)
        self.alive = torch.arange(R, device=device)  # which row each row still in the steps is
        self.tokens, self.t = before, 0
        self.last = torch.full((R,), special.bos, device=device)

    @property
    def going(self) -> bool:
        """Some row has not ended."""
        return not bool(self.ended.all())

    def step(self) -> list[tuple[int, int]]:
        """Let each row that has not ended say a token: (row, token) pairs, ends included."""
        self._leave()
        logits = self.rule(self.steps.step(self.last), self.tokens)
        last = self._choose(logits)
        # At the limit only the end may follow; a finished row beside unfinished ones repeats it.
        over = self.ended[self.alive]
        cut = (self.limit[self.alive] <= self.t) & ~torch.isin(last, self.ends)
        last = last.masked_fill(cut | over, self.special.eos)
        # The model's own, not what sampling made of it: there a forced end may have no share at all.
        logp = logits.log_softmax(-1).gather(1, last[:, None])[:, 0]
        out = []
        columns = (self.alive, last, logp, cut, over)
        for row, token, p, forced, silent in zip(*(x.tolist() for x in columns), strict=True):
            if silent:
                continue
            self.logprob[row] += p
            if forced:
                self.reason[row] = "length"
            if token not in (self.special.eos, *self.special.ends):
                self.said[row].append(token)
            out.append((row, token))
        self.last, self.t = last, self.t + 1
        self.tokens = torch.cat((self.tokens, last[:, None]), 1)
        self.ended[self.alive] |= torch.isin(last, self.ends)
        return out

    def end(self, row: int) -> None:
        """Let a row say no more, for a reason that only the caller knows."""
        self.ended[row] = True

    def found(self) -> list[list[Hypothesis]]:
        """What each source's rows have said, in the order of rows."""
        out = []
        for row, ids in enumerate(self.said):
            penalty = length_penalty(self.settings.penalty, self.settings.alpha, len(ids) + 1)
            logprob = self.logprob[row]
            out.append(Hypothesis(tuple(ids), logprob, logprob / penalty, self.reason[row]))
        return [out[n : n + self.each] for n in range(0, len(out), self.each)]

    def _choose(self, logits_RV: Tensor) -> Tensor:
        if self.draws is None:
            return logits_RV.argmax(-1)
        return _draw(keep_likely(logits_RV, self.settings), self.draws.at(self.t, self.alive))

    def _leave(self) -> None:
        """Whole sources leave, so that the rows of a source stay together."""
        busy = ~self.ended.view(self.N, self.each).all(1)
        stay = busy[self.alive // self.each]
        if bool(stay.all()):
            return
        here = torch.unique(self.alive // self.each)
        self.steps.select(stay.nonzero()[:, 0], busy[here].nonzero()[:, 0])
        self.alive, self.tokens, self.last = self.alive[stay], self.tokens[stay], self.last[stay]


def _before(prompts: Sequence[Sequence[int]], count: int, device: torch.device) -> Tensor:
    """Prompts ``[N, P]`` as rules take them: -1 is no token."""
    width = max(map(len, prompts), default=0)
    filled = [[*[-1] * (width - len(ids)), *ids] for ids in prompts]
    return torch.tensor(filled, dtype=torch.int64, device=device).view(count, width)


class _Draws:
    """Uniform numbers for each step of N · ``each`` rows, a function of seed, source and sample alone.

    They are drawn as steps are made, ``PIECE`` at a time: a limit may be far above any output's length.
    """

    def __init__(self, seed: int, index: Sequence[int], each: int, device: torch.device) -> None:
        seeds = [(seed * 1_000_003 + i) * 1_000_003 + sample for i in index for sample in range(each)]
        self.generators = [torch.Generator("cpu").manual_seed(seed % 2**63) for seed in seeds]
        self.piece, self.device = torch.empty(0), device

    def at(self, t: int, rows: Tensor) -> Tensor:
        """The numbers of these rows for step ``t``; steps are asked for in order."""
        if t % PIECE == 0:
            drawn = [
                torch.rand(PIECE, generator=one, dtype=torch.float64, device="cpu") for one in self.generators
            ]
            self.piece = torch.stack(drawn).to(self.device)
        return self.piece[rows, t % PIECE]


def _draw(logp_RV: Tensor, uniform_R: Tensor) -> Tensor:
    """The token at which the cumulated probability passes the uniform number."""
    p = logp_RV.double().exp().cumsum(-1)
    found = torch.searchsorted(p, (uniform_R * p[:, -1])[:, None], right=True)[:, 0]
    # Rounding may lead past the last token with any mass.
    last = (logp_RV > NEVER).long().cumsum(-1).argmax(-1)
    return torch.minimum(found, last)


def largest(x_RV: Tensor, k: int, group: int = 64) -> tuple[Tensor, Tensor]:
    """The k largest values of each row and their places, largest first: ``topk``, faster for long rows.

    The k largest stand in the k groups with the largest maxima, so that only those are sorted.
    """
    R, V = x_RV.shape
    whole = V // group * group
    if whole // group <= 4 * k:
        return x_RV.topk(k, -1)
    # The rest of the row is a part of its own; it takes part in the final choice.
    near = x_RV[:, :whole].view(R, -1, group).amax(-1).topk(k, -1).indices
    place = (near[:, :, None] * group + torch.arange(group, device=x_RV.device)).flatten(1)
    place = torch.cat((place, torch.arange(whole, V, device=x_RV.device).expand(R, -1)), 1)
    top, index = x_RV.gather(1, place).topk(k, -1)
    return top, place.gather(1, index)


class _Beam:
    """Beam search: of all extensions of a source's hypotheses, the best B are kept in all.

    A finished hypothesis keeps its place among the B and never advances. The search of a source ends when
    all B are finished, when no live hypothesis can pass the n-th best finished one at any length still
    allowed, or at the limit, where only the end may follow.
    """

    def __init__(
        self, steps: Steps, limits: Sequence[int], settings: DecodingConfig, special: Special, rule: Rule
    ) -> None:
        self.steps, self.settings, self.special, self.rule = steps, settings, special, rule
        self.limits = list(limits)
        self.done: list[list[Hypothesis]] = [[] for _ in limits]

    def penalty(self, length: float) -> float:
        return length_penalty(self.settings.penalty, self.settings.alpha, length)

    def run(self) -> list[list[Hypothesis]]:
        B, eos, device = self.settings.beam, self.special.eos, self.steps.device
        alive = list(range(len(self.limits)))  # sources still searched
        score = torch.full((len(alive), B), NEVER, dtype=torch.float64, device=device)
        score[:, 0] = 0.0  # all beams are alike at first: one of them counts
        tokens = torch.empty(len(alive) * B, 0, dtype=torch.int64, device=device)
        last = torch.full((len(alive) * B,), self.special.bos, device=device)
        for t in range(max(self.limits) + 1):
            logits = self.rule(self.steps.step(last), tokens)
            best = logits.argmax(-1).tolist() if t >= min(self.limits[n] for n in alive) else []
            last_step = [self.limits[n] <= t for n in alive]
            total, parent, token = self._extend(logits, score, last_step)
            worth, origin, said = total.tolist(), parent.tolist(), token.tolist()
            going = []
            for i, n in enumerate(alive):
                places, live = B - len(self.done[n]), NEVER
                for b in range(places):
                    if worth[i][b] == NEVER:
                        continue
                    if said[i][b] != eos:
                        live = max(live, worth[i][b])
                        continue
                    row = i * B + origin[i][b]
                    reason: Reason = "length" if last_step[i] and best[row] != eos else "eos"
                    self._finish(n, tokens[row], worth[i][b], reason)
                total[i, places:] = NEVER
                if live > NEVER and not self._settled(n, t, live):
                    going.append(i)
            if not going:
                break
            # A finished place stays as a row of no worth, so that every source has B rows.
            score = total.masked_fill(token == eos, NEVER)[going]
            stay = torch.tensor(going, device=device)
            order = (stay[:, None] * B + parent[stay]).flatten()
            last = token[going].flatten()
            tokens = torch.cat((tokens[order], last[:, None]), 1)
            gone = len(going) < len(alive)
            if gone or not torch.equal(order, torch.arange(len(order), device=device)):
                self.steps.select(order, stay if gone else None)
            alive = [alive[i] for i in going]
        return [sorted(found, key=lambda h: -h.score)[: self.settings.n_best] for found in self.done]

    def _extend(
        self, logits_RV: Tensor, score_NB: Tensor, last_step: Sequence[bool]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best B extensions of each source: total log-probability, parent beam, token; ``[N, B]``."""
        N, B = score_NB.shape
        width = min(B, logits_RV.shape[1])
        norm = logits_RV.logsumexp(-1, keepdim=True)
        if any(last_step):
            rows = torch.tensor(last_step, device=logits_RV.device).repeat_interleave(B)
            end = logits_RV[rows, self.special.eos]
            logits_RV[rows] = NEVER
            logits_RV[rows, self.special.eos] = end
        # The best B of all are among the best B of each row.
        # Of tied tokens `max`, like greedy's argmax, takes the first; `topk` takes any.
        top, token = logits_RV.max(-1, keepdim=True) if width == 1 else largest(logits_RV, width)
        total = (score_NB.view(-1, 1) + (top - norm).double()).view(N, B * width)
        best, place = total.topk(B, -1)
        return best, place // width, token.view(N, B * width).gather(1, place)

    def _finish(self, n: int, tokens: Tensor, logprob: float, reason: Reason) -> None:
        ids = tuple(tokens.tolist())
        score = logprob / self.penalty(len(ids) + 1)
        self.done[n].append(Hypothesis(ids, logprob, score, reason))

    def _settled(self, n: int, t: int, live: float) -> bool:
        """No live hypothesis can still enter the n best: log-probability only falls, and what it is divided
        by lies between the penalties of the shortest and the longest length still possible."""
        found = sorted((h.score for h in self.done[n]), reverse=True)
        if len(found) < self.settings.n_best:
            return False
        kindest = max(self.penalty(t + 2), self.penalty(self.limits[n] + 1))
        return live / kindest <= found[self.settings.n_best - 1]
