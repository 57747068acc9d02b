"""What a decoder may say next, and what a hypothesis is worth.

R rows, t tokens so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from triptych.config import DecodingConfig

# (logits_RV, tokens_Rt) → logits_RV, changed in place; tokens do not hold the start token.
Rule = Callable[[Tensor, Tensor], Tensor]

NEVER = float("-inf")


def ban(ids: Sequence[int]) -> Rule:
    """These ids are never produced."""

    def rule(logits: Tensor, tokens: Tensor) -> Tensor:
        logits[:, list(ids)] = NEVER
        return logits

    return rule


def at_least(length: int, *ends: int) -> Rule:
    """No end is produced before ``length`` other tokens."""

    def rule(logits: Tensor, tokens: Tensor) -> Tensor:
        if tokens.shape[1] < length:
            logits[:, list(ends)] = NEVER
        return logits

    return rule


def no_repeat(n: int, *ends: int) -> Rule:
    """No n-gram twice (Paulus et al. 2018, section 2.5). The ends are always allowed."""

    def rule(logits: Tensor, tokens: Tensor) -> Tensor:
        t = tokens.shape[1]
        if t < n:
            return logits
        grams = tokens.unfold(1, n, 1)  # [R, t-n+1, n]
        tail = tokens[:, t - n + 1 :]  # the n-1 tokens that a next token would complete
        row, place = (grams[:, :, : n - 1] == tail[:, None]).all(-1).nonzero(as_tuple=True)
        kept = logits[:, list(ends)]
        logits[row, grams[row, place, n - 1]] = NEVER
        logits[:, list(ends)] = kept
        return logits

    return rule


def repeat_less(penalty: float, *ends: int) -> Rule:
    """What stands in ``tokens`` is less likely: its logit is divided by the penalty where positive, else
    multiplied by it (Keskar et al. 2019, section 4.1). The ends are as likely as ever; -1 in ``tokens`` is
    no token."""

    def rule(logits: Tensor, tokens: Tensor) -> Tensor:
        seen = logits.new_zeros(len(logits), logits.shape[1] + 1, dtype=torch.bool)
        seen = seen.scatter_(1, tokens + 1, True)[:, 1:]  # the first column takes what is no token
        seen[:, list(ends)] = False
        less = torch.where(logits > 0, logits / penalty, logits * penalty)
        return logits.copy_(torch.where(seen, less, logits))

    return rule


def way_out(eos: int) -> Rule:
    """Where nothing is allowed any more, the end is."""

    def rule(logits: Tensor, tokens: Tensor) -> Tensor:
        logits[(logits == NEVER).all(-1), eos] = 0.0
        return logits

    return rule


def rules(settings: DecodingConfig, banned: Sequence[int], *ends: int, prompt: int = 0) -> Rule:
    """All rules of these settings as one.

    Args:
        ends: the ids that end; the first is the one that is said where nothing else is allowed.
        prompt: the first so many columns of ``tokens`` are the prompt, -1 where there is none. It counts as
            said for the repetition penalty alone.
    """
    chosen = [ban(banned)]
    if settings.min_length:
        chosen.append(at_least(settings.min_length, *ends))
    if settings.no_repeat_ngram:
        chosen.append(no_repeat(settings.no_repeat_ngram, *ends))
    if settings.min_length and settings.no_repeat_ngram:  # only together can they forbid everything
        chosen.append(way_out(ends[0]))
    less = repeat_less(settings.repetition_penalty, *ends) if settings.repetition_penalty != 1 else None

    def rule(logits: Tensor, tokens: Tensor) -> Tensor:
        if less is not None:
            logits = less(logits, tokens)
        for one in chosen:
            logits = one(logits, tokens[:, prompt:])
        return logits

    return rule


def length_penalty(kind: str, alpha: float, length: float) -> float:
    """What a log-probability is divided by: gnmt ``((5 + |y|) / 6)^α`` (Wu et al. 2016, section 7) or power
    ``|y|^α``. ``length`` counts produced tokens, the end included, the prompt not."""
    return float(((5 + length) / 6) ** alpha if kind == "gnmt" else length**alpha)


def keep_likely(logits_RV: Tensor, settings: DecodingConfig) -> Tensor:
    """Log-probabilities ``[R, V]`` of the distribution that sampling draws from.

    Order: temperature, then top-k, top-p (Holtzman et al. 2020, section 3.1), min-p, each on what the one
    before left. Exactly k tokens remain after top-k (of tied ones, those of lower id); top-p keeps the
    smallest set whose mass reaches p, at least the most likely token; min-p keeps tokens at least min_p
    times as likely as the most likely. Temperature 0 is greedy.
    """
    if settings.temperature == 0:
        best = logits_RV.argmax(-1, keepdim=True)
        return torch.full_like(logits_RV, NEVER, dtype=torch.float64).scatter_(-1, best, 0.0)
    logits = logits_RV.double()
    # Highest first at 0, so that nothing overflows however low the temperature.
    logits = (logits - logits.amax(-1, keepdim=True)) / settings.temperature
    ordered, index = torch.sort(logits, dim=-1, descending=True, stable=True)
    V = logits.shape[-1]
    if 0 < settings.top_k < V:
        ordered[:, settings.top_k :] = NEVER
    if settings.top_p < 1:
        p = ordered.softmax(-1)
        # A token is kept when the mass before it is still short of p: the first always is.
        ordered = ordered.masked_fill(p.cumsum(-1) - p >= settings.top_p, NEVER)
    if settings.min_p > 0:
        p = ordered.softmax(-1)
        ordered = ordered.masked_fill(p < settings.min_p * p[:, :1], NEVER)
    kept = torch.full_like(logits, NEVER).scatter_(-1, index, ordered)
    return kept.log_softmax(-1)
