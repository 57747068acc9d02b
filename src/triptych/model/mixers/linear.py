"""Linear attention: a kernel that is a product of features, in place of the softmax.

    causal:  y(t) = φ(q(t)) S(t) / φ(q(t))·z(t),   S(t) = Σ φ(k(i)) v(i)ᵀ,  z(t) = Σ φ(k(i))   over i ≤ t
    both:    the same with sums over the whole sequence
z stands in S as one more column, of values that are 1: numerator and denominator are one product.

Shapes: B rows, H heads, T tokens, D head width, F features, C model width.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.heads import split_heads
from triptych.model.mixers.apart import apart
from triptych.model.mixers.sums import Summing, full
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, linear_cost
from triptych.model.visible import Visible

LEAST = 1e-20  # a denominator below: all features of all keys are as good as 0, and so is what is read


@carries_out(parts.LinearMixer)
class Linear(Summing):
    """Katharopoulos et al. 2020, section 3, with φ(x) = elu(x) + 1 (equation 7) or ``Favor``."""

    def __init__(self, settings: parts.LinearMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        self.H, self.causal, bias = model.heads.count, place.causal, model.heads.bias
        self.qkv = nn.Linear(model.dim, 3 * self.H * model.head_dim, bias=bias)
        self.out = nn.Linear(self.H * model.head_dim, model.dim, bias=bias)
        self.favor = Favor(settings, model, place) if settings.map == "favor" else None

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        """Both maps, the random features, and the sums."""
        (H, D, bias), N = (model.heads.count, model.head_dim, model.heads.bias), shape.tokens
        many, F = H * D, width(settings, model)
        total = linear_cost(N, model.dim, 3 * many, bias) + linear_cost(N, many, model.dim, bias)
        if settings.map == "favor":
            random = 2 * 2 * N * many * F
            total += Cost(0, random, spared=random)  # of the features themselves there is no gradient
        both = Cost(0, 2 * 2 * N * H * F * (D + 1))
        return total + (cls.sums_cost(shape, H, F, D + 1) if place.causal else both)

    @classmethod
    def kept(cls, settings: Any, model: ModelConfig, place: Place) -> tuple[int, int]:
        """S and z of each head."""
        return 0, model.heads.count * width(settings, model) * (model.head_dim + 1)

    def scaled(self) -> list[Tensor]:
        return [self.qkv.weight.chunk(3)[2], self.out.weight]

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        def mix(x: Tensor, layout: Layout) -> Tensor:
            q, k, v = full(*(split_heads(part, self.H) for part in self.qkv(x).chunk(3, -1)))
            with torch.autocast(x.device.type, enabled=False):
                q, k, v = self.features(q, True), self.features(k, False), F.pad(v, (0, 1), value=1.0)
                if self.causal:
                    y = self.sums(q, k, v, context, (0.0,))
                else:
                    y = q @ ((k * layout.real[:, None, :, None]).transpose(-1, -2) @ v)
                y = y[..., :-1] / y[..., -1:].clamp(min=LEAST)
            out: Tensor = self.out(y.transpose(1, 2).flatten(2).to(x.dtype))
            return out

        return mix(x_BTC, context.layout) if self.causal else apart(x_BTC, context.layout, mix)

    def features(self, x_BHTD: Tensor, query: bool) -> Tensor:
        """φ of queries or keys: ``[B, H, T, F]``."""
        y: Tensor = F.elu(x_BHTD) + 1 if self.favor is None else self.favor(x_BHTD, query)
        return y


class Favor(nn.Module):
    """φ(x) = exp(ω x' - |x'|² / 2), x' = x / D^(1/4), for F random ω: the mean of φ(q)·φ(k) / F is
    exp(q·k / √D) (Choromanski et al. 2021, lemma 1). Groups of D ω are orthogonal (section 3)."""

    omega: Tensor

    def __init__(self, settings: parts.LinearMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        D, many = model.head_dim, width(settings, model)
        draw = torch.Generator().manual_seed(settings.seed * 1009 + 2 * place.layer + place.causal)
        normal = torch.randn(2, -(-many // D), D, D, generator=draw, dtype=torch.float64, device="cpu")
        turn, r = torch.linalg.qr(normal[0])
        turn = turn * r.diagonal(dim1=1, dim2=2).sign()[:, None]  # else not every turn is as likely
        omega = turn * normal[1].norm(dim=-1, keepdim=True)
        self.register_buffer("omega", omega.flatten(0, 1)[:many].float())

    def forward(self, x_BHTD: Tensor, query: bool) -> Tensor:
        """``[B, H, T, F]``."""
        x = x_BHTD * x_BHTD.shape[-1] ** -0.25
        power = x @ self.omega.to(x.dtype).t() - x.square().sum(-1, keepdim=True) / 2
        # A factor of all features of a query stands above and below the line.
        top = power.amax(-1, keepdim=True).detach() if query else 0.0
        return torch.exp(power - top)


def width(settings: parts.LinearMixer, model: ModelConfig) -> int:
    """Features of a head; of random ones D ln D are as many as the paper asks for (section 4)."""
    D = model.head_dim
    return D if settings.map == "elu" else settings.features or math.ceil(D * math.log(D + 1))
