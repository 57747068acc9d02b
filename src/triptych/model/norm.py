"""Normalisation, and the residual connection it sits in.

post:  x ─┬─ f ─ dropout ─ + ─ norm →        pre:       x ─┬─ norm ─ f ─ dropout ─ + →
          └───────────────┘                                └──────────────────────┘
deep:  x ─┬─ f ─ dropout ─ + ─ norm →        sandwich:  x ─┬─ norm ─ f ─ norm ─ dropout ─ + →
          └────── × α ────┘                                └─────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.model.dropout import Dropout
from triptych.model.registry import Cost, Place, carries_out, part_of


@carries_out(parts.LayerNorm)
class LayerNorm(nn.LayerNorm):
    """Layer normalisation with gain and bias (Ba et al. 2016)."""

    def __init__(self, settings: parts.LayerNorm, model: ModelConfig) -> None:
        super().__init__(model.dim, eps=settings.eps, bias=settings.bias)

    @classmethod
    def cost(cls, settings: parts.LayerNorm, model: ModelConfig) -> Cost:
        return Cost((1 + settings.bias) * model.dim)


@carries_out(parts.RMSNorm)
class RMSNorm(nn.RMSNorm):
    """Root-mean-square normalisation with gain (Zhang and Sennrich 2019)."""

    def __init__(self, settings: parts.RMSNorm, model: ModelConfig) -> None:
        super().__init__(model.dim, eps=settings.eps)

    @classmethod
    def cost(cls, settings: parts.RMSNorm, model: ModelConfig) -> Cost:
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
    """A sublayer's connection (see above); ``deep`` weighs the residual by α."""

    def __init__(self, model: ModelConfig, place: Place) -> None:
        super().__init__()
        placement = model.norm.placement
        self.norm = build_norm(model)
        self.dropout = Dropout(model.dropout)
        self.pre = placement in ("pre", "sandwich")
        self.after = build_norm(model) if placement == "sandwich" else nn.Identity()
        self.alpha = deep(place)[0] if placement == "deep" else 1.0

    def forward(self, x_BTC: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        y: Tensor = self.dropout(self.after(sublayer(self.norm(x_BTC) if self.pre else x_BTC)))
        y = y + (x_BTC if self.alpha == 1 else x_BTC * self.alpha)
        return y if self.pre else self.norm(y)


class Parallel(nn.Module):
    """All sublayers of a block beside each other, on one norm of its input."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.norm = build_norm(model)
        self.dropout = Dropout(model.dropout)

    def forward(self, x_BTC: Tensor, sublayers: Sequence[Callable[[Tensor], Tensor]]) -> Tensor:
        n, y = self.norm(x_BTC), x_BTC
        for sublayer in sublayers:
            y = y + self.dropout(sublayer(n))
        return y


def norms_in_block(model: ModelConfig, sublayers: int) -> int:
    """Norms of a block."""
    return {"sandwich": 2 * sublayers, "parallel": 1}.get(model.norm.placement, sublayers)


def ends_with_norm(model: ModelConfig) -> bool:
    """Whether a stack needs a norm after its last block: its residual stream was never normalised."""
    return model.norm.placement not in ("post", "deep")


def deep(place: Place) -> tuple[float, float]:
    """α of the residual and β of the first weights in DeepNorm (Wang et al. 2022, figure 2)."""
    N, M = (place.other, place.depth) if place.causal else (place.depth, place.other)  # encoder, decoder
    if not (N and M):
        return (2 * place.depth) ** 0.25, (8 * place.depth) ** -0.25
    if place.causal:
        return (3 * M) ** 0.25, (12 * M) ** -0.25
    return 0.81 * (N**4 * M) ** (1 / 16), 0.87 * (N**4 * M) ** (-1 / 16)
