"""The Transformer in its three forms, from one stack.

    EncoderDecoder   source ids ─ embed ─ Stack(all visible) ─┐
                     target ids ─ embed ─ Stack(causal) ──────┴─ cross ─ output → logits_BTV
    DecoderOnly      ids ─ embed ─ Stack(causal) ─ output →
    EncoderOnly      ids ─ embed ─ Stack(all visible) ─ output →

Outputs are those of output.py: of each token, scores of words or tags; or of each row, classes or a vector.
B rows, T tokens, S source tokens, C model width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import mixers as mixers  # registers them
from triptych.model import output as output  # registers them
from triptych.model.dropout import Dropout
from triptych.model.embedding import Embedding
from triptych.model.registry import Cost, Shape, part_of
from triptych.model.stack import Block, Stack, kept_by_kind, stack_costs
from triptych.model.state import State

MOST = 2**40  # parameters: more are a slip of the hand, and some parts would take for ever to fail
# Where parts put what is to be added to the loss; and the types ``[B, T]`` of tokens.
Aux = list[Tensor] | None
Types = Tensor | None


@dataclass(frozen=True)
class Memory:
    """An encoded source: hidden states ``[B, S, C]`` and where their tokens are."""

    hidden: Tensor
    layout: Layout


class Transformer(nn.Module):
    """What the forms share: embeddings, output map, dropout on embeddings."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        if model.reads_ids and not model.vocab:
            raise UserError("the size of the vocabulary is not set", "model.vocab", "give model.vocab=…")
        self.config = model
        self.dropout = Dropout(model.dropout)
        self.scale = math.sqrt(model.dim) if model.scale_embedding else 1.0
        self.types = nn.Embedding(model.types, model.dim) if model.types else None
        if self.types is not None:
            nn.init.normal_(self.types.weight, std=0.02)

    def table(self) -> Embedding:
        """A fresh embedding."""
        table: Embedding = part_of(self.config.embedding)(self.config.embedding, self.config)
        return table

    def embed(self, embedding: Embedding, ids_BT: Tensor) -> Tensor:
        """``[B, T]`` ids (or ``[B, T, K]`` patches) to ``[B, T, C]``, times √C (Vaswani et al. 2017, section
        3.4)."""
        x: Tensor = embedding(ids_BT)
        return x * self.scale

    def run(
        self, stack: Stack, embedding: Embedding, ids: Tensor, layout: Layout, types: Types, **kwargs: Any
    ) -> Tensor:
        """Embed and run a stack. Positions join before dropout (section 5.4), and so do types ``[B, T]``,
        which are 0 unless given (Devlin et al. 2019, figure 2)."""
        x = stack.position.embed(self.embed(embedding, ids), layout)
        if self.types is not None:
            x = x + self.types(torch.zeros_like(layout.segment) if types is None else types)
        y: Tensor = stack(self.dropout(stack.embedding_norm(x)), layout, types=types, **kwargs)
        return y


class EncoderDecoder(Transformer):
    """Vaswani et al. 2017, figure 1."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        self.source_embedding = self.table()
        self.target_embedding = self.source_embedding if model.shared else self.table()
        self.encoder = Stack(model, causal=False)
        self.decoder = Stack(model, causal=True)
        self.output: Any = part_of(model.output)(model.output, model, self.target_embedding)

    def encode(self, ids_BS: Tensor, layout: Layout, aux: Aux = None) -> Memory:
        """Source ids to hidden states."""
        return Memory(self.run(self.encoder, self.source_embedding, ids_BS, layout, None, aux=aux), layout)

    def start(self, memory: Memory, beams: int = 1, back: int = 0) -> State:
        """An empty state over a source, with ``beams`` rows for each of its rows. What is made of the source
        is computed here, once. ``back``: how many tokens it will be truncated by at most."""
        state = self.decoder.start(memory.layout, beams, back)
        for held, block in zip(state.layers, self.decoder.blocks, strict=True):
            assert isinstance(block, Block)
            held.cross = block.reader.keys(memory.hidden)
        return state

    def decode(
        self,
        ids_BT: Tensor,
        layout: Layout,
        memory: Memory | None = None,
        state: State | None = None,
        aux: Aux = None,
    ) -> Tensor:
        """Target ids to hidden states ``[B, T, C]``: over a ``memory``, or a ``state`` made from one."""
        source = {"source": memory.hidden, "source_layout": memory.layout} if memory and not state else {}
        return self.run(
            self.decoder, self.target_embedding, ids_BT, layout, None, state=state, aux=aux, **source
        )

    def forward(self, source_ids: Tensor, source: Layout, target_ids: Tensor, target: Layout) -> Tensor:
        """Logits ``[B, T, V]`` for the token after each target token."""
        hidden = self.decode(target_ids, target, self.encode(source_ids, source))
        logits: Tensor = self.output(hidden)
        return logits


class DecoderOnly(Transformer):
    """A causal language model (Radford et al. 2018)."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        self.embedding = self.table()
        self.decoder = Stack(model, causal=True)
        self.output: Any = part_of(model.output)(model.output, model, self.embedding)

    def start(self, back: int = 0) -> State:
        """An empty state, which will be truncated by ``back`` tokens at most."""
        return self.decoder.start(back=back)

    def decode(
        self, ids_BT: Tensor, layout: Layout, state: State | None = None, types: Types = None, aux: Aux = None
    ) -> Tensor:
        """Ids to hidden states ``[B, T, C]``."""
        return self.run(self.decoder, self.embedding, ids_BT, layout, types, state=state, aux=aux)

    def forward(self, ids_BT: Tensor, layout: Layout, types: Types = None) -> Tensor:
        """Logits ``[B, T, V]`` for the token after each token, or what else ``model.output`` says."""
        said: Tensor = self.output(self.decode(ids_BT, layout, types=types), layout)
        return said


