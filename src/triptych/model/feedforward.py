"""Position-wise feed-forward networks.

plain:  x_C ─ inner ─ act ─ outer → y_C        gated:  x_C ─┬─ gate ─ silu ─ × ─ outer → y_C
                                                            └─ up ──────────┘
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.model.registry import Context, Cost, carries_out, linear_cost


class FeedForward(nn.Module):
    """``out(act(in(x)))`` (Vaswani et al. 2017, section 3.3)."""

    widths = 1  # how many maps of the inner width the input map holds

    def __init__(self, settings: parts.FeedForward, model: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(model.dim, self.widths * model.ffn_dim, bias=settings.bias)
        self.outer = nn.Linear(model.ffn_dim, model.dim, bias=settings.bias)

    @classmethod
    def cost(cls, settings: parts.FeedForward, model: ModelConfig, tokens: int) -> Cost:
        """Both maps."""
        return linear_cost(tokens, model.dim, cls.widths * model.ffn_dim, settings.bias) + linear_cost(
            tokens, model.ffn_dim, model.dim, settings.bias
        )

    def act(self, h: Tensor) -> Tensor:
        """The non-linearity between the maps."""
        raise NotImplementedError

    def scaled(self) -> list[Tensor]:
        """The weights that DeepNorm begins smaller."""
        return [self.inner.weight, self.outer.weight]

    def forward(self, x_BTC: Tensor, context: Context | None = None) -> Tensor:
        """``[B, T, C]``; each token for itself."""
        y: Tensor = self.outer(self.act(self.inner(x_BTC)))
        return y


@carries_out(parts.ReluFeedForward)
class ReluFeedForward(FeedForward):
    """ReLU between two maps."""

    def act(self, h: Tensor) -> Tensor:
        return F.relu(h)


@carries_out(parts.GeluFeedForward)
class GeluFeedForward(FeedForward):
    """Exact GELU between two maps (Hendrycks and Gimpel 2016)."""

    def act(self, h: Tensor) -> Tensor:
        return F.gelu(h)


@carries_out(parts.SwigluFeedForward)
class SwigluFeedForward(FeedForward):
    """``out(silu(gate(x)) · up(x))`` (Shazeer 2020, section 2); gate and up are one product."""

    widths = 2

    def act(self, h: Tensor) -> Tensor:
        gate, up = h.chunk(2, -1)
        return F.silu(gate) * up
