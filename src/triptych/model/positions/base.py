"""The hooks by which a position scheme acts. Each scheme overrides what it needs."""

from __future__ import annotations

from torch import Tensor, nn

from triptych.config import ModelConfig, Part
from triptych.layout import Layout
from triptych.model.registry import Cost


class Position(nn.Module):
    """A position scheme; positions come from the layout, never from counting slots."""

    def __init__(self, settings: Part, model: ModelConfig) -> None:
        super().__init__()

    @classmethod
    def cost(cls, settings: Part, model: ModelConfig) -> Cost:
        """Parameters of one stack's positions."""
        return Cost()

    def embed(self, x_BTC: Tensor, layout: Layout) -> Tensor:
        """Act on the embeddings, once a stack."""
        return x_BTC

    def rotate(self, q_BHTD: Tensor, k_BGTD: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Act on the queries and keys of new tokens, in every self-attention, before keys are cached."""
        return q_BHTD, k_BGTD
