"""Where two files that should be line-aligned part ways, guessed from what translations share.

A sentence and its translation have lengths in a fairly constant ratio and hold the same digits. Both are weak
for one line and strong over many, so the guess is a range of lines with a word on how far it can be trusted.
The cost of pairing two lines follows the idea of Gale and Church (1993, "A Program for Aligning Sentences in
Bilingual Corpora", section 3): minus the log-likelihood, in nats, of their length ratio.

    S(k) = Σ_{i<k} cost(pair i shifted) − cost(pair i as it stands)

rises while the lines as they stand fit, and falls once the shifted ones fit better: its top is the break.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from triptych.text.characters import is_blank

__all__ = ["Divergence", "find_divergence"]

MARGIN_NATS = 4.0  # positions within this of the best one are called possible, too
CAP_NATS = 5.0  # no single line says more than this
DIGITS_NATS = 2.0  # how much differing digits add
CONFIDENT_SIGMA = 4.0
FEW_LINES = 40
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class Divergence:
    """A guess at the first place where two files part. Lines count from 1.

    Args:
        aligned: lines 1…aligned look aligned.
        low, high: the range in which that figure may well lie.
        confident: the lines on both sides of the break bear the guess out.
        several: there seem to be more places, since the lines after this one fit no single shift.
        first_blank: the first line that is blank in one file only, the usual trace of dropped blank lines.
        blanks_explain: the files differ in blank lines by just as many as they differ in lines.
    """

    aligned: int
    low: int
    high: int
    confident: bool
    several: bool
    first_blank: int | None
    blanks_explain: bool


def find_divergence(source: Sequence[str], target: Sequence[str]) -> Divergence:
    """Guess after which line ``source`` and ``target``, of unequal length, stop being translations.

    Linear in the number of lines. Made for one missing or extra stretch, where it is usually right to a few
    lines; with several it gives the first. Files whose neighbouring lines are alike (sorted by length) tell
    little.
    """
    assert len(source) != len(target), "files of equal length have no such place"
    short, long = sorted((source, target), key=len)
    shift = len(long) - len(short)
    first = _costs(short, long)
    costs = (first.at(0), first.at(shift))
    best = _top(*costs)
    # Once more with the scale taken from the lines that fit, rather than from all of them.
    refined = first.fit([*first.ratios(0)[:best], *first.ratios(shift)[best:]])
    still, moved = refined.at(0), refined.at(shift)
    scores = _running(still, moved)
    best = max(range(len(scores)), key=scores.__getitem__)
    near = [k for k, score in enumerate(scores) if score >= scores[best] - MARGIN_NATS]
    low, high = near[0], near[-1]
    chance = statistics.fmean(refined.at(shift + 3) + refined.at(-3)) if len(short) > 6 else CAP_NATS
    earlier = _first_break(still, moved, best, chance)
    several = earlier < low
    if several:
        best = low = high = earlier
    blank = [(is_blank(s), is_blank(t)) for s, t in zip(source, target, strict=False)]
    return Divergence(
        aligned=best,
        low=low,
        high=high,
        confident=_bears_out(still, moved, best, several),
        several=several,
        first_blank=next((i for i, (s, t) in enumerate(blank, start=1) if s != t), None),
        blanks_explain=sum(map(is_blank, target)) - sum(map(is_blank, source)) == len(target) - len(source),
    )


@dataclass(frozen=True)
class _Costs:
    """The cost in nats of pairing each line of the shorter file with one of the longer."""

    short: list[float]  # log lengths
    long: list[float]
    short_digits: list[tuple[str, ...]]
    long_digits: list[tuple[str, ...]]
    centre: float = 0.0
    scale: float = 1.0

    def ratios(self, shift: int) -> list[float]:
        """Log length ratio of each line of the shorter file to that ``shift`` lines further in the longer."""
        last = len(self.long) - 1
        return [s - self.long[min(max(i + shift, 0), last)] for i, s in enumerate(self.short)]

    def fit(self, ratios: list[float]) -> _Costs:
        """The same with the centre and scale (Laplace: median and mean absolute deviation) of ``ratios``."""
        centre = statistics.median(ratios)
        scale = max(statistics.fmean(abs(r - centre) for r in ratios), 0.05)
        return _Costs(self.short, self.long, self.short_digits, self.long_digits, centre, scale)

    def at(self, shift: int) -> list[float]:
        """Cost of every line of the shorter file when its partner is ``shift`` lines further on."""
        last = len(self.long) - 1
        return [
            min(abs(ratio - self.centre) / self.scale, CAP_NATS)
            + (DIGITS_NATS if digits != self.long_digits[min(max(i + shift, 0), last)] else 0.0)
            for i, (ratio, digits) in enumerate(zip(self.ratios(shift), self.short_digits, strict=True))
        ]


def _costs(short: Sequence[str], long: Sequence[str]) -> _Costs:
    raw = _Costs(
        [math.log1p(len(line)) for line in short],
        [math.log1p(len(line)) for line in long],
        [tuple(sorted(_DIGITS.findall(line))) for line in short],
        [tuple(sorted(_DIGITS.findall(line))) for line in long],
    )
    return raw.fit(raw.ratios(0) + raw.ratios(len(long) - len(short))) if short else raw


def _running(still: list[float], moved: list[float]) -> list[float]:
    """S(k) for k = 0 … lines."""
    return list(accumulate((m - s for s, m in zip(still, moved, strict=True)), initial=0.0))


def _top(still: list[float], moved: list[float]) -> int:
    scores = _running(still, moved)
    return max(range(len(scores)), key=scores.__getitem__)


def _first_break(still: list[float], moved: list[float], best: int, chance: float) -> int:
    """Where the lines as they stand stop fitting, if clearly before ``best``; else ``best``.

    With several breaks S(k) is flat between the first and the last. The lines there fit no better than lines
    paired at random (``chance``), so counting each against the half-way cost shows where the fit ends.
    """
    fitting = statistics.fmean(still[:best] + moved[best:]) if still else 0.0
    half_way = (fitting + chance) / 2
    gains = list(accumulate((half_way - cost for cost in still[:best]), initial=0.0))
    top = max(range(len(gains)), key=gains.__getitem__)
    return top if gains[top] - gains[best] > 3 * MARGIN_NATS else best


def _bears_out(still: list[float], moved: list[float], best: int, several: bool) -> bool:
    """True when the lines on both sides of the break speak for it, beyond chance.

    A side too short to say anything is believed if the other one speaks. After the first of several breaks
    the lines fit no single shift, so that only those before it are asked.
    """
    before = _sigmas([m - s for s, m in zip(still[:best], moved[:best], strict=True)])
    if several:
        return before > CONFIDENT_SIGMA
    after = _sigmas([s - m for s, m in zip(still[best:], moved[best:], strict=True)])
    short_before, short_after = best < FEW_LINES, len(still) - best < FEW_LINES
    return (
        max(before, after) > CONFIDENT_SIGMA
        and (before > CONFIDENT_SIGMA or short_before)
        and (after > CONFIDENT_SIGMA or short_after)
    )


def _sigmas(gains: list[float]) -> float:
    """The sum of ``gains`` in standard deviations of a sum of as many with random signs."""
    noise = math.sqrt(sum(gain * gain for gain in gains))
    return sum(gains) / noise if noise else 0.0
