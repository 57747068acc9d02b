"""Scores of translations: sacreBLEU's BLEU and chrF++ on raw text, exact match, bootstrap intervals.

    raw lines ─ sacreBLEU's own tokenizer ─ statistics [N, K] ─┬─ sum over lines ───────── score
                                                               └─ sums over resamples ──── interval

Only raw text is scored: a score of tokenised text depends on the tokenizer, so that two such scores
cannot be compared (Post 2018, "A Call for Clarity in Reporting BLEU Scores").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from triptych.errors import UserError
from triptych.evaluation.bootstrap import Measure, heading, measure, resampled, rough

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.bleu import BLEU

__all__ = ["Measure", "Scores", "bleu", "score"]

# sacreBLEU's BLEU tokenizer by the first part of the target's language code; "13a" for all others.
_CHINESE, _JAPANESE, _KOREAN = ("zh", "zho", "chi", "cmn", "yue", "wuu", "lzh"), ("ja", "jpn"), ("ko", "kor")
_TOKENIZERS = (
    dict.fromkeys(_CHINESE, "zh") | dict.fromkeys(_JAPANESE, "ja-mecab") | dict.fromkeys(_KOREAN, "ko-mecab")
)
# Written without spaces between words, and no tokenizer for them in sacreBLEU that needs no download.
_UNSPACED = ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bo", "bod", "dz", "dzo")


@dataclass(frozen=True)
class Scores:
    """All scores of a test set.

    Attributes:
        bleu: corpus BLEU (Papineni et al. 2002).
        chrf: chrF++: character 1- to 6-grams and word 1- to 2-grams (Popović 2017).
        exact: share of lines equal to their reference once outer white space is off, in per cent.
        counts: lines, equal lines, empty lines on either side, tokens on either side as BLEU saw them.
        language: the target language code, as given.
        notes: what a reader of the scores should know.
    """

    bleu: Measure
    chrf: Measure
    exact: Measure
    counts: dict[str, int]
    language: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; ``Measure`` becomes a dict with its fields."""
        return {**asdict(self), "notes": list(self.notes)}

    def table(self) -> str:
        """For a terminal: the scores with their intervals, then signatures and notes."""
        measures = (self.bleu, self.chrf, self.exact)
        lines = [heading(measures), *map(str, measures), self._counted()]
        lines += [f"{m.name}: {m.signature}" for m in measures if m.signature]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    def _counted(self) -> str:
        c = self.counts
        text = (
            f"{c['lines']:,} lines, {c['equal']:,} equal to the reference; "
            f"{c['hypothesis_tokens']:,} tokens against {c['reference_tokens']:,}"
        )
        empty = c["empty_hypotheses"]
        return text + (f"; {empty:,} empty hypotheses" if empty else "")


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    *,
    resamples: int = 1000,
    seed: int = 12345,
) -> Scores:
    """BLEU, chrF++ and exact match of raw text, each with a 95 % bootstrap interval (Koehn 2004).

    The resamples are the ones sacreBLEU draws for the same ``seed``, so that its ``--confidence`` gives the
    same figures; its interval is centred on the mean of the resamples, ours are their percentiles.

    Args:
        hypotheses: N lines of output, not tokenised.
        references: N lines, in the same order.
        language: code of the target language; chooses BLEU's tokenizer.
        resamples: how many; 0 leaves the intervals out.
        seed: of the resampling.

    Raises:
        UserError: no lines, or not as many hypotheses as references.
    """
    from sacrebleu.metrics.chrf import CHRF

    _check(hypotheses, references)
    assert resamples >= 0
    metric, notes = _bleu(language)
    chrf = CHRF(word_order=2)
    words = _statistics(metric, hypotheses, references)
    matches = _statistics(chrf, hypotheses, references)
    equal = np.array([[h.strip() == r.strip()] for h, r in zip(hypotheses, references, strict=True)], float)
    sums = resampled([words, matches, equal], resamples, seed)
    if resamples:
        for used in (metric, chrf):  # the signature says how the interval came about
            used.n_bootstrap, used.seed = resamples, str(seed)
    lines = len(hypotheses)
    total = words.sum(0)
    counts = {
        "lines": lines,
        "equal": int(equal.sum()),
        "empty_hypotheses": sum(not h.strip() for h in hypotheses),
        "empty_references": sum(not r.strip() for r in references),
        "hypothesis_tokens": int(total[0]),
        "reference_tokens": int(total[1]),
    }
    return Scores(
        bleu=measure("BLEU", _scorer(metric), total, sums[0], metric.get_signature().format()),
        chrf=measure("chrF++", _scorer(chrf), matches.sum(0), sums[1], chrf.get_signature().format()),
        exact=measure("exact match, %", lambda s: 100 * s[0] / lines, equal.sum(0), sums[2]),
        counts=counts,
        language=language,
        notes=(*notes, *_doubts(hypotheses), *rough(lines, "lines", resamples)),
    )


def bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> float:
    """Corpus BLEU alone, 0 to 100, as ``score`` gives it; without resampling, for use during training.

    Raises:
        UserError: no lines, or not as many hypotheses as references.
    """
    _check(hypotheses, references)
    metric, _ = _bleu(language)
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score)


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Refuse what cannot be scored."""
    assert not isinstance(hypotheses, str) and not isinstance(references, str), "lines, not one text"
    if len(hypotheses) != len(references):
        raise UserError(
            f"there are {len(hypotheses):,} hypotheses for {len(references):,} references",
            mend="give one line of output for each reference line, empty lines included",
        )
    if not references:
        raise UserError("there is nothing to score: no lines", mend="give at least one pair of lines")


def _bleu(language: str) -> tuple[BLEU, list[str]]:
    """BLEU with the tokenizer for ``language``, and what to know about it."""
    from sacrebleu.metrics.bleu import BLEU

    code = language.replace("_", "-").split("-")[0].lower()
    name = _TOKENIZERS.get(code, "13a")
    # force: sacreBLEU would write its own warning about tokenised text to the log; ours is a note.
    try:
        metric = BLEU(tokenize=name, force=True)
    except (RuntimeError, AssertionError):  # MeCab or its dictionary is missing, or is another one
        note = (
            f"BLEU on characters, since {name} is not installed: not comparable with BLEU on words; "
            f"pip install 'triptych[{name[:2]}]'"
        )
        return BLEU(tokenize="char", force=True), [note]
    if code in _UNSPACED:
        return metric, [f"{language}: BLEU takes phrases without spaces for single words; go by chrF++"]
    return metric, []


def _doubts(hypotheses: Sequence[str]) -> Iterator[str]:
    """What is suspicious about the lines."""
    spaced = sum(h.endswith((" .", " 。")) for h in hypotheses)
    if 2 * spaced > len(hypotheses):
        yield (
            f"{spaced:,} of {len(hypotheses):,} hypotheses end in a space and a full stop, "
            "as tokenised text does: score raw text only"
        )


def _statistics(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[str]
) -> npt.NDArray[np.float64]:
    """``[N, K]`` counts a line, of which a corpus score is a function of the sum."""
    # Not public in sacreBLEU, yet its significance tests stand on it, and no public call gives the counts.
    return np.array(metric._extract_corpus_statistics(hypotheses, [references]), np.float64)


def _scorer(metric: Metric) -> Callable[[npt.NDArray[np.float64]], float]:
    """From summed statistics ``[K]`` to the score."""
    return lambda sums: float(metric._compute_score_from_stats(sums.tolist()).score)
