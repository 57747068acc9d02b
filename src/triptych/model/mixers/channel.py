"""Gates on an image's features: which channels matter, and which places.

    channel:  x ─┬─ mean over the sequence ─ inner ─ relu ─ outer ─ sigmoid ─── gate_C ─ × ─ out → y
                 └───────────────────────────────────────────────────────────────────────┘
    spatial:  x ─┬─ mean, max over channels ─ size × size around ─ map ─ sigmoid ─ gate_T ─ × ─ out → y
                 └─────────────────────────────────────────────────────────────────────────┘

Without the map at the end a block would add to its residual stream what is there already.
Shapes: B rows, T tokens, C model width, N sequences in a row, Z places around.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.grids import pick, slots
from triptych.model.mixer import Mixer
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, linear_cost
from triptych.model.visible import Visible


@carries_out(parts.ChannelMixer)
class Channel(Mixer):
    """Squeeze and excitation, sequence by sequence (Hu et al. 2018, section 3)."""

    def __init__(self, settings: parts.ChannelMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        inner = _inner(settings, model)
        self.inner, self.outer = nn.Linear(model.dim, inner), nn.Linear(inner, model.dim)
        self.out = nn.Linear(model.dim, model.dim)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        B, C, inner = shape.batch, model.dim, _inner(settings, model)
        gates = linear_cost(B, C, inner, True) + linear_cost(B, inner, C, True)
        return gates + linear_cost(shape.tokens, C, C, True)

    def scaled(self) -> list[Tensor]:
        return [self.out.weight]

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        real = context.layout.real[:, :, None]
        own_BT1 = context.layout.segment.clamp(min=0)[:, :, None]
        own = own_BT1.expand_as(x_BTC)
        total = x_BTC.new_zeros(len(x_BTC), int(own_BT1.max()) + 1, x_BTC.shape[2])
        count = total[:, :, :1].scatter_add(1, own_BT1, real.to(x_BTC.dtype))
        total = total.scatter_add(1, own, x_BTC.masked_fill(~real, 0))
        gate_BNC = self.outer(self.inner(total / count.clamp(min=1)).relu()).sigmoid()
        y: Tensor = self.out(x_BTC * gate_BNC.gather(1, own))
        return y


@carries_out(parts.SpatialMixer)
class Spatial(Mixer):
    """A convolution over two maps, means and maxima over channels, gives a gate a place (Woo et al. 2018,
    section 3.2, equation 3)."""

    def __init__(self, settings: parts.SpatialMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        self.settings = settings
        self.map = nn.Linear(2 * settings.size**2, 1, bias=False)
        self.out = nn.Linear(model.dim, model.dim)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        gates = linear_cost(shape.tokens, 2 * settings.size**2, 1, False)
        return gates + linear_cost(shape.tokens, model.dim, model.dim, True)

    def scaled(self) -> list[Tensor]:
        return [self.out.weight]

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        layout, width, size = context.layout, self.settings.width, self.settings.size
        near_BTZ = layout.memo(("around", width, size), lambda: _around(layout, width, size))
        maps_BT12 = torch.stack((x_BTC.mean(-1), x_BTC.amax(-1)), -1)[:, :, None]
        around_BTZ2 = pick(maps_BT12, near_BTZ[:, :, None])[:, :, 0]
        gate_BT1 = self.map(around_BTZ2.transpose(2, 3).flatten(2)).sigmoid()
        y: Tensor = self.out(x_BTC * gate_BT1)
        return y


def _inner(settings: parts.ChannelMixer, model: ModelConfig) -> int:
    return settings.inner or max(8, model.dim // 16)


def _around(layout: Layout, width: int, size: int) -> Tensor:
    """Slots of the ``size`` × ``size`` places around each token, row by row."""
    step = torch.arange(size, device=layout.position.device) - size // 2
    row = (layout.position // width)[:, :, None, None] + step[:, None]
    column = (layout.position % width)[:, :, None, None] + step
    return slots(layout, width, row, column).flatten(2)
