"""From ids to vectors, and back to the width of these; from patches of images to vectors.

V vocabulary, C model width, E width of a row of the table (C unless factorised), K values of a patch.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, Part, parts
from triptych.errors import UserError
from triptych.model.registry import Cost, carries_out, linear_cost


class Embedding(nn.Module):
    """An embedding; of ids, also the way back that an output map on its weights needs.

    Attributes:
        weight: ``[V, E]``, a row for each id.
    """

    weight: nn.Parameter

    def __init__(self, settings: Part, model: ModelConfig) -> None:
        super().__init__()

    @classmethod
    def cost(cls, settings: Part, model: ModelConfig, tokens: int) -> Cost:
        """Of embedding so many tokens."""
        raise NotImplementedError

    @classmethod
    def output_cost(cls, settings: Part, model: ModelConfig, tokens: int) -> Cost:
        """Of the logits of so many tokens; its parameters are those of an output map of its own."""
        raise NotImplementedError

    def forward(self, ids: Tensor) -> Tensor:
        """``[…]`` ids, or ``[…, K]`` patches → ``[…, C]``."""
        raise NotImplementedError

    def back(self, tied: bool) -> nn.Module:
        """From hidden states to what rows are multiplied with, ``[…, C]`` → ``[…, E]``: the embedding's own
        way back, or one that is not tied to it."""
        raise NotImplementedError


def spread(model: ModelConfig, wide: float) -> float:
    """Standard deviation of rows that makes √C · embedding, or the embedding itself where the tied output
    divides by √C, of unit variance; ``wide`` is C where logits are to be that too."""
    if model.scale_embedding:
        return 1 / math.sqrt(wide)
    return math.sqrt(model.dim / wide) if model.tied and getattr(model.output, "scale", False) else 0.02


@carries_out(parts.TableEmbedding)
class Table(Embedding):
    """A row of C values for each id (Vaswani et al. 2017, section 3.4)."""

    def __init__(self, settings: parts.TableEmbedding, model: ModelConfig) -> None:
        super().__init__(settings, model)
        self.weight = nn.Parameter(torch.empty(model.vocab, model.dim))
        nn.init.normal_(self.weight, std=spread(model, model.dim))

    @classmethod
    def cost(cls, settings: Part, model: ModelConfig, tokens: int) -> Cost:
        """The table; looking up is no product."""
        return Cost(model.vocab * model.dim)

    @classmethod
    def output_cost(cls, settings: Part, model: ModelConfig, tokens: int) -> Cost:
        """One product with the table."""
        return Cost(model.vocab * model.dim, 2 * tokens * model.vocab * model.dim)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)

    def back(self, tied: bool) -> nn.Module:
        return nn.Identity()


class Back(nn.Module):
    """A linear map the other way: ``h · W`` where the map is ``x · Wᵀ``; the same weight."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = linear.weight

    def forward(self, h: Tensor) -> Tensor:
        """``[…, C]`` → ``[…, E]``."""
        return F.linear(h, self.weight.t())


@carries_out(parts.FactorisedEmbedding)
class Factorised(Embedding):
    """A row of E values for each id, and a map from E to C (Lan et al. 2019, section 3.1). Logits go back the
    same way when tied, else through a map and rows of their own. Its scale is a table's; tied, it is less:
    what is embedded lies in few dimensions, and its products have 1 + C / E times the variance of others."""

    def __init__(self, settings: parts.FactorisedEmbedding, model: ModelConfig) -> None:
        super().__init__(settings, model)
        E, C = settings.dim, model.dim
        self.weight = nn.Parameter(torch.empty(model.vocab, E))
        self.expand = nn.Linear(E, C, bias=False)
        wide = C * (1 + C / E) if model.tied else C
        nn.init.normal_(self.weight, std=spread(model, wide))
        nn.init.normal_(self.expand.weight, std=E**-0.5)

    @classmethod
    def cost(cls, settings: Part, model: ModelConfig, tokens: int) -> Cost:
        """The rows, and the map for each token."""
        E = model.embedding_dim
        return Cost(model.vocab * E) + linear_cost(tokens, E, model.dim, bias=False)

    @classmethod
    def output_cost(cls, settings: Part, model: ModelConfig, tokens: int) -> Cost:
        """The map back, and a product with the rows."""
        E = model.embedding_dim
        return linear_cost(tokens, model.dim, E, bias=False) + linear_cost(tokens, E, model.vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        y: Tensor = self.expand(F.embedding(ids, self.weight))
        return y

    def back(self, tied: bool) -> nn.Module:
        if tied:
            return Back(self.expand)
        reduce = nn.Linear(self.expand.out_features, self.expand.in_features, bias=False)
        nn.init.normal_(reduce.weight, std=self.expand.out_features**-0.5)
        return reduce


@carries_out(parts.PatchEmbedding)
class Patches(Embedding):
    """One linear map for all patches; a class token has no pixels and is a vector of its own (Dosovitskiy et
    al. 2021, section 3.1). A patch's K values are its pixels, channel by channel and row by row, and last,
    where there is a class token, 1 in that and 0 in all others."""

    def __init__(self, settings: parts.PatchEmbedding, model: ModelConfig) -> None:
        super().__init__(settings, model)
        if not settings.size:
            raise UserError("nothing says how large a patch is", "model.embedding.size", "give its side")
        self.map = nn.Linear(settings.channels * settings.size**2, model.dim)
        nn.init.xavier_uniform_(self.map.weight)
        nn.init.zeros_(self.map.bias)
        token = torch.randn(model.dim) * 0.02
        self.token = nn.Parameter(token) if settings.class_token else None

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, tokens: int) -> Cost:
        """The map for each token, and the class token."""
        pixels = settings.channels * settings.size**2
        own = Cost(model.dim * settings.class_token, spared=2 * tokens * pixels * model.dim)
        return own + linear_cost(tokens, pixels, model.dim, bias=True)

    def forward(self, patches: Tensor) -> Tensor:
        patches = patches.to(self.map.weight.dtype)
        if self.token is None:
            return self.map(patches)  # type: ignore[no-any-return]
        return torch.where(patches[..., -1:] > 0, self.token, self.map(patches[..., :-1]))
