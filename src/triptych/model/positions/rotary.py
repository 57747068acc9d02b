"""Rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.positions.base import Position
from triptych.model.registry import Place, carries_out


@carries_out(parts.Rope)
class Rope(Position):
    """RoPE (Su et al. 2021, section 3.2.2) in the half-split layout: value i turns with value i + D/2.

    The pair at position p turns by ``p / base^(2i/D)``, so a query and a key meet by the difference of
    their positions alone. Angles are in fp32 whatever the model's precision.
    """

    def __init__(self, settings: parts.Rope, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        self.base = settings.base

    def rotate(self, q_BHTD: Tensor, k_BGTD: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        D, device = q_BHTD.shape[-1], q_BHTD.device

        def turns() -> tuple[Tensor, Tensor]:
            even = torch.arange(0, D, 2, device=device, dtype=torch.float32)
            angle = layout.position[:, None, :, None] * self.base ** (-even / D)
            cos, sin = angle.cos(), angle.sin()
            return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)

        cos, sin = layout.memo(("rope", self.base, D), turns)
        return _turn(q_BHTD, cos, sin), _turn(k_BGTD, cos, sin)


def _turn(x: Tensor, cos_B1TD: Tensor, sin_B1TD: Tensor) -> Tensor:
    return (x * cos_B1TD + x.roll(x.shape[-1] // 2, -1) * sin_B1TD).to(x.dtype)
