"""A stack of blocks: one definition for encoders and decoders.

    x_BTC ─ [mixer] ─ [cross-attention]* ─ [feed-forward] ─ … × depth ─ norm** → y_BTC
                         * with a source      ** where the residual stream is never normalised
Each bracket sits in a residual connection (see norm.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.config.model import Side
from triptych.layout import Layout
from triptych.model.attention import CrossAttention
from triptych.model.experts import feed_forward, feed_forward_cost
from triptych.model.mixer import Mixer
from triptych.model.norm import (
    Parallel,
    Residual,
    build_norm,
    deep,
    ends_with_norm,
    norm_cost,
    norms_in_block,
)
from triptych.model.positions import Position
from triptych.model.registry import Context, Cost, Place, Shape, part_of
from triptych.model.sparse import whole_prefix
from triptych.model.state import State, slots
from triptych.model.visible import Visible, sight


class Block(nn.Module):
    """One layer."""

    def __init__(self, model: ModelConfig, place: Place) -> None:
        super().__init__()
        settings = model.mixers(_side(place))[place.layer]
        self.mixer: Mixer = part_of(settings)(settings, model, place)
        self.cross = CrossAttention(model) if place.source and not settings.takes_source else None
        self.ffn = feed_forward(model, place)
        if model.norm.placement == "parallel":
            self.parallel = Parallel(model)
            return
        self.mixer_residual = Residual(model, place)
        self.cross_residual = Residual(model, place) if self.cross is not None else None
        self.ffn_residual = Residual(model, place)

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        """``[B, T, C]``."""
        sublayers = [lambda x: self.mixer(x, context), lambda x: self.ffn(x, context)]
        if self.cross is not None:
            cross = self.cross
            sublayers.insert(1, lambda x: cross(x, context))
        if hasattr(self, "parallel"):
            return self.parallel(x_BTC, sublayers)  # type: ignore[no-any-return]
        residuals = [self.mixer_residual, self.cross_residual, self.ffn_residual]
        for residual, sublayer in zip([r for r in residuals if r is not None], sublayers, strict=True):
            x_BTC = residual(x_BTC, sublayer)
        return x_BTC

    @property
    def reader(self) -> Mixer | CrossAttention:
        """What reads the source, if the stack has one."""
        return self.mixer if self.cross is None else self.cross


class Stack(nn.Module):
    """Blocks with one position scheme; what is visible may differ from layer to layer."""

    def __init__(self, model: ModelConfig, causal: bool) -> None:
        super().__init__()
        places = [Place.of(model, causal, i) for i in range(model.depth("decoder" if causal else "encoder"))]
        self.look(model, causal)
        self.position: Position = part_of(model.position)(model.position, model, places[0])
        self.embedding_norm = build_norm(model) if model.embedding_norm else nn.Identity()
        self.blocks = nn.ModuleList(Block(model, place) for place in places)
        self.norm = build_norm(model) if ends_with_norm(model) else nn.Identity()
        fresh(self)
        if model.norm.placement == "deep":
            shrink(self.blocks, deep(places[0])[1])

    def look(self, model: ModelConfig, causal: bool) -> None:
        """Set what each layer may see, and with it how far back its state is asked."""
        self.visible, self.prefix = sights(model, causal), model.lookahead if causal else 0
        mixers = model.mixers("decoder" if causal else "encoder")
        self.sees = [part_of(m).sees(m, v) for m, v in zip(mixers, self.visible, strict=True)]

    def start(self, source: Layout | None = None, beams: int = 1, back: int = 0) -> State:
        """An empty state for this stack."""
        return State(self.sees, source, beams, back)

    def forward(
        self,
        x_BTC: Tensor,
        layout: Layout,
        source: Tensor | None = None,
        source_layout: Layout | None = None,
        state: State | None = None,
        aux: list[Tensor] | None = None,
        types: Tensor | None = None,
    ) -> Tensor:
        """Embeddings, positions joined, to hidden states; with a ``state``, of the new tokens only."""
        if state is not None:
            whole_prefix(layout, self.prefix)
            state.advance(layout)
            source_layout = state.source
        passed = Context(layout, self.visible[0], self.position, None, source, source_layout, aux, types)
        held = state.layers if state is not None else [None] * len(self.blocks)
        for block, visible, own in zip(self.blocks, self.visible, held, strict=True):
            x_BTC = block(x_BTC, passed.at(visible, own))
        y: Tensor = self.norm(x_BTC)
        return y


def sights(model: ModelConfig, causal: bool) -> list[Visible]:
    """What each layer of a stack may see."""
    return [sight(s, causal) for s in model.sights("decoder" if causal else "encoder")]


def stack_costs(model: ModelConfig, causal: bool, shape: Shape) -> dict[str, Cost]:
    """Parameters, and matrix products of one pass, by part."""
    total: dict[str, Cost] = {}
    place = Place.of(model, causal)
    for i, (mixer, seen) in enumerate(zip(model.mixers(_side(place)), sights(model, causal), strict=True)):
        for name, cost in block_costs(model, Place.of(model, causal, i), mixer, seen, shape).items():
            total[name] = total.get(name, Cost()) + cost
    total["norms"] += norm_cost(model) * (ends_with_norm(model) + model.embedding_norm)
    at = part_of(model.position).cost(model.position, model, place)
    return {**total, "positions": Cost(at.parameters)}


def block_costs(
    model: ModelConfig, place: Place, mixer: parts.Mixer, seen: Visible, shape: Shape
) -> dict[str, Cost]:
    """Of one layer."""
    cross = place.source and not mixer.takes_source
    out = {"mixers": part_of(mixer).cost(mixer, model, place, seen, shape)}
    if cross:
        out["cross-attention"] = CrossAttention.cost(model, shape)
    out["feed-forward"] = feed_forward_cost(model, place, shape.tokens)
    return {**out, "norms": norm_cost(model) * norms_in_block(model, 3 if cross else 2)}


def kept_by_kind(
    model: ModelConfig, rows: int, chunks: Sequence[int], sources: int, source: int, back: int = 0
) -> dict[str, int]:
    """Values a decoder's state holds after passes of ``chunks`` tokens over ``rows`` rows and ``sources``
    sources of ``source`` tokens: of all tokens, of the newest in layers that look back no further, of rows
    (recurrent sums), and of the source."""
    total = {"tokens": 0, "windows": 0, "rows": 0, "source": 0}
    for i, (mixer, seen) in enumerate(zip(model.mixers("decoder"), sights(model, True), strict=True)):
        part, place = part_of(mixer), Place.of(model, True, i)
        token, row = part.kept(mixer, model, place)
        reach = part.sees(mixer, seen)
        total["tokens" if reach is None else "windows"] += rows * token * slots(reach, back, chunks)
        total["rows"] += rows * row
        if place.source and not mixer.takes_source:
            total["source"] += sources * source * part_of(model.heads).kept_values(model, True)
        elif place.source:
            total["source"] += sources * source * part.kept_of_source(mixer, model, place)
    return total


def fresh(module: nn.Module) -> None:
    """Xavier-uniform weights and zero biases of all linear maps in it (Glorot and Bengio 2010)."""
    for m in module.modules():
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            if m.bias is not None:
                nn.init.zeros_(m.bias)


def shrink(blocks: nn.ModuleList, beta: float) -> None:
    """Scale the first weights of what carries values (Wang et al. 2022, section 4.1)."""
    with torch.no_grad():
        for block in blocks:
            for part in (block.mixer, block.cross, block.ffn):
                for weight in part.scaled() if part is not None else ():  # type: ignore[operator, union-attr]
                    weight *= beta


def _side(place: Place) -> Side:
    return "decoder" if place.causal else "encoder"
