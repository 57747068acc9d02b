"""Attention near by, and to what matches best among all that is older.

    s s s s │ m m m m m m m m m m │ n n n n ●        n  the window: all of it is read
      ↑     │     ↑     ↑         │          query   m  memory, and s, a store of other texts, if there is
                                                        one: each head reads its ``top`` best matches
    y = (1 - g) · window + g · memory,  g = sigmoid(gate), one a head

Shapes: B rows, T tokens, S keys, H query heads, G key/value heads, D head width, C model width, N stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model.attention import Attention, SelfAttention
from triptych.model.mixer import Mixer
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, part_of
from triptych.model.visible import Mask, Visible, Window

NOTHING = torch.empty(0, 0)


@dataclass(frozen=True)
class Beyond(Visible):
    """Keys that a window of ``width`` does not reach any more."""

    width: int

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        return query.position[:, :, None] - key.position[:, None, :] >= self.width


@dataclass(frozen=True, eq=False)
class Chosen(Visible):
    """What has been chosen, ``bool[B, H, T, S]``: head by head."""

    seen: Tensor

    def lower(self, query: Layout, key: Layout) -> Mask:
        return Mask(self.seen)


@carries_out(parts.RetrievalMixer)
class Retrieval(Attention, Mixer):
    """Memorizing Transformers (Wu et al. 2022, section 3.1) with the sequence's own older tokens as memory,
    and what ``storing`` has put aside beside them.

    Matches are exact: all scores are computed. Keys are compared as kept, so rotary positions count; what
    positions add to scores counts in the window alone. Gradients reach what is retrieved in the same pass.
    """

    fills: Store | None = None
    kept, sees = SelfAttention.kept, SelfAttention.sees

    def __init__(self, settings: parts.RetrievalMixer, model: ModelConfig, place: Place) -> None:
        super().__init__(model, cross=False)
        self.settings, self.layer, self.store = settings, place.layer, Store()
        self.gate = nn.Parameter(torch.zeros(model.heads.count))
        self.join, self.out = self.out, nn.Identity()  # type: ignore[assignment]

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        window = SelfAttention.cost(settings, model, place, seen & Window(settings.width), shape)
        heads, score, H = part_of(model.heads), model.attention.score, model.heads.count
        pairs, dim = shape.tokens * shape.keys, heads.dots(model, False)
        match = part_of(score).cost(score, model, dim, pairs).flops  # to choose, and once more to weigh
        if isinstance(score, parts.Additive):
            match += 2 * H * (shape.tokens + shape.batch * shape.keys) * dim * dim
        far = 2 * match + 2 * pairs * H * model.head_dim
        return window + Cost(H, far, meeting=far, spared=2 * match)  # choosing has no gradient

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        layout, width = context.layout, self.settings.width
        q, new = self.heads.project(x_BTC, context.position, layout)
        kept, keys = context.remember(*new)
        k, v = self.heads.open(tuple(kept))
        near = self.meet(q, k, v, context.visible & Window(width), layout, keys, context.position)
        older = (context.visible & Beyond(width)).lower(layout, keys)
        if self.fills is not None:
            self.fills.add(*(x.detach().transpose(0, 1)[:, layout.real] for x in self.heads.open(new)))
        if len(self.store):
            k, v, older = self.joined(q, k, v, older)
        far = self.meet(q, k, v, Chosen(self.best(q, k, older)), layout, keys, None)
        gate_H1 = self.gate.sigmoid().to(near.dtype)[:, None]
        near, far = (x.view(*x.shape[:2], q.shape[1], -1) for x in (near, far))
        y: Tensor = self.join(near.lerp(far, gate_H1).flatten(2))
        return y

    @torch.no_grad()
    def best(self, q_BHTD: Tensor, k_BGSD: Tensor, mask: Mask) -> Tensor:
        """``bool[B, H, T, S]``: the ``top`` highest scores of what may be seen."""
        assert mask.seen is not None
        score = self.score.compare(q_BHTD, k_BGSD.repeat_interleave(q_BHTD.shape[1] // k_BGSD.shape[1], 1))
        top = min(self.settings.top, score.shape[-1])
        places = score.masked_fill(~mask.seen, float("-inf")).topk(top, -1).indices
        return torch.zeros_like(score, dtype=torch.bool).scatter_(-1, places, True) & mask.seen

    def joined(self, q: Tensor, k: Tensor, v: Tensor, older: Mask) -> tuple[Tensor, Tensor, Mask]:
        """Keys and values and, behind them, those of the store that are among the ``top`` of any query."""
        assert older.seen is not None
        keys_GND, values_GND = self.store.keys.to(q), self.store.values.to(v)
        asked, known = self.score.fold(q.detach(), keys_GND[None])
        asked_GQD = asked.transpose(0, 1).reshape(len(keys_GND), -1, q.shape[-1])
        some = torch.unique(Store(known[0], values_GND).search(asked_GQD, self.settings.top)[1])
        k, v = (
            torch.cat((own, stored[:, some].expand(len(q), -1, -1, -1)), 2)
            for own, stored in ((k, keys_GND), (v, values_GND))
        )
        return k, v, Mask(F.pad(older.seen, (0, len(some)), value=True))

    def scaled(self) -> list[Tensor]:
        return [*self.heads.scaled(), self.join.weight]


class Store:
    """Keys and their values outside of any model, and the exact search for the nearest by inner product: one
    set ``[N, D]``, or G of them side by side, ``[G, N, D]``, each with queries of its own."""

    def __init__(self, keys_ND: Tensor = NOTHING, values_NE: Tensor = NOTHING) -> None:
        self.keys, self.values = keys_ND, values_NE

    def __len__(self) -> int:
        return self.keys.shape[-2]

    def add(self, keys_ND: Tensor, values_NE: Tensor) -> None:
        """Store keys and a value for each."""
        assert keys_ND.shape[:-1] == values_NE.shape[:-1]
        if len(self):
            keys_ND = torch.cat((self.keys, keys_ND), -2)
            values_NE = torch.cat((self.values, values_NE), -2)
        self.keys, self.values = keys_ND, values_NE

    def search(self, queries_QD: Tensor, top: int, block: int = 4096) -> tuple[Tensor, Tensor]:
        """The ``top`` highest products of each query, highest first, ``[Q, top]``, and the places of their
        keys in the order of adding; fewer when less is stored. ``block`` keys at a time are compared."""
        best = queries_QD.new_empty(*queries_QD.shape[:-1], 0)
        places = torch.empty(best.shape, dtype=torch.int64, device=best.device)
        for start in range(0, len(self), block):
            new = queries_QD @ self.keys[..., start : start + block, :].to(best).transpose(-1, -2)
            number = torch.arange(start, start + new.shape[-1], device=new.device).expand_as(new)
            joined = torch.cat((best, new), -1)
            best, which = joined.topk(min(top, joined.shape[-1]), -1)
            places = torch.cat((places, number), -1).gather(-1, which)
        return best, places


@contextmanager
def storing(model: nn.Module) -> Iterator[None]:
    """What retrieval layers are given in the passes within is stored, and read by all passes after: keys and
    values of other texts, as in a datastore (Khandelwal et al. 2020, section 2). It takes the place of what
    was stored before."""
    layers = [m for m in model.modules() if isinstance(m, Retrieval)]
    if not all(layer.score.folds for layer in layers):
        what = "a store is searched by products, which this score is not"
        raise UserError(what, "model.attention.score", "use scaled_dot, dot or cosine")
    for layer in layers:
        layer.fills = Store()
    try:
        yield
        for layer in layers:
            layer.store = layer.fills or Store()
    finally:
        for layer in layers:
            layer.fills = None
