"""How good the output is: one evaluator for validation, test and everything after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from triptych.evaluation.metrics import Measure, Scores, bleu, score

if TYPE_CHECKING:
    from triptych.evaluation.evaluator import Result, Sample, dataset_loss, evaluate, tune_alpha

__all__ = ["Measure", "Result", "Sample", "Scores", "bleu", "dataset_loss", "evaluate", "score", "tune_alpha"]


def __getattr__(name: str) -> Any:
    """Names that need a model, and so torch, are loaded on first use: scoring two files needs neither."""
    if name in ("Result", "Sample", "dataset_loss", "evaluate", "tune_alpha"):
        from triptych.evaluation import evaluator

        return getattr(evaluator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
