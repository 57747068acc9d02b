"""Where sequences begin along the slots of a row: what whatever goes token by token must know.

    slots    · a0 a1  ·  ·  a2 b0 b1  ·     a, b: two sequences; ·: padding, which is stepped over
    begins     ✓                ✓           forwards
    begins                  ✓      ✓        backwards, read from the right

B rows, S slots, T tokens of the pass: the last of the slots.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from triptych.layout import Layout
from triptych.model.registry import Context


class Pace(NamedTuple):
    """How to walk over T tokens.

    Attributes:
        begins: for each step the rows in which a sequence begins, ``bool[B, 1]``; None where there are none.
        real: for each step the rows that have a token; None where all have.
    """

    begins: list[Tensor | None]
    real: list[Tensor | None]


def pace(context: Context, backwards: bool = False) -> Pace:
    """How to walk over the tokens of a pass, which come after those in a state's slots."""
    keys = context.layout if context.held is None else context.held.keys
    return keys.memo(("pace", backwards), lambda: _pace(keys, context.layout.length, backwards))


def begins(layout: Layout) -> Tensor:
    """``bool[B, S]``: first tokens of their sequences: at position 0, or after a token of another."""
    real = layout.real
    return changes(layout.segment, real) | (real & (layout.position == 0))


def changes(number_BS: Tensor, real_BS: Tensor) -> Tensor:
    """``bool[B, S]``: tokens whose number is not that of the token before them; padding does not count."""
    slot = torch.arange(real_BS.shape[1], device=real_BS.device).expand_as(real_BS)
    last = slot.masked_fill(~real_BS, -1).cummax(1).values
    before = F.pad(last, (1, -1), value=-1)
    same = (number_BS.gather(1, before.clamp(min=0)) == number_BS) & (before >= 0)
    return real_BS & ~same


def _pace(keys: Layout, length: int, backwards: bool) -> Pace:
    if keys.plain:
        return Pace([None] * length, [None] * length)
    first, real = begins(keys), keys.real
    if backwards:
        first, real = changes(first.cumsum(1).flip(1), real.flip(1)), real.flip(1)
    return Pace(_columns(first[:, -length:]), _columns(real[:, -length:], unless=True))


def _columns(some_BT: Tensor, unless: bool = False) -> list[Tensor | None]:
    needed = (some_BT != unless).any(0).tolist()
    return [x if need else None for x, need in zip(some_BT[:, :, None].unbind(1), needed, strict=True)]
