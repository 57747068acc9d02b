"""How well texts are found by their vectors: recall at 1, 5 and 10, and mean reciprocal rank.

queries_QC · texts_NCᵀ = cosines_QN ─ rank of the right text ─┬─ rank ≤ k: recall at k
                                                              └─ 1 / rank: reciprocal (Voorhees 1999)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from triptych.engine.embedder import Embedder
from triptych.engine.vectors import Vectors
from triptych.evaluation.bootstrap import Measure, heading, matching, measure, resampled, rough

AT = (1, 5, 10)
BLOCK = 1 << 22  # cosines at a time
NEAR = 1e-6  # cosines closer than this are equal: rounding decides nothing


@dataclass(frozen=True)
class RetrievalScores:
    """All scores of a test set.

    Attributes:
        recall: share of queries whose text is among the first 1, 5 and 10.
        mrr: mean of 1 / rank, from 0 to 1.
        queries: how many.
        texts: among how many each was looked for.
        notes: what a reader of the scores should know.
    """

    recall: tuple[Measure, ...]
    mrr: Measure
    queries: int
    texts: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "recall": [asdict(m) for m in self.recall], "notes": list(self.notes)}

    def table(self) -> str:
        """For a terminal."""
        measures = (*self.recall, self.mrr)
        counted = f"{self.queries:,} queries among {self.texts:,} texts"
        notes = (f"note: {note}" for note in self.notes)
        return "\n".join([heading(measures), *map(str, measures), counted, *notes])


def ranks(queries_QC: Vectors, texts_NC: Vectors, right: Sequence[int]) -> npt.NDArray[np.int64]:
    """``[Q]``: the place, from 1, of the right text of each query among all, by cosine of unit vectors.

    A text that is as near as the right one stands before it: vectors that are all the same find nothing.
    """
    out = np.zeros(len(right), np.int64)
    rows = max(1, BLOCK // len(texts_NC))
    for start in range(0, len(right), rows):
        own = np.asarray(right[start : start + rows])
        cosines_RN = queries_QC[start : start + rows] @ texts_NC.T
        bar_R = cosines_RN[np.arange(len(own)), own]
        before_R = (cosines_RN >= bar_R[:, None] - NEAR).sum(1)  # the right one is among them
        out[start : start + rows] = before_R
    return out


def score_retrieval(
    queries_QC: Vectors, texts_NC: Vectors, right: Sequence[int], *, resamples: int = 1000, seed: int = 12345
) -> RetrievalScores:
    """Score queries against texts, both unit vectors, with 95 % bootstrap intervals over queries.

    Args:
        right: for each query, the number of its text.

    Raises:
        UserError: no queries, or not as many as there are right texts.
    """
    matching(queries_QC, right, "queries")
    place = ranks(queries_QC, texts_NC, right)
    counts = np.stack([*(place <= k for k in AT), 1 / place], axis=1).astype(np.float64)
    (sums,) = resampled([counts], resamples, seed)
    total, n = counts.sum(0), len(right)
    recall = tuple(
        measure(f"recall@{k}, %", lambda s: float(100 * s[0] / n), total[i : i + 1], sums[:, i : i + 1])
        for i, k in enumerate(AT)
    )
    mrr = measure("MRR", lambda s: float(s[0] / n), total[-1:], sums[:, -1:])
    return RetrievalScores(recall, mrr, n, len(texts_NC), tuple(rough(n, "queries", resamples)))


def evaluate_pairs(
    embedder: Embedder, first: Sequence[str], second: Sequence[str], resamples: int = 1000
) -> RetrievalScores:
    """Look for the second text of each pair, by its first, among all second texts; equal ones are one."""
    matching(first, second, "first texts")
    texts = list(dict.fromkeys(second))
    number = {text: i for i, text in enumerate(texts)}
    right = [number[text] for text in second]
    return score_retrieval(embedder.embed(first), embedder.embed(texts), right, resamples=resamples)
