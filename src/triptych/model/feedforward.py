"""Position-wise feed-forward networks.

plain:  x_C ─ inner ─ act ─ outer → y_C        gated:  x_C ─┬─ gate ─ act ─ × ─ outer → y_C
                                                            └─ up ──────────┘
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.model.registry import Context, Cost, carries_out, linear_cost


class FeedForward(nn.Module):
    """``out(act(in(x)))`` (Vaswani et al. 2017, section 3.3); of inner width ``model.ffn_dim``, or another."""

    widths = 1  # how many maps of the inner width the input map holds

    def __init__(self, settings: parts.FeedForward, model: ModelConfig, width: int | None = None) -> None:
        super().__init__()
        width = width or model.ffn_dim
        self.inner = nn.Linear(model.dim, self.widths * width, bias=settings.bias)
        self.outer = nn.Linear(width, model.dim, bias=settings.bias)

    @classmethod
    def cost(
        cls, settings: parts.FeedForward, model: ModelConfig, tokens: int, width: int | None = None
    ) -> Cost:
        """Both maps."""
        width = width or model.ffn_dim
        return linear_cost(tokens, model.dim, cls.widths * width, settings.bias) + linear_cost(
            tokens, width, model.dim, settings.bias
        )

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


class Gated(FeedForward):
    """``out(act(gate(x)) · up(x))`` (Shazeer 2020, section 2); gate and up are one product."""

    widths = 2

    def gate(self, h: Tensor) -> Tensor:
        """The non-linearity of the gate."""
        raise NotImplementedError

    def act(self, h: Tensor) -> Tensor:
        gate, up = h.chunk(2, -1)
        return self.gate(gate) * up


@carries_out(parts.ReluFeedForward)
class ReluFeedForward(FeedForward):
    """ReLU between two maps."""

    def act(self, h: Tensor) -> Tensor:
        return F.relu(h)


@carries_out(parts.GeluFeedForward)
class GeluFeedForward(FeedForward):
    """Exact GELU, x·Φ(x), between two maps."""

    def act(self, h: Tensor) -> Tensor:
        return F.gelu(h)


@carries_out(parts.GeluTanhFeedForward)
class GeluTanhFeedForward(FeedForward):
    """GELU by tanh between two maps."""

    def act(self, h: Tensor) -> Tensor:
        return F.gelu(h, approximate="tanh")


@carries_out(parts.SiluFeedForward)
class SiluFeedForward(FeedForward):
    """SiLU, x·σ(x), between two maps."""

    def act(self, h: Tensor) -> Tensor:
        return F.silu(h)


@carries_out(parts.SquaredReluFeedForward)
class SquaredReluFeedForward(FeedForward):
    """The square of a ReLU between two maps."""

    def act(self, h: Tensor) -> Tensor:
        return F.relu(h).square()


@carries_out(parts.GluFeedForward)
class GluFeedForward(Gated):
    """Gated by a sigmoid."""

    def gate(self, h: Tensor) -> Tensor:
        return h.sigmoid()


@carries_out(parts.GegluFeedForward)
class GegluFeedForward(Gated):
    """Gated by an exact GELU."""

    def gate(self, h: Tensor) -> Tensor:
        return F.gelu(h)


@carries_out(parts.SwigluFeedForward)
class SwigluFeedForward(Gated):
    """Gated by a SiLU."""

    def gate(self, h: Tensor) -> Tensor:
        return F.silu(h)
