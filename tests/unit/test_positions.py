"""What position schemes promise: they go by layouts alone, share what layers share, work in blocks of
queries, in half precision, and over a memory of earlier segments; and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from triptych.config import ModelConfig
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import DecoderOnly, build
from triptych.model.attention import watch
from triptych.model.positions import Position
from triptych.model.registry import Context, Place, part_of
from triptych.model.visible import sight

H, D = 4, 6
POSITIONS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"kind": "sinusoidal", "layout": "halves", "offset": 2},
    "learned": {"kind": "learned", "max": 400},
    "rope": {"kind": "rope", "layout": "interleaved", "share": 2 / 3},
    "yarn": {"kind": "rope", "scaling": {"kind": "yarn", "factor": 4, "original": 32}},
    "shaw": {"kind": "shaw", "clip": 5},
    "t5": {"kind": "t5", "buckets": 8, "distance": 20},
    "alibi": {"kind": "alibi"},
    "xl": {"kind": "xl"},
    "none": {"kind": "none"},
}
ALL = pytest.mark.parametrize("kind", POSITIONS)
BIASED = ["shaw", "t5", "alibi", "xl"]


def _config(kind: str, **model: Any) -> ModelConfig:
    small = {"form": "decoder", "vocab": 20, "dim": H * D, "layers": 2, "heads": H, "ffn": {"dim": 32}}
    return ModelConfig.parse({**small, "dropout": 0.0, "position": POSITIONS[kind], **model})


def _position(kind: str, causal: bool) -> Position:
    """The positions of a stack, all parameters drawn."""
    model = _config(kind, form="decoder" if causal else "encoder")
    position: Position = part_of(model.position)(model.position, model, Place(causal=causal))
    for p in position.parameters():
        torch.nn.init.normal_(p)
    return position.double()


# -- layouts alone

slots = st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 2)), min_size=1, max_size=9)


@given(slots, st.randoms(use_true_random=False), st.sampled_from(BIASED), st.booleans())
def test_biases_go_by_positions_and_not_by_slots(
    row: list[tuple[int, int]], random: Any, kind: str, causal: bool
) -> None:
    """Slots in any order, with anything in between, and queries apart from keys: entries only move."""
    at, order = _position(kind, causal), list(range(len(row)))
    random.shuffle(order)
    asked = order[: random.randint(1, len(row))]
    position, segment = (torch.tensor([x]) for x in zip(*row, strict=True))
    whole = Layout(position, segment)
    query = Layout(position[:, asked], segment[:, asked])
    key = Layout(position[:, order], segment[:, order])
    q = torch.randn(1, H, len(row), D, dtype=torch.float64)
    want, got = at.bias(q, whole, whole), at.bias(q[:, :, asked], query, key)
    assert want is not None and got is not None
    torch.testing.assert_close(got, want[:, :, asked][..., order], rtol=1e-5, atol=1e-5)
    weights = torch.rand(1, H, len(asked), len(row), dtype=torch.float64)
    moved = torch.zeros(1, H, len(row), len(row), dtype=torch.float64)
    moved[:, :, torch.tensor(asked)[:, None], torch.tensor(order)] = weights
    brought, all_brought = at.values(query, key), at.values(whole, whole)
    if brought is not None and all_brought is not None:
        torch.testing.assert_close(brought(weights), all_brought(moved)[:, :, asked])


@pytest.mark.parametrize("kind", BIASED)
@pytest.mark.parametrize("causal", [True, False])
def test_alike_rows_share_a_bias(kind: str, causal: bool) -> None:
    at, q = _position(kind, causal), torch.randn(3, H, 5, D, dtype=torch.float64)
    position, segment = torch.arange(5).expand(3, 5), torch.zeros(3, 5, dtype=torch.int64)
    one, each = (at.bias(q, x, x) for x in (Layout.full(3, 5), Layout(position, segment)))
    assert one is not None and each is not None
    torch.testing.assert_close(one.expand_as(each), each)
    assert each.shape == (3, H, 5, 5)


def test_what_depends_on_layouts_alone_is_computed_once() -> None:
    layout, q = Layout.full(2, 5), torch.randn(2, H, 5, D, dtype=torch.float64)
    alibi, t5 = _position("alibi", True), _position("t5", True)
    assert alibi.bias(q, layout, layout) is alibi.bias(q, layout, layout)
    before = t5.bias(q, layout, layout)
    with torch.no_grad():
        for p in t5.parameters():
            p += 1
    after = t5.bias(q, layout, layout)
    assert before is not None and after is not None
    torch.testing.assert_close(after, before + 1)


# -- long sequences


def _pass(model: DecoderOnly, ids: Tensor, layout: Layout, whole: bool) -> tuple[Tensor, list[Tensor]]:
    """Logits of real tokens, and gradients; ``whole``: by the definition, all queries over all keys."""
    watch(model, whole)
    logits = model(ids, layout)[layout.real]
    watch(model, False)
    return logits, list(torch.autograd.grad(logits.pow(2).sum(), list(model.parameters())))


@ALL
@pytest.mark.parametrize("visible", ["everything", {"kind": "window", "width": 20}])
@pytest.mark.parametrize("side", ["right", "left"])
def test_300_tokens_in_blocks_are_those_at_once(kind: str, visible: Any, side: Any) -> None:
    """In blocks of queries where a window allows it, and by torch's kernels, which take long rows."""
    config = _config(kind, layers=1, attention={"visible": visible})
    model = build(config, seed=0).double()
    assert isinstance(model, DecoderOnly)
    layout = Layout.padded([300, 170], side)
    ids = torch.randint(0, 20, (2, 300))
    got, want = (_pass(model, ids, layout, whole) for whole in (False, True))
    torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-8)


