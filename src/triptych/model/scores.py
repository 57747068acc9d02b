"""How a query and a key are compared. Scores that fold into a dot product keep the fused kernels.

Shapes: B batch, H query heads, G key/value heads, T queries, S keys, D width of what is dotted.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.model.registry import Cost, carries_out


class Score(nn.Module):
    """A comparison.

    Attributes:
        scale: what products of folded queries and keys are multiplied by.
        folds: it is a dot product after ``fold``; if not, ``compare`` gives the scores.
    """

    folds = True
    scale = 1.0

    def __init__(self, settings: parts.Score, model: ModelConfig, dim: int) -> None:
        super().__init__()

    @classmethod
    def cost(cls, settings: parts.Score, model: ModelConfig, dim: int, pairs: int) -> Cost:
        """Of comparing so many (query, key) pairs in each head."""
        return Cost(0, 2 * pairs * model.heads.count * dim)

    def fold(self, q_BHTD: Tensor, k_BGSD: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys whose products, scaled, are the scores."""
        return q_BHTD, k_BGSD

    def compare(self, q_BHTD: Tensor, k_BHSD: Tensor) -> Tensor:
        """``[B, H, T, S]``; keys stand repeated for every query head."""
        q, k = self.fold(q_BHTD, k_BHSD)
        return q @ k.transpose(-1, -2) * self.scale


@carries_out(parts.ScaledDot)
class ScaledDot(Score):
    """``q·k / √D``, D the dimension really dotted (Vaswani et al. 2017, section 3.2.1)."""

    def __init__(self, settings: parts.ScaledDot, model: ModelConfig, dim: int) -> None:
        super().__init__(settings, model, dim)
        self.scale = float(dim**-0.5)


@carries_out(parts.Dot)
class Dot(Score):
    """``q·k`` (Luong et al. 2015, section 3.1)."""


@carries_out(parts.Cosine)
class Cosine(Score):
    """``exp(t_h) · q·k / (|q| |k|)`` with a learned t for each head, begun at ln 10 (Henry et al. 2020,
    section 3)."""

    def __init__(self, settings: parts.Cosine, model: ModelConfig, dim: int) -> None:
        super().__init__(settings, model, dim)
        self.log_temperature = nn.Parameter(torch.full((model.heads.count,), 10.0).log())

    @classmethod
    def cost(cls, settings: parts.Score, model: ModelConfig, dim: int, pairs: int) -> Cost:
        return Cost(model.heads.count, 2 * pairs * model.heads.count * dim)

    def fold(self, q_BHTD: Tensor, k_BGSD: Tensor) -> tuple[Tensor, Tensor]:
        q = F.normalize(q_BHTD, dim=-1) * self.log_temperature.exp().to(q_BHTD.dtype)[:, None, None]
        return q, F.normalize(k_BGSD, dim=-1)


@carries_out(parts.Additive)
class Additive(Score):
    """``v_h · tanh(W q + U k)`` with maps that all heads share (Bahdanau et al. 2015, section A.1.2)."""

    folds = False

    def __init__(self, settings: parts.Additive, model: ModelConfig, dim: int) -> None:
        super().__init__(settings, model, dim)
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, dim, bias=False)
        self.v = nn.Parameter(torch.empty(model.heads.count, dim))
        nn.init.normal_(self.v, std=dim**-0.5)

    @classmethod
    def cost(cls, settings: parts.Score, model: ModelConfig, dim: int, pairs: int) -> Cost:
        """Of comparing so many pairs in each head; the maps of queries and keys are counted by the caller
        that knows how many there are."""
        return Cost(2 * dim * dim + model.heads.count * dim, 2 * pairs * model.heads.count * dim)

    def compare(self, q_BHTD: Tensor, k_BHSD: Tensor) -> Tensor:
        # Queries and keys may come in a wider type than the model's: scores are computed in fp32 at least.
        W, U, v_HD = (x.to(q_BHTD.dtype) for x in (self.query.weight, self.key.weight, self.v))
        joined = F.linear(q_BHTD, W)[:, :, :, None] + F.linear(k_BHSD, U)[:, :, None]
        scores: Tensor = (joined.tanh() @ v_HD[:, None, :, None]).squeeze(-1)
        return scores
