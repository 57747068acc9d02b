"""What is learned: each objective turns a model and a batch into ``Loss(sum, count)``."""

from triptych.objectives.labels import ClassLoss, EmbedLoss, NextSentenceLoss, TagLoss
from triptych.objectives.loss import Loss, cross_entropy
from triptych.objectives.objective import Objective, objective
from triptych.objectives.tokens import TokenLoss, learned, run

__all__ = [
    "ClassLoss",
    "EmbedLoss",
    "Loss",
    "NextSentenceLoss",
    "Objective",
    "TagLoss",
    "TokenLoss",
    "cross_entropy",
    "learned",
    "objective",
    "run",
]
