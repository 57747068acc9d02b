"""What hidden states become: scores of words, classes or tags; or one vector.

    vocabulary  h_BTC ─ (map ─ act ─ norm) ─ (÷ √C) ─ to E ─ W ─ (+ b) → logits_BTV   one for each token
    tags        h_BTC ─ dropout ─ map ───────────────────────────────→ logits_BTK
    classes     h_BTC ─ pool ─ (map ─ tanh) ─ dropout ─ map ─────────→ logits_BK     one for each row
    vector      h_BTC ─ pool ────────────────────────────────────────→ vector_BC

B rows, T tokens, C model width, E width of the embedding's rows, V words, K classes or tags.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, choices, parts
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model.dropout import Dropout
from triptych.model.embedding import Embedding
from triptych.model.feedforward import ACTS
from triptych.model.norm import build_norm, norm_cost
from triptych.model.registry import Cost, carries_out, linear_cost, part_of
from triptych.model.stack import fresh

# Whether a row's second text follows its first.
PAIR = parts.ClassesOutput(count=2, pool="first", pooler=True)


class Transform(nn.Module):
    """``norm(act(map(h)))``, which stands before the vocabulary in BERT."""

    def __init__(self, act: str, model: ModelConfig) -> None:
        super().__init__()
        self.map, self.norm = nn.Linear(model.dim, model.dim), build_norm(model)
        self.act = ACTS[choices(parts.FeedForward)[act]]  # type: ignore[index]
        fresh(self.map)

    def forward(self, hidden: Tensor) -> Tensor:
        y: Tensor = self.norm(self.act(self.map(hidden)))
        return y


@carries_out(parts.VocabularyOutput)
class Vocabulary(nn.Linear):
    """``weight · inner(h) + bias``; the weights are the embedding's when tied (Press and Wolf 2017)."""

    def __init__(self, settings: parts.VocabularyOutput, model: ModelConfig, embedding: Embedding) -> None:
        V, E = embedding.weight.shape
        super().__init__(E, V, bias=settings.bias)
        self.reduce, self.scale = embedding.back(model.tied), model.dim**-0.5 if settings.scale else 1.0
        if model.tied:
            self.weight = embedding.weight
        else:
            nn.init.normal_(self.weight, std=E**-0.5 / self.scale)
        if settings.bias:
            nn.init.zeros_(self.bias)
        self.transform = Transform(settings.transform, model) if settings.transform != "none" else None
        if settings.next_sentence:
            self.pair = Head(PAIR, model)

    @classmethod
    def cost(cls, settings: parts.VocabularyOutput, model: ModelConfig, batch: int, length: int) -> Cost:
        """Of the logits; ``pair`` has no part in them, and its parameters alone are counted."""
        total: Cost = part_of(model.embedding).output_cost(model.embedding, model, batch * length)
        total += Cost(settings.bias * model.vocab - model.tied * total.parameters)
        if settings.transform != "none":
            total += linear_cost(batch * length, model.dim, model.dim, bias=True) + norm_cost(model)
        return total + Head.cost(PAIR, model, 0, 0) * settings.next_sentence

    def inner(self, hidden: Tensor) -> Tensor:
        """``[…, C]`` → ``[…, E]``: what the weights are multiplied with."""
        hidden = hidden if self.transform is None else self.transform(hidden)
        y: Tensor = self.reduce(hidden if self.scale == 1 else hidden * self.scale)
        return y

    def forward(self, hidden: Tensor, layout: Layout | None = None) -> Tensor:
        """``[…, C]`` → ``[…, V]``."""
        return super().forward(self.inner(hidden))


@carries_out(parts.TagsOutput)
@carries_out(parts.ClassesOutput)
@carries_out(parts.VectorOutput)
class Head(nn.Module):
    """What is not of words: ``map(dropout(tanh(pooler(pool(h)))))``, each step where the settings have it. A
    map's scores begin near 0."""

    def __init__(self, settings: Any, model: ModelConfig, embedding: Embedding | None = None) -> None:
        super().__init__()
        count, auto = getattr(settings, "count", None), getattr(settings, "pool", None) == "auto"
        if count == 0:
            raise UserError("nothing says how many there are", "model.output.count", "give their number")
        self.how = model.pool if auto else getattr(settings, "pool", None)
        self.pooler = nn.Linear(model.dim, model.dim) if getattr(settings, "pooler", False) else None
        self.dropout, self.map = Dropout(model.dropout), nn.Linear(model.dim, count) if count else None
        fresh(self)
        if self.map is not None:
            nn.init.normal_(self.map.weight, std=0.02)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, batch: int, length: int) -> Cost:
        """Maps of each row, or of each token."""
        many, count = batch * (1 if settings.whole else length), getattr(settings, "count", 0)
        pooler: Cost = linear_cost(many, model.dim, model.dim, bias=True) * getattr(settings, "pooler", 0)
        return pooler + linear_cost(many, model.dim, count, bias=True)

    def forward(self, hidden: Tensor, layout: Layout | None = None) -> Tensor:
        """``[B, T, C]`` → ``[B, K]`` or ``[B, C]`` of rows, ``[…, C]`` → ``[…, K]`` of tokens."""
        if self.how is not None:
            assert layout is not None
            hidden = pooled(self.how, hidden, layout)
        hidden = hidden if self.pooler is None else self.pooler(hidden).tanh()
        return hidden if self.map is None else self.map(self.dropout(hidden))


def pooled(how: str, hidden_BTC: Tensor, layout: Layout) -> Tensor:
    """``[B, C]`` of the real tokens of each row, wherever its padding stands."""
    real_BT1 = layout.real[:, :, None]
    if how == "mean":
        return hidden_BTC.masked_fill(~real_BT1, 0).sum(1) / real_BT1.sum(1)
    if how == "max":
        return hidden_BTC.masked_fill(~real_BT1, -torch.inf).amax(1)
    rank = torch.arange(1, layout.length + 1, device=hidden_BTC.device)
    slot = ((rank if how == "last" else rank.flip(0)) * layout.real).argmax(1)
    return hidden_BTC[torch.arange(layout.batch, device=hidden_BTC.device), slot]
