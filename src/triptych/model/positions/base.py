"""The hooks by which a position scheme acts. Each scheme overrides what it needs.

Shapes: B rows (1 where all are alike), T queries or new tokens, S keys, H query heads, G key/value heads,
D head width, C model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, Part, parts
from triptych.layout import Layout
from triptych.model.registry import Cost, Place


class Position(nn.Module):
    """A position scheme; positions come from the layout, never from counting slots."""

    def __init__(self, settings: Part, model: ModelConfig, place: Place) -> None:
        super().__init__()

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, pairs: int = 0, tokens: int = 0) -> Cost:
        """Parameters of one stack's positions; products in one layer of attention in which ``tokens`` queries
        meet keys in ``pairs`` pairs, in each head."""
        return Cost()

    def embed(self, x_BTC: Tensor, layout: Layout) -> Tensor:
        """Act on the embeddings, once a stack."""
        return x_BTC

    def rotate(self, q_BHTD: Tensor, k_BGTD: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Act on the queries and keys of new tokens, in every self-attention and retention, before keys are
        cached."""
        return q_BHTD, k_BGTD

    def bias(self, q_BHTD: Tensor, query: Layout, key: Layout, layer: int = 0) -> Tensor | None:
        """``[B or 1, H, T, S]`` to be added to the scores of these (rotated) queries, in every layer's
        self-attention."""
        return None

    def values(self, query: Layout, key: Layout) -> Callable[[Tensor], Tensor] | None:
        """What weights ``[B, H, T, S]`` bring beside the values: a function of the weights."""
        return None


def between(query: Layout, key: Layout, name: Hashable, make: Callable[[Tensor], Tensor]) -> Tensor:
    """``make`` of each key's position minus each query's, ``[B, T, S]``: computed once for a pair of layouts,
    so that all layers share it. ``name`` must hold whatever else it depends on."""

    def fresh() -> Tensor:
        q, k = (query.first(), key.first()) if query.alike and key.alike else (query, key)
        return make(k.position[:, None, :] - q.position[:, :, None])

    # The key layout itself is in the name: its identity cannot be taken by another while the memo lives.
    return query.memo((name, None if key is query else key), fresh)


def waves(layout: Layout, C: int, base: float, offset: int = 0, axis: int = -2) -> Tensor:
    """``sin(p / base^(2i/C))`` and the cosines, ``[B, T, C]`` in fp32: all sines first (axis -2), or sine and
    cosine in turn (axis -1)."""

    def make() -> Tensor:
        even = torch.arange(0, C, 2, device=layout.position.device, dtype=torch.float32)
        angle = (layout.position[:, :, None] + offset) * torch.exp(even * (-math.log(base) / C))
        return torch.stack((angle.sin(), angle.cos()), axis).flatten(2)

    return layout.memo(("waves", C, base, offset, axis), make)


def scale_of(model: ModelConfig) -> float:
    """What the products of queries and keys are multiplied by, and with them all that is part of a key."""
    return float(model.head_dim**-0.5) if isinstance(model.attention.score, parts.ScaledDot) else 1.0
