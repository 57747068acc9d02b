"""Recurrent decoders that read a source by attention: those from which the Transformer came.

    bahdanau:  s(t-1) ─ attend ─ c ─┐            luong:  x(t) ─ cell → h ─┬─ attend ─ c ─┐
               x(t) ────────────────┴─ cell → s(t)                        └──────────────┴─ tanh → h~(t)
A sequence begins with a state of zeros. In encoders there is nothing to read: they are bidirectional.

R rows, N sources (R = N · beams), T tokens, S source tokens, C model width, H width of the state, A width in
which state and source are compared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.model.attend import Shaping, attend, reference
from triptych.model.attention import Watched, folded
from triptych.model.mixers.recurrent import Carry, Recurrent, width
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, linear_cost
from triptych.model.visible import Mask, SameSegment, Visible


class SourceAttention(Watched):
    """One head over the hidden states of a source; queries and keys meet by their product."""

    shaping = Shaping()

    def mask(self, context: Context, sources: int) -> Mask:
        """What the tokens of a pass may see of the source: that of their own segment."""
        assert context.source_layout is not None
        return SameSegment().lower(folded(context.layout, sources), context.source_layout)

    def masks(self, context: Context, sources: int) -> list[Mask]:
        """The same, one for each of T steps."""
        seen, T = self.mask(context, sources).seen, context.layout.length
        if seen is None:
            return [Mask(None)] * T
        return [Mask(x[:, None]) for x in seen.view(len(seen), -1, T, seen.shape[-1]).unbind(2)]

    def forward(self, q_RTA: Tensor, kept: Carry, mask: Mask) -> Tensor:
        """What is read, ``[R, T, C]``. The rows of a source are so many queries to the same keys."""
        k = kept[0][:, None]
        v = kept[-1][:, None].to(k.dtype)
        q = q_RTA.reshape(len(k), 1, -1, q_RTA.shape[-1]).to(k.dtype)
        if self.watch is None:
            y = attend(q, k, v, mask, 1.0, shaping=self.shaping)
        else:
            y, weights = reference(q, k, v, mask, 1.0, shaping=self.shaping)
            self.watch.append(weights)
        return y.reshape(*q_RTA.shape[:2], -1)

    def join(self, steps: int) -> None:
        """What was watched in the last calls, one a step, was one pass."""
        if self.watch is not None:
            self.watch[-steps:] = [torch.cat(self.watch[-steps:], 2)]


class AdditiveAttention(SourceAttention):
    """e = vᵀ tanh(W s + U h) (Bahdanau et al. 2015, section A.1.2); W s and U h are what is given."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.v = nn.Parameter(torch.randn(dim, 1) * dim**-0.5)
        self.shaping = Shaping(compare=self.compare)

    def compare(self, q_N1TA: Tensor, k_N1SA: Tensor) -> Tensor:
        """Scores ``[N, 1, T, S]``."""
        joined = (q_N1TA[:, :, :, None] + k_N1SA[:, :, None]).tanh()
        return (joined @ self.v.to(joined.dtype)).squeeze(-1)


