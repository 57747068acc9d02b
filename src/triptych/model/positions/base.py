"""The hooks by which a position scheme acts. Each scheme overrides what it needs."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from triptych.config import ModelConfig, Part
from triptych.layout import Layout
from triptych.model.registry import Cost, Place


class Position(nn.Module):
    """A position scheme; positions come from the layout, never from counting slots."""

    def __init__(self, settings: Part, model: ModelConfig, place: Place) -> None:
        super().__init__()

    @classmethod
    def cost(cls, settings: Part, model: ModelConfig, place: Place, pairs: int = 0, tokens: int = 0) -> Cost:
        """Parameters of one stack's positions; products in one layer of attention in which ``tokens`` queries
        meet keys in ``pairs`` pairs, in each head."""
        return Cost()

    def embed(self, x_BTC: Tensor, layout: Layout) -> Tensor:
        """Act on the embeddings, once a stack."""
        return x_BTC

    def rotate(self, q_BHTD: Tensor, k_BGTD: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Act on the queries and keys of new tokens, in every self-attention, before keys are cached."""
        return q_BHTD, k_BGTD

    def bias(self, q_BHTD: Tensor, query: Layout, key: Layout) -> Tensor | None:
        """``[B or 1, H, T, S]`` to be added to the scores of these queries, in every self-attention."""
        return None

    def values(self, query: Layout, key: Layout) -> Callable[[Tensor], Tensor] | None:
        """What weights ``[B, H, T, S]`` bring beside the values: a function of the weights."""
        return None
