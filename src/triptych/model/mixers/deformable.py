"""Deformable attention on a grid: look at a few places, chosen by the token itself.

    . . . . . .      o        the token, at its row and column
    . 1 . . . .      1, 2, …  K places a head; what stands between tokens is interpolated from the four around
    . . o   2 .

Shapes: B rows, T tokens, C model width, H heads, K points, D head width; places are (column, row).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.model.grids import pick, slots
from triptych.model.mixer import Mixer
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, linear_cost
from triptych.model.visible import Visible


@carries_out(parts.DeformableMixer)
class Deformable(Mixer):
    """``Σ_k a_k · V(p + o_k)`` a head: offsets o and weights a = softmax(s) are linear in the token (Zhu et
    al. 2021, equation 2); V is zero outside the grid. At first they do not depend on it: each head looks in
    a direction of its own, 1 … K steps far."""

    undecayed = ("start",)

    def __init__(self, settings: parts.DeformableMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        self.settings = settings
        H, K, D = model.heads.count, settings.points, model.head_dim
        self.value = nn.Linear(model.dim, H * D, bias=model.heads.bias)
        self.out = nn.Linear(H * D, model.dim, bias=model.heads.bias)
        angle = torch.arange(H) * (2 * math.pi / H)
        ahead = torch.stack((angle.cos(), angle.sin(), 0 * angle), -1)
        ahead = ahead / ahead.abs().amax(-1, keepdim=True)
        # For each head and point: offset in columns, in rows, and s.
        self.ask = nn.Parameter(torch.zeros(3 * H * K, model.dim))
        self.start = nn.Parameter(ahead[:, None] * torch.arange(1, K + 1)[:, None])

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        HK, width, N = model.heads.count * settings.points, model.heads.count * model.head_dim, shape.tokens
        maps = linear_cost(N, model.dim, width, model.heads.bias) + linear_cost(N, model.dim, 3 * HK, True)
        maps += linear_cost(N, width, model.dim, model.heads.bias)
        return maps + Cost(0, 2 * N * 4 * settings.points * width)

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        layout, width, (B, T, _) = context.layout, self.settings.width, x_BTC.shape
        H, K = self.start.shape[:2]
        asked_BTHK3 = F.linear(x_BTC, self.ask).view(B, T, H, K, 3) + self.start
        here = torch.stack((layout.position % width, layout.position // width), -1).float()
        at_BTHK2 = here[:, :, None, None] + asked_BTHK3[..., :2]
        low = at_BTHK2.detach().floor()
        part = (at_BTHK2 - low)[..., None, :]
        corner = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]], device=x_BTC.device)
        share_BTHK4 = torch.where(corner == 1, part, 1 - part).prod(-1)
        column, row = (low.long()[..., None, :] + corner).unbind(-1)
        seen = pick(self.value(x_BTC).view(B, T, H, -1), slots(layout, width, row, column).flatten(3))
        weight = asked_BTHK3[..., 2].softmax(-1)[..., None] * share_BTHK4
        y_BTH1D = weight.to(seen.dtype).flatten(3)[..., None, :] @ seen
        y: Tensor = self.out(y_BTH1D.flatten(2))
        return y
