"""``Loss(sum, count)``, and cross-entropy with label smoothing.

N tokens, C model width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

# Logits at a time: the whole [N, V] matrix is never held, and a chunk stays near the processor.
CHUNK = 1 << 22


@dataclass(frozen=True)
class Loss:
    """A sum over tokens and how many there were.

    Losses add across micro-batches and ranks, and are divided once: a mean of means cannot happen.

    Attributes:
        sum: what is optimised, summed over tokens (with label smoothing); a scalar.
        count: tokens.
        nll: negative log-likelihood of the targets in nats, summed, without smoothing and gradient.
    """

    sum: Tensor
    count: int
    nll: float

    def __add__(self, other: Loss) -> Loss:
        return Loss(self.sum + other.sum, self.count + other.count, self.nll + other.nll)

    def plus(self, aux: Sequence[Tensor]) -> Loss:
        """With scalars that are means over tokens added to what is optimised; the likelihood stays pure."""
        return replace(self, sum=self.sum + self.count * sum(aux)) if aux else self

    @property
    def mean(self) -> float:
        """What is optimised, a token."""
        return float(self.sum.detach()) / max(self.count, 1)

    @property
    def mean_nll(self) -> float:
        """Negative log-likelihood a token (or row, or pair), in nats."""
        return self.nll / max(self.count, 1)

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood (infinite when too large for a float)."""
        return math.exp(self.mean_nll) if self.mean_nll < 700 else math.inf


class _Smoothed(torch.autograd.Function):
    """Σ over tokens of cross-entropy with the smoothed target distribution (1 - ε)·onehot + ε/V.

    With p = softmax(h·Wᵀ + b), the gradient of the logits is p - target. It is computed in the forward pass,
    chunk by chunk, and turned at once into the gradients of h, W and b.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NC: Tensor,
        weight_VC: Tensor,
        bias_V: Tensor | None,
        target_N: Tensor,
        smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        (N, C), V = hidden_NC.shape, weight_VC.shape[0]
        rows = max(16, CHUNK // V)
        learn = any(ctx.needs_input_grad)
        dh = torch.empty_like(hidden_NC) if learn else None
        dw = torch.zeros(V, C, dtype=torch.float32, device=hidden_NC.device) if learn else None
        db = torch.zeros(V, dtype=torch.float32, device=hidden_NC.device) if bias_V is not None else None
        total = torch.zeros((), dtype=torch.float64, device=hidden_NC.device)
        nll = torch.zeros_like(total)
        with torch.autocast(hidden_NC.device.type, enabled=False):
            for start in range(0, N, rows):
                h, target = hidden_NC[start : start + rows], target_N[start : start + rows, None]
                logits = (h @ weight_VC.t()).float()
                logp = torch.log_softmax(logits if bias_V is None else logits.add_(bias_V), -1)
                chunk_nll = -logp.gather(1, target).sum(dtype=torch.float64)
                nll += chunk_nll
                total += (1 - smoothing) * chunk_nll
                if smoothing:
                    total -= smoothing / V * logp.sum(-1).sum(dtype=torch.float64)
                if dh is None or dw is None:
                    continue
                grad = logp.exp_()
                if smoothing:
                    grad -= smoothing / V
                grad.scatter_add_(1, target, grad.new_full((1, 1), smoothing - 1).expand(len(h), 1))
                low = grad.to(h.dtype)
                torch.mm(low, weight_VC, out=dh[start : start + rows])
                dw += low.t() @ h
                if db is not None:
                    db += grad.sum(0)
        if learn:
            ctx.save_for_backward(dh, dw, db)
            ctx.dtype, ctx.bias = weight_VC.dtype, None if bias_V is None else bias_V.dtype
        ctx.mark_non_differentiable(nll)
        return total.float(), nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dh, dw, db = ctx.saved_tensors
        own = None if db is None else (db * grads[0]).to(ctx.bias)
        return dh * grads[0].to(dh.dtype), (dw * grads[0]).to(ctx.dtype), own, None, None


def cross_entropy(
    hidden_NC: Tensor,
    weight_VC: Tensor,
    target_N: Tensor,
    smoothing: float = 0.0,
    bias_V: Tensor | None = None,
) -> Loss:
    """Cross-entropy of ``softmax(hidden · weightᵀ + bias)`` with smoothed targets, in nats, over all tokens.

    ε is spread over the whole vocabulary, ε/V each (Szegedy et al. 2016, section 7; Vaswani et al. 2017,
    section 5.4). The log-softmax is in fp32 whatever the precision of the product.
    """
    device = hidden_NC.device.type
    if torch.is_autocast_enabled(device):
        low = torch.get_autocast_dtype(device)
        hidden_NC, weight_VC = hidden_NC.to(low), weight_VC.to(low)
    total, nll = _Smoothed.apply(hidden_NC, weight_VC, bias_V, target_N, smoothing)  # type: ignore[no-untyped-call]
    return Loss(total, target_N.numel(), float(nll))
