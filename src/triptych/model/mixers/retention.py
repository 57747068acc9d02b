"""Retention: linear attention whose past decays, in each head at its own rate.

    x_BTC ─ inner ─┬─ q, k, v ─ Σ γ^(p(t) - p(i)) (q(t)·k(i) / √D) v(i) ─ norm a head ─ × ─ out → y_BTC
                   └─ gate ─ swish ─────────────────────────────────────────────────────┘

Shapes: B rows, H heads, T tokens, D head width, C model width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.model.heads import split_heads
from triptych.model.mixers.sums import Summing, full
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, linear_cost
from triptych.model.visible import Visible


@carries_out(parts.RetentionMixer)
class Retention(Summing):
    """Multi-scale retention (Sun et al. 2023, sections 2.1 to 2.3), γ = 1 - 2^(-5-h) in head h, from 0. Its
    queries and keys turn when positions are rotary, and its values are as wide as they."""

    def __init__(self, settings: parts.RetentionMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        self.H, many = model.heads.count, model.heads.count * model.head_dim
        self.inner = nn.Linear(model.dim, 4 * many, bias=model.heads.bias)
        self.norm = nn.GroupNorm(self.H, many)
        self.out = nn.Linear(many, model.dim, bias=model.heads.bias)
        self.decay = tuple(math.log1p(-(2.0 ** (-5 - h))) for h in range(self.H))

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        """Both maps, the norm, and the sums."""
        H, D, bias = model.heads.count, model.head_dim, model.heads.bias
        total = linear_cost(shape.tokens, model.dim, 4 * H * D, bias) + Cost(2 * H * D)
        return total + linear_cost(shape.tokens, H * D, model.dim, bias) + cls.sums_cost(shape, H, D, D)

    @classmethod
    def kept(cls, settings: Any, model: ModelConfig, place: Place) -> tuple[int, int]:
        """The sum of each head."""
        return 0, model.heads.count * model.head_dim**2

    def scaled(self) -> list[Tensor]:
        return [self.inner.weight.chunk(4)[2], self.out.weight]

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        *qkv, gate = self.inner(x_BTC).chunk(4, -1)
        q, k, v = full(*(split_heads(x, self.H) for x in qkv))
        with torch.autocast(x_BTC.device.type, enabled=False):
            q, k = context.position.rotate(q, k, context.layout)
            y_BHTD = self.sums(q, k * k.shape[-1] ** -0.5, v, context, self.decay)
        y = y_BHTD.transpose(1, 2).flatten(2).to(self.norm.weight.dtype)
        y = self.norm(y.flatten(0, 1)).view_as(gate)
        y_BTC: Tensor = self.out(F.silu(gate) * y)
        return y_BTC
