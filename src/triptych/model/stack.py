"""A stack of blocks: one definition for encoders and decoders.

    x_BTC ─ [self-attention] ─ [cross-attention]* ─ [feed-forward] ─ … × depth ─ norm** → y_BTC
                                  * with a source      ** pre-norm only
Each bracket sits in a residual connection (see norm.py).
"""

from __future__ import annotations

from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.attention import CrossAttention, fresh
from triptych.model.feedforward import FeedForward
from triptych.model.norm import Residual, build_norm, norm_cost
from triptych.model.positions import Position
from triptych.model.registry import Cost, part_of
from triptych.model.state import State
from triptych.model.visible import Causal, SameSegment, Visible, Window


def sight(model: ModelConfig, causal: bool) -> Visible:
    """What self-attention may see in a stack."""
    seen: Visible = SameSegment()
    if causal:
        seen = seen & Causal()
    if isinstance(model.attention.visible, parts.SeeWindow):
        seen = seen & Window(model.attention.visible.width)
    return seen


class Block(nn.Module):
    """One layer."""

    def __init__(self, model: ModelConfig, cross: bool) -> None:
        super().__init__()
        self.mixer = part_of(model.mixer)(model)
        self.mixer_residual = Residual(model)
        self.cross = CrossAttention(model) if cross else None
        self.cross_residual = Residual(model) if cross else None
        self.ffn: FeedForward = part_of(model.ffn)(model.ffn, model)
        self.ffn_residual = Residual(model)


class Stack(nn.Module):
    """``depth`` blocks with one position scheme and one predicate of what is visible."""

    def __init__(self, model: ModelConfig, depth: int, causal: bool, cross: bool) -> None:
        super().__init__()
        self.visible = sight(model, causal)
        self.position: Position = part_of(model.position)(model.position, model)
        self.blocks = nn.ModuleList(Block(model, cross) for _ in range(depth))
        self.norm = build_norm(model) if model.norm.placement == "pre" else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                fresh(module)

    @staticmethod
    def cost(model: ModelConfig, depth: int, batch: int, length: int, source: int = 0) -> Cost:
        """Parameters, and matrix products of one pass without a cache over ``[batch, length]`` tokens,
        with a source of ``source`` tokens a row (0: no cross-attention)."""
        mixer, ffn = part_of(model.mixer), part_of(model.ffn)
        block = mixer.cost(model, batch, length, length) + ffn.cost(model.ffn, model, batch * length)
        block += norm_cost(model) * 2
        if source:
            block += CrossAttention.cost(model, batch, length, source, batch) + norm_cost(model)
        total: Cost = block * depth + part_of(model.position).cost(model.position, model)
        return total + norm_cost(model) if model.norm.placement == "pre" else total

    def start(self, source: Layout | None = None, beams: int = 1) -> State:
        """An empty state for this stack."""
        return State(len(self.blocks), source, beams)

    def forward(
        self,
        x_BTC: Tensor,
        layout: Layout,
        source: Tensor | None = None,
        source_layout: Layout | None = None,
        state: State | None = None,
    ) -> Tensor:
        """Embeddings, positions joined, to hidden states; with a ``state``, of the new tokens only."""
        start = state.advance(layout) if state is not None else 0
        for i, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x_BTC = block.mixer_residual(
                x_BTC,
                lambda x, b=block, i=i: b.mixer(x, layout, self.visible, self.position, state, i, start),
            )
            if block.cross is not None and block.cross_residual is not None:
                keys = source_layout if state is None else state.source
                held = state.layers[i] if state is not None else None
                x_BTC = block.cross_residual(
                    x_BTC, lambda x, b=block, k=keys, h=held: b.cross(x, layout, source, k, h)
                )
            x_BTC = block.ffn_residual(x_BTC, block.ffn)
        y: Tensor = self.norm(x_BTC)
        return y
