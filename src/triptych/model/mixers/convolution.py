"""Gated convolution: each token is mixed from a few neighbours in its own sequence.

    causal, k = 3:   x(p-2) x(p-1) x(p) ─ taps ─ a, b ─ a · σ(b) → y(p)
    both, k = 3:     x(p-1) x(p) x(p+1) ─ taps ─ a, b ─ a · σ(b) → y(p)
Neighbours go by position, wherever their slots are; those that a sequence does not have are zeros.

B rows, T tokens, S slots, C model width, k taps.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.mixer import Mixer
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, linear_cost
from triptych.model.visible import Visible


@carries_out(parts.ConvMixer)
class Convolution(Mixer):
    """A convolution of C to 2 C channels and a gated linear unit (Gehring et al. 2017, section 3.2)."""

    def __init__(self, settings: parts.ConvMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        k = settings.kernel
        self.reach = range(1 - k, 1) if place.causal else range(-((k - 1) // 2), k // 2 + 1)
        self.taps = nn.Linear(k * model.dim, 2 * model.dim)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        """All taps of all tokens are one product."""
        return linear_cost(shape.tokens, settings.kernel * model.dim, 2 * model.dim, True)

    @classmethod
    def kept(cls, settings: Any, model: ModelConfig, place: Place) -> tuple[int, int]:
        """The inputs that taps may ask for."""
        return model.dim, 0

    @classmethod
    def sees(cls, settings: Any, visible: Visible) -> int | None:
        """As far back as its taps."""
        return settings.kernel - 1  # type: ignore[no-any-return]

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        (x_B1SC,), keys = context.remember(x_BTC[:, None])
        return F.glu(
            self.taps(torch.cat(near(x_B1SC[:, 0], keys, context.layout.length, self.reach), -1)), -1
        )


def near(x_BSC: Tensor, keys: Layout, T: int, reach: range) -> list[Tensor]:
    """What the neighbours of the last T slots hold, ``[B, T, C]`` for each place of ``reach``."""
    if keys.plain:
        x_BSC = F.pad(x_BSC, (0, 0, -reach[0], reach[-1]))
        return [x_BSC[:, i : i + T] for i in range(len(reach))]
    slots_BTk = keys.memo(("taps", reach, T), lambda: neighbours(keys, T, reach))
    nothing_last = F.pad(x_BSC.flatten(0, 1), (0, 0, 0, 1))
    return [F.embedding(slots_BT, nothing_last) for slots_BT in slots_BTk.unbind(2)]


def neighbours(keys: Layout, T: int, reach: range) -> Tensor:
    """``[B, T, k]`` for each of the last T slots those of its neighbours, counted over all rows; B · S where
    there is none."""
    B, S = keys.position.shape
    # One number says segment and position, so a neighbour is found by looking for its number.
    own = (keys.segment << 32) + keys.position
    number, order = own.sort(dim=1)
    wanted = (own[:, -T:, None] + torch.tensor(reach, device=own.device)).flatten(1)
    place = torch.searchsorted(number, wanted).clamp(max=S - 1)
    there = number.gather(1, place) == wanted
    row = torch.arange(0, B * S, S, device=own.device)[:, None]
    return (order.gather(1, place) + row).masked_fill(~there, B * S).view(B, T, -1)
