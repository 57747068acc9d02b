"""Dropout (Srivastava et al. 2014), several times faster on CPU than drawing a Bernoulli a value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_LEVELS = 1 << 15  # 15 random bits a value: a share is met to within 2e-5
_INTEGER = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _mask(x: Tensor, threshold: int) -> Tensor:
    """Integers of the width of ``x``'s values: all bits set with probability 1 - threshold / _LEVELS, else
    none. Integer arithmetic throughout: comparisons and selections of bytes are slow on CPU."""
    # Draws are 64 bits wide: each serves four values.
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
    # threshold - 1 - u is negative, its sign bit set, exactly when u >= threshold.
    kept = bits.bitwise_and_(_LEVELS - 1).neg_().add_(threshold - 1).bitwise_right_shift_(15)
    return kept.to(_INTEGER[x.element_size()])


def _apply(x: Tensor, kept: Tensor, scale: float) -> Tensor:
    scaled = (x * scale).contiguous()
    scaled.view(kept.dtype).bitwise_and_(kept)  # no bits: +0.0
    return scaled


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        threshold = min(round(p * _LEVELS), _LEVELS - 1)
        kept = _mask(x, threshold)
        ctx.save_for_backward(kept)
        ctx.scale = _LEVELS / (_LEVELS - threshold)
        return _apply(x, kept, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        return _apply(grads[0], kept, ctx.scale), None


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """``x`` with a share ``p`` of its values zeroed and the rest scaled by 1 / (1 - p); ``x`` itself
    outside training."""
    if not training or p == 0:
        return x
    if x.device.type != "cpu":
        return torch.nn.functional.dropout(x, p, True)
    y: Tensor = _Drop.apply(x, p)  # type: ignore[no-untyped-call]
    return y


class Dropout(nn.Module):
    """``dropout`` as a module: follows ``train()`` and ``eval()``."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)
