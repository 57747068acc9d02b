"""How good the output is: one evaluator for validation, test and everything after."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from triptych.evaluation.bootstrap import Measure
from triptych.evaluation.classes import ClassScores, score_classes
from triptych.evaluation.entities import TagScores, score_tags
from triptych.evaluation.language import LanguageScores, score_language
from triptych.evaluation.metrics import Scores, bleu, score

if TYPE_CHECKING:
    from triptych.evaluation.evaluator import Result, Sample, dataset_loss, evaluate, tune_alpha
    from triptych.evaluation.retrieval import RetrievalScores, evaluate_pairs, score_retrieval

__all__ = [
    "ClassScores",
    "LanguageScores",
    "Measure",
    "Result",
    "RetrievalScores",
    "Sample",
    "Scores",
    "TagScores",
    "bleu",
    "dataset_loss",
    "evaluate",
    "evaluate_pairs",
    "score",
    "score_classes",
    "score_language",
    "score_retrieval",
    "score_tags",
    "tune_alpha",
]

_LATER = {
    **dict.fromkeys(("Result", "Sample", "dataset_loss", "evaluate", "tune_alpha"), "evaluator"),
    **dict.fromkeys(("RetrievalScores", "evaluate_pairs", "score_retrieval"), "retrieval"),
}


def __getattr__(name: str) -> Any:
    """Names that need a model, and so torch, are loaded on first use: scoring two files needs neither."""
    if name in _LATER:
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
