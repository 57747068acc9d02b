"""One evaluator for validation, test and everything after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from triptych.config import DecodingConfig
from triptych.decoding import length_penalty
from triptych.engine import Translation, Translator
from triptych.evaluation.metrics import Scores, bleu, score

ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0)


@dataclass(frozen=True)
class Result:
    """Translations of a test set and their scores against its references."""

    translations: list[Translation]
    scores: Scores


def evaluate(
    translator: Translator,
    source: Sequence[str],
    reference: Sequence[str],
    settings: DecodingConfig,
    resamples: int = 1000,
) -> Result:
    """Translate raw source lines and score them against raw references."""
    found = translator.translate(source, settings)
    scores = score([t.text for t in found], reference, translator.language, resamples=resamples)
    return Result(found, scores)


def tune_alpha(
    translator: Translator, source: Sequence[str], reference: Sequence[str], settings: DecodingConfig
) -> tuple[float, dict[float, float]]:
    """The length penalty's exponent with the best BLEU on held-out pairs, and the BLEU of each tried.

    The beams are searched once and re-ranked for each exponent; of equals, the one nearest to what is set.
    """
    wide = settings.model_copy(update={"strategy": "beam", "n_best": settings.beam})
    found = translator.translate(source, wide)
    tried = {}
    for alpha in ALPHAS:
        said = []
        for t in found:
            first = max(
                t.alternatives,
                key=lambda a: a.logprob / length_penalty(settings.penalty, alpha, len(a.pieces) + 1),
            )
            said.append(first.text)
        tried[alpha] = bleu(said, reference, translator.language)
    best = max(tried, key=lambda a: (tried[a], -abs(a - settings.alpha)))
    return best, tried
