"""Normalisation, and the residual connection it sits in.

post:  x ─┬─ f ─ dropout ─ + ─ norm →        pre:  x ─┬─ norm ─ f ─ dropout ─ + →
          └───────────────┘                           └──────────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.model.dropout import Dropout
from triptych.model.registry import Cost, carries_out, part_of


@carries_out(parts.LayerNorm)
class LayerNorm(nn.LayerNorm):
    """Layer normalisation with gain and bias (Ba et al. 2016)."""

    def __init__(self, settings: parts.LayerNorm, model: ModelConfig) -> None:
        super().__init__(model.dim, eps=settings.eps)

    @classmethod
    def cost(cls, settings: parts.LayerNorm, model: ModelConfig) -> Cost:
        """Gain and bias."""
        return Cost(2 * model.dim)


@carries_out(parts.RMSNorm)
class RMSNorm(nn.RMSNorm):
    """Root-mean-square normalisation with gain (Zhang and Sennrich 2019)."""

    def __init__(self, settings: parts.RMSNorm, model: ModelConfig) -> None:
        super().__init__(model.dim, eps=settings.eps)

    @classmethod
    def cost(cls, settings: parts.RMSNorm, model: ModelConfig) -> Cost:
        """Gain."""
        return Cost(model.dim)


def build_norm(model: ModelConfig) -> nn.Module:
    """The norm that ``model.norm`` names."""
    norm: nn.Module = part_of(model.norm)(model.norm, model)
    return norm


def norm_cost(model: ModelConfig) -> Cost:
    """Cost of one norm."""
    cost: Cost = part_of(model.norm).cost(model.norm, model)
    return cost


class Residual(nn.Module):
    """A sublayer's connection: ``norm(x + drop(f(x)))`` (post; Vaswani et al. 2017, section 3.1) or
    ``x + drop(f(norm(x)))`` (pre; Xiong et al. 2020)."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.norm = build_norm(model)
        self.dropout = Dropout(model.dropout)
        self.pre = model.norm.placement == "pre"

    def forward(self, x_BTC: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            y: Tensor = x_BTC + self.dropout(sublayer(self.norm(x_BTC)))
            return y
        y = self.norm(x_BTC + self.dropout(sublayer(x_BTC)))
        return y
