"""How well classes are told: accuracy, macro-F1, precision and recall of each class, the confusion matrix.

                  said
               a    b    c          precision of b: its diagonal ÷ its column
    right  a   9    1    0          recall of b:    its diagonal ÷ its row
           b   2    7    1          F1 of b:    2 · its diagonal ÷ (its row + its column)
           c   0    0    5          accuracy:       the diagonal ÷ everything

Resampling examples is drawing the cells of this matrix anew: N draws from its shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triptych.evaluation.bootstrap import Measure, Values, heading, matching, rough, within

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassScore:
    """One class, in per cent; precision and recall are 0 where they would divide by 0.

    Attributes:
        f1: NaN where the class is neither right nor said anywhere.
        right: examples of this class.
        said: examples that were taken for it.
    """

    label: str
    precision: float
    recall: float
    f1: Measure
    right: int
    said: int

    @property
    def defined(self) -> bool:
        """Whether it has an F1."""
        return self.right + self.said > 0


@dataclass(frozen=True)
class ClassScores:
    """All scores of a test set.

    Attributes:
        accuracy: share of examples whose class was said.
        macro_f1: mean F1 of the classes that are right or said somewhere.
        classes: each class by itself.
        confusion: ``[K][K]`` examples; row: the right class, column: the one said.
        notes: what a reader of the scores should know.
    """

    accuracy: Measure
    macro_f1: Measure
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes' names, in the order of the confusion matrix."""
        return tuple(c.label for c in self.classes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; null for an F1 that is not defined."""
        plain = asdict(self)
        for entry, c in zip(plain["classes"], self.classes, strict=True):
            entry["f1"]["score"] = c.f1.score if c.defined else None
        return {**plain, "notes": list(self.notes)}

    def table(self) -> str:
        """For a terminal."""
        measures = (self.accuracy, self.macro_f1)
        wide = max(len(c.label) for c in self.classes)
        lines = [heading(measures), *map(str, measures)]
        lines.append(f"{'':<{wide}}  precision  recall      F1   95 % interval   examples   said")
        for c in self.classes:
            f1 = f"{c.f1.score:6.2f}" if c.defined else "     –"
            rates = f"{c.precision:9.2f}  {c.recall:6.2f}  {f1}  {c.f1.span:>14}"
            lines.append(f"{c.label:<{wide}}  {rates}  {c.right:9,}  {c.said:5,}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def score_classes(
    said: Sequence[str],
    right: Sequence[str],
    labels: Sequence[str] = (),
    *,
    resamples: int = 1000,
    seed: int = 12345,
) -> ClassScores:
    """Score N classes said against N right ones, with 95 % bootstrap intervals.

    Args:
        labels: the classes that can be said, in the order to list them; others that are right or said come
            after them.
        resamples: how many; 0 leaves the intervals out.

    Raises:
        UserError: no examples, or not as many said as right.
    """
    matching(said, right, "classes")
    known = list(dict.fromkeys([*labels, *sorted({*right, *said})]))
    number = {label: k for k, label in enumerate(known)}
    K, n = len(known), len(right)
    pairs = [number[r] * K + number[s] for r, s in zip(right, said, strict=True)]
    cells, counts = np.unique(pairs, return_counts=True)
    row, column = cells // K, cells % K
    rng = np.random.default_rng(seed)
    drawn = [_sums(row, column, rng.multinomial(n, counts / n), K) for _ in range(resamples)]
    whole = _sums(row, column, counts, K)
    f1, draws = _f1(whole), [_f1(d) for d in drawn]
    confusion = np.zeros((K, K), np.int64)
    confusion[row, column] = counts
    hit, of, taken = (x.astype(int).tolist() for x in whole)
    classes = [
        ClassScore(
            label,
            100 * hit[k] / max(taken[k], 1),
            100 * hit[k] / max(of[k], 1),
            within("F1", float(f1[k]), (float(d[k]) for d in draws)),
            of[k],
            taken[k],
        )
        for k, label in enumerate(known)
    ]
    accuracy = [100 * float(d[0].sum()) / n for d in drawn]
    return ClassScores(
        within("accuracy, %", 100 * sum(hit) / n, accuracy),
        within("macro-F1, %", float(np.nanmean(f1)), (float(np.nanmean(d)) for d in draws)),
        tuple(classes),
        tuple(map(tuple, confusion.tolist())),
        (*_doubts(classes, len(labels)), *rough(n, "examples", resamples)),
    )


def _sums(row: Counts, column: Counts, counts: Counts, classes: int) -> Values:
    """``[3, K]``: the diagonal, the rows' sums, the columns' sums of a matrix given by its cells."""
    diagonal = np.where(row == column, counts, 0)
    return np.stack(
        [np.bincount(i, c, classes) for i, c in ((row, diagonal), (row, counts), (column, counts))]
    )


def _f1(sums: Values) -> Values:
    """Per cent, of each class; NaN for a class that is nowhere."""
    hit, right, said = sums
    everywhere = right + said
    f1: Values = 200 * hit / np.where(everywhere > 0, everywhere, np.nan)
    return f1


def _doubts(classes: Sequence[ClassScore], known: int) -> Iterator[str]:
    """What is odd about the examples."""
    absent = [c.label for c in classes[:known] if not c.right]
    if absent:
        yield f"no example of {_names(absent)}: what is said of these classes is not tested"
    unknown = [c for c in classes[known:] if known and c.right]
    if unknown:
        count = sum(c.right for c in unknown)
        yield f"examples of a class that was not trained: {count:,} ({_names([c.label for c in unknown])})"


def _names(labels: Sequence[str]) -> str:
    return ", ".join(labels[:5]) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")