class Attentive(Recurrent):
    """A recurrent network whose steps read a source, if its stack has one."""

    def __init__(self, settings: parts.RecurrentMixer, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        self.attention: SourceAttention | None = None
        self.key: nn.Linear | None = None

    def keys(self, source_NSC: Tensor) -> Carry:
        return (source_NSC,) if self.key is None else (self.key(source_NSC), source_NSC)

    def read(self, q_RTA: Tensor, kept: Carry, mask: Mask) -> Tensor:
        """Of the source, ``[R, T, C]``."""
        assert self.attention is not None
        c_RTC: Tensor = self.attention(q_RTA, kept, mask)
        return c_RTC

    def step(self, carry: Carry, gates_RE: Tensor, mask: Mask, kept: Carry) -> Carry:
        """The state after a token that may see what ``mask`` says of what is ``kept`` of the source."""
        raise NotImplementedError

    def run(self, x_BTC: Tensor, context: Context) -> Tensor:
        if self.attention is None:
            return super().run(x_BTC, context)
        kept = context.of_source(self.keys)
        masks = self.attention.masks(context, len(kept[0]))
        y_BTH = self.go(self.step, x_BTC, context, masks, [kept] * len(masks))
        self.attention.join(len(masks))
        return y_BTH


@carries_out(parts.BahdanauMixer)
class Bahdanau(Attentive):
    """s(t) = GRU([x(t); c(t)], s(t-1)), c(t) read by s(t-1) (Bahdanau et al. 2015, section A.2)."""

    def __init__(self, settings: parts.BahdanauMixer, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        if place.source:
            H, A = width(settings, model), _align(settings, model)
            self.query = nn.Linear(H, A, bias=False)
            self.key = nn.Linear(model.dim, A, bias=False)
            self.told = nn.Linear(model.dim, 3 * H, bias=False)
            self.attention = AdditiveAttention(A)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        """The cell, and a meeting of every token with every token of its source."""
        total = super().cost(settings, model, place, seen, shape)
        if not place.source:
            return total
        H, A, C = width(settings, model), _align(settings, model), model.dim
        total += linear_cost(shape.tokens, H, A, False) + linear_cost(shape.tokens, C, 3 * H, False)
        total += linear_cost(shape.sources * shape.source, C, A, False)
        first = 2 * shape.batch * H * A  # of zeros, as in the cell
        return total + Cost(A, 2 * shape.tokens * shape.source * (A + C), spared=first)

    @classmethod
    def kept_of_source(cls, settings: Any, model: ModelConfig, place: Place) -> int:
        """U h and h."""
        return _align(settings, model) + model.dim

    def step(self, carry: Carry, gates_RE: Tensor, mask: Mask, kept: Carry) -> Carry:
        c_R1C = self.read(self.query(carry[0])[:, None], kept, mask)
        return self.ahead.step(carry, gates_RE + self.told(c_R1C[:, 0]))


@carries_out(parts.LuongMixer)
class Luong(Attentive):
    """h~(t) = tanh(W [c(t); h(t)]), c(t) read by h(t) (Luong et al. 2015, section 3.1); with input feeding
    h~(t-1) stands beside x(t) (section 3.3), else all tokens read at once."""

    def __init__(self, settings: parts.LuongMixer, model: ModelConfig, place: Place) -> None:
        super().__init__(settings, model, place)
        self.feeds = place.source and settings.input_feeding
        if place.source:
            H, C = width(settings, model), model.dim
            self.out = nn.Linear(C + H, C)
            self.key = nn.Linear(C, H, bias=False) if settings.score == "general" else None
            self.attention = SourceAttention()
        if self.feeds:
            self.feed = nn.Linear(C, 4 * H, bias=False)
            self.widths = [C, *self.widths]

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        """The cell, a meeting of every token with every token of its source, and what joins both."""
        total, H, C = super().cost(settings, model, place, seen, shape), width(settings, model), model.dim
        if not place.source:
            return total
        total += linear_cost(shape.tokens, C, C, False)
        if settings.score == "general":
            total += linear_cost(shape.sources * shape.source, C, H, False)
        if settings.input_feeding:
            first = 2 * shape.batch * C * 4 * H  # of zeros, as in the cell
            total += linear_cost(shape.tokens, C, 4 * H, False) + Cost(spared=first)
        return total + Cost(0, 2 * shape.tokens * shape.source * (H + C))

    @classmethod
    def kept(cls, settings: Any, model: ModelConfig, place: Place) -> tuple[int, int]:
        """The state of each row, and h~ where it is fed."""
        fed = model.dim if place.source and settings.input_feeding else 0
        return 0, super().kept(settings, model, place)[1] + fed

    @classmethod
    def kept_of_source(cls, settings: Any, model: ModelConfig, place: Place) -> int:
        """h, and W h where there is such a map."""
        return model.dim + (width(settings, model) if settings.score == "general" else 0)

    def join(self, h_RTH: Tensor, mask: Mask, kept: Carry) -> Tensor:
        """h~, ``[R, T, C]``."""
        return self.out(torch.cat((self.read(h_RTH, kept, mask), h_RTH), -1)).tanh()  # type: ignore[no-any-return]

    def step(self, carry: Carry, gates_RE: Tensor, mask: Mask, kept: Carry) -> Carry:
        fed, *state = carry
        h, c = self.ahead.step(tuple(state), gates_RE + self.feed(fed))
        return self.join(h[:, None], mask, kept)[:, 0], h, c

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        if self.attention is None:
            return super().forward(x_BTC, context)
        if self.feeds:
            return self.run(x_BTC, context)
        kept, h_RTH = context.of_source(self.keys), Recurrent.run(self, x_BTC, context)
        return self.join(h_RTH, self.attention.mask(context, len(kept[0])), kept)


def _align(settings: parts.BahdanauMixer, model: ModelConfig) -> int:
    return settings.align or width(settings, model)
