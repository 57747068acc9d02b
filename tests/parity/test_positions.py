"""Position schemes against ``transformers``, and against their papers' formulas written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from parity.weights import Match, shaken
from triptych.config import ModelConfig, RunConfig
from triptych.layout import Layout
from triptych.model.positions.biases import slopes
from triptych.model.registry import Context, Place, part_of
from triptych.model.visible import sight

C, H, D = 24, 4, 6
LENGTHS = [7, 3, 1]
SMALL = {"form": "decoder", "dim": C, "layers": 1, "heads": H, "dropout": 0.0}


def _config(**model: Any) -> ModelConfig:
    return RunConfig.parse({"model": {**SMALL, **model}}).model


def _position(model: ModelConfig, causal: bool = True) -> Any:
    """The positions of a stack, every parameter moved, in float64."""
    position = part_of(model.position)(model.position, model, Place(causal=causal))
    return shaken(position.double())


def _at(*rows: list[int]) -> Layout:
    position = torch.tensor(rows)
    return Layout(position, torch.zeros_like(position))


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


# -- sinusoidal


def test_halves_are_marians() -> None:
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    want = MarianSinusoidalPositionalEmbedding(40, C).create_weight()
    position = _position(_config(position={"kind": "sinusoidal", "layout": "halves"}))
    got = position.embed(torch.zeros(1, 40, C), Layout.full(1, 40))[0]
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


def test_halves_with_an_offset_are_fairseqs() -> None:
    """Fairseq's waves end at exactly 1/10000: that is a base of 10000^(n/(n-1)), n half the width."""
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    theirs: Any = M2M100SinusoidalPositionalEmbedding(40, C, padding_idx=1)
    want = theirs(input_ids=torch.full((1, 40), 5))[0]
    base = 10000 ** (C / 2 / (C / 2 - 1))
    position = _position(
        _config(position={"kind": "sinusoidal", "layout": "halves", "offset": 2, "base": base})
    )
    got = position.embed(torch.zeros(1, 40, C), Layout.full(1, 40))[0]
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


# -- rotary

SCALINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"kind": "none"}, {"rope_type": "default"}),
    ({"kind": "linear", "factor": 3.0}, {"rope_type": "linear", "factor": 3.0}),
    (
        {"kind": "dynamic", "factor": 2.0, "original": 64, "length": 200},
        {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 64},
    ),
    (
        {"kind": "yarn", "factor": 8.0, "original": 64},
        {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64},
    ),
    (
        {"kind": "yarn", "factor": 2.5, "original": 4096, "beta_fast": 16, "beta_slow": 2,
         "attention_factor": 1.3},
        {"rope_type": "yarn", "factor": 2.5, "original_max_position_embeddings": 4096, "beta_fast": 16.0,
         "beta_slow": 2.0, "attention_factor": 1.3},
    ),
    (
        {"kind": "llama3", "factor": 8.0, "original": 512, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 512,
         "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    ),
]  # fmt: skip


def _llama(width: int, base: float, parameters: dict[str, Any], most: int = 64) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=2 * width,
        num_attention_heads=2,
        max_position_embeddings=most,
        rope_parameters={"rope_theta": base, **parameters},
    )


@pytest.mark.parametrize(("ours", "theirs"), SCALINGS, ids=lambda x: str(x.get("kind", "")))
@pytest.mark.parametrize(
    ("width", "base", "share"), [(16, 10000.0, 1.0), (64, 500000.0, 0.5), (8, 100.0, 1.0)]
)
def test_rates_are_transformers(
    ours: dict[str, Any], theirs: dict[str, Any], width: int, base: float, share: float
) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding

    config = _llama(width, base, {**theirs, "partial_rotary_factor": share})
    plain = GPTNeoXRotaryEmbedding.compute_default_rope_parameters
    functions = {**ROPE_INIT_FUNCTIONS, "default": plain}
    length = {"seq_len": ours["length"]} if "length" in ours else {}
    want, factor = functions[theirs["rope_type"]](config, "cpu", **length)
    settings = {"kind": "rope", "base": base, "share": share, "scaling": ours}
    rope = _position(_config(dim=2 * width, heads=2, position=settings))
    torch.testing.assert_close(torch.tensor(rope.rates), want, rtol=3e-6, atol=0)
    assert rope.settings.scaling.stretch == pytest.approx(factor)


