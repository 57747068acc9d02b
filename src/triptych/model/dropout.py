"""Dropout (Srivastava et al. 2014), several times faster on CPU than drawing a Bernoulli a value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_LEVELS = 1 << 16  # 16 random bits a value: a share is met to within 8e-6


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        threshold = min(round(p * _LEVELS), _LEVELS - 1)
        # Draws are 64 bits wide: each serves four values.
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        kept = bits >= threshold - _LEVELS // 2
        ctx.save_for_backward(kept)
        ctx.scale = _LEVELS / (_LEVELS - threshold)
        return torch.where(kept, x * ctx.scale, 0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        return torch.where(kept, grads[0] * ctx.scale, 0), None


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """``x`` with a share ``p`` of its values zeroed and the rest scaled by 1 / (1 - p); ``x`` itself
    outside training."""
    if not training or p == 0:
        return x
    if x.device.type != "cpu":
        return torch.nn.functional.dropout(x, p, True)
    y: Tensor = _Drop.apply(x, p)
    return y


class Dropout(nn.Module):
    """``dropout`` as a module: follows ``train()`` and ``eval()``."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)
