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
        self.reduce = embedding.back(tied=model.tie != "none")
        if model.tie != "none":
            self.weight = embedding.weight
        else:
            nn.init.normal_(self.weight, std=E**-0.5)
        if settings.bias:
            nn.init.zeros_(self.bias)
        self.transform = Transform(settings.transform, model) if settings.transform != "none" else None
        self.scale = model.dim**-0.5 if settings.scale else 1.0
        if settings.next_sentence:
            self.pair = Pooler(model, 2, "first", pooler=True, p=0.0)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, batch: int, length: int) -> Cost:
        """Of the logits; ``pair`` has no part in them, and its parameters alone are counted."""
        total: Cost = part_of(model.embedding).output_cost(model.embedding, model, batch * length)
        if model.tie != "none":
            total += Cost(-total.parameters)
        if settings.transform != "none":
            total += linear_cost(batch * length, model.dim, model.dim, bias=True) + norm_cost(model)
        pair = Cost(pooler_cost(model, 0, 2, pooler=True).parameters * settings.next_sentence)
        return total + Cost(settings.bias * model.vocab) + pair

    def inner(self, hidden: Tensor) -> Tensor:
        """``[…, C]`` → ``[…, E]``: what the weights are multiplied with."""
        hidden = hidden if self.transform is None else self.transform(hidden)
        y: Tensor = self.reduce(hidden if self.scale == 1 else hidden * self.scale)
        return y

    def forward(self, hidden: Tensor, layout: Layout | None = None) -> Tensor:
        """``[…, C]`` → ``[…, V]``."""
        return super().forward(self.inner(hidden))


class Choice(nn.Module):
    """``map(dropout(h))``: K scores that begin near 0."""

    def __init__(self, model: ModelConfig, count: int, p: float) -> None:
        super().__init__()
        if not count:
            raise UserError("how many there are is not set", "model.output.count", "give model.output.count=…")
        self.dropout, self.map = Dropout(p), nn.Linear(model.dim, count)
        nn.init.normal_(self.map.weight, std=0.02)
        nn.init.zeros_(self.map.bias)

    def forward(self, hidden: Tensor, layout: Layout | None = None) -> Tensor:
        """``[…, C]`` → ``[…, K]``."""
        y: Tensor = self.map(self.dropout(hidden))
        return y


@carries_out(parts.TagsOutput)
class Tags(Choice):
    """Tags of tokens (Devlin et al. 2019, section 5.3)."""

    def __init__(self, settings: parts.TagsOutput, model: ModelConfig, embedding: Embedding) -> None:
        super().__init__(model, settings.count, model.dropout)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, batch: int, length: int) -> Cost:
        """A map of each token."""
        return linear_cost(batch * length, model.dim, settings.count, bias=True)


class Pooler(Choice):
    """A choice from pooled hidden states; with a pooler, from ``tanh(map(h))`` of them."""

    def __init__(self, model: ModelConfig, count: int, how: str, pooler: bool, p: float) -> None:
        super().__init__(model, count, p)
        self.how, self.pooler = how, nn.Linear(model.dim, model.dim) if pooler else None
        if self.pooler is not None:
            fresh(self.pooler)

    def forward(self, hidden: Tensor, layout: Layout | None = None) -> Tensor:
        """``[B, T, C]`` → ``[B, K]``."""
        assert layout is not None
        h_BC = pooled(self.how, hidden, layout)
        return super().forward(h_BC if self.pooler is None else self.pooler(h_BC).tanh())


def pooler_cost(model: ModelConfig, rows: int, count: int, pooler: bool) -> Cost:
    """Maps of each row."""
    first = linear_cost(rows, model.dim, model.dim, bias=True)
    return linear_cost(rows, model.dim, count, bias=True) + first * pooler


@carries_out(parts.ClassesOutput)
class Classes(Pooler):
    """Classes of rows (Devlin et al. 2019, section 4.1)."""

    def __init__(self, settings: parts.ClassesOutput, model: ModelConfig, embedding: Embedding) -> None:
        super().__init__(model, settings.count, model.pool, settings.pooler, model.dropout)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, batch: int, length: int) -> Cost:
        """Maps of each row."""
        return pooler_cost(model, batch, settings.count, settings.pooler)


@carries_out(parts.VectorOutput)
class Vector(nn.Module):
    """A row's pooled hidden states (Reimers and Gurevych 2019, section 3)."""

    def __init__(self, settings: parts.VectorOutput, model: ModelConfig, embedding: Embedding) -> None:
        super().__init__()
        self.how = model.pool

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, batch: int, length: int) -> Cost:
        """No parameters and no products."""
        return Cost()

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """``[B, T, C]`` → ``[B, C]``."""
        return pooled(self.how, hidden, layout)


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
