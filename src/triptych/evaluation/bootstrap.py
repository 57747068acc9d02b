"""A score of a whole test set, and the interval it lies in (Efron 1979; Koehn 2004).

examples ─ counts [N, K] ─┬─ sum over examples ───────── score
                          └─ sums over resamples [R, K] ─ 95 % interval
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from triptych.errors import UserError

Values = npt.NDArray[np.float64]

FEW = 100  # fewer examples than this: a bootstrap interval is a rough guide


@dataclass(frozen=True)
class Measure:
    """One score of a whole test set.

    Attributes:
        name: with its unit, such as ``BLEU`` (0 to 100), ``accuracy, %`` or ``perplexity``.
        score: of all examples together.
        low: lower end of the 95 % bootstrap interval; None without resamples.
        high: its upper end.
        signature: sacreBLEU's, with all that is needed to compute the score again; empty for all others.
    """

    name: str
    score: float
    low: float | None = None
    high: float | None = None
    signature: str = ""

    @property
    def span(self) -> str:
        """The interval for a terminal; empty without one."""
        return "" if self.low is None else f"{self.low:5.2f} … {self.high:5.2f}"

    def __str__(self) -> str:
        return f"{self.name:<14} {self.score:6.2f}   {self.span}".rstrip()


def resampled(tables: Sequence[Values], resamples: int, seed: int) -> list[Values]:
    """Sums over ``resamples`` draws of N examples with replacement: ``[N, K]`` → ``[R, K]`` for each table.

    All tables see the same draws. How often each example was drawn times its counts, one draw at a time:
    memory stays at N, not R × N.
    """
    rng = np.random.default_rng(seed)
    joined = np.concatenate(tables, axis=1)
    n = len(joined)
    draws = (np.bincount(rng.integers(0, n, n), minlength=n) @ joined for _ in range(resamples))
    # Counts are whole numbers below 2^53: the sums are exact in any order.
    sums = np.stack([*draws, np.zeros(joined.shape[1])])[:-1]
    return np.split(sums, np.cumsum([t.shape[1] for t in tables])[:-1], axis=1)


def measure(
    name: str, scorer: Callable[[Values], float], total: Values, sums: Values, signature: str = ""
) -> Measure:
    """The score of ``total [K]``, with the interval that holds 95 % of the scores of ``sums [R, K]``."""
    return within(name, float(scorer(total)), [float(scorer(row)) for row in sums], signature)


def within(name: str, point: float, scores: Iterable[float], signature: str = "") -> Measure:
    """A score, with the interval that holds 95 % of those of resamples; NaN: a resample has none."""
    found = sorted(s for s in scores if s == s)
    if not found:
        return Measure(name, point, signature=signature)
    cut = len(found) // 40  # as many on each side as sacreBLEU leaves out
    # With a handful of examples resamples may all lie on one side: hold the point even then.
    low, high = min(found[cut], point), max(found[-1 - cut], point)
    return Measure(name, point, low, high, signature)


def matching(said: Sized, right: Sized, what: str) -> None:
    """Refuse what cannot be scored: nothing, or unequal numbers. Raises UserError."""
    if len(said) != len(right):
        raise UserError(
            f"there are {len(said):,} {what} for {len(right):,} references",
            mend="give one for each reference",
        )
    if not len(right):
        raise UserError(f"there is nothing to score: no {what}", mend="give at least one")


def heading(measures: Iterable[Measure]) -> str:
    """Above a list of measures."""
    interval = any(m.low is not None for m in measures)
    return f"{'':<14}  score" + ("   95 % interval" if interval else "")


def rough(examples: int, what: str, resamples: int) -> Iterator[str]:
    """The note on an interval of few examples."""
    if resamples and examples < FEW:
        yield f"with fewer than {FEW} {what} the intervals are a rough guide"
