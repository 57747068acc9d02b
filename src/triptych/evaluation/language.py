"""How well text is foretold: perplexity a token and a byte, bits a byte.

    perplexity a token = exp(nll / tokens)       only comparable where the tokens are the same
    perplexity a byte  = exp(nll / bytes)        comparable whatever the tokens
    bits a byte        = nll / (bytes · ln 2)    bytes of UTF-8

nll: negative log-likelihood in nats, of the whole text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from triptych.errors import UserError
from triptych.evaluation.bootstrap import Measure, heading, matching, measure, resampled, rough


@dataclass(frozen=True)
class LanguageScores:
    """All scores of a text.

    Attributes:
        perplexity: a token.
        byte_perplexity: a byte.
        bits: a byte.
        tokens: that were foretold, ends of documents included.
        bytes: of the text as UTF-8.
        notes: what a reader of the scores should know.
    """

    perplexity: Measure
    byte_perplexity: Measure
    bits: Measure
    tokens: int
    bytes: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; null for what is too large for a number."""
        plain = asdict(self)
        for key in ("perplexity", "byte_perplexity"):
            plain[key] = {k: None if v == math.inf else v for k, v in plain[key].items()}
        return {**plain, "notes": list(self.notes)}

    def table(self) -> str:
        """For a terminal."""
        measures = (self.perplexity, self.byte_perplexity, self.bits)
        lines = [heading(measures), *map(str, measures), f"{self.tokens:,} tokens, {self.bytes:,} bytes"]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@dataclass(frozen=True)
class TokenScores:
    """How well tokens that were hidden, or taken out, are foretold.

    Attributes:
        perplexity: a token; only comparable with the same tokens and the same share of them hidden.
        tokens: that were to be said.
        notes: what a reader of the scores should know.
        next_sentence: share of pairs of which it was told rightly whether the second text follows the first;
            None where that was not learned.
    """

    perplexity: Measure
    tokens: int
    notes: tuple[str, ...] = ()
    next_sentence: Measure | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; null for what is too large for a number."""
        plain = asdict(self)
        plain["perplexity"] = {k: None if v == math.inf else v for k, v in plain["perplexity"].items()}
        return {**plain, "notes": list(self.notes)}

    def table(self) -> str:
        """For a terminal."""
        measures = [self.perplexity, *([self.next_sentence] if self.next_sentence else [])]
        lines = [heading(measures), *map(str, measures), f"{self.tokens:,} tokens"]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def score_tokens(
    nll: Sequence[float],
    tokens: Sequence[int],
    told: Sequence[bool] = (),
    *,
    resamples: int = 1000,
    seed: int = 12345,
) -> TokenScores:
    """Score N groups of tokens from the sums over each; intervals are over groups.

    Args:
        told: of pairs of texts, whether it was told rightly if the second follows the first.

    Raises:
        UserError: no tokens, or lists of unequal lengths.
    """
    whole = score_language(nll, tokens, tokens, resamples=resamples, seed=seed)
    if not told:
        return TokenScores(whole.perplexity, whole.tokens, whole.notes)
    table = np.array([told, np.ones(len(told))], np.float64).T
    (sums,) = resampled([table], resamples if len(told) > 1 else 0, seed)
    pairs = measure("next text, %", lambda s: float(100 * s[0] / max(s[1], 1)), table.sum(0), sums)
    return TokenScores(whole.perplexity, whole.tokens, whole.notes, pairs)


def score_language(
    nll: Sequence[float],
    tokens: Sequence[int],
    bytes: Sequence[int],
    *,
    resamples: int = 1000,
    seed: int = 12345,
) -> LanguageScores:
    """Score N pieces of text, such as documents, from the sums over each; intervals are over pieces.

    One piece alone is enough for the scores, and gives no intervals.

    Raises:
        UserError: no tokens, no bytes, or lists of unequal lengths.
    """
    matching(nll, tokens, "likelihoods")
    matching(bytes, tokens, "byte counts")
    if not sum(tokens) or not sum(bytes):
        raise UserError("there is nothing to score: no text", mend="give at least one token")
    table = np.array([nll, tokens, bytes], np.float64).T
    (sums,) = resampled([table], resamples if len(tokens) > 1 else 0, seed)
    total = table.sum(0)
    return LanguageScores(
        measure("perplexity", lambda s: _exp(s[0] / max(s[1], 1)), total, sums),
        measure("a byte", lambda s: _exp(s[0] / max(s[2], 1)), total, sums),
        measure("bits a byte", lambda s: float(s[0] / max(s[2], 1)) / math.log(2), total, sums),
        int(total[1]),
        int(total[2]),
        tuple(rough(len(tokens), "pieces of text", len(sums))),
    )


def _exp(mean: float) -> float:
    """Infinite when too large for a float."""
    return math.exp(mean) if mean < 700 else math.inf