# -- precision


@ALL
@pytest.mark.parametrize("form", ["decoder", "encoder"])
def test_a_step_in_bf16(kind: str, form: str) -> None:
    """Autocast gives the loss of full precision, nearly, and finite gradients to all."""
    model: Any = build(_config(kind, form=form), seed=0)
    ids, layout = torch.randint(0, 20, (3, 12)), Layout.padded([12, 5, 9])

    def loss(low: bool) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            logits = model(ids, layout)[layout.real]
        return torch.nn.functional.cross_entropy(logits.float(), (ids[layout.real] + 1) % 20)

    low = loss(True)
    low.backward()
    assert low.item() == pytest.approx(loss(False).item(), rel=0.02)
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@ALL
def test_a_model_in_bf16(kind: str) -> None:
    """Nothing brings another precision in."""
    model: Any = build(_config(kind), seed=0).bfloat16()
    assert model(torch.randint(0, 20, (2, 7)), Layout.padded([7, 4])).dtype == torch.bfloat16


# -- a memory of earlier segments (Dai et al. 2019, section 3.2)

LONG, CUT, WIDTH = 40, 16, 6


def _segments(kind: str) -> tuple[DecoderOnly, Tensor, Layout]:
    visible = {"kind": "window", "width": WIDTH}
    model = build(_config(kind, attention={"visible": visible}), seed=0).double()
    assert isinstance(model, DecoderOnly)
    return model, torch.randint(0, 20, (2, LONG)), Layout.full(2, LONG)


RELATIVE = pytest.mark.parametrize("kind", ["xl", "shaw", "t5", "alibi", "rope", "none"])


@RELATIVE
def test_segments_over_a_memory_are_one_pass(kind: str) -> None:
    """Each segment sees the last of the one before, as if the text had been fed at once."""
    model, ids, layout = _segments(kind)
    state, out = model.start(), []
    for start in range(0, LONG, CUT):
        stop = min(start + CUT, LONG)
        out.append(model.output(model.decode(ids[:, start:stop], layout.narrow(start, stop), state)))
        state.detach()
    torch.testing.assert_close(torch.cat(out, 1), model(ids, layout))


@RELATIVE
def test_a_detached_memory_takes_no_gradients(kind: str) -> None:
    """Those of a segment are those of its own tokens, whatever made the memory; segments add up in one
    backward pass."""
    model, ids, layout = _segments(kind)
    own = list(model.parameters())

    def losses(detached: bool) -> list[Tensor]:
        state, out = model.start(), []
        for start in range(0, LONG, CUT):
            stop = min(start + CUT, LONG)
            # Without gradients there is nothing to detach: what `detach` must be equal to.
            with torch.set_grad_enabled(detached or stop == LONG):
                hidden = model.decode(ids[:, start:stop], layout.narrow(start, stop), state)
                out.append(model.output(hidden).pow(2).sum())
            if detached:
                state.detach()
        return out

    each = losses(detached=True)
    got = torch.autograd.grad(each[-1], own, retain_graph=True)
    want = torch.autograd.grad(losses(detached=False)[-1], own)
    torch.testing.assert_close(got, want)
    summed = torch.autograd.grad(sum(each), own, retain_graph=True)  # type: ignore[type-var]
    alone = [torch.autograd.grad(loss, own, retain_graph=True) for loss in each]
    torch.testing.assert_close(summed, tuple(sum(x) for x in zip(*alone, strict=True)))
    full = torch.autograd.grad(model(ids, layout)[:, -(LONG % CUT) :].pow(2).sum(), own)
    assert any(not torch.allclose(a, b) for a, b in zip(got, full, strict=True))


