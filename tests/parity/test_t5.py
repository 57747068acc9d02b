"""T5 of ``transformers`` at equal weights, in float64: logits, loss and all gradients.

Pre-norm with RMSNorm, no biases, products that are not scaled, and a bias by distance whose table all layers
of a stack share. 1.0: ReLU, tied, hidden states over √dim before the output. 1.1: gated GELU, untied.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from parity.weights import Match, model_of, shaken
from triptych.config.objectives import DenoiseObjective
from triptych.data import IGNORE, translation_batch
from triptych.objectives import TokenLoss

V, C, H, D, FF = 37, 24, 4, 5, 36
SOURCES = [[5, 9, 4, 11, 36], [7, 8, 20, 6, 6, 13, 9, 28, 36, 5, 35], [36], [10, 5, 5, 12, 21, 4]]
TARGETS = [[36, 4, 11], [36, 20, 6, 6, 35, 9], [4, 9, 9, 30, 31, 7, 5], []]
# Their norm, their softmax and both buckets are in fp32.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def _t5(gated: bool, tied: bool, layers: int = 2, decoder_layers: int = 3) -> tuple[Any, Any, Match]:
    """Ours, theirs, and the pairing."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=V,
        d_model=C,
        d_kv=D,
        d_ff=FF,
        num_layers=layers,
        num_decoder_layers=decoder_layers,
        num_heads=H,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=9,
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu" if gated else "relu",
        tie_word_embeddings=tied,
        pad_token_id=0,
        decoder_start_token_id=2,
        eos_token_id=3,
    )
    torch.manual_seed(0)
    theirs: Any = T5ForConditionalGeneration(config)
    assert theirs.config.scale_decoder_outputs == tied
    if not tied:  # transformers 5 ties also what is not scaled; the published 1.1 have a map of its own
        theirs.lm_head.weight = torch.nn.Parameter(torch.randn(V, C))
    theirs = shaken(theirs).double()
    ours: Any = model_of(
        {
            "form": "encoder_decoder",
            "vocab": V,
            "dim": C,
            "encoder_layers": layers,
            "decoder_layers": decoder_layers,
            "heads": {"count": H, "dim": D, "bias": False},
            "attention": {"score": "dot"},
            "position": {"kind": "t5", "buckets": 8, "distance": 9},
            "norm": {"kind": "rmsnorm", "placement": "pre", "eps": 1e-6},
            "ffn": {"kind": "geglu_tanh" if gated else "relu", "dim": FF, "bias": False},
            # Source and target share a table in both versions; 1.1 has an output map of its own.
            "tie": "all" if tied else "source",
            "scale_embedding": False,
            "output": {"scale": tied},
        }
    ).double()
    match = Match()
    for stack, their in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        match.layer(stack.norm, their.final_layer_norm)
        match.put(stack.position.table, their.block[0].layer[0].SelfAttention.relative_attention_bias.weight)
        for block, layer in zip(stack.blocks, their.block, strict=True):
            own, *cross, wide = layer.layer
            match.layer(block.mixer.heads.qkv, *(getattr(own.SelfAttention, n) for n in "qkv"))
            match.layer(block.mixer.out, own.SelfAttention.o)
            match.layer(block.mixer_residual.norm, own.layer_norm)
            for one in cross:
                match.layer(block.cross.heads.q, one.EncDecAttention.q)
                match.layer(block.cross.heads.kv, one.EncDecAttention.k, one.EncDecAttention.v)
                match.layer(block.cross.out, one.EncDecAttention.o)
                match.layer(block.cross_residual.norm, one.layer_norm)
            maps = wide.DenseReluDense
            match.layer(block.ffn.inner, *((maps.wi_0, maps.wi_1) if gated else (maps.wi,)))
            match.layer(block.ffn.outer, maps.wo)
            match.layer(block.ffn_residual.norm, wide.layer_norm)
    match.put(ours.source_embedding.weight, theirs.shared.weight)
    if not tied:
        match.put(ours.output.weight, theirs.lm_head.weight)
    return ours, theirs, match


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("gated", "tied"), [(False, True), (True, False), (True, True)], ids=["1.0", "1.1", "gated and tied"]
)
def test_t5(gated: bool, tied: bool, side: Any) -> None:
    ours, theirs, match = _t5(gated, tied)
    batch = translation_batch(SOURCES, TARGETS, range(4), side)
    real, seen = batch.layout.real, batch.given[1].real
    given = {
        "input_ids": batch.source,
        "attention_mask": seen.long(),
        "decoder_input_ids": batch.ids,
        "decoder_attention_mask": real.long(),
    }
    got = ours(*batch.given, batch.ids, batch.layout)
    labels = batch.targets.masked_fill(batch.targets == IGNORE, -100)
    said = theirs(**given, labels=labels)
    torch.testing.assert_close(got[real], said.logits[real], **CLOSE)
    loss = TokenLoss(DenoiseObjective()).loss(ours, batch)
    assert loss.count == sum(len(row) + 1 for row in TARGETS)
    mean = loss.sum / loss.count
    torch.testing.assert_close(mean.double(), said.loss.double(), rtol=1e-5, atol=1e-6)
    mean.backward()
    said.loss.backward()
    match.assert_gradients(ours, theirs, rtol=1e-4, atol=1e-6)


def test_the_scale_is_seen() -> None:
    """Without it logits are √dim times as large."""
    ours, _, _ = _t5(False, True)
    hidden: Tensor = torch.randn(3, C, dtype=torch.float64)
    plain = hidden @ ours.output.weight.t()
    torch.testing.assert_close(ours.output(hidden) * C**0.5, plain)
