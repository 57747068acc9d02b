"""Selective state space: a state whose decay and input each token chooses.

    x_BTC ─ inner ─┬─ u ─ taps ─ silu ─ u_BTE ─┬─────────────── scan ─ + D u ─ × ─ out → y_BTC
                   │                           └─ select ─ Δ, B, C ┘           │
                   └─ gate ─ silu ─────────────────────────────────────────────┘
    scan:  h(t) = exp(Δ(t) A) h(t-1) + Δ(t) B(t) u(t),   y(t) = C(t)·h(t)     in each channel

Shapes: B rows, T tokens, S slots, C model width, E inner width, N width of a channel's state, K taps.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.mixer import Mixer
from triptych.model.mixers.convolution import near
from triptych.model.mixers.recurrent import walk
from triptych.model.mixers.runs import pace
from triptych.model.mixers.sums import full, numbers
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, linear_cost
from triptych.model.visible import Visible


@carries_out(parts.SsmMixer)
class Ssm(Mixer):
    """S6 in a gated block (Mamba; Gu and Dao 2023, sections 3.2 to 3.6): A by zero-order hold, B by Euler's
    rule. At first A is -1 … -N, and Δ of nothing between 0.001 and 0.1."""

    def __init__(self, settings: parts.SsmMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        (E, N, R), K = widths(settings, model), settings.kernel
        self.sizes, self.reach = [R, N, N], range(1 - K, 1)
        self.inner = nn.Linear(model.dim, 2 * E, bias=False)
        self.taps_KE = nn.Parameter(torch.empty(K, E).uniform_(-1, 1) * K**-0.5)
        self.taps_bias = nn.Parameter(torch.zeros(E))
        self.select = nn.Linear(E, R + 2 * N, bias=False)
        self.step = nn.Linear(R, E, bias=False)
        first = torch.empty(E).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.step_bias = nn.Parameter(first.expm1().log())  # softplus of it is Δ of nothing
        self.A_log = nn.Parameter(torch.arange(1.0, N + 1).log().repeat(E, 1))
        self.D = nn.Parameter(torch.ones(E))
        self.out = nn.Linear(E, model.dim, bias=False)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        """Four maps, and the products of C and h."""
        (E, N, R), T = widths(settings, model), shape.tokens
        total = linear_cost(T, model.dim, 2 * E, False) + linear_cost(T, E, R + 2 * N, False)
        total += linear_cost(T, R, E, False) + linear_cost(T, E, model.dim, False)
        return total + Cost(E * (settings.kernel + N + 3), 2 * T * E * N)

    @classmethod
    def kept(cls, settings: Any, model: ModelConfig, place: Place) -> tuple[int, int]:
        """What taps may ask for, and h."""
        E, N, _ = widths(settings, model)
        return E, E * N

    @classmethod
    def sees(cls, settings: Any, visible: Visible) -> int | None:
        """As far back as its taps, and the token before: whether it belongs to the same sequence."""
        return max(1, int(settings.kernel) - 1)

    def scaled(self) -> list[Tensor]:
        return [self.inner.weight, self.out.weight]

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        u, gate = self.inner(x_BTC).chunk(2, -1)
        (u_B1SE,), keys = context.remember(u[:, None])
        u_BTE = F.silu(self.near(u_B1SE[:, 0], keys, context.layout.length))
        y_BTC: Tensor = self.out(self.scan(u_BTE, context).to(gate.dtype) * F.silu(gate))
        return y_BTC

    def near(self, u_BSE: Tensor, keys: Layout, T: int) -> Tensor:
        """A causal convolution of each channel, by position within the sequence: ``[B, T, E]``."""
        if not keys.plain:  # a row's sequences are told apart by where they begin
            keys = keys.memo("own", lambda: Layout(keys.position, numbers(keys)))
        read = zip(near(u_BSE, keys, T, self.reach), self.taps_KE, strict=True)
        return sum((x * tap for x, tap in read), self.taps_bias)

    def scan(self, u_BTE: Tensor, context: Context) -> Tensor:
        """The recurrence, token by token, and D u: ``[B, T, E]``."""
        step, B, C = torch.split(self.select(u_BTE), self.sizes, -1)
        u, step, B, C = full(u_BTE, self.step(step), B, C)
        with torch.autocast(u.device.type, enabled=False):
            step = F.softplus(step + self.step_bias)[..., None]
            decay, add = (step * -self.A_log.exp()).exp(), step * u[..., None] * B[:, :, None]
            carry = context.held.carry if context.held is not None else None
            carry = carry or (torch.zeros_like(add[:, 0]).flatten(1),)
            along = (x.flatten(2).unbind(1) for x in (decay, add))
            h, carry = walk(
                lambda h, decay, add: (torch.addcmul(add, decay, *h),), pace(context), carry, *along
            )
            if context.held is not None:
                context.held.carry_on(*carry)
            return (h.view_as(add) @ C[..., None]).squeeze(-1) + self.D * u


def widths(settings: parts.SsmMixer, model: ModelConfig) -> tuple[int, int, int]:
    """Inner width, width of a channel's state, width that Δ is chosen from."""
    return settings.inner or 2 * model.dim, settings.state, settings.rank or -(-model.dim // 16)
