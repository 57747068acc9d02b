"""Attention in blocks of queries is attention at once; memory and products grow with T · (w + g)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from triptych.config import ModelConfig
from triptych.insight.laws.packing import pack
from triptych.insight.laws.subject import Rows, Subject
from triptych.layout import Layout
from triptych.model import DecoderOnly, EncoderOnly, build, cost
from triptych.model import blocks as cutting
from triptych.model.blocks import Span, products, spans
from triptych.model.visible import Causal, Reach, SameSegment, Visible, Window, sight


def any_of(*of: Any) -> dict[str, Any]:
    """What one of them lets see."""
    return {"kind": "any", "of": list(of)}


def all_of(*of: Any) -> dict[str, Any]:
    """What all of them let see."""
    return {"kind": "all", "of": list(of)}


WIDE, GLOBAL = {"kind": "window", "width": 20}, {"kind": "global", "count": 5}
# Near keys and the first: blocks where each row is one sequence from its first slot on.
FIRST: dict[str, Any] = {
    "longformer": any_of(WIDE, GLOBAL),
    "dilated, global": any_of({"kind": "dilated", "width": 5, "step": 4}, GLOBAL),
    "global alone": GLOBAL,
    "all of any": all_of(
        any_of(WIDE, {"kind": "global", "count": 7}),
        any_of({"kind": "blocks", "size": 11}, GLOBAL),
        any_of({"kind": "random", "size": 4, "count": 5}, {"kind": "global", "count": 2}),
    ),
    "any of all": any_of(all_of(WIDE, {"kind": "global", "count": 9}), all_of("everything", GLOBAL)),
    "far global": any_of({"kind": "window", "width": 3}, {"kind": "global", "count": 70}),
}
PREFIX: dict[str, Any] = {
    "prefix": {"kind": "prefix", "length": 13, "beside": WIDE},
    "long prefix": {"kind": "prefix", "length": 70, "beside": {"kind": "window", "width": 4}},
    "prefix, global": {"kind": "prefix", "length": 4, "beside": any_of(WIDE, GLOBAL)},
    "prefixes": all_of(
        {"kind": "prefix", "length": 9, "beside": WIDE},
        {"kind": "prefix", "length": 6, "beside": "everything"},
    ),
}
SIGHTS: dict[str, Any] = {
    "window": {"kind": "window", "width": 20},
    "dilated": {"kind": "dilated", "width": 7, "step": 3},
    "blocks": {"kind": "blocks", "size": 9},
    "joined": {
        "kind": "all",
        "of": [{"kind": "window", "width": 30}, {"kind": "random", "size": 4, "count": 5}],
    },
    "either": {
        "kind": "any",
        "of": [{"kind": "window", "width": 5}, {"kind": "dilated", "width": 4, "step": 8}],
    },
    "row": {"kind": "axial", "width": 15, "axis": "row"},
}
# The positions and shapes of attention that blocks must leave alone.
PARTS: dict[str, dict[str, Any]] = {
    "rope, grouped": {"position": "rope", "heads": {"count": 4, "kv": 2}},
    "alibi, sinks": {"position": "alibi", "heads": 2, "attention": {"sinks": True}},
    "t5": {"position": "t5", "heads": {"count": 2, "kv": 1}},
    "shaw, soft cap": {"position": "shaw", "heads": 2, "attention": {"softcap": 2.0}},
    "xl": {"position": "xl", "heads": 2},
    "latent, additive": {
        "position": "sinusoidal",
        "heads": {"kind": "mla", "count": 2},
        "attention": {"score": "additive"},
    },
    "none, cosine": {"position": "none", "heads": 2, "attention": {"score": "cosine"}},
}
T = 230


def config_of(sight: str, form: str, **parts: Any) -> ModelConfig:
    """A small model without dropout."""
    base = {"form": form, "vocab": 30, "dim": 16, "layers": 1, "dropout": 0.0, "norm": {"placement": "pre"}}
    attention = {**parts.pop("attention", {}), "visible": (SIGHTS | FIRST | PREFIX)[sight]}
    return ModelConfig.parse({**base, **parts, "attention": attention})


def layouts(config: ModelConfig) -> dict[str, Layout]:
    """Rows as they come: full, padded on either side, packed with padding between."""
    subject = Subject(config, None, 0)
    rows = Rows([subject.words(n) for n in (140, 60, T - 230 + 28, T)], [])
    return {
        "full": Layout.full(2, T),
        "left": Layout.padded([T, 170], "left", T + 3),
        "right": Layout.padded([170, T], "right"),
        "packed": pack(subject, rows, [[0, 1, 2], [3]])[0][1],
    }


def outputs(model: DecoderOnly | EncoderOnly, ids: Tensor, layout: Layout) -> tuple[Tensor, list[Tensor]]:
    """Hidden states of real tokens, and all gradients of a sum of them with weights."""
    run = model.decode if isinstance(model, DecoderOnly) else model.encode
    hidden = run(ids, layout)[layout.real]
    weight = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1), dtype=hidden.dtype)
    found = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad((hidden * weight).sum(), found, allow_unused=True, materialize_grads=True)
    return hidden.detach(), list(grads)


def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on nothing is cut."""
    monkeypatch.setattr(cutting, "spans", lambda reach, queries, keys: [Span(0, queries, 0, keys)])


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many blocks each attention is cut into from here on."""
    seen: list[int] = []

    def spy(reach: Reach, queries: int, keys: int) -> list[Span]:
        cut = spans(reach, queries, keys)
        seen.append(len(cut))
        return cut

    monkeypatch.setattr(cutting, "spans", spy)
    return seen


def met(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many keys each block meets, from here on."""
    from triptych.model import attention

    seen: list[int] = []
    real = attention.attend

    def spy(q: Tensor, k: Tensor, *rest: Any, **more: Any) -> Tensor:
        seen.append(k.shape[2])
        return real(q, k, *rest, **more)

    monkeypatch.setattr(attention, "attend", spy)
    return seen


