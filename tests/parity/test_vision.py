"""Images and grids against ``transformers`` and ``torch``: ViT, Swin, deformable attention, gates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from parity.weights import Match, shaken
from triptych.config import ModelConfig
from triptych.data.images import patches, tokens
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import build, cost
from triptych.model.grids import Axial, Cells, pick, slots
from triptych.model.registry import Context, Place, part_of
from triptych.model.stack import Stack
from triptych.model.visible import SameSegment

C, H = 16, 2
PLACE = Place(causal=False)


def _config(**model: Any) -> ModelConfig:
    base = {"form": "encoder", "dim": C, "layers": 2, "heads": H, "dropout": 0.0, "position": "none"}
    return ModelConfig.parse({**base, **model})


def _mixer(model: ModelConfig) -> tuple[Any, Any]:
    """A fresh mixer in float64, moved a little; and the positions."""
    settings = model.mixers("encoder")[0]
    mixer = shaken(part_of(settings)(settings, model, PLACE)).double()
    return mixer, part_of(model.position)(model.position, model, PLACE)


def _run(model: ModelConfig, mixer: Any, x: Tensor, layout: Layout) -> Tensor:
    position = part_of(model.position)(model.position, model, PLACE)
    y: Tensor = mixer(x, Context(layout, SameSegment(), position))
    return y


def _pair_encoder(match: Match, ours: Any, theirs: Any) -> None:
    """Blocks of ViT or Swin, whose layers are named alike."""
    for block, layer in zip(ours.blocks, theirs, strict=True):
        own = layer.attention
        match.layer(block.mixer.heads.qkv, own.q_proj, own.k_proj, own.v_proj)
        match.layer(block.mixer.out, own.o_proj)
        match.layer(block.mixer_residual.norm, layer.layernorm_before)
        match.layer(block.ffn.inner, layer.mlp.fc1)
        match.layer(block.ffn.outer, layer.mlp.fc2)
        match.layer(block.ffn_residual.norm, layer.layernorm_after)


# -- patches and ViT


@pytest.mark.parametrize("size", [(8, 12), (12, 4), (4, 4)])
def test_patches_are_a_convolutions(size: tuple[int, int]) -> None:
    """Row by row; inside, channel by channel and row by row."""
    image, kernel = torch.randn(2, 3, *size), torch.randn(5, 3, 4, 4)
    want = F.conv2d(image, kernel, stride=4).flatten(2).transpose(1, 2)
    torch.testing.assert_close(patches(image, 4) @ kernel.flatten(1).T, want, rtol=1e-4, atol=1e-4)
    assert torch.equal(patches(image, 4), F.unfold(image, 4, stride=4).transpose(1, 2))


def _image_model(size: tuple[int, int], channels: int, classes: int, **model: Any) -> Any:
    """A classifier of images in patches of 4 × 4."""
    embedding = {"kind": "patches", "size": 4, "channels": channels} | dict(
        zip(("height", "width"), size, strict=True)
    )
    embedding |= {"class_token": model.pop("class_token", False)}
    output = {"kind": "classes", "count": classes}
    return build(_config(embedding=embedding, output=output, scale_embedding=False, **model), seed=1)


def _said(model: Any, image_BZHW: Tensor) -> Tensor:
    """Logits of images whose values go from -1 to 1."""
    shown = tokens((image_BZHW.permute(0, 2, 3, 1) + 1) * 127.5, model.config.embedding)
    logits: Tensor = model(shown, Layout.full(*shown.shape[:2]))
    return logits


def test_classifier_is_vit() -> None:
    """At equal weights: logits, and gradients of every parameter. A class token stands last here and first
    there: which position it has does not matter, as long as it has one of its own."""
    from transformers import ViTConfig, ViTForImageClassification

    size, N = (12, 20), 15
    theirs: Any = ViTForImageClassification(
        ViTConfig(
            hidden_size=C, num_hidden_layers=2, num_attention_heads=H, intermediate_size=24, image_size=size,
            patch_size=4, num_labels=5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            layer_norm_eps=1e-12, attn_implementation="sdpa",
        )
    )  # fmt: skip
    shaken(theirs.double().train())
    ours = _image_model(
        size, 3, 5, class_token=True, position={"kind": "learned", "max": N + 1},
        norm={"placement": "pre", "eps": 1e-12}, ffn={"kind": "gelu", "dim": 24},
    ).double()  # fmt: skip
    match = Match()
    _pair_encoder(match, ours.encoder, theirs.vit.layers)
    match.layer(ours.encoder.norm, theirs.vit.layernorm)
    match.layer(ours.output.map, theirs.classifier)
    match.put(ours.embedding.map.bias, theirs.vit.embeddings.patch_embeddings.projection.bias)
    apart = [
        (ours.embedding.map.weight, theirs.vit.embeddings.patch_embeddings.projection.weight, slice(None)),
        (ours.embedding.token, theirs.vit.embeddings.cls_token, slice(None)),
        (
            ours.encoder.position.table.weight,
            theirs.vit.embeddings.position_embeddings,
            [*range(1, N + 1), 0],
        ),
    ]
    with torch.no_grad():
        for mine, their, rows in apart:
            mine.copy_(their.view(-1, *mine.shape[1:])[rows].view(mine.shape))
    image = torch.randn(3, 3, *size, dtype=torch.float64)
    got, want = _said(ours, image), theirs(image).logits
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)
    (got**2).sum().backward()
    (want**2).sum().backward()
    for mine, their, rows in apart:
        their = their.grad.view(-1, *mine.shape[1:])[rows].view(mine.shape)
        torch.testing.assert_close(mine.grad, their, rtol=1e-8, atol=1e-10)
    for part, their in (("encoder.blocks", theirs.vit.layers), ("output.map", theirs.classifier)):
        match.assert_gradients(ours.get_submodule(part), their, rtol=1e-8, atol=1e-10)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


# -- grids: what is visible


def _raster(rows: int, columns: int) -> Layout:
    return Layout.full(1, rows * columns)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("cells", [(2, 2), (3, 2), (2, 4)])
@pytest.mark.parametrize("shifted", [False, True])
def test_cells_are_swins_windows(size: int, cells: tuple[int, int], shifted: bool) -> None:
    """Its partition of the cyclically shifted image, with its mask, sees what we see."""
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinLayer, window_partition

    rows, columns = cells[0] * size, cells[1] * size
    layer: Any = SwinLayer(
        SwinConfig(window_size=size), C, (rows, columns), H, shift_size=size // 2 if shifted else 0
    )
    number = torch.arange(rows * columns).view(1, rows, columns, 1)
    inside = window_partition(layer.cyclic_shift(number), size).flatten(1)  # [windows, size²]
    mask = layer.get_attn_mask(rows, columns, torch.float32, torch.device("cpu"))
    want = torch.zeros(rows * columns, rows * columns, dtype=torch.bool)
    for i, places in enumerate(inside):
        want[places[:, None], places] = True if mask is None else mask[i] == 0
    seen = Cells(columns, size, size // 2 if shifted else 0)
    layout = _raster(rows, columns)
    assert torch.equal(seen(layout, layout)[0], want)


def test_blocks_are_swins() -> None:
    """Two layers, plain and shifted, without relative bias: values and all gradients."""
    from transformers import SwinConfig
    from transformers.models.swin.modeling_swin import SwinLayer

    rows, columns, size = 4, 8, 2
    config = SwinConfig(
        window_size=size, mlp_ratio=2.0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    config._attn_implementation = "sdpa"
    theirs = nn.ModuleList(
        shaken(SwinLayer(config, C, (rows, columns), H, shift_size=i * size // 2), seed=i) for i in range(2)
    ).double()
    for layer in theirs:
        for name, p in layer.named_parameters():
            if "relative_position_bias" in name:
                p.requires_grad_(False).zero_()
    cells = {"kind": "cells", "width": columns, "size": size}
    model = _config(
        attention={"visible": [cells, {**cells, "shifted": True}]}, ffn={"kind": "gelu", "dim": 2 * C},
        norm={"placement": "pre"},
    )  # fmt: skip
    ours: Any = Stack(model, causal=False).double()
    ours.norm = nn.Identity()
    match = Match()
    _pair_encoder(match, ours, theirs)
    x = torch.randn(3, rows * columns, C, dtype=torch.float64)
    got, want = ours(x, Layout.full(3, rows * columns)), x
    for layer in theirs:
        want = layer(want, (rows, columns))[0]
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)
    (got**2).sum().backward()
    (want**2).sum().backward()
    match.assert_gradients(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("axis", ["row", "column", "both"])
def test_axial_attention_is_along_an_axis(axis: str) -> None:
    """Along one axis: attention over each row, or column, as a sequence of its own (Ho et al. 2019)."""
    rows, columns = 3, 5
    q, k, v = (torch.randn(1, 1, rows * columns, 4, dtype=torch.float64) for _ in range(3))
    layout = _raster(rows, columns)
    seen = Axial(columns, axis)(layout, layout)
    got = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    if axis == "both":
        grid = np.arange(rows * columns).reshape(rows, columns)
        for t in range(rows * columns):
            r, c = divmod(t, columns)
            assert set(seen[0, t].nonzero()[:, 0].tolist()) == {*grid[r], *grid[:, c]}
        return
    along = [x.view(rows, columns, 4) for x in (q, k, v)]
    if axis == "column":
        along = [x.transpose(0, 1) for x in along]
    want = F.scaled_dot_product_attention(*along)
    want = want if axis == "row" else want.transpose(0, 1)
    torch.testing.assert_close(got.view(rows, columns, 4), want)


# -- grids: where tokens stand


@given(
    st.lists(st.lists(st.integers(-1, 3), min_size=6, max_size=6), min_size=1, max_size=3),
    st.integers(2, 4),
    st.integers(0, 99),
)
def test_slots_are_looked_up(segments: list[list[int]], width: int, seed: int) -> None:
    """Any row, packed, padded and out of order, against a dictionary."""
    generator = torch.Generator().manual_seed(seed)
    segment = torch.tensor(segments)
    position = torch.stack([torch.randperm(12, generator=generator)[:6] for _ in segments])
    layout = Layout(position, segment)
    row = torch.randint(-2, 7, (*segment.shape, 5), generator=generator)
    column = torch.randint(-2, width + 2, row.shape, generator=generator)
    got = slots(layout, width, row, column)
    for b in range(len(segments)):
        real = [t for t in range(6) if segments[b][t] >= 0]
        there = {(segments[b][t], *divmod(int(position[b, t]), width)): t for t in real}
        for t in range(6):
            for i in range(5):
                place = (segments[b][t], int(row[b, t, i]), int(column[b, t, i]))
                assert got[b, t, i] == there.get(place, 6)
    x = torch.randn(len(segments), 6, 2, 3)
    picked = pick(x, got[:, :, None].expand(-1, -1, 2, -1))
    assert not picked[(got == 6)[:, :, None].expand(-1, -1, 2, -1)].any()


# -- deformable


@pytest.mark.parametrize("size", [(4, 5), (3, 3)])
def test_deformable_is_detrs(size: tuple[int, int]) -> None:
    """One level of Deformable DETR at equal weights, in, across and outside the border; with gradients."""
    from transformers import DeformableDetrConfig
    from transformers.models.deformable_detr.modeling_deformable_detr import (
        DeformableDetrMultiscaleDeformableAttention,
    )

    rows, columns = size
    K = 3
    theirs: Any = DeformableDetrMultiscaleDeformableAttention(
        DeformableDetrConfig(d_model=C, num_feature_levels=1), num_heads=H, n_points=K
    )
    shaken(theirs.double(), seed=3)
    with torch.no_grad():
        theirs.sampling_offsets.weight.mul_(3)
        theirs.sampling_offsets.bias.uniform_(-2, 2)
    model = _config(mixer={"kind": "deformable", "width": columns, "points": K})
    ours, _ = _mixer(model)
    match = Match()
    match.layer(ours.value, theirs.value_proj)
    match.layer(ours.out, theirs.output_proj)

    def joined(part: str) -> Tensor:
        """Their two maps as our one: for each head and point two offsets and a weight."""
        offset, weight = (getattr(m, part) for m in (theirs.sampling_offsets, theirs.attention_weights))
        return torch.cat((offset.view(H, K, 2, -1), weight.view(H, K, 1, -1)), 2)

    with torch.no_grad():
        ours.ask.copy_(joined("weight").flatten(0, 2))
        ours.start.copy_(joined("bias").squeeze(-1))
    N = rows * columns
    x = torch.randn(2, N, C, dtype=torch.float64, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    row, column = (torch.arange(N) // columns).double(), (torch.arange(N) % columns).double()
    reference = torch.stack(((column + 0.5) / columns, (row + 0.5) / rows), -1)
    want, _ = theirs(
        y, encoder_hidden_states=y, reference_points=reference[None, :, None].expand(2, -1, -1, -1),
        spatial_shapes=torch.tensor([size]), spatial_shapes_list=[size], level_start_index=torch.tensor([0]),
    )  # fmt: skip
    got = _run(model, ours, x, Layout.full(2, N))
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)
    (got**2).sum().backward()
    (want**2).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-7, atol=1e-9)
    for mine, place, rows_of in match.pairs:
        assert mine.grad is not None and rows_of.parameter.grad is not None
        torch.testing.assert_close(mine.grad[place], rows_of.of(rows_of.parameter.grad), rtol=1e-7, atol=1e-9)
    for layer in (theirs.sampling_offsets, theirs.attention_weights):
        layer.weight.data, layer.bias.data = layer.weight.grad, layer.bias.grad
    torch.testing.assert_close(ours.ask.grad, joined("weight").flatten(0, 2), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(ours.start.grad, joined("bias").squeeze(-1), rtol=1e-7, atol=1e-9)


def test_deformable_begins_with_directions() -> None:
    """Eight heads look at the eight neighbours, and further by one step a point."""
    model = _config(heads=8, mixer={"kind": "deformable", "width": 4, "points": 2})
    settings = model.mixers("encoder")[0]
    mixer: Any = part_of(settings)(settings, model, PLACE)
    near = mixer.start[:, 0, :2].round(decimals=5)
    assert {(int(a), int(b)) for a, b in near.tolist()} == {
        (a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)
    }
    torch.testing.assert_close(mixer.start[:, 1], 2 * mixer.start[:, 0])
    assert not mixer.ask.any() and not mixer.start[..., 2].any()


# -- gates


def test_channel_gates_are_squeeze_and_excitation() -> None:
    from transformers.models.regnet.modeling_regnet import RegNetSELayer

    model = _config(mixer={"kind": "channel", "inner": 6})
    ours, _ = _mixer(model)
    theirs: Any = RegNetSELayer(C, 6).double()
    with torch.no_grad():
        for mine, their in ((ours.inner, theirs.attention[0]), (ours.outer, theirs.attention[2])):
            their.weight.copy_(mine.weight[:, :, None, None])
            their.bias.copy_(mine.bias)
    x = torch.randn(2, 12, C, dtype=torch.float64)
    want = theirs(x.transpose(1, 2).view(2, C, 3, 4)).flatten(2).transpose(1, 2)
    got = _run(model, ours, x, Layout.full(2, 12))
    torch.testing.assert_close(got, ours.out(want), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_spatial_gates_are_a_convolution(size: int) -> None:
    """σ(conv([mean; max])) · x (Woo et al. 2018, equation 3), its border padded with zeros."""
    rows, columns = 4, 5
    model = _config(mixer={"kind": "spatial", "width": columns, "size": size})
    ours, _ = _mixer(model)
    x = torch.randn(2, rows * columns, C, dtype=torch.float64)
    image = x.transpose(1, 2).view(2, C, rows, columns)
    maps = torch.stack((image.mean(1), image.amax(1)), 1)
    kernel = ours.map.weight.view(1, 2, size, size)
    want = (image * F.conv2d(maps, kernel, padding=size // 2).sigmoid()).flatten(2).transpose(1, 2)
    got = _run(model, ours, x, Layout.full(2, rows * columns))
    torch.testing.assert_close(got, ours.out(want), rtol=1e-10, atol=1e-12)


# -- the classifier

GRIDS: dict[str, dict[str, Any]] = {
    "vit": {"position": {"kind": "learned", "max": 17}},
    "axial": {"attention": {"visible": {"kind": "axial", "width": 4}}, "position": "sinusoidal"},
    "cells": {
        "attention": {
            "visible": [{"kind": "cells", "width": 4, "size": 2, "shifted": shifted} for shifted in (0, 1)]
        },
        "position": "sinusoidal",
    },
    "deformable": {"mixer": {"kind": "deformable", "width": 4, "points": 2}, "position": "sinusoidal"},
    "gates": {
        "mixer": [{"kind": "spatial", "width": 4, "size": 3}, "channel"], "position": "sinusoidal",
    },
    "bottleneck": {"mixer": {"kind": "bottleneck", "latents": 4}, "position": "sinusoidal"},
}  # fmt: skip


def _classifier(kind: str, **model: Any) -> Any:
    settings = {"norm": {"placement": "pre"}, "ffn": {"dim": 32}, **GRIDS[kind], **model}
    return _image_model((16, 16), 1, 4, class_token=kind == "vit", **settings)


def _quadrants(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noise with a bright square of 5 pixels somewhere in one of four quadrants, and which one."""
    generator = torch.Generator().manual_seed(seed)
    image = 0.3 * torch.randn(count, 1, 16, 16, generator=generator)
    which = torch.randint(0, 4, (count,), generator=generator)
    corner = torch.randint(0, 4, (count, 2), generator=generator)
    for i, (y, x) in enumerate((corner + 8 * torch.stack((which // 2, which % 2), 1)).tolist()):
        image[i, 0, y : y + 5, x : x + 5] += 1
    return image, which


@pytest.mark.parametrize("kind", GRIDS)
def test_tiny_images_are_learned(kind: str) -> None:
    """Which quadrant holds the bright square, on images never seen."""
    torch.manual_seed(0)
    model = _classifier(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(150):
        image, which = _quadrants(64, seed=step)
        optimizer.zero_grad()
        F.cross_entropy(_said(model, image), which).backward()
        optimizer.step()
    image, which = _quadrants(500, seed=10**6)
    with torch.no_grad():
        right = (_said(model.eval(), image).argmax(1) == which).double().mean()
    assert right > 0.95, f"{float(right):.3f}"


@pytest.mark.parametrize("kind", GRIDS)
@pytest.mark.parametrize("wide", [False, True])
def test_classifier_is_accounted(kind: str, wide: bool) -> None:
    """Parameters and operations of matrix products, exactly; every parameter has a gradient."""
    # As many settings of heads as the kind has use for.
    own = {"deformable": {"dim": 6}, "gates": {}}.get(kind, {"kv": 1, "dim": 6}) if wide else {}
    model = _classifier(kind, heads={"count": 2, **own})
    said = cost(model.config, batch=3, length=model.config.embedding.tokens)
    assert said.parameters == sum(p.numel() for p in model.parameters())
    with FlopCounterMode(display=False) as counter:
        y = _said(model, torch.randn(3, 1, 16, 16))
    assert said.flops == counter.get_total_flops()
    y.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())


@pytest.mark.parametrize("kind", GRIDS)
def test_images_are_alone(kind: str) -> None:
    """An image gives the same alone and in a batch."""
    model, image = _classifier(kind).double().eval(), torch.randn(3, 1, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(_said(model, image)[1:2], _said(model, image[1:2]), rtol=1e-11, atol=1e-12)


def test_order_of_patches_matters_with_positions_alone() -> None:
    """Without positions an encoder sees a bag of patches; with them, an image turned over is another."""
    image = torch.randn(2, 1, 16, 16)
    for kind, settings, same in (("vit", {"position": "none"}, True), ("vit", {}, False)):
        model = _classifier(kind, **settings).eval()
        moved = image.view(2, 1, 4, 4, 16).flip(2).reshape(2, 1, 16, 16)  # rows of patches upside down
        close = torch.allclose(_said(model, image), _said(model, moved), atol=1e-5)
        assert close == same


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"form": "encoder_decoder"}, "form encoder"),
        ({"output": "vocabulary"}, "classes, tags or vector"),
        ({"embedding": {"height": 18}}, "16 or 20"),
        ({"mixer": {"kind": "deformable", "width": 5}}, "set it to 4"),
        ({"mixer": {"kind": "spatial", "width": 8}}, "set it to 4"),
        ({"attention": {"visible": {"kind": "axial", "width": 8}}}, "set it to 4"),
        ({"attention": {"visible": {"kind": "any", "of": [{"kind": "axial", "width": 8}, "everything"]}}},
         "set it to 4"),
        ({"attention": {"visible": {"kind": "cells", "width": 4, "size": 2}},
          "embedding": {"class_token": True}}, "output.pool be mean"),
        ({"position": {"kind": "learned", "max": 15}}, "set it to 16"),
        ({"position": {"kind": "learned", "max": 16}, "embedding": {"class_token": True}}, "set it to 17"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(settings: Any, said: str) -> None:
    embedding = {"kind": "patches", "size": 4, "height": 16, "width": 16} | settings.pop("embedding", {})
    with pytest.raises(UserError, match=said):
        _config(**{"embedding": embedding, "output": "classes", **settings})


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"mixer": {"kind": "spatial", "width": 4, "size": 4}}, "odd number"),
        ({"attention": {"visible": {"kind": "cells", "width": 4, "size": 1}}}, "size"),
        ({"mixer": {"kind": "retrieval", "width": 3}}, "retrieval only goes forwards"),
    ],
)
def test_settings_that_cannot_be(model: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        _config(**model)
