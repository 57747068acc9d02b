"""``attend``: its three ways are one function, values and gradients, edges included."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from triptych.layout import Layout
from triptych.model.attend import Way, attend, reference
from triptych.model.visible import Causal, Mask, SameSegment

FUSED: tuple[Way, ...] = ("sdpa", "short")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Shapes, a mask (possibly with queries that see nothing) and a seed."""
    case: dict[str, Any] = {"B": draw(st.integers(1, 3)), "D": draw(st.integers(1, 6))}
    case["G"], case["R"] = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    case["T"], case["S"] = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    case["mask"] = draw(st.sampled_from(["none", "random", "blind", "causal"]))
    case["seed"] = draw(st.integers(0, 2**31))
    return case


def inputs(case: dict[str, Any], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Mask]:
    """Random queries, keys and values that need gradients, and the mask."""
    B, G, R, T, S, D = (case[n] for n in "BGRTSD")
    g = torch.Generator().manual_seed(case["seed"])
    if case["mask"] == "causal":
        S = T
        layout = Layout.full(B, T)
        mask = (SameSegment() & Causal()).lower(layout, layout)
    else:
        seen = torch.rand(B, 1, T, S, generator=g) < 0.6
        if case["mask"] == "blind":
            seen[0, :, 0] = False
        mask = Mask(None if case["mask"] == "none" else seen)
    q, k, v = (
        torch.randn(B, n, t, D, generator=g, dtype=torch.float64) for n, t in ((G * R, T), (G, S), (G, S))
    )
    q, k, v = (x.to(dtype).requires_grad_() for x in (q, k, v))
    return q, k, v, mask


def by_hand(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, scale: float) -> Tensor:
    """The definition, one query at a time."""
    B, H, T, D = q.shape
    y = torch.zeros(B, H, T, D, dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            g = h // (H // k.shape[1])
            for t in range(T):
                keys = [s for s in range(k.shape[2]) if seen is None or bool(seen[b % len(seen), 0, t, s])]
                raised = [math.exp(float(q[b, h, t].detach() @ k[b, g, s].detach()) * scale) for s in keys]
                for s, e in zip(keys, raised, strict=True):
                    y[b, h, t] += e / sum(raised) * v[b, g, s].detach()
    return y


@given(cases())
def test_reference_is_the_definition(case: dict[str, Any]) -> None:
    q, k, v, mask = inputs(case, torch.float64)
    y, weights = reference(q, k, v, mask, 0.4)
    torch.testing.assert_close(y.detach(), by_hand(q, k, v, mask.seen, 0.4), rtol=0, atol=1e-10)
    seen = torch.ones_like(weights, dtype=torch.bool) if mask.seen is None else mask.seen.expand_as(weights)
    assert not weights[~seen].any()
    torch.testing.assert_close(weights.sum(-1), seen.any(-1).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("way", FUSED)
@given(case=cases())
def test_ways_agree_in_values_and_gradients(way: Way, dtype: torch.dtype, case: dict[str, Any]) -> None:
    exact = inputs(case, torch.float64)
    want = attend(*exact, 0.7, way="reference")
    upstream = torch.randn(want.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    want_grads = torch.autograd.grad(want, exact[:3], upstream)
    given_ = inputs(case, dtype)
    got = attend(*given_, 0.7, way=way)
    assert got.dtype == dtype
    got_grads = torch.autograd.grad(got, given_[:3], upstream.to(dtype))
    for name, a, b in zip("yqkv", (got, *got_grads), (want, *want_grads), strict=True):
        torch.testing.assert_close(
            a.double(), b, rtol=0, atol=TOLERANCE[dtype], msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("way", ["reference", *FUSED])
def test_blind_query_gets_zeros_and_gives_no_gradient(way: Way) -> None:
    q, k, v, mask = inputs(
        {"B": 2, "G": 1, "R": 2, "T": 3, "S": 4, "D": 2, "mask": "blind", "seed": 3}, torch.float64
    )
    y = attend(q, k, v, mask, 1.0, way=way)
    assert not y[0, :, 0].any()
    y.sum().backward()
    assert q.grad is not None and not q.grad[0, :, 0].any()
    assert all(x.grad is not None and bool(x.grad.isfinite().all()) for x in (q, k, v))


@given(cases())
def test_nan_in_masked_keys_and_values_never_leaks(case: dict[str, Any]) -> None:
    q, k, v, mask = inputs({**case, "mask": "random"}, torch.float64)
    want = reference(q, k, v, mask, 0.7)[0].detach()
    assert mask.seen is not None
    # Slots that no query of the row sees.
    unseen = ~mask.seen[:, 0].any(1)[:, None, :, None]
    bad_k, bad_v = (x.detach().masked_fill(unseen, float("nan")) for x in (k, v))
    got = reference(q, bad_k, bad_v, mask, 0.7)[0].detach()
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    # One bad value poisons the queries that see it, and only those.
    bad_v = v.detach().clone()
    bad_v[:, :, 0] = float("nan")
    got = reference(q, k, bad_v, mask, 0.7)[0].detach()
    sees = mask.seen[..., :1].expand_as(got)
    assert bool(got[sees].isnan().all())
    torch.testing.assert_close(got[~sees], want[~sees], rtol=0, atol=1e-12)


def test_large_scores_do_not_overflow() -> None:
    q, k, v, mask = inputs(
        {"B": 1, "G": 1, "R": 1, "T": 3, "S": 3, "D": 4, "mask": "causal", "seed": 0}, torch.float32
    )
    want = attend((q * 1e4).double(), k.double(), v.double(), mask, 1.0, way="reference")
    ways: tuple[Way, ...] = ("reference", *FUSED)
    for way in ways:
        got = attend(q * 1e4, k, v, mask, 1.0, way=way)
        torch.testing.assert_close(got.double(), want, rtol=0, atol=1e-4)


@pytest.mark.parametrize("way", ["reference", *FUSED])
def test_low_precision_is_near(way: Way) -> None:
    case = {"B": 2, "G": 2, "R": 2, "T": 5, "S": 6, "D": 4, "mask": "blind", "seed": 5}
    q, k, v, mask = inputs(case, torch.float64)
    want = attend(q, k, v, mask, 0.5, way="reference").detach()
    got = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask, 0.5, way=way)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.detach().double(), want, rtol=0, atol=0.05)
