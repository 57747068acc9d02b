"""Two streams that ask each other (ViLBERT; Lu et al. 2019, section 2.1, figure 2b).

    a ─┬─ asks b ─ feed-forward → a'
       ╳
    b ─┴─ asks a ─ feed-forward → b'      each step is norm(x + f(x))

Shapes: B rows, T and S tokens, C model width.
"""

from __future__ import annotations

from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model.attention import CrossAttention
from triptych.model.experts import feed_forward, feed_forward_cost
from triptych.model.norm import Residual, norm_cost
from triptych.model.positions import NoPosition
from triptych.model.registry import Context, Cost, Place, Shape
from triptych.model.stack import fresh
from triptych.model.visible import SameSegment

PLACE = Place(causal=False)


class CoAttention(nn.Module):
    """A layer of two streams, each with weights of its own. Both ask what the other was before the layer;
    sequence n of one asks sequence n of the other, and gets zeros where there is none."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        if model.norm.placement != "post":
            what = "co-attention asks a stream that has been normalised"
            raise UserError(what, "model.norm.placement", "use post")
        self.position = NoPosition(parts.NoPosition(), model, PLACE)
        self.cross = nn.ModuleList(CrossAttention(model) for _ in range(2))
        self.ffn = nn.ModuleList(feed_forward(model, PLACE) for _ in range(2))
        self.residuals = nn.ModuleList(Residual(model, PLACE) for _ in range(4))
        fresh(self)

    @staticmethod
    def cost(model: ModelConfig, batch: int, length: int, other: int) -> Cost:
        """Of ``batch`` rows of ``length`` and of ``other`` tokens."""
        total = norm_cost(model) * 4
        for one, two in ((length, other), (other, length)):
            total += CrossAttention.cost(model, Shape(batch, one, one, two, batch))
            total += feed_forward_cost(model, PLACE, batch * one)
        return total

    def forward(self, a_BTC: Tensor, a: Layout, b_BSC: Tensor, b: Layout) -> tuple[Tensor, Tensor]:
        """``[B, T, C]`` and ``[B, S, C]``."""
        return self._stream(0, a_BTC, a, b_BSC, b), self._stream(1, b_BSC, b, a_BTC, a)

    def _stream(self, i: int, x: Tensor, layout: Layout, source: Tensor, source_layout: Layout) -> Tensor:
        context = Context(layout, SameSegment(), self.position, None, source, source_layout)
        x = self.residuals[2 * i](x, lambda x: self.cross[i](x, context))
        y: Tensor = self.residuals[2 * i + 1](x, lambda x: self.ffn[i](x, context))
        return y
