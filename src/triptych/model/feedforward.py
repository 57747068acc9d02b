"""Position-wise feed-forward networks.

plain:  x_C ─ inner ─ act ─ outer → y_C        gated:  x_C ─┬─ gate ─ act ─ × ─ outer → y_C
                                                            └─ up ──────────┘
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.model.registry import Context, Cost, carries_out, linear_cost

# What stands between the maps, or on the gate.
ACTS: dict[type[parts.FeedForward], Callable[[Tensor], Tensor]] = {
    parts.ReluFeedForward: F.relu,
    parts.GeluFeedForward: F.gelu,  # x · Φ(x)
    parts.GeluTanhFeedForward: partial(F.gelu, approximate="tanh"),
    parts.SiluFeedForward: F.silu,  # x · σ(x)
    parts.SquaredReluFeedForward: lambda h: F.relu(h).square(),
    parts.GluFeedForward: torch.sigmoid,
    parts.GegluFeedForward: F.gelu,
    parts.GegluTanhFeedForward: partial(F.gelu, approximate="tanh"),
    parts.SwigluFeedForward: F.silu,
}


class FeedForward(nn.Module):
    """``out(act(in(x)))``, of inner width ``model.ffn_dim`` or another (Vaswani et al. 2017, section 3.3)."""

    widths = 1  # how many maps of the inner width the input map holds

    def __init__(self, settings: parts.FeedForward, model: ModelConfig, width: int | None = None) -> None:
        super().__init__()
        width = width or model.ffn_dim
        self.kind = type(settings)
        self.inner = nn.Linear(model.dim, self.widths * width, bias=settings.bias)
        self.outer = nn.Linear(width, model.dim, bias=settings.bias)

    @classmethod
    def cost(
        cls, settings: parts.FeedForward, model: ModelConfig, tokens: int, width: int | None = None
    ) -> Cost:
        """Both maps."""
        width = width or model.ffn_dim
        inner = linear_cost(tokens, model.dim, cls.widths * width, settings.bias)
        return inner + linear_cost(tokens, width, model.dim, settings.bias)

    def act(self, h: Tensor) -> Tensor:
        """The non-linearity between the maps."""
        raise NotImplementedError

    def scaled(self) -> list[Tensor]:
        """The weights that DeepNorm begins smaller."""
        return [self.inner.weight, self.outer.weight]

    def forward(self, x_BTC: Tensor, context: Context | None = None) -> Tensor:
        """``[…, C]``; each token for itself."""
        y: Tensor = self.outer(self.act(self.inner(x_BTC)))
        return y


@carries_out(parts.ReluFeedForward)
@carries_out(parts.GeluFeedForward)
@carries_out(parts.GeluTanhFeedForward)
@carries_out(parts.SiluFeedForward)
@carries_out(parts.SquaredReluFeedForward)
class Plain(FeedForward):
    """A non-linearity between two maps."""

    def act(self, h: Tensor) -> Tensor:
        return ACTS[self.kind](h)


@carries_out(parts.GluFeedForward)
@carries_out(parts.GegluFeedForward)
@carries_out(parts.GegluTanhFeedForward)
@carries_out(parts.SwigluFeedForward)
class Gated(FeedForward):
    """``out(act(gate(x)) · up(x))`` (Shazeer 2020, section 2); gate and up are one product."""

    widths = 2

    def act(self, h: Tensor) -> Tensor:
        gate, up = h.chunk(2, -1)
        return ACTS[self.kind](gate) * up
