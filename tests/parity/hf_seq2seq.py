"""Marian- and mBART-shaped models of ``transformers`` with our weights' twins: post-norm and pre-norm."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn

from parity.weights import Match, Rows, model_of, shaken
from triptych.layout import Layout
from triptych.model.stack import Block, Stack

C, H, FF, DEPTH, LONGEST = 16, 2, 24, 2, 24
SIZES = {
    "d_model": C,
    "encoder_layers": DEPTH,
    "decoder_layers": DEPTH,
    "encoder_attention_heads": H,
    "decoder_attention_heads": H,
    "encoder_ffn_dim": FF,
    "decoder_ffn_dim": FF,
    "max_position_embeddings": LONGEST,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}


def _pair_stack(match: Match, ours: Stack, theirs: Any) -> None:
    for block, layer in zip(ours.blocks, theirs.layers, strict=True):
        assert isinstance(block, Block)
        own = layer.self_attn
        match.layer(block.mixer.heads.qkv, own.q_proj, own.k_proj, own.v_proj)
        match.layer(block.mixer.out, own.out_proj)
        match.layer(block.mixer_residual.norm, layer.self_attn_layer_norm)
        if block.cross is not None:
            assert block.cross_residual is not None
            their = layer.encoder_attn
            match.layer(block.cross.heads.q, their.q_proj)
            match.layer(block.cross.heads.kv, their.k_proj, their.v_proj)
            match.layer(block.cross.out, their.out_proj)
            match.layer(block.cross_residual.norm, layer.encoder_attn_layer_norm)
        match.layer(block.ffn.inner, layer.fc1)
        match.layer(block.ffn.outer, layer.fc2)
        match.layer(block.ffn_residual.norm, layer.final_layer_norm)


def sharpen(theirs: nn.Module, scale: float) -> None:
    """Larger embeddings: a fresh model's distributions are nearly uniform, and its choices nearly tied."""
    with torch.no_grad():
        theirs.get_input_embeddings().weight.mul_(scale)  # type: ignore[operator]


def marian(vocab: int, act: str = "relu", scale: float = 12.0, seed: int = 0) -> tuple[Any, Any, Match]:
    """Ours, theirs (post-norm, sinusoidal positions, 3-way tied), and the pairing."""
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(seed)
    config = MarianConfig(vocab_size=vocab, scale_embedding=True, activation_function=act, **SIZES)
    theirs = MarianMTModel(config).eval()
    tables = [theirs.model.encoder.embed_positions, theirs.model.decoder.embed_positions]
    ours: Any = model_of(_settings(vocab, act, {"kind": "sinusoidal"}, "post", scaled=True))
    # Their sines stand before their cosines; ours alternate. The columns are theirs to choose: a permutation.
    order = torch.stack((torch.arange(C // 2), torch.arange(C // 2) + C // 2), 1).flatten()
    layout = Layout.full(1, LONGEST)
    waves = ours.encoder.position.embed(torch.zeros(1, LONGEST, C), layout)[0]
    for table in tables:
        torch.testing.assert_close(waves, table.weight[:, order], rtol=1e-5, atol=1e-6)
        table.weight.data.copy_(waves)
    shaken(nn.ModuleList([theirs.model.encoder.layers, theirs.model.decoder.layers]), seed)
    sharpen(theirs, scale)
    match = Match()
    _pair_stack(match, ours.encoder, theirs.model.encoder)
    _pair_stack(match, ours.decoder, theirs.model.decoder)
    match.put(ours.source_embedding.weight, theirs.model.shared.weight)
    return ours, theirs, match


def mbart(vocab: int, act: str = "gelu", scale: float = 12.0, seed: int = 0) -> tuple[Any, Any, Match]:
    """Ours, theirs (pre-norm, learned positions, 3-way tied), and the pairing."""
    from transformers import MBartConfig, MBartForConditionalGeneration

    torch.manual_seed(seed)
    config = MBartConfig(vocab_size=vocab, scale_embedding=False, activation_function=act, **SIZES)
    theirs = MBartForConditionalGeneration(config).eval()
    ours: Any = model_of(_settings(vocab, act, {"kind": "learned", "max": LONGEST}, "pre", scaled=False))
    match = Match()
    for stack, their in ((ours.encoder, theirs.model.encoder), (ours.decoder, theirs.model.decoder)):
        their.layernorm_embedding = nn.Identity()  # of mBART alone
        shaken(their.layers, seed)
        shaken(their.layer_norm, seed)
        _pair_stack(match, stack, their)
        match.layer(stack.norm, their.layer_norm)
        table = their.embed_positions.weight
        match.put(stack.position.table.weight, Rows(table, 2))  # their positions start at 2
        match.unused.append(Rows(table, 0, 2))
    sharpen(theirs, scale)
    match.put(ours.source_embedding.weight, theirs.model.shared.weight)
    return ours, theirs, match


def _settings(vocab: int, act: str, position: object, placement: str, scaled: bool) -> dict[str, object]:
    return {
        "form": "encoder_decoder",
        "vocab": vocab,
        "dim": C,
        "layers": DEPTH,
        "heads": {"count": H},
        "position": position,
        "norm": {"kind": "layernorm", "placement": placement},
        "ffn": {"kind": act, "dim": FF},
        "tie": "all",
        "scale_embedding": scaled,
    }


logging.getLogger("transformers").setLevel(logging.ERROR)
