"""Relations between tokens that queries meet as they meet keys: Shaw's and Transformer-XL's.

Shapes: B rows (1 where all are alike), T queries, S keys, H heads, D head width, R relations, C model width.

    Shaw   scores_ij = q_i · (k_j + a_(j-i)) · scale           y_i = Σ_j weights_ij (v_j + b_(j-i))
    XL     scores_ij = ((q_i + u) · k_j + (q_i + v) · W r_(i-j)) · scale
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.positions.base import Position, between, scale_of, waves
from triptych.model.registry import Cost, Place, carries_out


@carries_out(parts.Shaw)
class Shaw(Position):
    """Vectors a and b for each difference, clipped (Shaw et al. 2018, section 3.2), shared by all heads and
    layers. A query meets the R relations, not the S keys, and weights are summed by relation; a causal stack
    has no relations to later tokens."""

    def __init__(self, settings: parts.Shaw, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        self.back, self.ahead = settings.clip, 0 if place.causal else settings.clip
        self.scale, shape = scale_of(model), (self.back + 1 + self.ahead, model.head_dim)
        self.a, self.b = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape))
        for table in (self.a, self.b):
            nn.init.normal_(table, std=model.head_dim**-0.5)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, pairs: int = 0, tokens: int = 0) -> Cost:
        values = (settings.clip + 1 + (0 if place.causal else settings.clip)) * model.head_dim
        return Cost(2 * values, 4 * tokens * model.heads.count * values)

    def relation(self, query: Layout, key: Layout) -> Tensor:
        """``[B, 1, T, S]``: which one stands between them."""

        def make(far_BTS: Tensor) -> Tensor:
            return (far_BTS.clamp(-self.back, self.ahead) + self.back)[:, None]

        return between(query, key, ("shaw", self.back, self.ahead), make)

    def bias(self, q_BHTD: Tensor, query: Layout, key: Layout, layer: int = 0) -> Tensor:
        met_BHTR = (q_BHTD * self.scale) @ self.a.to(q_BHTD.dtype).t()
        index = self.relation(query, key)
        return met_BHTR.gather(3, index.expand(*met_BHTR.shape[:3], -1))

    def values(self, query: Layout, key: Layout) -> Callable[[Tensor], Tensor]:
        def brought(w_BHTS: Tensor) -> Tensor:
            total_BHTR = w_BHTS.new_zeros(*w_BHTS.shape[:3], len(self.b))
            index = self.relation(query, key).expand_as(w_BHTS)
            return total_BHTR.scatter_add(3, index, w_BHTS) @ self.b.to(w_BHTS.dtype)

        return brought


@carries_out(parts.TransformerXL)
class TransformerXL(Position):
    """Scores of Dai et al. 2019, section 3.3: W of each layer, u and v shared by all.

    r_(i-j), the sinusoid of a difference, is r_j turned back by i. So the second product is one of turned
    queries with r_j, without a table of differences: ``(q + v) · W r_(i-j) = turn_i(Wᵀ(q + v)) · r_j``.
    """

    undecayed = ("u", "v")

    def __init__(self, settings: parts.TransformerXL, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        H, D = model.heads.count, model.head_dim
        self.scale = scale_of(model)
        self.u, self.v = nn.Parameter(torch.zeros(H, D)), nn.Parameter(torch.zeros(H, D))
        self.W = nn.ParameterDict({str(i): torch.empty(H * D, model.dim) for i in _own(model, place)})
        for W in self.W.values():
            nn.init.xavier_uniform_(W)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, pairs: int = 0, tokens: int = 0) -> Cost:
        H, D, C = model.heads.count, model.head_dim, model.dim
        met = 2 * H * C * pairs  # with sinusoids, which nobody learns
        own = 2 * H * D + len(_own(model, place)) * H * D * C
        return Cost(own, 2 * H * C * tokens * D + met, spared=met)

    def rotate(self, q_BHTD: Tensor, k_BGTD: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Queries with u."""
        return q_BHTD + self.u.to(q_BHTD.dtype)[:, None], k_BGTD

    def bias(self, q_BHTD: Tensor, query: Layout, key: Layout, layer: int = 0) -> Tensor:
        B, H, T, D = q_BHTD.shape
        W_HDC = self.W[str(layer)].to(q_BHTD.dtype).view(H, D, -1)
        asked = (q_BHTD + (self.v - self.u).to(q_BHTD.dtype)[:, None]) * self.scale
        asked = torch.bmm(asked.transpose(0, 1).reshape(H, B * T, D), W_HDC)
        r_BTC, r_BSC = (waves(x, W_HDC.shape[-1], 10000.0).to(q_BHTD.dtype) for x in (query, key))
        (sin, cos), (s, c) = r_BTC[:, None].chunk(2, -1), asked.view(H, B, T, -1).transpose(0, 1).chunk(2, -1)
        turned_BHTC = torch.cat((c * sin - s * cos, s * sin + c * cos), -1)
        return torch.bmm(turned_BHTC.reshape(B, H * T, -1), r_BSC.transpose(1, 2)).view(B, H, T, -1)


def _own(model: ModelConfig, place: Place) -> list[int]:
    """The layers with attention."""
    mixers = model.mixers("decoder" if place.causal else "encoder")
    return [i for i, mixer in enumerate(mixers) if mixer.attends]
