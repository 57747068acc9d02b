"""What is visible against ``transformers`` at equal weights (Mistral, Ministral, Longformer, BigBird), and
against masks written in numpy from the papers (BigBird's random blocks, prefix language models)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from parity.weights import Match, model_of, ragged_ids, shaken
from triptych.config import ModelConfig
from triptych.layout import Layout
from triptych.model.registry import Context, Place, part_of
from triptych.model.visible import sight

V, C, W = 29, 32, 6


def _pair(kinds: list[str], kv: int) -> tuple[Any, Any, Match]:
    """Mistral, or Ministral where layers differ, and ours."""
    from transformers import MinistralConfig, MinistralForCausalLM, MistralConfig, MistralForCausalLM

    shape: dict[str, Any] = {
        "vocab_size": V,
        "hidden_size": C,
        "intermediate_size": 44,
        "num_hidden_layers": len(kinds),
        "num_attention_heads": 4,
        "num_key_value_heads": kv,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "sliding_window": W,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
        "attn_implementation": "eager",
    }
    torch.manual_seed(0)
    theirs: Any
    if set(kinds) == {"window"}:
        theirs = MistralForCausalLM(MistralConfig(**shape))
    else:
        layers = ["sliding_attention" if kind == "window" else "full_attention" for kind in kinds]
        theirs = MinistralForCausalLM(MinistralConfig(**shape, layer_types=layers))
    theirs = shaken(theirs.double().eval())
    visible = [{"kind": kind, "width": W} if kind == "window" else kind for kind in kinds]
    ours: Any = model_of(
        {
            "form": "decoder",
            "vocab": V,
            "dim": C,
            "layers": len(kinds),
            "heads": {"count": 4, "kv": kv, "bias": False},
            "attention": {"visible": visible},
            "position": "rope",
            "norm": {"kind": "rmsnorm", "placement": "pre", "eps": 1e-6},
            "ffn": {"kind": "swiglu", "dim": 44},
            "tie": "none",
            "scale_embedding": False,
        }
    ).double()
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
    match.layer(ours.output, theirs.lm_head)
    return ours, theirs, match


LOCAL_AND_GLOBAL = ["window"] * 5 + ["everything"]


@pytest.mark.parametrize("kinds", [["window"] * 2, LOCAL_AND_GLOBAL], ids=["mistral", "5 to 1"])
@pytest.mark.parametrize("kv", [4, 1])
def test_sliding_windows(kinds: list[str], kv: int) -> None:
    """Logits and gradients of rows up to many windows long; the longest is cut into blocks."""
    ours, theirs, match = _pair(kinds, kv)
    ids, layout, real = ragged_ids([150, W - 1, W, W + 1, 40], V)
    got = ours(ids, layout)[real]
    # Theirs row by row: padding that a window has passed sees nothing, and is NaN there.
    want = torch.cat([theirs(input_ids=row[own][None]).logits[0] for row, own in zip(ids, real, strict=True)])
    # Rotary angles are in fp32 on both sides, and rounded in another order.
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    weight = torch.randn(got.shape, dtype=got.dtype)
    for logits in (got, want):
        (logits * weight).sum().backward()
    match.assert_gradients(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kinds", [["window"] * 2, LOCAL_AND_GLOBAL], ids=["mistral", "5 to 1"])
@torch.no_grad()
def test_sliding_windows_with_a_cache(kinds: list[str]) -> None:
    """Chunks and steps over both caches, each of which drops what a window has passed."""
    from transformers import DynamicCache

    ours, theirs, _ = _pair(kinds, 2)
    ids, state, cache = torch.randint(4, V, (2, 60)), ours.start(), DynamicCache(config=theirs.config)
    whole = ours(ids, Layout.full(2, 60))
    at = 0
    for length in (9, 1, 1, 12, 3, *[1] * 34):
        layout = Layout.full(2, 60).narrow(at, at + length)
        new = ids[:, at : at + length]
        got = ours.output(ours.decode(new, layout, state=state))
        want = theirs(input_ids=new, past_key_values=cache, use_cache=True).logits
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(got, whole[:, at : at + length], rtol=0, atol=1e-10)
        at += length
    assert at == 60
    assert state.layers[0].keys.length < 30 and cache.layers[0].get_seq_length() == 60


def _same_gradients(
    ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor], real: Tensor, **near: float
) -> None:
    """Of what went in, from the same gradients of what came out: ``(out, in)`` of each, where tokens are."""
    weight = torch.randn(ours[0].shape, dtype=ours[0].dtype)
    for out, _ in (ours, theirs):
        (out * weight)[real].sum().backward()
    (_, mine), (_, their) = ours, theirs
    assert mine.grad is not None and their.grad is not None
    torch.testing.assert_close(mine.grad[real], their.grad[real], **near)


@pytest.mark.parametrize(("window", "count"), [(4, 1), (8, 3), (6, 6)])
def test_longformer(window: int, count: int) -> None:
    """Its attention, with its maps for global tokens equal to the others: outputs and gradients. A window of
    ``window`` there is ``window / 2`` to either side."""
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    torch.manual_seed(0)
    theirs: Any = LongformerSelfAttention(
        LongformerConfig(
            hidden_size=16,
            num_attention_heads=2,
            attention_window=[window],
            attention_probs_dropout_prob=0.0,
            num_hidden_layers=1,
        ),
        layer_id=0,
    ).double()
    for name in ("query", "key", "value"):
        getattr(theirs, f"{name}_global").load_state_dict(getattr(theirs, name).state_dict())
    model = ModelConfig.parse(
        {
            "form": "encoder",
            "dim": 16,
            "heads": 2,
            "position": "none",
            "attention": {
                "visible": {
                    "kind": "any",
                    "of": [
                        {"kind": "window", "width": window // 2 + 1},
                        {"kind": "global", "count": count},
                    ],
                }
            },
        }
    )
    place = Place(causal=False)
    ours = part_of(model.mixer)(model.mixer, model, place).double()  # type: ignore[arg-type]
    match = Match()
    match.layer(ours.heads.qkv, theirs.query, theirs.key, theirs.value)
    with torch.no_grad():
        ours.out.weight.copy_(torch.eye(16))
        ours.out.bias.zero_()
    layout = Layout.padded([48, 21, 9])
    real = layout.real
    x = torch.randn(3, 48, 16, dtype=torch.float64)
    mine, their = x.clone().requires_grad_(), x.clone().requires_grad_()
    position = part_of(model.position)(model.position, model, place)
    seen = sight(model.attention.visible, False)  # type: ignore[arg-type]
    got = ours(mine, Context(layout, seen, position))
    first = real & (layout.position < count)
    want = theirs(
        their,
        attention_mask=torch.where(real, 0.0, -10000.0).masked_fill(first, 10000.0),
        is_index_masked=~real,
        is_index_global_attn=first,
        is_global_attn=True,
    )[0]
    # Their softmax is in fp32.
    torch.testing.assert_close(got[real], want[real], rtol=1e-5, atol=1e-6)
    _same_gradients((got, mine), (want, their), real, rtol=1e-4, atol=1e-5)


def _blocks_of(seen: np.ndarray, size: int) -> np.ndarray:
    """A mask of whole blocks as a matrix of blocks."""
    n = len(seen) // size
    cut = seen.reshape(n, size, n, size).transpose(0, 2, 1, 3).reshape(n, n, -1)
    assert (cut.all(-1) == cut.any(-1)).all(), "a block is seen in part"
    return cut.all(-1)


@pytest.mark.parametrize(("size", "draws", "seed"), [(4, 1, 0), (3, 2, 5), (1, 3, 9)])
def test_bigbird(size: int, draws: int, seed: int) -> None:
    """Zaheer et al. 2020, figure 1 and appendix D, in blocks: three of a window, the first one global, and
    random ones, which are what remains: as many as are drawn, and as often the one as the other."""
    n = 16
    given = {"kind": "any", "of": [{"kind": "blocks", "size": size}, {"kind": "global", "count": size}]}
    random = {"kind": "random", "size": size, "count": draws, "seed": seed}

    def seen(data: dict[str, Any], causal: bool = False) -> np.ndarray:
        config = ModelConfig.parse({"dim": 8, "heads": 2, "attention": {"visible": data}})
        rows = Layout.full(1, n * size)
        return sight(config.attention.visible, causal)(rows, rows)[0].numpy()  # type: ignore[arg-type]

    i, j = np.mgrid[:n, :n]
    figure = (abs(i - j) <= 1) | (i == 0) | (j == 0)
    assert (_blocks_of(seen(given), size) == figure).all()
    drawn = _blocks_of(seen(random), size)
    assert (drawn == drawn.T).all() and drawn.diagonal().all()
    assert (np.tril(drawn, -1).sum(1) == np.minimum(np.arange(n), draws)).all()
    whole = _blocks_of(seen({"kind": "any", "of": [*given["of"], random]}), size)
    assert (whole == (figure | drawn)).all()
    # A decoder sees of all this what is not later.
    causal = seen({"kind": "any", "of": [*given["of"], random]}, causal=True)
    assert (causal == np.tril(seen({"kind": "any", "of": [*given["of"], random]}))).all()


def test_bigbird_is_transformers() -> None:
    """Its block-sparse attention, outputs and gradients. There the last block is global too, and random
    blocks may be those of the window: here the last block is padding, and all random blocks are that one."""
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

    torch.manual_seed(0)
    size, n, last = 4, 12, 44
    theirs: Any = BigBirdBlockSparseAttention(
        BigBirdConfig(
            hidden_size=16,
            num_attention_heads=2,
            block_size=size,
            num_random_blocks=1,
            max_position_embeddings=1024,
        )
    ).double()
    theirs._bigbird_block_rand_mask_with_head = lambda *_, **__: [np.full((n - 2, 1), n - 1)] * 2
    seen = {"kind": "any", "of": [{"kind": "blocks", "size": size}, {"kind": "global", "count": size}]}
    data = {"form": "encoder", "dim": 16, "heads": 2, "position": "none", "attention": {"visible": seen}}
    model = ModelConfig.parse(data)
    place = Place(causal=False)
    ours = part_of(model.mixer)(model.mixer, model, place).double()  # type: ignore[arg-type]
    Match().layer(ours.heads.qkv, theirs.query, theirs.key, theirs.value)
    with torch.no_grad():
        ours.out.weight.copy_(torch.eye(16))
        ours.out.bias.zero_()
    layout = Layout.padded([last, 30, last, 9], width=n * size)
    real = layout.real
    x = torch.randn(4, n * size, 16, dtype=torch.float64)
    mine, their = x.clone().requires_grad_(), x.clone().requires_grad_()
    position = part_of(model.position)(model.position, model, place)
    sights = sight(model.attention.visible, False)  # type: ignore[arg-type]
    got = ours(mine, Context(layout, sights, position))
    blocked, band, rows, keys = BigBirdModel.create_masks_for_block_sparse_attn(real.double(), size)
    want = theirs(
        their,
        band_mask=band,
        from_mask=rows,
        to_mask=keys,
        from_blocked_mask=blocked,
        to_blocked_mask=blocked,
    )[0]
    torch.testing.assert_close(got[real], want[real], rtol=1e-9, atol=1e-11)
    _same_gradients((got, mine), (want, their), real, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("length", [1, 3, 8])
def test_prefix_language_model(length: int) -> None:
    """Raffel et al. 2020, figure 4: full attention within the prefix, causal behind it."""
    config = ModelConfig.parse(
        {
            "form": "decoder",
            "dim": 8,
            "heads": 2,
            "attention": {"visible": {"kind": "prefix", "length": length}},
        }
    )
    rows = Layout.full(1, 8)
    want = np.tril(np.ones((8, 8), bool))
    want[:length, :length] = True
    assert (sight(config.attention.visible, True)(rows, rows)[0].numpy() == want).all()  # type: ignore[arg-type]
