"""One evaluator for validation, test and everything after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from triptych.config import DecodingConfig
from triptych.data import Dataset
from triptych.decoding import length_penalty
from triptych.engine import Translator, autocast, evaluating
from triptych.evaluation.metrics import bleu, score
from triptych.model import Model
from triptych.objectives import Loss, Objective

ALPHAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0)


class Sheet(Protocol):
    """Scores of whatever kind."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        ...

    def table(self) -> str:
        """For a terminal."""
        ...


@dataclass(frozen=True)
class Sample:
    """One example as text: what was given, what was wanted, what was said."""

    source: str
    reference: str
    hypothesis: str


@dataclass(frozen=True)
class Result:
    """What an evaluation found.

    Attributes:
        samples: what was said, example by example; a few of them where there are very many.
        loss: over what the model could be asked at once; None when that is nothing.
        left_out: examples that are not in the loss.
    """

    scores: Sheet
    samples: list[Sample]
    loss: Loss | None = None
    left_out: int = 0


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
    triples = zip(source, reference, found, strict=True)
    return Result(scores, [Sample(s, r, t.text) for s, r, t in triples])


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


def dataset_loss(model: Model, objective: Objective, data: Dataset, precision: str) -> Loss:
    """Loss over all examples once, without dropout, smoothing or gradient."""
    device = next(model.parameters()).device
    total = Loss(torch.zeros((), device=device), 0, 0.0)
    with evaluating(model), torch.inference_mode(), autocast(precision, device):
        for batch in data.once():
            total = total + objective.loss(model, batch.to(device))
    return total