class EncoderOnly(Transformer):
    """A bidirectional model (Devlin et al. 2019)."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        self.embedding = self.table()
        self.encoder = Stack(model, causal=False)
        self.output: Any = part_of(model.output)(model.output, model, self.embedding)

    def encode(self, ids_BT: Tensor, layout: Layout, types: Types = None, aux: Aux = None) -> Tensor:
        """Ids to hidden states ``[B, T, C]``."""
        return self.run(self.encoder, self.embedding, ids_BT, layout, types, aux=aux)

    def forward(self, ids_BT: Tensor, layout: Layout, types: Types = None) -> Tensor:
        """Logits ``[B, T, V]`` for each token's own place, or what else ``model.output`` says."""
        said: Tensor = self.output(self.encode(ids_BT, layout, types), layout)
        return said


Model = EncoderDecoder | DecoderOnly | EncoderOnly


def build(model: ModelConfig, seed: int | None = None) -> Model:
    """A fresh model, its weights drawn with ``seed`` (the global generator's state when None)."""
    forms: dict[str, type[EncoderDecoder] | type[DecoderOnly] | type[EncoderOnly]]
    forms = {"encoder_decoder": EncoderDecoder, "decoder": DecoderOnly, "encoder": EncoderOnly}
    parameters = cost(model).parameters
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        try:
            if parameters > MOST:
                raise MemoryError("more memory than there is")
            return forms[model.form](model)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            what, mend = f"a model of {parameters:,} parameters does not fit in memory", "make it smaller"
            raise UserError(what, "model", f"{mend}: `triptych inspect` counts them, part by part") from None


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """All that a model is, by name: parameters and buffers, tied ones once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def cost(model: ModelConfig, batch: int = 1, length: int = 1, source: int = 1) -> Cost:
    """Parameters, and operations of the matrix products of one forward pass without a cache, from formulas
    alone: ``batch`` rows of ``length`` tokens (and ``source`` source tokens)."""
    return sum(costs(model, batch, length, source).values(), Cost())


def costs(model: ModelConfig, batch: int = 1, length: int = 1, source: int = 1) -> dict[str, Cost]:
    """``cost`` by part: embedding; encoder and decoder, each by its own parts; output."""
    embedding = part_of(model.embedding)
    both = model.form == "encoder_decoder"
    shapes = {
        "encoder": Shape(batch, source, source) if both else Shape(batch, length, length),
        "decoder": Shape(batch, length, length, source, batch) if both else Shape(batch, length, length),
    }
    out: dict[str, Cost] = {"embedding": embedding.cost(model.embedding, model, batch * length)}
    if both:
        other: Cost = embedding.cost(model.embedding, model, batch * source)
        out["embedding"] += replace(other, parameters=0) if model.shared else other
    for side in model.stacks:
        for name, one in stack_costs(model, side == "decoder", shapes[side]).items():
            out[f"{side} {name}"] = one
    out["embedding"] += Cost(model.types * model.dim)
    return {**out, "output": part_of(model.output).cost(model.output, model, batch, length)}


def cache_bytes(
    model: ModelConfig,
    rows: int,
    chunks: Sequence[int],
    sources: int,
    source: int,
    width: int,
    back: int = 0,
) -> int:
    """Bytes of a decoder's state after passes of ``chunks`` tokens: ``width`` bytes a value; what is kept of
    ``sources`` sources of ``source`` tokens is held once, not once a beam."""
    return width * sum(kept_by_kind(model, rows, chunks, sources, source, back).values())
