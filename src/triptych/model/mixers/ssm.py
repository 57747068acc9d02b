"""Selective state space: a state whose decay and input each token chooses.

    x_BTC ─ inner ─┬─ u ─ taps ─ silu ─ u_BTE ─┬─────────────── scan ─ + D u ─ × ─ out → y_BTC
                   │                           └─ select ─ Δ, B, C ┘           │
                   └─ gate ─ silu ─────────────────────────────────────────────┘
    scan:  h(t) = exp(Δ(t) A) h(t-1) + Δ(t) B(t) u(t),   y(t) = C(t)·h(t)     in each channel

    tokens  ▒▒▒▒▒▒│▒▒▒▒▒▒│▒▒▒▒▒▒     √T chunks of √T tokens: a walk through all of them at once, from zero,
                 └─ h ──┴─ h ──┘     one over their ends, and what each begins with, decayed, joins its tokens

Shapes: B rows, T tokens, S slots, C model width, E inner width, N width of a channel's state, K taps,
M = E · N.
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
from triptych.model.mixers.runs import begins
from triptych.model.mixers.sums import full, numbers
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, linear_cost
from triptych.model.visible import Visible


@carries_out(parts.SsmMixer)
class Ssm(Mixer):
    """S6 in a gated block (Mamba; Gu and Dao 2023, sections 3.2 to 3.6): A by zero-order hold, B by Euler's
    rule. At first A is -1 … -N, and Δ of nothing between 0.001 and 0.1."""

    undecayed = ("A_log",)

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
        """The recurrence, and D u: ``[B, T, E]``."""
        step, B, C = torch.split(self.select(u_BTE), self.sizes, -1)
        u, step, B, C = full(u_BTE, self.step(step), B, C)
        with torch.autocast(u.device.type, enabled=False):
            step = F.softplus(step + self.step_bias)[..., None]
            decay, add = (step * -self.A_log.exp()).exp(), step * u[..., None] * B[:, :, None]
            held, T = context.held, context.layout.length
            keys = context.layout if held is None else held.keys
            if not keys.plain:  # the state is zero where a sequence begins, and padding leaves it as it is
                first, real = (x[:, -T:, None, None] for x in (begins(keys), keys.real))
                decay = decay.masked_fill(first, 0).masked_fill(~real, 1)
                add = add.masked_fill(~real, 0)
            carry = held.carry[0] if held is not None and held.carry is not None else None
            h_BM = torch.zeros_like(add[:, 0]).flatten(1) if carry is None else carry
            h_BTM: Tensor = Scan.apply(decay.flatten(2), add.flatten(2), h_BM)  # type: ignore[no-untyped-call]
            if held is not None:
                held.carry_on(h_BTM[:, -1].clone())  # not a part of all states
            return (h_BTM.view_as(add) @ C[..., None]).squeeze(-1) + self.D * u


class Scan(torch.autograd.Function):
    """``scan``, of which states and decays alone are kept: its gradient is a scan the other way."""

    @staticmethod
    def forward(ctx: Any, decay_BTM: Tensor, add_BTM: Tensor, h_BM: Tensor) -> Tensor:
        after_BTM = scan(decay_BTM, add_BTM, h_BM)
        ctx.save_for_backward(decay_BTM, after_BTM, h_BM)
        return after_BTM

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        decay, after, h = ctx.saved_tensors
        later = F.pad(decay[:, 1:], (0, 0, 0, 1))
        grad = scan(later.flip(1), grads[0].flip(1), torch.zeros_like(h)).flip(1)
        before = torch.cat((h[:, None], after[:, :-1]), 1)
        return grad * before, grad, grad[:, 0] * decay[:, 0]


def scan(decay_BTM: Tensor, add_BTM: Tensor, h_BM: Tensor) -> Tensor:
    """h(t) = decay(t) h(t-1) + add(t), of all t: ``[B, T, M]``. Nothing is divided by: decays may be zero."""
    B, T, M = decay_BTM.shape
    chunks = math.isqrt(T)
    size = -(-T // chunks)
    decay, add = (
        F.pad(x, (0, 0, 0, chunks * size - T)).view(B, chunks, size, M) for x in (decay_BTM, add_BTM)
    )
    within, keep = [add[:, :, 0]], [decay[:, :, 0]]
    for i in range(1, size):
        within.append(torch.addcmul(add[:, :, i], decay[:, :, i], within[-1]))
        keep.append(keep[-1] * decay[:, :, i])
    first = [h_BM]
    for i in range(chunks - 1):
        first.append(torch.addcmul(within[-1][:, i], keep[-1][:, i], first[-1]))
    begun = torch.stack(first, 1)
    out = torch.stack([torch.addcmul(h, k, begun) for h, k in zip(within, keep, strict=True)], 2)
    return out.flatten(1, 2)[:, :T]


def widths(settings: parts.SsmMixer, model: ModelConfig) -> tuple[int, int, int]:
    """Inner width, width of a channel's state, width that Δ is chosen from."""
    return settings.inner or 2 * model.dim, settings.state, settings.rank or -(-model.dim // 16)
