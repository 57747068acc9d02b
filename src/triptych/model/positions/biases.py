"""Numbers that are added to scores by the difference of two positions alone: ALiBi and T5's buckets.

Shapes: B rows (1 where all are alike), T queries, S keys, H heads.

    ALiBi, causal     0              T5, causal,     0                   8 buckets, up to distance 20:
                     -m   0          buckets         1 0                 0 1 2 3 | 4: 4-5 | 5: 6-8 | …
                    -2m  -m   0                      2 1 0               7: from 14 on
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.positions.base import Position, between
from triptych.model.registry import Cost, Place, carries_out


@carries_out(parts.Alibi)
class Alibi(Position):
    """``-m_h · |i - j|`` (Press et al. 2022, section 3), in fp32 at least."""

    def __init__(self, settings: parts.Alibi, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        self.slopes = slopes(model.heads.count)

    def bias(self, q_BHTD: Tensor, query: Layout, key: Layout, layer: int = 0) -> Tensor:
        dtype = torch.promote_types(q_BHTD.dtype, torch.float32)

        def make(far_BTS: Tensor) -> Tensor:
            m = torch.tensor(self.slopes, dtype=dtype, device=far_BTS.device)
            return -m[:, None, None] * far_BTS.abs()[:, None]

        return between(query, key, ("alibi", len(self.slopes), dtype), make)


def slopes(heads: int) -> list[float]:
    """``2^(-8h/H)`` for h = 1 … H, H a power of two; for other numbers, those of the power below, and then
    every other one of the power above."""
    whole = 2 ** (heads.bit_length() - 1)
    more = [2 ** (-4 * h / whole) for h in range(1, 2 * whole, 2)]
    return [2 ** (-8 * h / whole) for h in range(1, whole + 1)] + more[: heads - whole]


@carries_out(parts.T5Buckets)
class T5Buckets(Position):
    """A table of a number a bucket and head, which all layers of the stack share (Raffel et al. 2020, section
    2.1). An encoder's first half of buckets is for what comes before, its second for what comes after."""

    undecayed = ("table",)

    def __init__(self, settings: parts.T5Buckets, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        self.settings, self.causal = settings, place.causal
        self.table = nn.Parameter(torch.empty(settings.buckets, model.heads.count))
        nn.init.normal_(self.table, std=model.dim**-0.5)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, pairs: int = 0, tokens: int = 0) -> Cost:
        return Cost(settings.buckets * model.heads.count)

    def bucket(self, far_BTS: Tensor) -> Tensor:
        """The bucket of a key so many positions after its query: half of them one difference each, the others
        even in its logarithm. In fp32, as trained models have it: it decides where buckets end."""
        count = self.settings.buckets
        after = torch.zeros_like(far_BTS)
        back = -far_BTS.clamp(max=0)
        if not self.causal:
            count //= 2
            after, back = (far_BTS > 0) * count, far_BTS.abs()
        single = count // 2
        ratio = (back.clamp(min=1).float() / single).log() / math.log(self.settings.distance / single)
        wide = (single + (ratio * (count - single)).long()).clamp(max=count - 1)
        return after + torch.where(back < single, back, wide)

    def bias(self, q_BHTD: Tensor, query: Layout, key: Layout, layer: int = 0) -> Tensor:
        index = between(query, key, ("t5", self.settings, self.causal), self.bucket)
        return F.embedding(index, self.table).permute(0, 3, 1, 2)
