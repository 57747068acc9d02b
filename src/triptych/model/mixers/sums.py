"""Sums that run along a sequence, and decay: what attention without a softmax comes to.

    y(t) = Σ γ^(p(t) - p(i)) (q(t)·k(i)) v(i) = q(t) S(t)      over i up to t in t's own sequence
    S(t) = γ^(p(t) - p(t-1)) S(t-1) + k(t) v(t)ᵀ

    slots   ▓▓▓▓▓▓ ░░░░░░ ▓▓▓▓     in chunks: products of queries and keys inside of one,
              └─ S ──┴─ S ──┘      and the sum S of all before it

Powers of γ are of differences of positions and at most 1: nothing overflows, and nothing is divided by.

B rows, H heads, T tokens, S slots, Q tokens of a chunk, F width of queries and keys, D of values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from triptych.layout import Layout
from triptych.model.mixer import Mixer
from triptych.model.mixers.runs import begins
from triptych.model.registry import Context, Cost, Shape
from triptych.model.visible import Visible

CHUNK = 64  # about a head's width: then there is as much work inside of chunks as between them


class Chunk(NamedTuple):
    """Powers of γ, 0 between tokens of different sequences. B is 1 where rows are alike, H where heads are.

    Attributes:
        within: ``[B, H, Q, Q]`` of each token, for each later one.
        before, after: ``[B, H, Q, 1]`` of the sum before, for each token; of each token, in the sum after.
        keep: ``[B, H, 1, 1]`` of the sum before, in the sum after.
    """

    within: Tensor
    before: Tensor
    after: Tensor
    keep: Tensor


def numbers(keys: Layout) -> Tensor:
    """``[B, S]``: which sequence of its row a token belongs to, counted from 1; -1 is padding."""
    return begins(keys).cumsum(1).masked_fill(~keys.real, -1)


def chunks(keys: Layout, T: int, log_decay: Tensor) -> list[Chunk]:
    """Of the last T slots, for heads with these ln γ."""
    # The last token before a slot says whose the sum is there, and as of when.
    real, number = keys.real, numbers(keys)
    slot = torch.arange(keys.length, device=real.device).expand_as(real)
    last = F.pad(slot.masked_fill(~real, -1).cummax(1).values, (1, 0), value=-1)
    sums = [x.gather(1, last.clamp(min=0)).masked_fill(last < 0, 0) for x in (number, keys.position)]

    def power(number: Tensor, position: Tensor, of_number: Tensor, of_position: Tensor) -> Tensor:
        passed = (position - of_position).clamp(min=0)[:, None] * log_decay[:, None, None]
        return passed.exp().masked_fill((number != of_number)[:, None], 0)

    out = []
    for start in range(keys.length - T, keys.length, CHUNK):
        stop = min(start + CHUNK, keys.length)
        each = [x[:, start:stop, None] for x in (number, keys.position)]
        first, then = ([x[:, s, None, None] for x in sums] for s in (start, stop))
        within = power(*each, *(x.transpose(1, 2) for x in each)).tril()
        out.append(Chunk(within, power(*each, *first), power(*then, *each), power(*then, *first)))
    return out


class Summing(Mixer):
    """A mixer of such sums."""

    @classmethod
    def sees(cls, settings: Any, visible: Visible) -> int | None:
        """The token before: its position, and whether it belongs to the same sequence."""
        return 1

    @staticmethod
    def sums_cost(shape: Shape, heads: int, F: int, D: int) -> Cost:
        """Products of ``sums``: the first chunk of all reads no sum, and only a state that of the last."""
        T = shape.length
        last = T - (T - 1) // CHUNK * CHUNK
        read = T if shape.past else T - min(T, CHUNK)
        made = T if shape.past is not None else T - last
        pairs, through = (T - last) * CHUNK + last * last, read + made
        return Cost(0, 2 * shape.batch * heads * (pairs * (F + D) + through * F * D))

    def sums(self, q: Tensor, k: Tensor, v: Tensor, context: Context, decay: tuple[float, ...]) -> Tensor:
        """``[B, H, T, D]``; the sum after it goes to the state. ``decay``: ln γ of each head, or of all."""
        held, T, out = context.held, context.layout.length, []
        keys = context.layout if held is None else held.keys
        keys = keys.first() if keys.alike else keys
        cut = keys.memo(("chunks", T, CHUNK, decay, q.dtype), lambda: chunks(keys, T, q.new_tensor(decay)))
        carry = held.carry[0] if held is not None and held.carry is not None else None
        parts = zip(cut, *(torch.split(x, CHUNK, 2) for x in (q, k, v)), strict=True)
        for i, (chunk, q, k, v) in enumerate(parts):
            y = (q @ k.transpose(-1, -2) * chunk.within) @ v
            out.append(y if carry is None else y + q @ carry * chunk.before)
            if held is not None or i + 1 < len(cut):
                new = (k * chunk.after).transpose(-1, -2) @ v
                carry = new if carry is None else carry * chunk.keep + new
        if held is not None and carry is not None:
            held.carry_on(carry)
        return torch.cat(out, 2)


def full(*tensors: Tensor) -> list[Tensor]:
    """In fp32 at least: sums over long sequences need it."""
    return [x.float() if x.dtype in (torch.bfloat16, torch.float16) else x for x in tensors]
