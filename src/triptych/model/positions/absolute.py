"""Positions added to the embeddings, and no positions at all."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model.positions.base import Position, waves
from triptych.model.registry import Cost, Place, carries_out


@carries_out(parts.Sinusoidal)
class Sinusoidal(Position):
    """``PE(p, 2i) = sin(p / base^(2i/C))``, ``PE(p, 2i+1) = cos(…)`` (Vaswani et al. 2017, section 3.5); in
    halves, ``PE(p, i)`` and ``PE(p, C/2 + i)``."""

    def __init__(self, settings: parts.Sinusoidal, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        self.base, self.offset = settings.base, settings.offset
        self.axis = -1 if settings.layout == "interleaved" else -2

    def embed(self, x_BTC: Tensor, layout: Layout) -> Tensor:
        return x_BTC + waves(layout, x_BTC.shape[-1], self.base, self.offset, self.axis).to(x_BTC.dtype)


@carries_out(parts.Learned)
class Learned(Position):
    """One trained vector for each of ``max`` positions (Gehring et al. 2017, section 3.1)."""

    def __init__(self, settings: parts.Learned, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        self.table = nn.Embedding(settings.max, model.dim)
        nn.init.normal_(self.table.weight, std=0.02)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, pairs: int = 0, tokens: int = 0) -> Cost:
        return Cost(settings.max * model.dim)

    def embed(self, x_BTC: Tensor, layout: Layout) -> Tensor:
        position = layout.position.masked_fill(~layout.real, 0)  # whatever stands in padding
        highest, known = int(position.max()), self.table.num_embeddings
        if highest >= known:
            raise UserError(
                f"position {highest + 1} of a sequence is past the {known} learned ones",
                "model.position.max",
                "shorten the input, or train with more positions or with rope",
            )
        table: Tensor = self.table(position)
        return x_BTC + table


@carries_out(parts.NoPosition)
class NoPosition(Position):
    """Adds nothing."""
