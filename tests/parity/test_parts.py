"""Single parts against numpy written from the papers, and against ``torch`` and ``transformers``."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from parity.weights import Match, Rows, shaken
from triptych.config import ModelConfig, RunConfig
from triptych.layout import Layout
from triptych.model.attend import Way, attend, reference
from triptych.model.registry import Context, Place, part_of
from triptych.model.visible import Causal, Everything, Mask, SameSegment, Visible

PLACE = Place(causal=True)
WAYS: list[Way] = ["reference", "sdpa", "short"]


def _config(**model: Any) -> ModelConfig:
    return RunConfig.parse({"model": {"dropout": 0.0, **model}}).model


# -- attention


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """softmax(q·kᵀ / √D)·v, one row, head and query at a time; nothing seen gives zeros."""
    out = np.zeros(q.shape)
    B, H, T, D = q.shape
    for b in range(B):
        for h in range(H):
            g = h // (H // k.shape[1])
            for t in range(T):
                if not seen[b, t].any():
                    continue
                keys = np.flatnonzero(seen[b, t])
                score = k[b, g, keys] @ q[b, h, t] / np.sqrt(D)
                weight = np.exp(score - score.max())
                out[b, h, t] = weight @ v[b, g, keys] / weight.sum()
    return out


def _case(heads: int, groups: int, masked: str) -> tuple[list[Tensor], Mask, np.ndarray]:
    B, T, D = 3, 5, 6
    q = torch.randn(B, heads, T, D, dtype=torch.float64)
    k, v = (torch.randn(B, groups, T, D, dtype=torch.float64) for _ in range(2))
    layout = Layout.padded([5, 2, 3], width=5) if "padded" in masked else Layout.full(B, T)
    sight: Visible = Everything() if masked == "nothing" else SameSegment()
    if "causal" in masked:
        sight = sight & Causal()
    return [x.requires_grad_() for x in (q, k, v)], sight.lower(layout, layout), sight(layout, layout).numpy()


MASKED = ["nothing", "causal", "padded", "padded and causal"]


@pytest.mark.parametrize("masked", MASKED)
@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("way", WAYS)
def test_attention_is_its_formula(way: Way, heads: int, groups: int, masked: str) -> None:
    (q, k, v), mask, seen = _case(heads, groups, masked)
    got = attend(q, k, v, mask, q.shape[-1] ** -0.5, way=way)
    want = _attention(q.detach().numpy(), k.detach().numpy(), v.detach().numpy(), seen)
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("masked", MASKED)
@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("way", WAYS)
def test_attention_gradients_are_torchs(way: Way, heads: int, groups: int, masked: str) -> None:
    """Against torch's own attention over keys and values repeated for every head."""
    inputs, mask, seen = _case(heads, groups, masked)
    weight = torch.randn(inputs[0].shape, dtype=torch.float64)
    (attend(*inputs, mask, 0.3, way=way) * weight).sum().backward()
    got = [x.grad for x in inputs]
    twins = [x.detach().clone().requires_grad_() for x in inputs]
    times = heads // groups
    want = F.scaled_dot_product_attention(
        twins[0],
        twins[1].repeat_interleave(times, 1),
        twins[2].repeat_interleave(times, 1),
        attn_mask=torch.from_numpy(seen)[:, None],
        scale=0.3,
    )
    (want * weight).sum().backward()
    for mine, twin in zip(got, twins, strict=True):
        torch.testing.assert_close(mine, twin.grad, rtol=1e-8, atol=1e-10)


def test_reference_weights() -> None:
    """Rows sum to one, or to zero where nothing is seen; a masked weight is exactly zero."""
    (q, k, v), mask, seen = _case(4, 2, "padded and causal")
    _, weights = reference(q, k, v, mask, 1.0)
    some = torch.from_numpy(seen.any(-1))[:, None].expand(-1, 4, -1)
    torch.testing.assert_close(weights.sum(-1), some.double())
    assert not weights.masked_select(~torch.from_numpy(seen)[:, None].expand_as(weights)).any()