@pytest.mark.parametrize(("ours", "theirs"), SCALINGS, ids=lambda x: str(x.get("kind", "")))
def test_turned_queries_and_keys_are_llamas(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Up to the length that dynamic scaling is set to serve, which is the length of this text."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    width, T = 16, 200
    layout = _at(list(range(T)), list(range(T))[::-1])
    q, k = torch.randn(2, 4, T, width), torch.randn(2, 2, T, width)
    cos, sin = LlamaRotaryEmbedding(_llama(width, 10000.0, theirs))(q, layout.position)
    rope = _position(_config(dim=2 * width, heads=2, position={"kind": "rope", "scaling": ours}))
    want = apply_rotary_pos_emb(q, k, cos, sin)
    for mine, their in zip(rope.rotate(q, k, layout), want, strict=True):
        torch.testing.assert_close(mine, their, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_interleaved_is_gpt_js(share: float) -> None:
    from transformers.models.gptj import modeling_gptj as theirs

    width, T = 16, 30
    n, layout = int(share * width), _at(list(range(T)), list(range(5, T + 5)))
    waves = theirs.create_sinusoidal_positions(64, n)[layout.position]
    sin, cos = waves.chunk(2, -1)
    q, k = torch.randn(2, 4, T, width), torch.randn(2, 4, T, width)
    settings = {"kind": "rope", "layout": "interleaved", "share": share}
    got = _position(_config(dim=4 * width, position=settings)).rotate(q, k, layout)
    for before, after in zip((q, k), got, strict=True):
        x = before.transpose(1, 2)
        turned = theirs.apply_rotary_pos_emb(x[..., :n], sin, cos)
        want = torch.cat((turned, x[..., n:]), -1).transpose(1, 2)
        torch.testing.assert_close(after, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_partial_halves_are_gpt_neoxs(share: float) -> None:
    from transformers import GPTNeoXConfig
    from transformers.models.gpt_neox import modeling_gpt_neox as theirs

    width, T = 16, 30
    parameters = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share}
    config = GPTNeoXConfig(hidden_size=4 * width, num_attention_heads=4, rope_parameters=parameters)
    layout = _at(list(range(T)), list(range(5, T + 5)))
    q, k = torch.randn(2, 4, T, width), torch.randn(2, 4, T, width)
    cos, sin = theirs.GPTNeoXRotaryEmbedding(config)(q, layout.position)
    want = theirs.apply_rotary_pos_emb(q, k, cos, sin)
    got = _position(_config(dim=4 * width, position={"kind": "rope", "share": share})).rotate(q, k, layout)
    for mine, their in zip(got, want, strict=True):
        torch.testing.assert_close(mine, their, rtol=1e-4, atol=1e-5)


# -- in attention


def _attention(model: ModelConfig, causal: bool) -> tuple[Any, Context]:
    """Our attention over ragged rows, and the pass it is in."""
    settings, place = model.mixers(model.stacks[0])[0], Place(causal=causal)
    attention = shaken(part_of(settings)(settings, model, place).double())
    seen = sight(model.attention.visible, causal)
    return attention, Context(Layout.padded(LENGTHS), seen, _position(model, causal))


def _heads(attention: Any, x_BTC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values ``[B, H, T, D]``, nothing done to them."""
    parts = attention.heads.qkv(x_BTC).chunk(3, -1)
    q, k, v = (y.view(*y.shape[:2], H, D).transpose(1, 2) for y in parts)
    return q, k, v


def _compare(attention: Any, context: Context, causal: bool, formula: Any) -> None:
    """Our attention and ``formula(q, k, v, seen)``, which gives heads' outputs ``[B, H, T, D]``: values, and
    gradients of input and of all parameters."""
    layout = context.layout
    seen = layout.real[:, None] & layout.real[:, :, None]
    if causal:
        seen = seen & torch.ones(layout.length, layout.length, dtype=torch.bool).tril()
    x, weight = _random(3, layout.length, C).requires_grad_(), _random(3, layout.length, C)
    learned = [x, *attention.parameters(), *context.position.parameters()]
    want = attention.out(formula(*_heads(attention, x), seen[:, None]).transpose(1, 2).flatten(2))
    got = attention(x, context)
    real = layout.real
    # Angles are in fp32.
    torch.testing.assert_close(got[real], want[real], rtol=1e-6, atol=1e-6)
    mine, theirs = (torch.autograd.grad((y * weight)[real].sum(), learned) for y in (got, want))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def _differences(layout: Layout) -> Tensor:
    """``[B, T, T]``, j - i."""
    return layout.position[:, None, :] - layout.position[:, :, None]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("clip", "score"), [(2, "scaled_dot"), (1, "dot"), (50, "scaled_dot")])
def test_shaw_is_its_formula(clip: int, score: str, causal: bool) -> None:
    """Equations 3 and 4 of the paper, with a vector for every query and key."""
    form = "decoder" if causal else "encoder"
    model = _config(form=form, position={"kind": "shaw", "clip": clip}, attention={"score": score})
    attention, context = _attention(model, causal)
    at: Any = context.position
    assert len(at.a) == (clip + 1 if causal else 2 * clip + 1)
    row = _differences(context.layout).clamp(-clip, 0 if causal else clip) + clip
    scale = D**-0.5 if score == "scaled_dot" else 1.0

    def formula(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
        a, b = at.a[row][:, None], at.b[row][:, None]  # [B, 1, T, T, D]
        scores = (q[:, :, :, None] * (k[:, :, None] + a)).sum(-1) * scale
        weights = scores.masked_fill(~seen, -1e30).softmax(-1)
        return (weights[..., None] * (v[:, :, None] + b)).sum(3)

    _compare(attention, context, causal, formula)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("score", ["scaled_dot", "dot"])
def test_transformer_xl_is_its_formula(score: str, causal: bool) -> None:
    """Terms a to d of section 3.3, with a sinusoid for every query and key."""
    form = "decoder" if causal else "encoder"
    model = _config(form=form, position="xl", attention={"score": score})
    attention, context = _attention(model, causal)
    at: Any = context.position
    rate = 10000.0 ** (-np.arange(0, C, 2) / C)
    angle = -_differences(context.layout).numpy()[..., None] * rate  # of i - j
    R = torch.from_numpy(np.concatenate((np.sin(angle), np.cos(angle)), -1))
    scale = D**-0.5 if score == "scaled_dot" else 1.0

    def formula(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
        r = (R @ at.W["0"].t()).view(*R.shape[:3], H, D)
        u, w = at.u[None, :, None], at.v[None, :, None]
        content = (q + u) @ k.transpose(-1, -2)
        place = torch.einsum("bhid,bijhd->bhij", q + w, r)
        return ((content + place) * scale).masked_fill(~seen, -1e30).softmax(-1) @ v

    _compare(attention, context, causal, formula)


def test_transformer_xl_is_xlnets() -> None:
    """Which sees both ways, with a memory of earlier tokens before it."""
    from transformers import XLNetConfig
    from transformers.models.xlnet.modeling_xlnet import XLNetModel

    T, M = 5, 4
    config = XLNetConfig(d_model=C, n_head=H, n_layer=1, d_inner=8, vocab_size=9, bi_data=False)
    model: Any = shaken(XLNetModel(config)).double().eval()
    theirs = model.layer[0].rel_attn
    h, memory = _random(T, 1, C), _random(M, 1, C)
    r = model.relative_positional_encoding(T, T + M, bsz=1).double()
    weights = theirs(h, None, None, None, r, None, mems=memory, output_attentions=True)[2]  # [i, j, b, n]
    at = _position(_config(form="encoder", position="xl"), causal=False)
    with torch.no_grad():
        at.u.copy_(theirs.r_w_bias)
        at.v.copy_(theirs.r_r_bias)
        at.W["0"].copy_(theirs.r.flatten(1).t())
    q = torch.einsum("ibh,hnd->bnid", h, theirs.q)
    k = torch.einsum("ibh,hnd->bnid", torch.cat((memory, h)), theirs.k)
    key = Layout.full(1, T + M)
    query = key.narrow(M, T + M)
    q, _ = at.rotate(q, k, query)
    scores = q @ k.transpose(-1, -2) * D**-0.5 + at.bias(q, query, key)
    want = weights[:, :, 0].permute(2, 0, 1)
    torch.testing.assert_close(scores.softmax(-1)[0], want, rtol=1e-5, atol=1e-6)


# -- T5


def _t5(buckets: int, distance: int, causal: bool) -> tuple[Any, Any]:
    """The settings of ours, and their attention."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(
        d_model=C, d_kv=D, num_heads=H, relative_attention_num_buckets=buckets,
        relative_attention_max_distance=distance, dropout_rate=0.0, is_decoder=causal,
    )  # fmt: skip
    config._attn_implementation = "eager"
    theirs = shaken(T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double())
    return {"kind": "t5", "buckets": buckets, "distance": distance}, theirs


T5S = pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 20), (32, 33), (6, 1000), (4, 3)])