def blocks(visible: Visible, layout: Layout) -> list[int]:
    """How many keys each block meets."""
    seen: list[int] = []

    def meet(q: Tensor, k: Tensor, v: Tensor, query: Layout, key: Layout) -> Tensor:
        assert (query.length, key.length) == (q.shape[2], k.shape[2]) and torch.equal(k, v)
        seen.append(k.shape[2])
        return q

    x = torch.zeros(layout.batch, 1, layout.length, 1)
    cutting.in_blocks(x, x, x, visible, layout, layout, meet, relative=True)
    return seen


CASES = [(sight, "rope, grouped") for sight in SIGHTS] + [
    ("window", part) for part in PARTS if part[:4] != "rope"
]
CASES += [("joined", "latent, additive"), ("dilated", "t5"), ("blocks", "alibi, sinks"), ("dilated", "xl")]
CASES += [("longformer", part) for part in PARTS] + [(sight, "alibi, sinks") for sight in FIRST]
FORMS = [(*case, form) for case in CASES for form in ("decoder", "encoder")]
FORMS += [(sight, "rope, grouped", "decoder") for sight in PREFIX] + [("prefix", "shaw, soft cap", "decoder")]


@pytest.mark.parametrize(("sight", "part", "form"), FORMS)
def test_blocks_are_attention_at_once(
    sight: str, part: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values and gradients of every parameter, in rows of every kind."""
    config = config_of(sight, form, **PARTS[part])
    model: Any = build(config, seed=0).double()
    for name, layout in layouts(config).items():
        ids = torch.randint(4, 30, layout.segment.shape, generator=torch.Generator().manual_seed(2))
        with monkeypatch.context() as patch:
            seen = counted(patch)
            got = outputs(model, ids, layout)
            assert max(seen) > 2, "nothing was cut"
        with monkeypatch.context() as patch:
            at_once(patch)
            want = outputs(model, ids, Layout(layout.position, layout.segment))
        # Blocks that share a mask share angles too, which are in fp32: here those of the first block.
        atol = 1e-4 if part == "xl" and layout.plain else 1e-10
        for one, other in zip([got[0], *got[1]], [want[0], *want[1]], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("part", ["rope, grouped", "t5", "latent, additive"])
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_chunks_over_a_cache(part: str, side: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks long enough to be cut themselves, after a cache that has dropped slots."""
    model: Any = build(config_of("window", "decoder", **PARTS[part]), seed=0).double().eval()
    layout = Layout.padded([500, 380], side)
    ids = torch.randint(4, 30, (2, 500))
    with monkeypatch.context() as patch:
        at_once(patch)
        want = model.decode(ids, layout)
    state, at, got = model.start(), 0, []
    seen = counted(monkeypatch)
    for length in (150, 3, 147, 1, 199):
        got.append(model.decode(ids[:, at : at + length], layout.narrow(at, at + length), state=state))
        at += length
    assert [n for n in seen if n > 1] == [3, 3, 4]
    real = layout.real
    torch.testing.assert_close(torch.cat(got, 1)[real], want[real], rtol=0, atol=1e-11)


@pytest.mark.parametrize("sight", ["longformer", "all of any", "prefix", "long prefix"])
@pytest.mark.parametrize("side", ["full", "right", "left"])
@torch.no_grad()
def test_chunks_over_a_cache_of_all(sight: str, side: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near keys and the first, over a cache: in blocks while each row begins in its first slot."""
    model: Any = build(config_of(sight, "decoder", **PARTS["t5"]), seed=0).double().eval()
    layout = Layout.full(2, 500) if side == "full" else Layout.padded([500, 380], side)
    ids = torch.randint(4, 30, (2, 500))
    with monkeypatch.context() as patch:
        at_once(patch)
        want = model.decode(ids, Layout(layout.position, layout.segment))
    state, at, got = model.start(), 0, []
    seen = met(monkeypatch)
    for length in (200, 3, 147, 1, 149):
        got.append(model.decode(ids[:, at : at + length], layout.narrow(at, at + length), state=state))
        at += length
    assert (max(seen) == 500) == (side == "left") and len(seen) > 5 * (side != "left")
    real = layout.real
    torch.testing.assert_close(torch.cat(got, 1)[real], want[real], rtol=0, atol=1e-11)


def test_where_the_first_keys_are_in_the_first_slots() -> None:
    """Blocks in full rows and in those padded on the right; at once in others, and in all of these where
    positions are what slots are not."""
    config = config_of("longformer", "decoder")
    visible = sight(config.attention.visible, True)  # type: ignore[arg-type]
    cut = {name: len(blocks(visible, one)) for name, one in layouts(config).items()}
    assert cut == {"full": 4, "right": 4, "left": 1, "packed": 1}
    right, slot = Layout.padded([170, T]), torch.arange(T)
    noise = torch.where(right.real, right.position, 7)
    assert len(blocks(visible, Layout(noise, right.segment))) == 4
    assert len(blocks(visible, Layout(right.position, right.segment.clamp(min=0)))) == 1
    for at in (slot + 1, slot.roll(1), slot.clamp(max=T - 2)):
        assert len(blocks(visible, Layout(at[None], right.segment[1:]))) == 1


def test_whether_slots_are_places_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a layout, however many layers; never of rows that are known to be full."""
    asked: list[int] = []
    monkeypatch.setattr(Layout, "_placed", lambda self: asked.append(1) or True)
    model: Any = build(config_of("longformer", "decoder", position="none", layers=3), seed=0)
    ids, right = torch.zeros(2, T, dtype=torch.int64), Layout.padded([170, T])
    model.decode(ids, Layout.full(2, T))
    assert not asked
    model.decode(ids, right)
    assert len(asked) == 1


@torch.no_grad()
def test_rows_in_disorder_are_met_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where near in position is not near in slots, nothing is cut."""
    model: Any = build(config_of("window", "decoder", position="rope", heads=2), seed=0).double()
    order = torch.randperm(T)
    layout, ids = Layout.full(1, T), torch.randint(4, 30, (1, T))
    want = model.decode(ids, layout)
    shuffled = Layout(layout.position[:, order], layout.segment)
    torch.testing.assert_close(model.decode(ids[:, order], shuffled), want[:, order], rtol=0, atol=1e-11)
    twice = Layout(torch.arange(T)[None] // 2, torch.arange(T)[None] % 2)  # two sequences, token by token
    got = model.decode(ids, twice)
    at_once(monkeypatch)
    torch.testing.assert_close(got, model.decode(ids, Layout(twice.position, twice.segment)))


LIMITS = st.one_of(st.none(), st.integers(0, 300))
REACHES = st.builds(
    lambda back, ahead, first, wide: Reach(back, ahead, first, min(first, wide)),
    *(LIMITS, LIMITS),
    *(st.one_of(st.just(0), st.integers(0, 200)) for _ in range(2)),
)


@given(reach=REACHES, queries=st.integers(1, 700), cached=st.integers(0, 500))
def test_spans_hold_all_that_is_seen(reach: Reach, queries: int, cached: int) -> None:
    """Each query once and in order, each with every key in its reach, and with few others."""
    keys = queries + cached
    cut = spans(reach, queries, keys)
    assert [q for s in cut for q in range(s.start, s.stop)] == list(range(queries))
    for s in cut:
        back = keys if reach.back is None else reach.back
        ahead = keys if reach.ahead is None else reach.ahead
        assert 0 <= s.first <= max(0, cached + s.start - back)
        assert min(keys, cached + s.stop - 1 + ahead + 1) <= s.last <= keys
        met = {*range(s.head), *range(s.first, s.last)}
        assert len(met) == s.keys and met >= {*range(min(reach.first, keys))}, "each once"
        wide = cached + s.start < reach.wide
        assert not wide or s.keys == keys
        if len(cut) > 1:
            assert not wide or cached + s.stop <= reach.wide
            assert wide or s.keys <= 1.5 * (back + ahead + 1 + reach.first) + 64
    assert products(reach, queries, keys) <= queries * keys


@pytest.mark.parametrize(
    ("sight", "form"),
    [(sight, form) for sight in ("window", *FIRST) for form in ("decoder", "encoder")]
    + [(sight, "decoder") for sight in PREFIX],
)
@pytest.mark.parametrize("length", [60, 146, 147, 190, 300, 513])
def test_products_are_counted(sight: str, form: str, length: int) -> None:
    """The formula is what is carried out, whether or not a length is cut. With dropout on the weights the
    counter sees the products of blocks of any length."""
    parts = {"position": "rope", "heads": {"count": 4, "kv": 2}, "attention": {"dropout": 0.1}}
    config = config_of(sight, form, **parts)
    model: Any = build(config, seed=0)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(2, length, dtype=torch.int64), Layout.full(2, length))
    assert counter.get_total_flops() == cost(config, 2, length).flops


# -- memory


def saved(run: Callable[[], Tensor]) -> int:
    """Bytes that are kept for the backward pass, each storage once."""
    storages: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        kept = run()  # noqa: F841 - alive, so that no storage is taken twice
    return sum(storages.values())


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The most values that a tensor has among those made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor):
                self.most = max(self.most, x.untyped_storage().nbytes() // x.element_size())
        return out


LINEAR = [("window", form, side) for form in ("decoder", "encoder") for side in ("full", "left")]
LINEAR += [("longformer", form, side) for form in ("decoder", "encoder") for side in ("full", "right")]
LINEAR += [(sight, "decoder", side) for sight in ("prefix", "all of any") for side in ("full", "right")]


@pytest.mark.parametrize(("sight", "form", "side"), LINEAR)
def test_memory_is_linear(sight: str, form: str, side: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the tokens, twice the memory; at once, more than three times."""
    config = config_of(sight, form, position="alibi", heads=2)
    model: Any = build(config, seed=0)

    def bytes_of(length: int) -> int:
        layout = Layout.full(2, length) if side == "full" else Layout.padded([length, length - 9], side)
        run = model.decode if form == "decoder" else model.encode
        return saved(lambda: run(torch.zeros(2, length, dtype=torch.int64), layout))

    few, many = bytes_of(1000), bytes_of(2000)
    assert many < 2.05 * few
    at_once(monkeypatch)
    assert bytes_of(2000) > 3 * bytes_of(1000) and bytes_of(2000) > 4 * many


@pytest.mark.parametrize(
    ("sight", "form"), [("longformer", "encoder"), ("longformer", "decoder"), ("prefix", "decoder")]
)
def test_time_and_the_largest_tensor_are_linear(sight: str, form: str) -> None:
    """Four times the tokens: of a pass and its gradients, four times the products of attention, and no tensor
    more than four times as large."""
    config = config_of(sight, form, position="alibi", heads=2)
    model: Any = build(config, seed=0)

    def cost_of(length: int) -> tuple[int, int]:
        run = model.decode if form == "decoder" else model.encode
        with Largest() as made, FlopCounterMode(display=False) as counter:
            run(torch.zeros(2, length, dtype=torch.int64), Layout.full(2, length)).sum().backward()
        return made.most, counter.get_total_flops()

    (few, less), (many, more) = cost_of(1000), cost_of(4000)
    assert many <= 4.05 * few and more < 4.1 * less
    assert many < 4000 * 200


def test_masks_of_like_blocks_are_one() -> None:
    """In rows without padding a window's blocks have the same mask, however many there are; with padding each
    has its own, and masks grow with T · w."""
    visible = SameSegment() & (Causal() & Window(20))

    def masked(layout: Layout) -> int:
        seen: dict[int, int] = {}

        def meet(q: Tensor, k: Tensor, v: Tensor, query: Layout, key: Layout) -> Tensor:
            mask = visible.lower(query, key)
            assert mask.seen is not None
            seen[mask.seen.data_ptr()] = mask.seen.numel()
            return q

        x = torch.zeros(2, 1, layout.length, 1)
        assert cutting.in_blocks(x, x, x, visible, layout, layout, meet, relative=True).shape == x.shape
        return sum(seen.values())

    assert masked(Layout.full(2, 640)) == masked(Layout.full(2, 6400)) == 64 * 64 + 64 * 83
    padded = [masked(Layout.padded([n, n - 1])) for n in (640, 1280)]
    assert padded[1] < 2.1 * padded[0] < 2.1 * 2 * 640 * 83
