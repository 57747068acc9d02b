"""The stacks against ``torch.nn.Transformer`` at equal weights, in fp64: values and every gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from parity.weights import Match, Rows, model_of, ragged_ids, shaken
from triptych.model.stack import Block, Stack

C, H, FF, V = 24, 4, 40, 17
TOLERANCE = {"rtol": 1e-9, "atol": 1e-11}


def _theirs(cross: bool, act: str, pre: bool, depth: int) -> nn.Module:
    """Their encoder or decoder; post-norm ends with the last block's norm, as in the paper."""
    kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
    layer = kind(C, H, FF, 0.0, act, batch_first=True, norm_first=pre, dtype=torch.float64)
    last = nn.LayerNorm(C, dtype=torch.float64) if pre else None
    if cross:
        return nn.TransformerDecoder(layer, depth, last)
    return nn.TransformerEncoder(layer, depth, last, enable_nested_tensor=False)


def _pair_stack(match: Match, ours: Stack, theirs: Any) -> None:
    for block, layer in zip(ours.blocks, theirs.layers, strict=True):
        assert isinstance(block, Block)
        own = layer.self_attn
        match.put(block.mixer.heads.qkv.weight, own.in_proj_weight)
        match.put(block.mixer.heads.qkv.bias, own.in_proj_bias)
        match.layer(block.mixer.out, own.out_proj)
        norms = [block.mixer_residual.norm, block.ffn_residual.norm]
        if block.cross is not None:
            assert block.cross_residual is not None
            their = layer.multihead_attn
            match.put(block.cross.heads.q.weight, Rows(their.in_proj_weight, 0, C))
            match.put(block.cross.heads.q.bias, Rows(their.in_proj_bias, 0, C))
            match.put(block.cross.heads.kv.weight, Rows(their.in_proj_weight, C))
            match.put(block.cross.heads.kv.bias, Rows(their.in_proj_bias, C))
            match.layer(block.cross.out, their.out_proj)
            norms.insert(1, block.cross_residual.norm)
        for i, norm in enumerate(norms):
            match.layer(norm, getattr(layer, f"norm{i + 1}"))
        match.layer(block.ffn.inner, layer.linear1)
        match.layer(block.ffn.outer, layer.linear2)
    if theirs.norm is not None:
        match.layer(ours.norm, theirs.norm)


def _settings(form: str, act: str, pre: bool) -> dict[str, object]:
    return {
        "form": form,
        "vocab": V,
        "dim": C,
        "layers": 2,
        "heads": {"count": H},
        "position": "none",
        "norm": {"kind": "layernorm", "placement": "pre" if pre else "post"},
        "ffn": {"kind": act, "dim": FF},
        "tie": "none",
        "scale_embedding": False,
    }


def _objective(hidden: Tensor, real: Tensor) -> Tensor:
    """A number whose gradient reaches every real hidden value with a weight of its own."""
    weight = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(5), dtype=hidden.dtype)
    return (hidden * weight)[real].sum()


@pytest.mark.parametrize("act", ["relu", "gelu"])
@pytest.mark.parametrize("pre", [False, True], ids=["post", "pre"])
def test_encoder_decoder(act: str, pre: bool) -> None:
    ours: Any = model_of(_settings("encoder_decoder", act, pre)).double()
    theirs = nn.Transformer(
        C,
        H,
        custom_encoder=_theirs(False, act, pre, 2),
        custom_decoder=_theirs(True, act, pre, 2),
        batch_first=True,
        dtype=torch.float64,
    )
    shaken(theirs)
    match = Match()
    _pair_stack(match, ours.encoder, theirs.encoder)
    _pair_stack(match, ours.decoder, theirs.decoder)
    source, source_layout, source_real = ragged_ids([5, 7, 2], V, seed=1)
    target, target_layout, target_real = ragged_ids([6, 1, 4], V, seed=2)
    hidden = ours.decode(target, target_layout, ours.encode(source, source_layout))
    theirs_in = [
        t.detach().clone().requires_grad_()
        for t in (ours.source_embedding.weight, ours.target_embedding.weight)
    ]
    want = theirs(
        theirs_in[0][source],
        theirs_in[1][target],
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64).isinf(),
        src_key_padding_mask=~source_real,
        tgt_key_padding_mask=~target_real,
        memory_key_padding_mask=~source_real,
        tgt_is_causal=False,
    )
    torch.testing.assert_close(hidden[target_real], want[target_real], **TOLERANCE)
    _objective(hidden, target_real).backward()
    _objective(want, target_real).backward()
    torch.testing.assert_close(ours.source_embedding.weight.grad, theirs_in[0].grad, **TOLERANCE)
    torch.testing.assert_close(ours.target_embedding.weight.grad, theirs_in[1].grad, **TOLERANCE)
    match.assert_gradients(nn.ModuleList([ours.encoder, ours.decoder]), theirs, **TOLERANCE)


@pytest.mark.parametrize("act", ["relu", "gelu"])
@pytest.mark.parametrize("pre", [False, True], ids=["post", "pre"])
@pytest.mark.parametrize("form", ["encoder", "decoder"])
def test_one_stack(form: str, act: str, pre: bool) -> None:
    """The encoder-only form, and the decoder-only form as an encoder under a causal mask."""
    ours: Any = model_of(_settings(form, act, pre)).double()
    theirs = shaken(_theirs(False, act, pre, 2))
    match = Match()
    stack = ours.encoder if form == "encoder" else ours.decoder
    _pair_stack(match, stack, theirs)
    ids, layout, real = ragged_ids([3, 6, 1, 5], V)
    hidden = ours.encode(ids, layout) if form == "encoder" else ours.decode(ids, layout)
    table = ours.embedding.weight.detach().clone().requires_grad_()
    causal = torch.ones(6, 6, dtype=torch.bool).triu(1) if form == "decoder" else None
    want = theirs(table[ids], mask=causal, src_key_padding_mask=~real)
    torch.testing.assert_close(hidden[real], want[real], **TOLERANCE)
    _objective(hidden, real).backward()
    _objective(want, real).backward()
    torch.testing.assert_close(ours.embedding.weight.grad, table.grad, **TOLERANCE)
    match.assert_gradients(stack, theirs, **TOLERANCE)


def test_the_comparison_can_fail() -> None:
    """A wrong epsilon, or a mask that is one off, is far outside the tolerance."""
    ours: Any = model_of(_settings("decoder", "relu", False)).double()
    theirs = shaken(_theirs(False, "relu", False, 2))
    match = Match()
    _pair_stack(match, ours.decoder, theirs)
    ids, layout, real = ragged_ids([6, 6], V)
    hidden = ours.decode(ids, layout)
    late = torch.ones(6, 6, dtype=torch.bool).triu(2)
    assert (hidden - theirs(ours.embedding(ids), mask=late))[real].abs().max() > 1e-3
    ours.decoder.blocks[0].ffn_residual.norm.eps = 1e-6
    exact = torch.ones(6, 6, dtype=torch.bool).triu(1)
    difference = (ours.decode(ids, layout) - theirs(ours.embedding(ids), mask=exact)).abs().max()
    assert difference > 1e-8
