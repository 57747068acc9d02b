"""Two texts of a row that read each other (ViLBERT; Lu et al. 2019, section 2.1, figure 2b).

    tokens of type 0 ─┬─ ask those of type 1 → y
                      ╳
    tokens of type 1 ─┴─ ask those of type 0 → y

Shapes: B rows, T tokens, C model width.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.attention import CrossAttention
from triptych.model.mixer import Mixer
from triptych.model.registry import Context, Cost, Place, Shape, carries_out
from triptych.model.visible import Visible


@carries_out(parts.CoAttentionMixer)
class CoAttention(Mixer):
    """Each text has weights of its own, and reads the tokens of the other one in its sequence: nothing where
    there are none."""

    def __init__(self, settings: parts.CoAttentionMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        self.texts = nn.ModuleList(CrossAttention(model) for _ in range(2))

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        """All tokens with the weights of either text, of which one is used."""
        return CrossAttention.cost(model, replace(shape, source=shape.length, sources=shape.batch)) * 2

    def scaled(self) -> list[Tensor]:
        return [weight for text in self.texts for weight in text.scaled()]  # type: ignore[operator]

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        layout, types = context.layout, context.types
        first_BT, *others = layout.memo(("texts", types), lambda: _texts(layout, types))
        asking = (replace(context, held=None, source=x_BTC, source_layout=other) for other in others)
        first, second = (text(x_BTC, asked) for text, asked in zip(self.texts, asking, strict=True))
        return torch.where(first_BT[:, :, None], first, second)


def _texts(layout: Layout, types_BT: Tensor | None) -> tuple[Tensor, Layout, Layout]:
    """Which tokens are of the first text; and the layouts of what it reads, and of what the second reads:
    tokens of the other one, all else as padding."""
    segment = layout.segment
    first_BT = torch.ones_like(segment, dtype=torch.bool) if types_BT is None else types_BT == 0
    first, second = (Layout(layout.position, segment.where(there, -1)) for there in (~first_BT, first_BT))
    return first_BT, first, second