@pytest.mark.parametrize("way", WAYS)
def test_large_scores_do_not_overflow(way: Way) -> None:
    q = torch.full((1, 1, 2, 4), 1e4)
    y = attend(q, q, torch.ones(1, 1, 2, 4), Mask(None), 1.0, way=way)
    torch.testing.assert_close(y, torch.ones_like(y))


# -- positions


def _layout(positions: list[int]) -> Layout:
    position = torch.tensor([positions])
    return Layout(position, torch.zeros_like(position))


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=6), st.sampled_from([2, 6, 16]))
def test_sinusoid(positions: list[int], dim: int) -> None:
    model = _config(dim=dim, heads=1)
    table = part_of(model.position)(model.position, model, PLACE)
    got = table.embed(torch.zeros(1, len(positions), dim, dtype=torch.float64), _layout(positions))[0]
    for p, row in zip(positions, got.numpy(), strict=True):
        for i in range(dim // 2):
            angle = p / 10000 ** (2 * i / dim)
            # Angles are in fp32: an angle of 2,000 is known to 1e-4.
            assert row[2 * i] == pytest.approx(np.sin(angle), abs=3e-4)
            assert row[2 * i + 1] == pytest.approx(np.cos(angle), abs=3e-4)


def _rope(dim: int, base: float = 10000.0) -> Any:
    model = _config(dim=dim * 2, heads=2, position={"kind": "rope", "base": base})
    return part_of(model.position)(model.position, model, PLACE)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6), st.sampled_from([2, 8, 14]))