@pytest.mark.parametrize("causal", [True, False])
@T5S
def test_buckets_are_t5s(buckets: int, distance: int, causal: bool) -> None:
    settings, theirs = _t5(buckets, distance, causal)
    ours = _position(_config(position=settings), causal)
    far = torch.arange(-2000, 2001)
    want = theirs._relative_position_bucket(far, not causal, buckets, distance)
    got = ours.bucket(far)
    assert torch.equal(got[far <= 0] if causal else got, want[far <= 0] if causal else want)


@pytest.mark.parametrize("causal", [True, False])
@T5S
def test_attention_is_t5s(buckets: int, distance: int, causal: bool) -> None:
    """The bias, and with the dot score all of T5's attention and its gradients."""
    settings, theirs = _t5(buckets, distance, causal)
    form = "decoder" if causal else "encoder"
    heads = {"count": H, "dim": D, "bias": False}
    ours, context = _attention(
        _config(form=form, position=settings, heads=heads, attention={"score": "dot"}), causal
    )
    match, layout, T = Match(), context.layout, max(LENGTHS)
    match.put(ours.heads.qkv.weight, theirs.q.weight, theirs.k.weight, theirs.v.weight)
    match.put(ours.out.weight, theirs.o.weight)
    ours.position = context.position
    match.put(context.position.table, theirs.relative_attention_bias.weight)  # type: ignore[arg-type]
    bias = context.position.bias(_random(1, H, T, D), Layout.full(1, T), Layout.full(1, T))
    seen = torch.ones(T, T, dtype=torch.bool).tril() | (not causal)
    torch.testing.assert_close(bias.masked_fill(~seen, 0), theirs.compute_bias(T, T).masked_fill(~seen, 0))
    x = _random(3, T, C)
    mask = torch.zeros(3, 1, T, T, dtype=torch.float64)
    mask = mask.masked_fill(~(seen & layout.real[:, None, None]), -1e30)
    got, want = ours(x, context), theirs(x, mask=mask)[0]
    torch.testing.assert_close(got[layout.real], want[layout.real])
    weight = _random(*got.shape)
    for y in (got, want):
        (y * weight)[layout.real].sum().backward()
    match.assert_gradients(ours, theirs, rtol=1e-9, atol=1e-10)


