"""A few latents between a sequence and itself: time grows with T · L, not T².

    latents_LC ─┬─ read ─ + ─ norm ─ z_LC        x_TC asks z
    x_TC ───────┘ (keys, values)       └───────────── write → y_TC

Shapes: B rows, T tokens, L latents, N sequences in a row, C model width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.attention import CrossAttention
from triptych.model.mixer import Mixer
from triptych.model.norm import build_norm, norm_cost
from triptych.model.registry import Context, Cost, Place, Shape, carries_out
from triptych.model.visible import Visible


@carries_out(parts.BottleneckMixer)
class Bottleneck(Mixer):
    """Induced set attention (Lee et al. 2019, equations 9 and 10): ``write(x, norm(I + read(I, x)))``, its
    feed-forward being the block's. Each sequence of a row has latents of its own."""

    def __init__(self, settings: parts.BottleneckMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        self.latents = nn.Parameter(nn.init.xavier_uniform_(torch.empty(settings.latents, model.dim)))
        self.read, self.write = CrossAttention(model), CrossAttention(model)
        self.norm = build_norm(model)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        B, T, L = shape.batch, shape.tokens, settings.latents
        read = CrossAttention.base_cost(model, True, Shape(B, L, T // B), T, T, T * L)
        write = CrossAttention.base_cost(model, True, shape, B * L, B * L, T * L)
        return read + write + norm_cost(model) + Cost(L * model.dim)

    def scaled(self) -> list[Tensor]:
        return [*self.read.scaled(), *self.write.scaled()]

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        layout, L = context.layout, len(self.latents)
        own = layout.memo(("latents", L), lambda: _latents(layout, L))
        asking = self.latents.repeat(own.length // L, 1).expand(own.batch, -1, -1)
        reading = replace(context, layout=own, held=None, source=x_BTC, source_layout=layout)
        z = self.norm(asking + self.read(asking, reading))
        y: Tensor = self.write(x_BTC, replace(context, held=None, source=z, source_layout=own))
        return y


def _latents(layout: Layout, many: int) -> Layout:
    """``[B, N · L]``: latents 0 … L - 1 of sequence 0, of sequence 1, …"""
    sequences = 1 if layout.plain else int(layout.segment.max().clamp(min=0)) + 1
    slot = torch.arange(sequences * many, device=layout.segment.device).expand(layout.batch, -1)
    return Layout(slot % many, slot // many, plain=sequences == 1)
