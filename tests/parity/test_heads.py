"""Attention's heads and what shapes its scores, against ``transformers`` at equal weights.

Values and gradients of one attention over ragged rows, in float64; and where norms stand in a block.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parity.weights import Match, Rows, shaken
from triptych.config import ModelConfig, RunConfig
from triptych.layout import Layout
from triptych.model.norm import Parallel, Residual, deep
from triptych.model.registry import Context, Place, part_of
from triptych.model.scores import Additive, Cosine
from triptych.model.visible import sight

C, H, T = 24, 4, 6
LENGTHS = [6, 3, 1]
PLACE = Place(causal=True)


def _config(**model: Any) -> ModelConfig:
    return RunConfig.parse({"model": {"form": "decoder", "dim": C, "dropout": 0.0, **model}}).model


def _ours(model: ModelConfig) -> tuple[Any, Context]:
    """Our attention, and the pass it is in."""
    settings = model.mixers("decoder")[0]
    layout = Layout.padded(LENGTHS)
    position = part_of(model.position)(model.position, model, PLACE)
    attention = part_of(settings)(settings, model, PLACE).double()
    return attention, Context(layout, sight(model.attention.visible, causal=True), position)


def _theirs(family: str, prefix: str, **settings: Any) -> tuple[Any, Any]:
    """Attention 0 of a family of ``transformers``, and its rotary angles for T positions."""
    from transformers import AutoConfig

    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    base = {
        "hidden_size": C, "num_attention_heads": H, "num_key_value_heads": H, "num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "attention_dropout": 0.0,
    }  # fmt: skip
    config: Any = AutoConfig.for_model(family, **{**base, **settings})
    config._attn_implementation = "eager"
    attention = shaken(getattr(module, f"{prefix}Attention")(config, 0).double())
    rotary = getattr(module, f"{prefix}RotaryEmbedding")(config)
    return attention, rotary(torch.zeros(1, T, C, dtype=torch.float64), torch.arange(T)[None])


def _compare(ours: Any, context: Context, theirs: Any, angles: Any, match: Match) -> None:
    real = context.layout.real
    seen = real[:, None, :] & torch.ones(T, T, dtype=torch.bool).tril()
    mask = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -1e30)[:, None]
    x = torch.randn(3, T, C, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    got = ours(a, context)
    want = theirs(hidden_states=b, position_embeddings=angles, attention_mask=mask)[0]
    # Angles are in fp32 on both sides and rounded in another order: they differ by 1e-7.
    torch.testing.assert_close(got[real], want[real], rtol=1e-5, atol=1e-6)
    weight = torch.randn(got.shape, dtype=torch.float64)
    for y in (got, want):
        (y * weight)[real].sum().backward()
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-6)
    match.assert_gradients(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("query", [None, 10])
def test_latent_heads_are_deepseeks(query: int | None) -> None:
    D, L, R = 6, 8, 4
    model = _config(
        heads={"kind": "mla", "count": H, "dim": D, "latent": L, "rotary": R, "query": query, "bias": False},
        position="rope",
    )
    ours, context = _ours(model)
    theirs, angles = _theirs(
        "deepseek_v3", "DeepseekV3", kv_lora_rank=L, q_lora_rank=query, qk_nope_head_dim=D, v_head_dim=D,
        qk_rope_head_dim=R, head_dim=R, rope_interleave=False, attention_bias=False,
    )  # fmt: skip
    match = Match()
    down = theirs.kv_a_proj_with_mqa.weight
    match.put(ours.heads.down.weight, Rows(down, 0, L))
    match.put(ours.heads.rotary.weight, Rows(down, L))
    match.layer(ours.heads.latent_norm, theirs.kv_a_layernorm)
    match.layer(ours.heads.up, theirs.kv_b_proj)
    match.layer(ours.out, theirs.o_proj)
    if query:
        match.layer(ours.heads.q_down, theirs.q_a_proj)
        match.layer(ours.heads.q_latent_norm, theirs.q_a_layernorm)
        match.layer(ours.heads.q, theirs.q_b_proj)
    else:
        match.layer(ours.heads.q, theirs.q_proj)
    _compare(ours, context, theirs, angles, match)


def test_latent_heads_keep_the_latent_alone() -> None:
    model = _config(heads={"kind": "mla", "count": H, "dim": 6, "latent": 8, "rotary": 4}, position="rope")
    ours, context = _ours(model)
    _, kept = ours.heads.project(torch.randn(3, T, C, dtype=torch.float64), context.position, context.layout)
    assert [tuple(x.shape) for x in kept] == [(3, 1, T, 8), (3, 1, T, 4)]


def test_normalised_queries_and_keys_are_qwens() -> None:
    model = _config(heads={"count": H, "kv": 2, "bias": False, "qk_norm": True}, position="rope")
    ours, context = _ours(model)
    theirs, angles = _theirs(
        "qwen3", "Qwen3", num_key_value_heads=2, head_dim=C // H, attention_bias=False, rms_norm_eps=1e-6
    )
    match = Match()
    match.layer(ours.heads.qkv, theirs.q_proj, theirs.k_proj, theirs.v_proj)
    match.layer(ours.heads.q_norm, theirs.q_norm)
    match.layer(ours.heads.k_norm, theirs.k_norm)
    match.layer(ours.out, theirs.o_proj)
    _compare(ours, context, theirs, angles, match)


def test_capped_scores_are_gemmas() -> None:
    model = _config(heads={"count": H, "bias": False}, position="rope", attention={"softcap": 0.3})
    ours, context = _ours(model)
    theirs, angles = _theirs(
        "gemma2", "Gemma2", head_dim=C // H, attn_logit_softcapping=0.3, query_pre_attn_scalar=C // H,
        attention_bias=False, layer_types=["full_attention"],
    )  # fmt: skip
    match = Match()
    match.layer(ours.heads.qkv, theirs.q_proj, theirs.k_proj, theirs.v_proj)
    match.layer(ours.out, theirs.o_proj)
    _compare(ours, context, theirs, angles, match)


def test_sinks_are_those_of_gpt_oss() -> None:
    model = _config(heads={"count": H, "kv": 2}, position="rope", attention={"sinks": True})
    ours, context = _ours(model)
    theirs, angles = _theirs(
        "gpt_oss", "GptOss", num_key_value_heads=2, head_dim=C // H, attention_bias=True,
        layer_types=["full_attention"],
    )  # fmt: skip
    match = Match()
    match.layer(ours.heads.qkv, theirs.q_proj, theirs.k_proj, theirs.v_proj)
    match.layer(ours.out, theirs.o_proj)
    match.put(ours.sink, theirs.sinks)
    # Their angles are of half the width: both halves of a head turn alike.
    _compare(ours, context, theirs, angles, match)


def test_cosine_score() -> None:
    model = _config(heads=H, attention={"score": "cosine"})
    score = Cosine(model.attention.score, model, 5).double()  # type: ignore[arg-type]
    with torch.no_grad():
        score.log_temperature.copy_(torch.tensor([0.0, 1.0, 2.0, -1.0]))
    q, k = (torch.randn(2, H, 3, 5, dtype=torch.float64) for _ in "qk")
    got = score.compare(q, k).detach().numpy()
    for b, h, t, s in np.ndindex(*got.shape):
        a, c = q[b, h, t].numpy(), k[b, h, s].numpy()
        want = np.exp([0.0, 1.0, 2.0, -1.0][h]) * (a @ c) / np.sqrt((a @ a) * (c @ c))
        assert got[b, h, t, s] == pytest.approx(want, rel=1e-9)


def test_additive_score() -> None:
    model = _config(heads=H, attention={"score": "additive"})
    score = shaken(Additive(model.attention.score, model, 5).double())  # type: ignore[arg-type]
    W, U, v = (x.detach().numpy() for x in (score.query.weight, score.key.weight, score.v))  # type: ignore[union-attr]
    q, k = (torch.randn(2, H, n, 5, dtype=torch.float64) for n in (3, 4))
    got = score.compare(q, k).detach().numpy()  # type: ignore[operator]
    for b, h, t, s in np.ndindex(*got.shape):
        want = v[h] @ np.tanh(W @ q[b, h, t].numpy() + U @ k[b, h, s].numpy())
        assert got[b, h, t, s] == pytest.approx(want, rel=1e-9)


# -- where norms stand


def _norm(module: nn.Module, x: Tensor) -> np.ndarray:
    """RMSNorm from its formula."""
    gain, a = module.weight.detach().numpy(), x.detach().numpy()  # type: ignore[operator, union-attr]
    out: np.ndarray = a / np.sqrt((a**2).mean(-1, keepdims=True) + 1e-6) * gain
    return out


@pytest.mark.parametrize("placement", ["post", "pre", "sandwich", "deep"])
def test_residuals_are_their_formulas(placement: str) -> None:
    model = _config(norm={"kind": "rmsnorm", "placement": placement, "eps": 1e-6}, tie="none", heads=H)
    residual: Any = shaken(Residual(model, Place(causal=True, depth=3)).double())
    f = nn.Linear(C, C).double()
    x = torch.randn(2, 3, C, dtype=torch.float64)

    def g(y: np.ndarray) -> Tensor:
        out: Tensor = f(torch.from_numpy(y))
        return out

    plain = x.numpy()
    want = {
        "post": lambda: _norm(residual.norm, torch.from_numpy(plain + g(plain).detach().numpy())),
        "pre": lambda: plain + g(_norm(residual.norm, x)).detach().numpy(),
        "sandwich": lambda: plain + _norm(residual.after, g(_norm(residual.norm, x))),
        "deep": lambda: _norm(
            residual.norm, torch.from_numpy((2 * 3) ** 0.25 * plain + g(plain).detach().numpy())
        ),
    }[placement]()
    np.testing.assert_allclose(residual(x, f).detach().numpy(), want, rtol=1e-9)


def test_parallel_sublayers_share_a_norm() -> None:
    model = _config(norm={"kind": "rmsnorm", "placement": "parallel", "eps": 1e-6}, heads=H)
    block: Any = shaken(Parallel(model).double())
    f, g = nn.Linear(C, C).double(), nn.Linear(C, C).double()
    x = torch.randn(2, 3, C, dtype=torch.float64)
    n = torch.from_numpy(_norm(block.norm, x))
    want = x + f(n) + g(n)
    torch.testing.assert_close(block(x, [f, g]), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("place", "alpha", "beta"),
    [
        # Wang et al. 2022, figure 2, with N = 18 encoder and M = 6 decoder layers.
        (Place(causal=False, depth=18, other=6), 0.81 * 629856 ** (1 / 16), 0.87 / 629856 ** (1 / 16)),
        (Place(causal=True, depth=6, other=18), 18**0.25, 72**-0.25),
        (Place(causal=True, depth=12), 24**0.25, 96**-0.25),
        (Place(causal=False, depth=12), 24**0.25, 96**-0.25),
    ],
)  # fmt: skip
def test_deepnorm_constants(place: Place, alpha: float, beta: float) -> None:
    assert deep(place) == pytest.approx((alpha, beta))


def test_deepnorm_begins_with_smaller_values_and_outputs() -> None:
    from triptych.model import build

    plain = {"vocab": 30, "layers": 2, "heads": H, "tie": "none"}
    a: Any = build(_config(**plain), seed=3)
    b: Any = build(_config(**plain, norm={"placement": "deep"}), seed=3)
    beta = deep(Place(causal=True, depth=2))[1]
    for one, other in zip(a.decoder.blocks, b.decoder.blocks, strict=True):
        q, v = (slice(0, 2 * C), slice(2 * C, 3 * C))
        torch.testing.assert_close(other.mixer.heads.qkv.weight[q], one.mixer.heads.qkv.weight[q])
        torch.testing.assert_close(other.mixer.heads.qkv.weight[v], beta * one.mixer.heads.qkv.weight[v])
        for x, y in ((other.mixer.out, one.mixer.out), (other.ffn.inner, one.ffn.inner)):
            torch.testing.assert_close(x.weight, beta * y.weight)
