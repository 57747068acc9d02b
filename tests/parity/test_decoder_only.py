"""The decoder-only form against Llama and GPT-2 of ``transformers`` at equal weights: logits, gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from parity.weights import Match, model_of, ragged_ids, shaken, transposed
from triptych.config import DecodingConfig
from triptych.decoding import PromptSteps, search
from triptych.layout import Layout

V, C = 29, 32
LENGTHS = [5, 9, 1, 7]


def llama(tied: bool, kv: int, head_dim: int = 8, base: float = 10000.0) -> tuple[Any, Any, Match]:
    """Ours, theirs, and the pairing."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=V,
        hidden_size=C,
        intermediate_size=44,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv,
        head_dim=head_dim,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": base},
        tie_word_embeddings=tied,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
    )
    torch.manual_seed(0)
    theirs: Any = shaken(LlamaForCausalLM(config).eval())
    ours: Any = model_of(
        {
            "form": "decoder",
            "vocab": V,
            "dim": C,
            "layers": 2,
            "heads": {"count": 4, "kv": kv, "dim": head_dim, "bias": False},
            "position": {"kind": "rope", "base": base},
            "norm": {"kind": "rmsnorm", "placement": "pre", "eps": 1e-6},
            "ffn": {"kind": "swiglu", "dim": 44},
            "tie": "decoder" if tied else "none",
            "scale_embedding": False,
        }
    )
    match = Match()
    for block, layer in zip(ours.decoder.blocks, theirs.model.layers, strict=True):
        own = layer.self_attn
        match.layer(block.mixer.heads.qkv, own.q_proj, own.k_proj, own.v_proj)
        match.layer(block.mixer.out, own.o_proj)
        match.layer(block.mixer_residual.norm, layer.input_layernorm)
        match.layer(block.ffn.inner, layer.mlp.gate_proj, layer.mlp.up_proj)
        match.layer(block.ffn.outer, layer.mlp.down_proj)
        match.layer(block.ffn_residual.norm, layer.post_attention_layernorm)
    match.layer(ours.decoder.norm, theirs.model.norm)
    match.layer(ours.embedding, theirs.model.embed_tokens)
    if not tied:
        match.layer(ours.output, theirs.lm_head)
    return ours, theirs, match


def gpt2(act: str = "gelu") -> tuple[Any, Any, Match]:
    """Ours, theirs (``act`` as they call it), and the pairing."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=V,
        n_positions=16,
        n_embd=C,
        n_layer=2,
        n_head=4,
        activation_function=act,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=2,
        eos_token_id=3,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    theirs: Any = shaken(GPT2LMHeadModel(config).eval())
    ours: Any = model_of(
        {
            "form": "decoder",
            "vocab": V,
            "dim": C,
            "layers": 2,
            "heads": 4,
            "position": {"kind": "learned", "max": 16},
            "norm": {"kind": "layernorm", "placement": "pre"},
            "ffn": {"kind": {"gelu_new": "gelu_tanh"}.get(act, act)},
            "tie": "all",
            "scale_embedding": False,
        }
    )
    match = Match()
    for block, layer in zip(ours.decoder.blocks, theirs.transformer.h, strict=True):
        match.layer(block.mixer.heads.qkv, layer.attn.c_attn, transposed=True)
        match.layer(block.mixer.out, layer.attn.c_proj, transposed=True)
        match.layer(block.mixer_residual.norm, layer.ln_1)
        match.layer(block.ffn.inner, layer.mlp.c_fc, transposed=True)
        match.put(block.ffn.outer.weight, transposed(layer.mlp.c_proj))
        match.put(block.ffn.outer.bias, layer.mlp.c_proj.bias)
        match.layer(block.ffn_residual.norm, layer.ln_2)
    match.layer(ours.decoder.norm, theirs.transformer.ln_f)
    match.layer(ours.embedding, theirs.transformer.wte)
    match.layer(ours.decoder.position.table, theirs.transformer.wpe)
    return ours, theirs, match


def _compare(ours: Any, theirs: Any, match: Match) -> None:
    ids, layout, real = ragged_ids(LENGTHS, V)
    got = ours(ids, layout)
    want = theirs(input_ids=ids, attention_mask=real.long()).logits
    torch.testing.assert_close(got[real], want[real], rtol=1e-4, atol=1e-5)
    weight = torch.randn(got.shape)
    for logits in (got, want):
        (logits * weight)[real].sum().backward()
    match.assert_gradients(ours, theirs, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kv", [4, 2, 1])
def test_llama(tied: bool, kv: int) -> None:
    _compare(*llama(tied, kv))


@pytest.mark.parametrize(("head_dim", "base"), [(6, 10000.0), (8, 500000.0)])
def test_llama_with_a_head_width_or_base_of_its_own(head_dim: int, base: float) -> None:
    _compare(*llama(True, 2, head_dim, base))


def test_gpt2() -> None:
    _compare(*gpt2())


@pytest.mark.parametrize("which", ["llama", "gpt2"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_greedy_from_padded_prompts(which: str, side: Any) -> None:
    """Our prompts padded on either side, theirs alone: the same continuations."""
    ours, theirs, _ = llama(True, 2) if which == "llama" else gpt2()
    ours.eval()
    prompts = [[2, 5, 9], [2], [2, 11, 4, 20, 6]]
    layout = Layout.padded([len(p) for p in prompts], side)
    ids = torch.zeros(layout.position.shape, dtype=torch.int64)
    ids[layout.real] = torch.tensor([i for p in prompts for i in p])
    with torch.inference_mode():
        found = search(PromptSteps(ours, ids, layout), [8] * 3, DecodingConfig(strategy="greedy"))
        for prompt, (got,) in zip(prompts, found, strict=True):
            want = theirs.generate(
                torch.tensor([prompt]), max_new_tokens=8, do_sample=False, suppress_tokens=[0, 2]
            )[0, len(prompt) :].tolist()
            assert list(got.ids) == [i for i in want if i != 3]