def test_rope_is_a_complex_rotation(positions: list[int], dim: int) -> None:
    """Value i and value i + D/2 as one complex number, times e^{i·p·θ}."""
    q, k = torch.randn(1, 4, len(positions), dim), torch.randn(1, 2, len(positions), dim)
    turned = _rope(dim).rotate(q, k, _layout(positions))
    angle = np.outer(positions, 10000.0 ** (-2 * np.arange(dim // 2) / dim))
    for before, after in zip((q, k), turned, strict=True):
        x = before.numpy().astype(np.float64)
        pair = (x[..., : dim // 2] + 1j * x[..., dim // 2 :]) * np.exp(1j * angle)
        want = np.concatenate((pair.real, pair.imag), -1)
        np.testing.assert_allclose(after.numpy(), want, atol=5e-4)


@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_rope_is_llamas(base: float) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    D, T = 8, 40
    config = LlamaConfig(
        hidden_size=2 * D, num_attention_heads=2, rope_parameters={"rope_type": "default", "rope_theta": base}
    )
    position = torch.stack((torch.arange(T), torch.arange(T).flip(0) + 5))
    q, k = torch.randn(2, 4, T, D), torch.randn(2, 2, T, D)
    cos, sin = LlamaRotaryEmbedding(config)(q, position)
    want = apply_rotary_pos_emb(q, k, cos, sin)
    got = _rope(D, base).rotate(q, k, Layout(position, torch.zeros_like(position)))
    for mine, their in zip(got, want, strict=True):
        torch.testing.assert_close(mine, their, rtol=1e-4, atol=2e-5)


# -- norms


def _norm(kind: str, dim: int, eps: float) -> Any:
    model = _config(dim=dim, heads=1, norm={"kind": kind, "eps": eps})
    return shaken(part_of(model.norm)(model.norm, model)).double()


@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_norms_are_their_formulas(eps: float) -> None:
    x = torch.randn(3, 5, 8, dtype=torch.float64) * 0.3 + 1
    a = x.numpy()
    rms = _norm("rmsnorm", 8, eps)
    want = a / np.sqrt((a**2).mean(-1, keepdims=True) + eps) * rms.weight.detach().numpy()
    np.testing.assert_allclose(rms(x).detach().numpy(), want, rtol=1e-10)
    layer = _norm("layernorm", 8, eps)
    centred = a - a.mean(-1, keepdims=True)
    want = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    want = want * layer.weight.detach().numpy() + layer.bias.detach().numpy()
    np.testing.assert_allclose(layer(x).detach().numpy(), want, rtol=1e-8)


def test_rmsnorm_is_llamas() -> None:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    theirs = shaken(LlamaRMSNorm(16, eps=1e-6))
    ours = _norm("rmsnorm", 16, 1e-6).float()
    match = Match()
    match.put(ours.weight, cast(Tensor, theirs.weight))
    x = torch.randn(4, 16, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    torch.testing.assert_close(ours(x), theirs(y))
    (ours(x) ** 3).sum().backward()
    (theirs(y) ** 3).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-5)
    match.assert_gradients(ours, theirs, rtol=1e-4, atol=1e-5)


# -- feed-forward


def _ffn(kind: str, dim: int, inner: int, **settings: Any) -> Any:
    model = _config(dim=dim, heads=1, ffn={"kind": kind, "dim": inner, **settings})
    return part_of(model.ffn)(model.ffn, model)


def test_swiglu_is_llamas() -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    theirs: Any = LlamaMLP(LlamaConfig(hidden_size=12, intermediate_size=20, num_attention_heads=2))
    ours = _ffn("swiglu", 12, 20)
    match = Match()
    match.put(ours.inner.weight, theirs.gate_proj.weight, theirs.up_proj.weight)
    match.put(ours.outer.weight, Rows(theirs.down_proj.weight))
    x = torch.randn(2, 3, 12, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    torch.testing.assert_close(ours(x), theirs(y))
    (ours(x) ** 2).sum().backward()
    (theirs(y) ** 2).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    match.assert_gradients(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["relu", "gelu", "swiglu"])
def test_feed_forward_is_its_formula(kind: str) -> None:
    from math import erf

    ffn = shaken(_ffn(kind, 6, 10, bias=True)).double()
    x = torch.randn(4, 6, dtype=torch.float64)
    inner: Any = ffn.inner
    outer: Any = ffn.outer
    h = x.numpy() @ inner.weight.detach().numpy().T + inner.bias.detach().numpy()
    if kind == "relu":
        h = np.maximum(h, 0)
    elif kind == "gelu":  # x·Φ(x)
        h = h * 0.5 * (1 + np.vectorize(erf)(h / np.sqrt(2)))
    else:
        gate, up = np.split(h, 2, -1)
        h = gate / (1 + np.exp(-gate)) * up
    want = h @ outer.weight.detach().numpy().T + outer.bias.detach().numpy()
    np.testing.assert_allclose(ffn(x).detach().numpy(), want, rtol=1e-9, atol=1e-12)


def test_grouped_heads_are_repeated_heads() -> None:
    """A layer of 4 heads over 2 key/value heads is one of 4 over 4 whose key/value weights repeat."""
    settings = {"dim": 16, "vocab": 8, "position": "rope"}
    few = _config(**settings, heads={"count": 4, "kv": 2})
    many = _config(**settings, heads={"count": 4, "kv": 4})
    one, other = (part_of(m.mixer)(m.mixer, m, PLACE) for m in (few, many))
    D = few.head_dim
    with torch.no_grad():
        one.heads.qkv.bias.normal_()
        for name in ("weight", "bias"):
            q, k, v = getattr(one.heads.qkv, name).split((4 * D, 2 * D, 2 * D))
            k, v = (x.unflatten(0, (2, D)).repeat_interleave(2, 0).flatten(0, 1) for x in (k, v))
            getattr(other.heads.qkv, name).copy_(torch.cat((q, k, v)))
            getattr(other.out, name).copy_(getattr(one.out, name))
    x, layout = torch.randn(3, 5, 16), Layout.padded([5, 2, 4])
    rope = part_of(few.position)(few.position, few, PLACE)
    context = Context(layout, SameSegment() & Causal(), rope)
    got, want = (m(x, context) for m in (one, other))
    torch.testing.assert_close(got[layout.real], want[layout.real])


def test_score_is_scaled_by_the_width_dotted() -> None:
    """Of a head, not of the model; also where a head's width is set by itself."""
    for settings, width in (
        ({"dim": 16, "heads": {"count": 2, "dim": 9}}, 9),
        ({"dim": 128, "heads": 2}, 64),
    ):
        model = _config(**settings)
        attention = part_of(model.mixer)(model.mixer, model, PLACE)
        assert attention.score.scale == pytest.approx(width**-0.5)
