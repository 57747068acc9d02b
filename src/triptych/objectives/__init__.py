"""What is learned: each objective turns a model and a batch into ``Loss(sum, count)``."""

from triptych.objectives.loss import Loss, cross_entropy
from triptych.objectives.translation import Translation

__all__ = ["Loss", "Translation", "cross_entropy"]
