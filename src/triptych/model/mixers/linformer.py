"""Linformer: softmax attention over a few summaries of a sequence in place of its tokens.

    x_BTC ─ qkv ─┬─ q ────────────────────── q_BHTD ─┐
                 ├─ k ─ Σ e(p(i)) k(i) ───── k_BHRD ─┼─ attend ─ out → y_BTC
                 └─ v ─ Σ f(p(i)) v(i) ───── v_BHRD ─┘

Shapes: B rows, H heads, T tokens, R summaries, D head width, C model width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model.attend import attend
from triptych.model.heads import split_heads
from triptych.model.mixer import Mixer
from triptych.model.mixers.apart import apart
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, linear_cost
from triptych.model.visible import Mask, Visible


@carries_out(parts.LinformerMixer)
class Linformer(Mixer):
    """Wang et al. 2020, section 4: projections E and F that heads share, of variance 1 / R at first. A token
    takes the column of its position."""

    def __init__(self, settings: parts.LinformerMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        self.H, self.D, bias = model.heads.count, model.head_dim, model.heads.bias
        self.key = f"{model.mixer_key('encoder')}.max"
        self.qkv = nn.Linear(model.dim, 3 * self.H * self.D, bias=bias)
        self.out = nn.Linear(self.H * self.D, model.dim, bias=bias)
        self.summary = nn.Parameter(torch.randn(settings.max, 2 * settings.rank) * settings.rank**-0.5)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        """Both maps, and summaries that are made and met."""
        many, bias, N = model.heads.count * model.head_dim, model.heads.bias, shape.tokens
        total = linear_cost(N, model.dim, 3 * many, bias) + linear_cost(N, many, model.dim, bias)
        return total + Cost(settings.max * 2 * settings.rank, 4 * 2 * N * settings.rank * many)

    def scaled(self) -> list[Tensor]:
        return [self.qkv.weight.chunk(3)[2], self.out.weight]

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        layout, known = context.layout, len(self.summary)
        if layout.memo("highest", lambda: int(layout.position.masked_fill(~layout.real, 0).max())) >= known:
            raise UserError(
                f"a sequence is longer than the {known} positions that are summed up",
                self.key,
                "shorten the input, or train with more positions",
            )
        return apart(x_BTC, layout, self.over)

    def over(self, x_BTC: Tensor, layout: Layout) -> Tensor:
        """Of rows that are one sequence each."""
        q, k, v = self.qkv(x_BTC).chunk(3, -1)
        weights = F.embedding(layout.position.masked_fill(~layout.real, 0), self.summary)
        e, f = (weights * layout.real[..., None]).to(k.dtype).transpose(1, 2).chunk(2, 1)
        q, k, v = (split_heads(x, self.H) for x in (q, e @ k, f @ v))
        y = attend(q, k, v, Mask(None), self.D**-0.5)
        y_BTC: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return y_BTC
