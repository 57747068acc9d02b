"""``attend``: the only place where queries meet keys and values.

Shapes: B batch, H query heads, G key/value heads (H a multiple of G), T queries, S keys, D head width.

    q_BHTD ──┐
    k_BGSD ──┴─ q·kᵀ·scale ─ mask ─ softmax ─ dropout ─┐
    v_BGSD ────────────────────────────────────────────┴─ weights·v → y_BHTD

Three ways of computing it give equal results: ``reference`` (the definition, and the weight viewer),
``sdpa`` (torch's fused kernels) and ``short`` (batched matrix products with a hand-written gradient,
several times faster than the fused kernels' backward pass on CPU when sequences are short).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from triptych.model.dropout import dropout as drop
from triptych.model.visible import Mask

Way = Literal["auto", "reference", "sdpa", "short"]

# Up to this many keys, `short` is faster than the fused CPU kernels in training (benchmarks/attend.py).
SHORT = 128


def attend(
    q_BHTD: Tensor,
    k_BGSD: Tensor,
    v_BGSD: Tensor,
    mask: Mask,
    scale: float,
    dropout: float = 0.0,
    way: Way = "auto",
) -> Tensor:
    """Softmax attention (Vaswani et al. 2017, section 3.2.1).

    A query that sees no key gets zeros. ``dropout`` is applied to the weights as given: the caller passes
    0 outside training.

    Returns:
        ``[B, H, T, D]``.
    """
    if way == "auto":
        on_cpu = q_BHTD.device.type == "cpu"
        way = "short" if on_cpu and dropout == 0 and k_BGSD.shape[2] <= SHORT else "sdpa"
    if way == "short" and dropout == 0:
        return _short(q_BHTD, k_BGSD, v_BGSD, mask, scale)
    if way == "sdpa":
        return _sdpa(q_BHTD, k_BGSD, v_BGSD, mask, scale, dropout)
    return reference(q_BHTD, k_BGSD, v_BGSD, mask, scale, dropout)[0]


def reference(
    q_BHTD: Tensor, k_BGSD: Tensor, v_BGSD: Tensor, mask: Mask, scale: float, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The definition, in fp32 at least: ``(y_BHTD, weights_BHTS)``.

    Masked weights are exactly 0, and what stands in a masked value, NaN too, never reaches the output.
    """
    groups = q_BHTD.shape[1] // k_BGSD.shape[1]
    q, k, v = (
        x.float() if x.dtype in (torch.bfloat16, torch.float16) else x for x in (q_BHTD, k_BGSD, v_BGSD)
    )
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    with torch.autocast(q.device.type, enabled=False):
        scores = q @ k.transpose(-1, -2) * scale
        if mask.seen is not None:
            scores = scores.masked_fill(~mask.seen, float("-inf"))
        # A row of -inf has no softmax; zeroed before, its weights are then masked to zero.
        highest = scores.amax(-1, keepdim=True).detach()
        raised = (scores - highest.masked_fill(highest == float("-inf"), 0)).exp()
        total = raised.sum(-1, keepdim=True)
        weights = raised / total.masked_fill(total == 0, 1)
        kept = drop(weights, dropout, training=dropout > 0)
        bad = ~v.isfinite()
        if not bool(bad.any()):
            y = kept @ v
        else:  # 0 · NaN is NaN: take the bad values out and put NaN only where they are really seen
            y = kept @ v.masked_fill(bad, 0)
            y = y.masked_fill(((weights > 0).to(v) @ bad.to(v)) > 0, float("nan"))
    return y.to(q_BHTD.dtype), weights


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, dropout: float) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    if mask.causal and q.shape[2] == k.shape[2]:  # is_causal is aligned to the top left: square only
        return F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=True, scale=scale, enable_gqa=grouped
        )
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask.seen, dropout_p=dropout, scale=scale, enable_gqa=grouped
    )


def _short(q_BHTD: Tensor, k_BGSD: Tensor, v_BGSD: Tensor, mask: Mask, scale: float) -> Tensor:
    B, H, T, D = q_BHTD.shape
    G, S = k_BGSD.shape[1:3]
    y: Tensor = _Short.apply(  # type: ignore[no-untyped-call]
        q_BHTD.reshape(B * G, H // G * T, D),
        k_BGSD.reshape(B * G, S, D),
        v_BGSD.reshape(B * G, S, D),
        mask.bias(q_BHTD.dtype),
        mask.rows,
        scale,
        (B, G, H // G, T, S),
    )
    return y.view(B, H, T, D)


class _Short(torch.autograd.Function):
    """Attention by batched products over ``[B·G, (H/G)·T, D]``: heads that share keys are rows of one
    product, so keys and values are never copied."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        rows: Tensor | None,
        scale: float,
        shape: tuple[int, int, int, int, int],
    ) -> Tensor:
        B, G, R, T, S = shape
        with torch.autocast(q.device.type, enabled=False):
            scores = torch.bmm(q * scale, k.transpose(1, 2)).view(B, G * R, T, S)
            if bias is not None:
                scores += bias
            weights = scores.softmax(-1)
            if rows is not None:
                weights *= rows
            weights = weights.view(B * G, R * T, S)
            ctx.save_for_backward(q, k, v, weights)
            ctx.scale = scale
            return torch.bmm(weights, v)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        g = grads[0]
        dv = torch.bmm(weights.transpose(1, 2), g)
        dw = torch.bmm(g, v.transpose(1, 2))
        # d softmax: w · (dw - Σ w·dw)
        ds = torch._softmax_backward_data(dw, weights, -1, weights.dtype).mul_(ctx.scale)
        return torch.bmm(ds, k), torch.bmm(ds.transpose(1, 2), q), dv, None, None, None, None
