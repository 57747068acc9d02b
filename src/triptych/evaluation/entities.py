"""How well words are tagged: accuracy, and where the tags mark spans, precision, recall and F1 of the spans.

    right  B-PER I-PER O     B-LOC        spans: PER 0–2, LOC 3–4
    said   B-PER I-PER B-LOC B-LOC        spans: PER 0–2, LOC 2–3, LOC 3–4
                                          2 of 3 said are right, 2 of 2 right are said: F1 = 80 %

A span counts when type, beginning and end are right, as in the CoNLL shared tasks (Tjong Kim Sang and De
Meulder 2003, section 2.3; conlleval), whose reading of tags that are not well formed is in ``text/bio.py``.
Sentences are what is resampled: the words of one are not independent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from triptych.errors import UserError
from triptych.evaluation.bootstrap import (
    Measure,
    Values,
    heading,
    matching,
    measure,
    resampled,
    rough,
)
from triptych.text.bio import is_bio, spans

Tags = Sequence[Sequence[str]]


@dataclass(frozen=True)
class SpanScore:
    """Spans of one type, or of all: in per cent, 0 where precision or recall would divide by 0.

    Attributes:
        right: spans that there are.
        said: spans that were said.
        hit: spans that were said and are right.
    """

    kind: str
    precision: float
    recall: float
    f1: Measure
    right: int
    said: int
    hit: int


@dataclass(frozen=True)
class TagScores:
    """All scores of a test set.

    Attributes:
        accuracy: share of words with the right tag.
        spans: of all types together; None where the tags mark no spans.
        types: of each type by itself, in the order of the alphabet.
        words: how many were tagged.
        notes: what a reader of the scores should know.
    """

    accuracy: Measure
    spans: SpanScore | None
    types: tuple[SpanScore, ...]
    words: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "types": [asdict(t) for t in self.types], "notes": list(self.notes)}

    def table(self) -> str:
        """For a terminal."""
        measures = [self.accuracy, *([self.spans.f1] if self.spans else [])]
        lines = [heading(measures), *map(str, measures), f"{self.words:,} words"]
        wide = max((len(t.kind) for t in self.types), default=0)
        if self.spans:
            lines.append(f"{'':<{wide}}  precision  recall      F1   95 % interval   spans    said")
        for t in self.types:
            rates = f"{t.precision:9.2f}  {t.recall:6.2f}  {t.f1.score:6.2f}  {t.f1.span:>14}"
            lines.append(f"{t.kind:<{wide}}  {rates}  {t.right:6,}  {t.said:6,}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def score_tags(
    said: Tags, right: Tags, known: Sequence[str] = (), *, resamples: int = 1000, seed: int = 12345
) -> TagScores:
    """Score the tags of N sentences against the right ones, with 95 % bootstrap intervals.

    Args:
        known: the tags that can be said, where that is to be looked at.

    Raises:
        UserError: no words, not as many sentences, or a sentence with another number of words.
    """
    matching(said, right, "tagged sentences")
    for number, (s, r) in enumerate(zip(said, right, strict=True), 1):
        if len(s) != len(r):
            what = f"{len(s)} tags for {len(r)} words"
            raise UserError(what, f"sentence {number}", "give one tag for each word")
    equal = [[sum(map(str.__eq__, s, r)), len(r)] for s, r in zip(said, right, strict=True)]
    words = sum(n for _, n in equal)
    matching(range(words), range(words), "words")
    marked = is_bio({tag for sentence in (*right, *said) for tag in sentence})
    kinds, counts = _spans(said, right) if marked else ([], np.zeros((len(right), 0)))
    tables = [np.array(equal, np.float64), counts]
    sums = resampled(tables, resamples, seed)
    accuracy = measure("accuracy, %", _share, tables[0].sum(0), sums[0])
    total, drawn = counts.sum(0).reshape(-1, 3), sums[1].reshape(resamples, len(kinds), 3)
    types = tuple(_scored(kind, "F1, %", total[k], drawn[:, k]) for k, kind in enumerate(kinds))
    every = _scored("", "span F1, %", total.sum(0), drawn.sum(1)) if marked else None
    notes = [*rough(len(right), "sentences", resamples)]
    new = Counter(tag for sentence in right for tag in sentence if known and tag not in known)
    if new:
        names = ", ".join(sorted(new)[:5]) + (", …" if len(new) > 5 else "")
        notes.append(f"words of a tag that was not trained: {new.total():,} ({names})")
    return TagScores(accuracy, every, types, words, tuple(notes))


def _spans(said: Tags, right: Tags) -> tuple[list[str], Values]:
    """The types, and ``[N, 3 · types]`` how many spans of each are right, said, and both."""
    rows = []
    for s, r in zip(said, right, strict=True):
        wanted, found = set(spans(r)), set(spans(s))
        rows.append([Counter(kind for kind, _, _ in some) for some in (wanted, found, wanted & found)])
    kinds = sorted({kind for row in rows for counter in row for kind in counter})
    return kinds, np.array([[c[kind] for kind in kinds for c in row] for row in rows], np.float64)


def _scored(kind: str, name: str, total: Values, sums: Values) -> SpanScore:
    right, said, hit = (int(n) for n in total)
    precision, recall = 100 * hit / max(said, 1), 100 * hit / max(right, 1)
    return SpanScore(kind, precision, recall, measure(name, _f1, total, sums), right, said, hit)


def _f1(counts: Values) -> float:
    """2PR / (P + R) = 2 · both / (right + said), in per cent."""
    right, said, hit = counts
    return float(200 * hit / max(right + said, 1))


def _share(counts: Values) -> float:
    """Right words of all, in per cent."""
    return float(100 * counts[0] / max(counts[1], 1))
