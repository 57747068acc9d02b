"""Softmax attention over a stack's own tokens and over a source.

Shapes: B rows, T new tokens, S keys, H query heads, G key/value heads, D head width, C model width.

    self:   x_BTC ─ qkv ─ rotate ─┬─ q_BHTD ───────────────────────────┐
                                  └─ k_BGTD, v_BGTD ─ append to state ─┴─ attend ─ out → y_BTC
    cross:  x_BTC ─ q ─ q_BHTD ─────────────────────────────┐
            source_BSC ─ kv ─ k_BGSD, v_BGSD (once) ────────┴─ attend ─ out → y_BTC
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.attend import attend, reference
from triptych.model.positions import Position
from triptych.model.registry import Cost, carries_out, linear_cost, part_of
from triptych.model.state import LayerState, State
from triptych.model.visible import SameSegment, Visible


@carries_out(parts.ScaledDot)
class ScaledDot:
    """Dot product over √D, D the dimension really dotted (Vaswani et al. 2017, section 3.2.1)."""

    @staticmethod
    def scale(dim: int) -> float:
        """What a dot product of ``dim`` values is multiplied by."""
        return float(dim**-0.5)


class Attention(nn.Module):
    """What self- and cross-attention share: H query heads over G key/value heads (MHA, GQA, MQA)."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        self.H, self.G, self.D = model.heads.count, model.kv_heads, model.head_dim
        self.scale = part_of(model.attention.score).scale(self.D)
        self.p = model.attention.dropout
        self.watch: list[Tensor] | None = None  # when a list: weights_BHTS of each call are put there
        self.out = nn.Linear(self.H * self.D, model.dim, bias=_bias(model))

    def split(self, x_BTE: Tensor, heads: int) -> Tensor:
        """``[B, T, heads·D]`` → ``[B, heads, T, D]``."""
        return x_BTE.view(*x_BTE.shape[:2], heads, self.D).transpose(1, 2)

    def meet(self, q: Tensor, k: Tensor, v: Tensor, visible: Visible, query: Layout, key: Layout) -> Tensor:
        """Attention proper and the output map: ``[B, T, C]``."""
        mask = visible.lower(query, key)
        p = self.p if self.training else 0.0
        if self.watch is None:
            y_BHTD = attend(q, k, v, mask, self.scale, p)
        else:
            y_BHTD, weights = reference(q, k, v, mask, self.scale, p)
            self.watch.append(weights)
        y: Tensor = self.out(y_BHTD.transpose(1, 2).flatten(2))
        return y


@carries_out(parts.AttentionMixer)
class SelfAttention(Attention):
    """Tokens attend to tokens of their own stack."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        self.qkv = nn.Linear(model.dim, (self.H + 2 * self.G) * self.D, bias=_bias(model))

    @classmethod
    def cost(cls, model: ModelConfig, batch: int, length: int, keys: int) -> Cost:
        """Projections of ``batch · length`` tokens, and their meeting with ``keys`` keys a row."""
        H, G, D = model.heads.count, model.kv_heads, model.head_dim
        tokens, bias = batch * length, _bias(model)
        return (
            linear_cost(tokens, model.dim, (H + 2 * G) * D, bias)
            + linear_cost(tokens, H * D, model.dim, bias)
            + Cost(0, 2 * 2 * tokens * keys * H * D)
        )

    def forward(
        self,
        x_BTC: Tensor,
        layout: Layout,
        visible: Visible,
        position: Position,
        state: State | None = None,
        layer: int = 0,
        start: int = 0,
    ) -> Tensor:
        q, k, v = self.qkv(x_BTC).split((self.H * self.D, self.G * self.D, self.G * self.D), -1)
        q, k, v = self.split(q, self.H), self.split(k, self.G), self.split(v, self.G)
        q, k = position.rotate(q, k, layout)
        keys = layout
        if state is not None:
            assert state.keys is not None
            k, v = state.layers[layer].append(k, v, start)
            keys = state.keys
        return self.meet(q, k, v, visible, layout, keys)


class CrossAttention(Attention):
    """Tokens attend to a source."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        self.q = nn.Linear(model.dim, self.H * self.D, bias=_bias(model))
        self.kv = nn.Linear(model.dim, 2 * self.G * self.D, bias=_bias(model))

    @classmethod
    def cost(cls, model: ModelConfig, batch: int, length: int, keys: int, sources: int) -> Cost:
        """Queries of ``batch · length`` tokens over ``keys`` keys a row, and the keys and values of
        ``sources`` source sequences (0: already cached)."""
        H, G, D = model.heads.count, model.kv_heads, model.head_dim
        tokens, bias = batch * length, _bias(model)
        return (
            linear_cost(tokens, model.dim, H * D, bias)
            + linear_cost(sources * keys, model.dim, 2 * G * D, bias)
            + linear_cost(tokens, H * D, model.dim, bias)
            + Cost(0, 2 * 2 * tokens * keys * H * D)
        )

    def keys(self, source_BSC: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a source, ``[B, G, S, D]`` each."""
        k, v = self.kv(source_BSC).chunk(2, -1)
        return self.split(k, self.G), self.split(v, self.G)

    def forward(
        self,
        x_BTC: Tensor,
        layout: Layout,
        source: Tensor | None,
        source_layout: Layout,
        state: LayerState | None = None,
    ) -> Tensor:
        if state is not None and state.cross is not None:
            k, v = state.cross
        else:
            assert source is not None
            k, v = self.keys(source)
            if state is not None:
                state.cross = (k.contiguous(), v.contiguous())
        q = self.q(x_BTC)
        rows, sources = x_BTC.shape[0], k.shape[0]
        if rows != sources:  # the beams of a source are so many queries to the same keys
            q = q.view(sources, -1, q.shape[-1])
            layout = layout.memo(("folded", sources), lambda: _fold(layout, sources))
        y: Tensor = self.meet(self.split(q, self.H), k, v, SameSegment(), layout, source_layout)
        return y.view(rows, -1, y.shape[-1])


def _fold(layout: Layout, sources: int) -> Layout:
    """``[N·beams, T]`` as ``[N, beams·T]``."""
    return Layout(layout.position.reshape(sources, -1), layout.segment.reshape(sources, -1))


def _bias(model: ModelConfig) -> bool:
    return bool(getattr(model.heads, "bias", True))


def watch(module: nn.Module, on: bool = True) -> list[list[Tensor]]:
    """Make every attention under ``module`` keep its weights (in the order of the modules), or stop."""
    found: list[Any] = [m for m in module.modules() if isinstance(m, Attention)]
    for m in found:
        m.watch = [] if on else None
    return [m.watch for m in found] if on else []


def fresh(module: nn.Linear) -> None:
    """Xavier-uniform weights and zero biases (Glorot and Bengio 2010)."""
    nn.init.xavier_uniform_(module.weight)
    if module.bias is not None:
        torch.nn.init.zeros_(module.bias)
