"""Positions added to the embeddings, and no positions at all."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model.positions.base import Position
from triptych.model.registry import Cost, Place, carries_out


@carries_out(parts.Sinusoidal)
class Sinusoidal(Position):
    """``PE(p, 2i) = sin(p / base^(2i/C))``, ``PE(p, 2i+1) = cos(…)`` (Vaswani et al. 2017, section 3.5)."""

    def __init__(self, settings: parts.Sinusoidal, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        self.base = settings.base

    def embed(self, x_BTC: Tensor, layout: Layout) -> Tensor:
        C = x_BTC.shape[-1]

        def waves() -> Tensor:
            even = torch.arange(0, C, 2, device=x_BTC.device, dtype=torch.float32)
            angle = layout.position[:, :, None] * torch.exp(even * (-math.log(self.base) / C))
            return torch.stack((angle.sin(), angle.cos()), -1).flatten(2)

        return x_BTC + layout.memo(("sinusoidal", self.base, C), waves).to(x_BTC.dtype)


@carries_out(parts.Learned)
class Learned(Position):
    """One trained vector for each of ``max`` positions (Gehring et al. 2017, section 3.1)."""

    def __init__(self, settings: parts.Learned, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        self.table = nn.Embedding(settings.max, model.dim)
        nn.init.normal_(self.table.weight, std=0.02)

    @classmethod
    def cost(  # type: ignore[override]
        cls, settings: parts.Learned, model: ModelConfig, place: Place, pairs: int = 0, tokens: int = 0
    ) -> Cost:
        return Cost(settings.max * model.dim)

    def embed(self, x_BTC: Tensor, layout: Layout) -> Tensor:
        highest, known = int(layout.position.max()), self.table.num_embeddings
        if highest >= known:
            raise UserError(
                f"position {highest + 1} of a sequence is past the {known} learned ones",
                "model.position.max",
                "shorten the input, or train with more positions or with rope",
            )
        table: Tensor = self.table(layout.position)
        return x_BTC + table


@carries_out(parts.NoPosition)
class NoPosition(Position):
    """Adds nothing."""
