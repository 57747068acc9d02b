"""The Transformer in its three forms, from one stack.

    EncoderDecoder   source ids ─ embed ─ Stack(all visible) ─┐
                     target ids ─ embed ─ Stack(causal) ──────┴─ cross ─ output → logits_BTV
    DecoderOnly      ids ─ embed ─ Stack(causal) ─ output → logits_BTV
    EncoderOnly      ids ─ embed ─ Stack(all visible) ─ output → logits_BTV

B rows, T tokens, S source tokens, C model width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model.dropout import Dropout
from triptych.model.registry import Cost
from triptych.model.stack import Stack
from triptych.model.state import State


@dataclass(frozen=True)
class Memory:
    """An encoded source: hidden states ``[B, S, C]`` and where their tokens are."""

    hidden: Tensor
    layout: Layout


class Transformer(nn.Module):
    """What the forms share: embeddings, output map, dropout on embeddings."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        if not model.vocab:
            raise UserError("the size of the vocabulary is not set", "model.vocab", "give model.vocab=…")
        self.config = model
        self.dropout = Dropout(model.dropout)
        self.scale = math.sqrt(model.dim) if model.scale_embedding else 1.0

    def table(self) -> nn.Embedding:
        """A fresh embedding table. Its scale makes √C · embedding of unit variance (section 3.4)."""
        table = nn.Embedding(self.config.vocab, self.config.dim)
        nn.init.normal_(table.weight, std=self.config.dim**-0.5 if self.config.scale_embedding else 0.02)
        return table

    def output_map(self, embedding: nn.Embedding) -> nn.Linear:
        """The map to the vocabulary; its weight is the embedding's when tied (Press and Wolf 2017)."""
        output = nn.Linear(self.config.dim, self.config.vocab, bias=False)
        if self.config.tie == "none":
            nn.init.normal_(output.weight, std=self.config.dim**-0.5)
        else:
            output.weight = embedding.weight
        return output

    def embed(self, embedding: nn.Embedding, ids_BT: Tensor) -> Tensor:
        """``[B, T]`` ids to ``[B, T, C]``, times √C (Vaswani et al. 2017, section 3.4)."""
        x: Tensor = embedding(ids_BT)
        return x * self.scale

    def run(
        self, stack: Stack, embedding: nn.Embedding, ids: Tensor, layout: Layout, **kwargs: object
    ) -> Tensor:
        """Embed and run a stack. Positions join before dropout (section 5.4)."""
        x = self.embed(embedding, ids)
        x = stack.position.embed(x, layout)
        y: Tensor = stack(self.dropout(x), layout, **kwargs)
        return y


class EncoderDecoder(Transformer):
    """Vaswani et al. 2017, figure 1."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        self.source_embedding = self.table()
        self.target_embedding = self.source_embedding if model.tie == "all" else self.table()
        self.encoder = Stack(model, model.encoder_depth, causal=False, cross=False)
        self.decoder = Stack(model, model.decoder_depth, causal=True, cross=True)
        self.output = self.output_map(self.target_embedding)

    def encode(self, ids_BS: Tensor, layout: Layout) -> Memory:
        """Source ids to hidden states."""
        return Memory(self.run(self.encoder, self.source_embedding, ids_BS, layout), layout)

    def start(self, memory: Memory, beams: int = 1) -> State:
        """An empty state over a source, with ``beams`` rows for each of its rows. The source's keys and
        values are computed here, once."""
        state = self.decoder.start(memory.layout, beams)
        for held, block in zip(state.layers, self.decoder.blocks, strict=True):
            k, v = block.cross.keys(memory.hidden)  # type: ignore[union-attr, operator]
            held.cross = (k.contiguous(), v.contiguous())
        return state

    def decode(
        self, ids_BT: Tensor, layout: Layout, memory: Memory | None = None, state: State | None = None
    ) -> Tensor:
        """Target ids to hidden states ``[B, T, C]``: over a ``memory``, or a ``state`` made from one."""
        source = {"source": memory.hidden, "source_layout": memory.layout} if memory and not state else {}
        return self.run(self.decoder, self.target_embedding, ids_BT, layout, state=state, **source)

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
        self.decoder = Stack(model, model.decoder_depth, causal=True, cross=False)
        self.output = self.output_map(self.embedding)

    def start(self) -> State:
        """An empty state."""
        return self.decoder.start()

    def decode(self, ids_BT: Tensor, layout: Layout, state: State | None = None) -> Tensor:
        """Ids to hidden states ``[B, T, C]``."""
        return self.run(self.decoder, self.embedding, ids_BT, layout, state=state)

    def forward(self, ids_BT: Tensor, layout: Layout) -> Tensor:
        """Logits ``[B, T, V]`` for the token after each token."""
        logits: Tensor = self.output(self.decode(ids_BT, layout))
        return logits


class EncoderOnly(Transformer):
    """A bidirectional model (Devlin et al. 2019)."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model)
        self.embedding = self.table()
        self.encoder = Stack(model, model.encoder_depth, causal=False, cross=False)
        self.output = self.output_map(self.embedding)

    def encode(self, ids_BT: Tensor, layout: Layout) -> Tensor:
        """Ids to hidden states ``[B, T, C]``."""
        return self.run(self.encoder, self.embedding, ids_BT, layout)

    def forward(self, ids_BT: Tensor, layout: Layout) -> Tensor:
        """Logits ``[B, T, V]`` for each token's own place."""
        logits: Tensor = self.output(self.encode(ids_BT, layout))
        return logits


Model = EncoderDecoder | DecoderOnly | EncoderOnly


def build(model: ModelConfig, seed: int | None = None) -> Model:
    """A fresh model, its weights drawn with ``seed`` (the global generator's state when None)."""
    forms: dict[str, type[EncoderDecoder] | type[DecoderOnly] | type[EncoderOnly]]
    forms = {"encoder_decoder": EncoderDecoder, "decoder": DecoderOnly, "encoder": EncoderOnly}
    if seed is None:
        return forms[model.form](model)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return forms[model.form](model)


def cost(model: ModelConfig, batch: int = 1, length: int = 1, source: int = 1) -> Cost:
    """Parameters, and operations of the matrix products of one forward pass without a cache, from formulas
    alone: ``batch`` rows of ``length`` tokens (and ``source`` source tokens)."""
    table = Cost(model.vocab * model.dim)
    output = Cost(model.vocab * model.dim if model.tie == "none" else 0, 0)
    output += Cost(0, 2 * batch * length * model.dim * model.vocab)
    if model.form == "encoder_decoder":
        encoder = Stack.cost(model, model.encoder_depth, batch, source)
        decoder = Stack.cost(model, model.decoder_depth, batch, length, source)
        return table * (1 if model.tie == "all" else 2) + output + encoder + decoder
    depth = model.decoder_depth or model.encoder_depth
    return table + output + Stack.cost(model, depth, batch, length)


def cache_bytes(model: ModelConfig, rows: int, length: int, sources: int, source: int, width: int) -> int:
    """Bytes of a decoder's state after ``length`` tokens: ``width`` bytes a value; the keys and values of
    ``sources`` sources of ``source`` tokens are held once, not once a beam."""
    token = 2 * model.kv_heads * model.head_dim * width
    own = model.decoder_depth * rows * length * token
    cross = sources * source * model.decoder_depth * token if model.form == "encoder_decoder" else 0
    return own + cross
