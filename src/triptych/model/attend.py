"""``attend``: the only place where queries meet keys and values.

Shapes: B batch, H query heads, G key/value heads (H a multiple of G), T queries, S keys, D head width.

    q_BHTD ──┐
    k_BGSD ──┴─ q·kᵀ·scale + bias ─ mask ─ softmax ─ dropout ─┐
    v_BGSD ───────────────────────────────────────────────────┴─ weights·v → y_BHTD

Three ways of computing it give equal results: ``reference`` (the definition, and the weight viewer),
``sdpa`` (torch's fused kernels) and ``short`` (batched matrix products with a hand-written gradient,
several times faster than the fused kernels' backward pass on CPU when sequences are short). What no fused
kernel knows (see ``Shaping``) goes by the definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from triptych.model.dropout import dropout as drop
from triptych.model.visible import Mask

Way = Literal["auto", "reference", "sdpa", "short"]

# Up to this many keys, `short` is faster than the fused CPU kernels in training (benchmarks/attend.py).
SHORT = 256
# So many scores a core at a time: then they stay in its cache, as those of the fused kernels do.
NEAR = 1 << 19


@dataclass(frozen=True)
class Shaping:
    """What changes scores and weights beyond a scale and a bias.

    Attributes:
        cap: scores s become cap · tanh(s / cap).
        sink: ``[H]`` a logit that joins each head's softmax and has no value.
        compare: scores ``[B, H, T, S]`` of queries and expanded keys, in place of scaled products.
        values: what weights ``[B, H, T, S]`` bring beside the values, ``[B, H, T, D]``.
    """

    cap: float | None = None
    sink: Tensor | None = None
    compare: Callable[[Tensor, Tensor], Tensor] | None = None
    values: Callable[[Tensor], Tensor] | None = None


PLAIN = Shaping()


def attend(
    q_BHTD: Tensor,
    k_BGSD: Tensor,
    v_BGSD: Tensor,
    mask: Mask,
    scale: float,
    dropout: float = 0.0,
    way: Way = "auto",
    bias: Tensor | None = None,
    shaping: Shaping = PLAIN,
) -> Tensor:
    """Softmax attention (Vaswani et al. 2017, section 3.2.1).

    A query that sees no key gets zeros. ``dropout`` is applied to the weights as given: the caller passes
    0 outside training. ``bias``, ``[B or 1, H or 1, T, S]``, is added to the scores.

    Returns:
        ``[B, H, T, D]``.
    """
    if way == "auto":
        short = q_BHTD.device.type == "cpu" and dropout == 0 and k_BGSD.shape[2] <= SHORT
        way = "short" if short else "sdpa"
    if way == "reference" or shaping != PLAIN:
        return reference(q_BHTD, k_BGSD, v_BGSD, mask, scale, dropout, bias, shaping)[0]
    if way == "short" and dropout == 0:
        return _short(q_BHTD, k_BGSD, v_BGSD, mask, scale, bias)
    return _sdpa(q_BHTD, k_BGSD, v_BGSD, mask, scale, dropout, bias)


def reference(
    q_BHTD: Tensor,
    k_BGSD: Tensor,
    v_BGSD: Tensor,
    mask: Mask,
    scale: float,
    dropout: float = 0.0,
    bias: Tensor | None = None,
    shaping: Shaping = PLAIN,
) -> tuple[Tensor, Tensor]:
    """The definition, in fp32 at least: ``(y_BHTD, weights_BHTS)``.

    Masked weights are exactly 0, and what stands in a masked value, NaN too, never reaches the output.
    """
    groups = q_BHTD.shape[1] // k_BGSD.shape[1]
    q, k, v = (
        x.float() if x.dtype in (torch.bfloat16, torch.float16) else x for x in (q_BHTD, k_BGSD, v_BGSD)
    )
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    with torch.autocast(q.device.type, enabled=False):
        scores = q @ k.transpose(-1, -2) * scale if shaping.compare is None else shaping.compare(q, k)
        if bias is not None:
            scores = scores + bias
        if shaping.cap is not None:
            scores = shaping.cap * (scores / shaping.cap).tanh()
        weights = _softmax(scores, mask, shaping.sink)
        kept = drop(weights, dropout, training=dropout > 0)
        bad = ~v.isfinite()
        if not bool(bad.any()):
            y = kept @ v
        else:  # 0 · NaN is NaN: take the bad values out and put NaN only where they are really seen
            y = kept @ v.masked_fill(bad, 0)
            y = y.masked_fill(((weights > 0).to(v) @ bad.to(v)) > 0, float("nan"))
        if shaping.values is not None:
            y = y + shaping.values(kept)
    return y.to(q_BHTD.dtype), weights


def _softmax(scores: Tensor, mask: Mask, sink_H: Tensor | None) -> Tensor:
    """Weights over the visible keys; a row that sees nothing has none."""
    if mask.seen is not None:
        scores = scores.masked_fill(~mask.seen, float("-inf"))
    # A row of -inf has no softmax; zeroed before, its weights are then masked to zero.
    highest = scores.amax(-1, keepdim=True).detach()
    if sink_H is not None:
        highest = highest.maximum(sink_H.detach().to(scores.dtype)[:, None, None])
    highest = highest.masked_fill(highest == float("-inf"), 0)
    raised = (scores - highest).exp()
    total = raised.sum(-1, keepdim=True)
    if sink_H is not None:
        total = total + (sink_H.to(scores.dtype)[:, None, None] - highest).exp()
    return raised / total.masked_fill(total == 0, 1)


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, scale: float, dropout: float, bias: Tensor | None
) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    if bias is not None:
        seen = mask.bias(q.dtype)
        bias = bias.to(q.dtype) if seen is None else bias.to(q.dtype) + seen
    elif mask.causal and q.shape[2] == k.shape[2]:  # is_causal is aligned to the top left: square only
        return F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=True, scale=scale, enable_gqa=grouped
        )
    else:  # numbers, shared by all layers: of truth values torch makes its own in each call, and keeps them
        bias = mask.bias(q.dtype)
    y = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, dropout_p=dropout, scale=scale, enable_gqa=grouped
    )
    return y if mask.rows is None else y * mask.rows


def _short(
    q_BHTD: Tensor, k_BGSD: Tensor, v_BGSD: Tensor, mask: Mask, scale: float, bias: Tensor | None
) -> Tensor:
    B, H, T, D = q_BHTD.shape
    G, S = k_BGSD.shape[1:3]
    y: Tensor = _Short.apply(  # type: ignore[no-untyped-call]
        q_BHTD.reshape(B * G, H // G * T, D),
        k_BGSD.reshape(B * G, S, -1),
        v_BGSD.reshape(B * G, S, -1),
        mask.bias(q_BHTD.dtype),
        bias.to(q_BHTD.dtype) if bias is not None else None,
        mask.rows,
        scale,
        (B, G, H // G, T, S),
    )
    return y.view(B, H, T, -1)


class _Short(torch.autograd.Function):
    """Attention by batched products over ``[B·G, (H/G)·T, D]``: heads that share keys are rows of one
    product, so keys and values are never copied. Scores become weights in place, and so do their gradients,
    for a few rows at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        hidden: Tensor | None,
        bias: Tensor | None,
        rows: Tensor | None,
        scale: float,
        shape: tuple[int, int, int, int, int],
    ) -> Tensor:
        B, G, R, T, S = shape
        ctx.scale, ctx.shape = scale, shape
        ctx.bias = bias.shape if bias is not None and ctx.needs_input_grad[4] else None
        q, k_DS = q * scale, k.transpose(1, 2)
        weights, y = q.new_empty(B * G, R * T, S), q.new_empty(B * G, R * T, v.shape[-1])
        with torch.autocast(q.device.type, enabled=False):
            for some, own in _few(shape):
                torch.bmm(q[own], k_DS[own], out=weights[own])
                scores = weights[own].view(-1, G * R, T, S)
                for added in (hidden, bias):
                    if added is not None:
                        scores += _of(added, some)
                torch.softmax(scores, -1, out=scores)
                if rows is not None:
                    scores *= _of(rows, some)
                torch.bmm(weights[own], v[own], out=y[own])
        ctx.save_for_backward(q, k, v, weights)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        _, G, R, T, S = ctx.shape
        g, v_DS = grads[0], v.transpose(1, 2)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        dbias = q.new_zeros(ctx.bias) if ctx.bias is not None else None
        for some, own in _few(ctx.shape):
            w = weights[own]
            torch.bmm(w.transpose(1, 2), g[own], out=dv[own])
            ds = torch.bmm(g[own], v_DS[own])
            torch._softmax_backward_data(ds, w, -1, w.dtype, grad_input=ds)  # w · (dw - Σ w·dw)
            if dbias is not None:
                part = _of(dbias, some)
                part += ds.view(-1, G * R, T, S).sum_to_size(part.shape)
            torch.bmm(ds, k[own], out=dq[own])
            torch.bmm(ds.transpose(1, 2), q[own], out=dk[own])
        return dq.mul_(ctx.scale), dk, dv, None, dbias, None, None, None


def _few(shape: tuple[int, int, int, int, int]) -> Iterator[tuple[slice, slice]]:
    """Rows whose scores stay in the caches, and where their heads are among those of all rows."""
    B, G, R, T, S = shape
    size = max(1, NEAR * torch.get_num_threads() // max(1, G * R * T * S))
    for start in range(0, B, size):
        stop = min(start + size, B)
        yield slice(start, stop), slice(start * G, stop * G)


def _of(x: Tensor, rows: slice) -> Tensor:
    """What some rows have of ``[B or 1, …]``."""
    return x if len(x) == 1 else x[rows]
