"""Rotary positions, and how they reach further than they were trained.

Shapes: B rows, T tokens, H query heads, G key/value heads, D head width.

    halves         x₀ x₁ x₂ | x₃ x₄ x₅      pairs (x₀ x₃) (x₁ x₄) (x₂ x₅)
    interleaved    x₀ x₁ | x₂ x₃ | x₄ x₅    pairs (x₀ x₁) (x₂ x₃) (x₄ x₅)

Pair i of n/2 turns by ``rate_i`` radians a position: base^(-2i/n), or what a scaling makes of it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.positions.base import Position
from triptych.model.registry import Place, carries_out, part_of


@carries_out(parts.Rope)
class Rope(Position):
    """RoPE (Su et al. 2021, section 3.2.2): the pair at position p turns by ``p · rate``, so that a query and
    a key meet by the difference of their positions alone. Angles are in fp32 whatever the model's precision.
    With a share, only a head's first values turn."""

    def __init__(self, settings: parts.Rope, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        self.settings, self.n = settings, settings.turning(model.rotary_dim)
        self.rates: list[float] = part_of(settings.scaling)(settings.scaling, settings.base, self.n)
        self.axis = -2 if settings.layout == "halves" else -1

    def rotate(self, q_BHTD: Tensor, k_BGTD: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        def turns() -> tuple[Tensor, Tensor]:
            rate = torch.tensor(self.rates, device=q_BHTD.device, dtype=torch.float32)
            angle = layout.position[:, None, :, None] * rate
            cos, sin = (self.settings.scaling.stretch * x for x in (angle.cos(), angle.sin()))
            pairs = torch.stack((cos, cos), self.axis), torch.stack((-sin, sin), self.axis)
            return pairs[0].flatten(-2), pairs[1].flatten(-2)

        cos, sin = layout.memo(("rope", self.settings, self.n), turns)
        return self._turn(q_BHTD, cos, sin), self._turn(k_BGTD, cos, sin)

    def _turn(self, x: Tensor, cos_B1Tn: Tensor, sin_B1Tn: Tensor) -> Tensor:
        turning, still = x[..., : self.n], x[..., self.n :]
        pairs = (2, self.n // 2) if self.axis == -2 else (self.n // 2, 2)
        other = turning.view(*x.shape[:-1], *pairs).roll(1, self.axis).flatten(-2)
        turned = (turning * cos_B1Tn + other * sin_B1Tn).to(x.dtype)
        return torch.cat((turned, still), -1) if self.n < x.shape[-1] else turned


@carries_out(parts.NoScaling)
def plain(settings: parts.RopeScaling, base: float, n: int) -> list[float]:
    """The rates as they are."""
    return [base ** (-2 * i / n) for i in range(n // 2)]


@carries_out(parts.LinearScaling)
def linear(settings: parts.LinearScaling, base: float, n: int) -> list[float]:
    """All turn slower."""
    return [rate / settings.factor for rate in plain(settings, base, n)]


@carries_out(parts.DynamicScaling)
def dynamic(settings: parts.DynamicScaling, base: float, n: int) -> list[float]:
    """``base · (s·L/L₀ - (s - 1))^(n/(n-2))`` as base."""
    s, longer = settings.factor, settings.length / settings.original
    return plain(settings, base * (s * longer - (s - 1)) ** (n / (n - 2)), n)


@carries_out(parts.YarnScaling)
def yarn(settings: parts.YarnScaling, base: float, n: int) -> list[float]:
    """A ramp over pairs, from the one that turns ``beta_fast`` times in the trained length to the one that
    turns ``beta_slow`` times."""

    def pair(turns: float) -> float:
        return n * math.log(settings.original / (2 * math.pi * turns)) / (2 * math.log(base))

    low = max(math.floor(pair(settings.beta_fast)), 0)
    high = max(min(math.ceil(pair(settings.beta_slow)), n - 1), low + 1e-3)
    slow = [(i - low) / (high - low) for i in range(n // 2)]
    return [_mix(rate, settings.factor, x) for rate, x in zip(plain(settings, base, n), slow, strict=True)]


@carries_out(parts.Llama3Scaling)
def llama3(settings: parts.Llama3Scaling, base: float, n: int) -> list[float]:
    """A ramp over how often a pair turns in the trained length."""
    low, high = settings.low_freq_factor, settings.high_freq_factor
    rates = plain(settings, base, n)
    slow = [(high - settings.original * rate / (2 * math.pi)) / (high - low) for rate in rates]
    return [_mix(rate, settings.factor, x) for rate, x in zip(rates, slow, strict=True)]


def _mix(rate: float, factor: float, slow: float) -> float:
    """From the rate as it is (``slow`` 0 or less) to the one divided by the factor (1 or more)."""
    slow = min(max(slow, 0.0), 1.0)
    return rate * (1 - slow) + rate / factor * slow
