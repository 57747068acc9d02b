"""Translation: each target token from the source and the target tokens before it."""

from __future__ import annotations

from torch import Tensor

from triptych.config import ObjectiveConfig
from triptych.data import TranslationBatch
from triptych.model import EncoderDecoder
from triptych.objectives.loss import Loss, cross_entropy


class Translation:
    """Teacher forcing with right-shifted targets (Vaswani et al. 2017, sections 3.1 and 5.4)."""

    def __init__(self, settings: ObjectiveConfig) -> None:
        self.smoothing = settings.label_smoothing

    def loss(self, model: EncoderDecoder, batch: TranslationBatch) -> Loss:
        """The batch's loss: padding is not predicted, and never reaches the vocabulary's product. In training
        with what the parts of the model add to it."""
        aux: list[Tensor] | None = [] if model.training else None
        memory = model.encode(batch.source, batch.source_layout, aux)
        hidden_BTC = model.decode(batch.target_in, batch.target_layout, memory, aux=aux)
        real = batch.target_layout.real.flatten().nonzero()[:, 0]
        hidden_NC = hidden_BTC.flatten(0, 1).index_select(0, real)
        smoothing = self.smoothing if model.training else 0.0
        hidden_NC = model.output.reduce(hidden_NC)
        target_N = batch.target_out.flatten()[real]
        return cross_entropy(hidden_NC, model.output.weight, target_N, smoothing).plus(aux or ())