# -- ALiBi


@given(st.integers(1, 40))
def test_slopes_are_blooms(heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import _get_alibi_slopes

    want = _get_alibi_slopes(heads, torch.device("cpu"))
    torch.testing.assert_close(torch.tensor(slopes(heads)), want, rtol=1e-5, atol=0)


@pytest.mark.parametrize("heads", [8, 6, 1, 12])
def test_weights_are_blooms(heads: int) -> None:
    """Bloom adds m · j, and we -m · (i - j): a constant a row apart, which the softmax does not see."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    layout, T = Layout.padded(LENGTHS), max(LENGTHS)
    theirs = build_alibi_tensor(layout.real.long(), heads, torch.float64).view(3, heads, 1, T)
    ours = _position(_config(heads=heads, position="alibi")).bias(_random(3, heads, T, D), layout, layout)
    scores = _random(3, heads, T, T)
    seen = layout.real[:, None, None] & torch.ones(T, T, dtype=torch.bool).tril()
    got, want = ((scores + b).masked_fill(~seen, -1e30).softmax(-1) for b in (ours, theirs))
    real = layout.real[:, None, :, None].expand_as(got)
    torch.testing.assert_close(got[real], want[real], rtol=1e-5, atol=1e-7)


def test_alibi_is_its_formula_both_ways() -> None:
    at = _position(_config(form="encoder", heads=6, position="alibi"), causal=False)
    layout = Layout.full(2, 9)
    got = at.bias(_random(2, 6, 9, D), layout, layout)
    m = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    far = np.abs(np.subtract.outer(np.arange(9), np.arange(9)))
    np.testing.assert_array_equal(got[0].numpy(), -np.array(m)[:, None, None] * far)
    assert math.isclose(sum(m), -float(got[0, :, 0, 1].sum()))
