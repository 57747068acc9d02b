"""Softmax attention over a stack's own tokens and over a source.

Shapes: B rows, T new tokens, S keys, H query heads, G key/value heads, D head width, C model width.

    self:   x_BTC ─ heads ─┬─ q_BHTD ────────────────────────────┐
                           └─ kept ─ remember ─ open ─ k, v_BGSD ┴─ attend ─ out → y_BTC
    cross:  x_BTC ─ heads ─── q_BHTD ────────────────────────────┐
            source ─ heads ── kept (once) ──── open ─ k, v_BGSD ─┴─ attend ─ out → y_BTC
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, Part, parts
from triptych.layout import Layout
from triptych.model.attend import Shaping, attend, reference
from triptych.model.blocks import in_blocks, products, spans
from triptych.model.heads import Heads
from triptych.model.mixer import Mixer
from triptych.model.positions import Position
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, linear_cost, part_of
from triptych.model.scores import Score
from triptych.model.visible import SameSegment, Visible


class Watched(nn.Module):
    """What attends with a softmax.

    Attributes:
        watch: when a list, ``weights_BHTS`` of each call are put there.
    """

    watch: list[Tensor] | None = None


class Attention(Watched):
    """What self- and cross-attention share."""

    layer = 0

    def __init__(self, model: ModelConfig, cross: bool = True) -> None:
        super().__init__()
        self.heads: Heads = part_of(model.heads)(model.heads, model, cross)
        score = model.attention.score
        self.score: Score = part_of(score)(score, model, self.heads.dotted)
        self.sink = nn.Parameter(torch.zeros(model.heads.count)) if model.attention.sinks else None
        self.cap = model.attention.softcap
        self.p = model.attention.dropout
        self.relative = model.position.relative or model.position.acts != "attention"
        self.out = nn.Linear(self.heads.width, model.dim, bias=model.heads.bias)

    @staticmethod
    def base_cost(
        model: ModelConfig, cross: bool, shape: Shape, kept: int, opened: int, pairs: int, met: int = 0
    ) -> Cost:
        """Of ``shape``'s tokens as queries, ``kept`` tokens projected, ``opened`` ones used, and so many
        pairs of a query and a key met in each head; ``met``: keys, each counted in every block that it is
        in, when there are blocks."""
        heads, score = part_of(model.heads), model.attention.score
        dim, value = heads.dots(model, cross), model.heads.count * model.head_dim
        total: Cost = heads.cost(model, cross, shape.tokens, kept, opened)
        meeting = part_of(score).cost(score, model, dim, pairs) + Cost(0, 2 * pairs * value)
        total += meeting + Cost(meeting=meeting.flops)
        if isinstance(score, parts.Additive):
            keys = (met or opened) * model.heads.count
            total += Cost(0, 2 * (shape.tokens * model.heads.count + keys) * dim * dim)
        total += Cost(model.heads.count if model.attention.sinks else 0)
        return total + linear_cost(shape.tokens, value, model.dim, model.heads.bias)

    def meet(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        visible: Visible,
        query: Layout,
        key: Layout,
        at: Position | None,
    ) -> Tensor:
        """Attention proper and the output map: ``[B, T, C]``. ``at``: the positions, in self-attention."""
        p = self.p if self.training else 0.0

        def some(q: Tensor, k: Tensor, v: Tensor, query: Layout, key: Layout) -> Tensor:
            mask = visible.lower(query, key)
            bias = at.bias(q, query, key, self.layer) if at is not None else None
            values = at.values(query, key) if at is not None else None
            shaping = Shaping(self.cap, self.sink, None if self.score.folds else self.score.compare, values)
            if self.score.folds:
                q, k = self.score.fold(q, k)
            if self.watch is None:
                return attend(q, k, v, mask, self.score.scale, p, bias=bias, shaping=shaping)
            y_BHTD, weights = reference(q, k, v, mask, self.score.scale, p, bias, shaping)
            self.watch.append(weights)
            return y_BHTD

        if self.watch is not None:  # weights of all queries over all keys
            y_BHTD = some(q, k, v, query, key)
        else:
            y_BHTD = in_blocks(q, k, v, visible, query, key, some, self.relative)
        y: Tensor = self.out(y_BHTD.transpose(1, 2).flatten(2))
        return y

    def scaled(self) -> list[Tensor]:
        """The weights that carry values through: those that DeepNorm begins smaller."""
        return [*self.heads.scaled(), self.out.weight]


@carries_out(parts.AttentionMixer)
class SelfAttention(Attention, Mixer):
    """Tokens attend to tokens of their own stack."""

    def __init__(self, settings: parts.AttentionMixer, model: ModelConfig, place: Place) -> None:
        super().__init__(model, cross=False)
        self.layer = place.layer

    @classmethod
    def cost(cls, settings: Part, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        """Projections of the new tokens, and their meeting with what they may see."""
        pairs = shape.batch * products(seen.reach, shape.length, shape.keys)
        met = shape.batch * sum(s.keys for s in spans(seen.reach, shape.length, shape.keys))
        own = cls.base_cost(model, False, shape, shape.tokens, shape.batch * shape.keys, pairs, met)
        at = part_of(model.position).cost(model.position, model, place, pairs, shape.tokens)
        return own + Cost(0, at.flops, at.flops, at.spared)

    @classmethod
    def kept(cls, settings: Part, model: ModelConfig, place: Place) -> tuple[int, int]:
        return part_of(model.heads).kept_values(model, False), 0

    @classmethod
    def sees(cls, settings: Part, visible: Visible) -> int | None:
        return None if visible.reach.first else visible.reach.back

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        q, new = self.heads.project(x_BTC, context.position, context.layout)
        kept, keys = context.remember(*new)
        k, v = self.heads.open(tuple(kept))
        return self.meet(q, k, v, context.visible, context.layout, keys, context.position)


class CrossAttention(Attention):
    """Tokens attend to a source."""

    @classmethod
    def cost(cls, model: ModelConfig, shape: Shape) -> Cost:
        """Queries of the new tokens over the source, and the keys and values of ``shape.sources`` rows."""
        kept = shape.sources * shape.source
        opened = (shape.sources or shape.batch) * shape.source
        return cls.base_cost(model, True, shape, kept, opened, shape.tokens * shape.source)

    def keys(self, source_BSC: Tensor) -> tuple[Tensor, ...]:
        """What is kept of a source."""
        return tuple(x.contiguous() for x in self.heads.keep(source_BSC))

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        assert context.source_layout is not None
        kept = context.of_source(self.heads.keep)
        q = self.heads.query(x_BTC)
        rows, sources = q.shape[0], kept[0].shape[0]
        if rows != sources:  # the beams of a source are so many queries to the same keys
            q = q.reshape(sources, rows // sources, *q.shape[1:]).transpose(1, 2).flatten(2, 3)
        layout = folded(context.layout, sources)
        k, v = self.heads.open(kept)
        y: Tensor = self.meet(q, k, v, SameSegment(), layout, context.source_layout, None)
        return y.reshape(rows, -1, y.shape[-1])


def folded(layout: Layout, sources: int) -> Layout:
    """``[N·beams, T]`` as ``[N, beams·T]``: the rows of a source as one."""
    if layout.batch == sources:
        return layout

    def fold() -> Layout:
        return Layout(layout.position.reshape(sources, -1), layout.segment.reshape(sources, -1))

    return layout.memo(("folded", sources), fold)


def watch(module: nn.Module, on: bool = True) -> list[list[Tensor]]:
    """Make every attention under ``module`` keep its weights (in the order of the modules), or stop."""
    found: list[Any] = [m for m in module.modules() if isinstance(m, Watched)]
    for m in found:
        m.watch = [] if on else None
    return [m.watch for m in found] if on else []
