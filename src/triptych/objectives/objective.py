"""From the settings of an objective to what computes its loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from triptych.config import Objective as Settings
from triptych.config.objectives import EmbedObjective, MaskedObjective
from triptych.data import Batch
from triptych.model import Model
from triptych.objectives.labels import ClassLoss, EmbedLoss, NextSentenceLoss, TagLoss
from triptych.objectives.loss import Loss
from triptych.objectives.tokens import TokenLoss


class Objective(Protocol):
    """What training minimises, and validation measures."""

    def count(self, model: Model, batch: Batch) -> int:
        """How many things are learned from a batch: the count of its loss, known before it is computed."""
        ...

    def loss(self, model: Model, batch: Batch, progress: float = 1.0) -> Loss:
        """The loss of a batch, summed over what is learned from it; without gradient or dropout it is that
        of evaluation.

        Args:
            progress: the share of training that is done, from 0 to 1.
        """
        ...


def objective(settings: Settings, length: int = 0) -> Objective:
    """What carries out these settings.

    Args:
        length: tokens of a row of running text, ``data.length``; needed to learn of next sentences.
    """
    if isinstance(settings, MaskedObjective) and settings.next_sentence:
        assert length, "how much a row counts depends on its length"
        return NextSentenceLoss(settings, length)
    if isinstance(settings, EmbedObjective):
        return EmbedLoss(settings)
    losses: dict[str, Callable[[Settings], Objective]] = {"classes": ClassLoss, "tags": TagLoss}
    return losses.get(settings.readout, TokenLoss)(settings)