# -- several layers


def test_transformer_xl_maps_differ_by_layer() -> None:
    """W of layer 1 moves what layer 1 does, and a layer without attention has none."""
    at, q, layout = _position("xl", True), torch.randn(1, H, 5, D).double(), Layout.full(1, 5)
    assert not torch.equal(*(at.bias(q, layout, layout, layer) for layer in (0, 1)))  # type: ignore[arg-type]
    watched: list[int] = []
    model: Any = build(_config("xl"), seed=0)
    bias = model.decoder.position.bias
    model.decoder.position.bias = lambda q, a, b, layer: (watched.append(layer), bias(q, a, b, layer))[1]
    model(torch.zeros(1, 3, dtype=torch.int64), Layout.full(1, 3))
    assert watched == [0, 1]


def test_context_is_what_a_layer_is_told() -> None:
    """A layer of attention alone, over positions of its own making: nothing else is needed."""
    model, layout = _config("t5"), Layout.full(1, 4)
    attention = part_of(model.mixer)(model.mixer, model, Place(causal=True))
    seen = sight(model.attention.visible, True)
    x = torch.randn(1, 4, H * D)
    assert attention(x, Context(layout, seen, _position("t5", True).float())).shape == x.shape


# -- refusals


def _scaled(**scaling: Any) -> dict[str, Any]:
    return {"position": {"kind": "rope", "scaling": scaling}}


@pytest.mark.parametrize(
    ("model", "where"),
    [
        ({"position": {"kind": "rope", "share": 0.3}}, "position.share"),
        ({"position": {"kind": "rope", "share": 0.5}}, "position.share"),
        ({"position": {"kind": "rope", "share": 0}}, "position.share"),
        ({"position": {"kind": "rope", "base": 1}}, "position.base"),
        ({"position": {"kind": "rope", "layout": "thirds"}}, "position.layout"),
        ({"position": {"kind": "sinusoidal", "offset": -1}}, "position.offset"),
        ({"position": {"kind": "sinusoidal", "share": 0.5}}, "position.share"),
        (_scaled(kind="yarm"), "position.scaling.kind"),
        (_scaled(kind="linear"), "position.scaling.factor"),
        (_scaled(kind="linear", factor=0.5), "position.scaling.factor"),
        (_scaled(kind="dynamic", factor=2, original=64, length=64), "position.scaling.length"),
        (_scaled(kind="yarn", factor=2, original=64, beta_slow=40), "position.scaling.beta_fast"),
        (
            _scaled(kind="llama3", factor=2, original=64, high_freq_factor=1),
            "position.scaling.high_freq_factor",
        ),
        (
            {"heads": 12, **_scaled(kind="dynamic", factor=2, original=64, length=128)},
            "position.scaling.kind",
        ),
        ({"position": "shaw", "attention": {"score": "cosine"}}, "attention.score"),
        ({"position": "xl", "attention": {"score": "additive"}}, "attention.score"),
        ({"position": "xl", "dim": 15, "heads": 3}, "dim"),
        ({"position": {"kind": "t5", "buckets": 7}}, "position.buckets"),
        ({"position": {"kind": "t5", "buckets": 2}}, "position.buckets"),
        ({"position": {"kind": "t5", "distance": 16}}, "position.distance"),
        ({"position": {"kind": "shaw", "clip": 0}}, "position.clip"),
    ],
)
def test_impossible_positions(model: dict[str, Any], where: str) -> None:
    with pytest.raises(UserError) as caught:
        ModelConfig.parse({"vocab": 20, "dim": H * D, "heads": H, **model})
    assert caught.value.where == f"model.{where}"


def test_a_share_may_be_any_even_number() -> None:
    """Of heads of 6: 2, 4 or all; written as a fraction that is not exact."""
    for share in (1 / 3, 0.33333334, 2 / 3, 1.0):
        ModelConfig.parse({"dim": H * D, "heads": H, "position": {"kind": "rope", "share": share}})
