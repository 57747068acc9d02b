"""What ``model.attention.visible`` lets see: masks, reach and prefixes against rules for two positions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from triptych.config import ModelConfig, choices, parts
from triptych.errors import UserError
from triptych.insight.laws.reduced import narrower
from triptych.insight.laws.sights import SEEN, mixed
from triptych.layout import Layout
from triptych.model import DecoderOnly, build, sparse
from triptych.model.sparse import Random
from triptych.model.visible import Reach, Visible, is_relative, sight

SMALL = st.integers(1, 4)
SIMPLE = st.one_of(
    st.just({"kind": "everything"}),
    st.builds(lambda w: {"kind": "window", "width": w}, SMALL),
    st.builds(lambda w, s: {"kind": "dilated", "width": w, "step": s}, SMALL, SMALL),
    st.builds(lambda s, n: {"kind": "blocks", "size": s, "neighbours": n}, SMALL, st.integers(0, 2)),
    st.builds(lambda n: {"kind": "global", "count": n}, SMALL),
    st.builds(
        lambda s, n, seed: {"kind": "random", "size": s, "count": n, "seed": seed},
        SMALL,
        SMALL,
        st.integers(0, 2**32 - 1),
    ),
)


def joined(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Lists of sights, and sights beside a prefix."""
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda kind, of: {"kind": kind, "of": of}, st.sampled_from(["all", "any"]), several),
        st.builds(lambda n, beside: {"kind": "prefix", "length": n, "beside": beside}, SMALL, inner),
    )


TREES = st.recursive(SIMPLE, joined, max_leaves=4)


def chosen(data: dict[str, Any], **model: Any) -> ModelConfig:
    """A decoder that sees this."""
    tiny = {"form": "decoder", "vocab": 30, "dim": 8, "heads": 2, "layers": 1}
    return ModelConfig.parse({**tiny, **model, "attention": {"visible": data}})


def legal(data: dict[str, Any]) -> bool:
    """Whether a decoder accepts it: a prefix that others hide is refused."""
    try:
        chosen(data)
    except UserError:
        return False
    return True


SIGHTS = TREES.filter(legal)


def by_rule(settings: Any, query: Layout, key: Layout, both: bool) -> Tensor:
    """``bool[B, T, S]``, one pair at a time."""
    seen = (query.segment[:, :, None] == key.segment[:, None]) & (key.segment[:, None] >= 0)
    for b, t, s in seen.nonzero().tolist():
        at, to = int(query.position[b, t]), int(key.position[b, s])
        seen[b, t, s] = SEEN[type(settings)](settings, at, to, both)
    return seen


def scattered(batch: int, length: int, generator: torch.Generator) -> Layout:
    """Any positions in any segments, padding too."""
    position = torch.randint(0, 12, (batch, length), generator=generator)
    return Layout(position, torch.randint(-1, 2, (batch, length), generator=generator))


@pytest.mark.parametrize("both", [False, True], ids=["causal", "both"])
@given(data=SIGHTS, seed=st.integers(0, 2**31))
def test_masks_are_the_rules(both: bool, data: dict[str, Any], seed: int) -> None:
    """Any positions in any order, and plain rows of any length; as computed, and as lowered."""
    settings = chosen(data).attention.visible
    generator, visible = torch.Generator().manual_seed(seed), sight(settings, not both)  # type: ignore[arg-type]
    rows = Layout.full(2, 1 + seed % 12)
    pairs = [(scattered(2, 5, generator), scattered(2, 7, generator)), (rows, rows)]
    for query, key in pairs:
        want = by_rule(settings, query, key, both)
        assert torch.equal(visible(query, key), want)
        mask = visible.lower(query, key)
        assert bool(want.all()) if mask.seen is None else torch.equal(mask.seen[:, 0].expand_as(want), want)
        if mask.causal:
            assert torch.equal(want, torch.ones_like(want).tril())


@pytest.mark.parametrize("both", [False, True], ids=["causal", "both"])
@given(data=SIGHTS)
def test_reach_is_true(both: bool, data: dict[str, Any]) -> None:
    """Nothing else is seen; for a choice by itself, what lies at the reach is seen."""
    settings, rows = chosen(data).attention.visible, Layout.full(1, 40)
    visible = sight(settings, not both)  # type: ignore[arg-type]
    seen, q, k = visible(rows, rows)[0], rows.position[0][:, None], rows.position[0]
    back, ahead, first, wide = visible.reach
    near = (q - k <= (40 if back is None else back)) & (k - q <= (40 if ahead is None else ahead))
    assert not bool((seen & ~near & (k >= first) & (q >= wide)).any()) and wide <= first
    away = (q - k)[seen]
    if data["kind"] in ("window", "dilated", "blocks"):
        assert (back, ahead, first) == (int(away.max()), int(-away.min()), 0)
    if data["kind"] == "global":
        assert visible.reach == (0, 0, data["count"], data["count"] * both)


WINDOW, FIRST = {"kind": "window", "width": 4}, {"kind": "global", "count": 3}


@pytest.mark.parametrize(
    ("kind", "of", "causal", "both"),
    [
        ("any", [WINDOW, FIRST], (3, 0, 3, 0), (3, 3, 3, 3)),
        ("any", [WINDOW, {**FIRST, "count": 9}, FIRST], (3, 0, 9, 0), (3, 3, 9, 9)),
        ("any", [FIRST, "everything"], (None, 0, 3, 0), (None, None, 3, 3)),
        ("all", [WINDOW, FIRST], (3, 0, 0, 0), (3, 3, 0, 0)),
        ("all", [FIRST, "everything"], (0, 0, 3, 0), (0, 0, 3, 3)),
        ("all", [FIRST, {"kind": "random", "size": 2}], (0, 0, 3, 0), (0, 0, 3, 3)),
        ("all", [{"kind": "any", "of": [WINDOW, FIRST]}, {**FIRST, "count": 2}], (0, 0, 3, 0), (0, 0, 3, 3)),
        ("all", [{"kind": "any", "of": [WINDOW, FIRST]}, {**WINDOW, "width": 8}], (7, 0, 0, 0), (7, 7, 0, 0)),
    ],
)
def test_reach_of_several(kind: str, of: list[Any], causal: Any, both: Any) -> None:
    """No wider than what bounds what is seen, and in decoders never wide."""
    settings: Any = chosen({"kind": kind, "of": of}).attention.visible
    assert (sight(settings, True).reach, sight(settings, False).reach) == (causal, both)


@dataclass(frozen=True)
class Within(Visible):
    """All that a reach allows."""

    most: Reach

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        q, k = query.position[:, :, None], key.position[:, None, :]
        back, ahead = (99 if limit is None else limit for limit in self.most[:2])
        return ((q - k <= back) & (k - q <= ahead)) | (k < self.most.first) | (q < self.most.wide)

    @property
    def reach(self) -> Reach:
        return self.most


LIMIT = st.one_of(st.none(), st.integers(0, 5))
WITHIN = st.builds(
    lambda back, ahead, first, wide: Within(Reach(back, ahead, first, min(first, wide))),
    *(LIMIT, LIMIT, st.integers(0, 5), st.integers(0, 5)),
)


@given(one=WITHIN, other=WITHIN)
@example(one=Within(Reach(None, 3)), other=Within(Reach(0, 0, 2, 2)))
def test_reach_of_two(one: Visible, other: Visible) -> None:
    """Whatever two see, alone or both, is in their reach."""
    rows = Layout.full(1, 20)
    for both in (one & other, one | other):
        assert not bool((both(rows, rows) & ~Within(both.reach)(rows, rows)).any())
        assert both.reach.wide <= both.reach.first


def test_what_sees_the_first_tokens_keeps_all() -> None:
    """A cache of the newest tokens is one of a window alone: it would not hold the first."""
    seen = [WINDOW, {"kind": "any", "of": [WINDOW, FIRST]}, {"kind": "prefix", "length": 2, "beside": WINDOW}]
    model = build(chosen(seen, layers=3), seed=0)  # type: ignore[arg-type]
    assert model.decoder.sees == [3, None, None]  # type: ignore[union-attr]


@given(data=SIGHTS, by=st.integers(1, 9))
def test_relative_sights_go_by_differences(data: dict[str, Any], by: int) -> None:
    visible = sight(chosen(data).attention.visible, True)  # type: ignore[arg-type]
    here = Layout.full(1, 12)
    there = Layout(here.position + by, here.segment)
    if is_relative(visible):
        assert torch.equal(visible(here, here), visible(there, there))


def test_what_is_relative() -> None:
    kinds = {"everything": True, "window": True, "dilated": True, "blocks": False, "global": False}
    kinds |= {"random": False, "prefix": False}
    needed = {"width": 2, "step": 2, "size": 2, "count": 1, "length": 2}
    for kind, want in kinds.items():
        own = {key: n for key, n in needed.items() if key in choices(parts.Sight)[kind].model_fields}
        assert is_relative(sight(chosen({"kind": kind, **own}).attention.visible, True)) == want  # type: ignore[arg-type]


@given(data=SIGHTS)
def test_lookahead_is_what_sees_ahead(data: dict[str, Any]) -> None:
    """Tokens from ``lookahead`` on see none that are later, and are seen by none that are earlier."""
    config, rows = chosen(data), Layout.full(1, 12)
    seen = sight(config.attention.visible, True)(rows, rows)[0]  # type: ignore[arg-type]
    ahead = seen.triu(1).any(0).nonzero().flatten()
    assert config.lookahead <= 4
    assert not len(ahead) or int(ahead.max()) == config.lookahead - 1
    if not len(ahead):
        assert config.lookahead <= 1


def test_the_picture_is_true() -> None:
    """That in the module's docstring."""
    kinds = [
        {"kind": "window", "width": 3},
        {"kind": "dilated", "width": 2, "step": 3},
        {"kind": "blocks", "size": 2},
        {"kind": "global", "count": 2},
        {"kind": "random", "size": 2, "seed": 1},
        {"kind": "prefix", "length": 3},
    ]
    lines = [line for line in (sparse.__doc__ or "").split("\n") if re.fullmatch(r"[ x.]{20,}", line)]
    assert len(lines) == 6
    for i, kind in enumerate(kinds):
        drawn = [line[4 + 16 * i :][:11] for line in lines]
        rows = Layout.full(1, 6)
        seen = sight(chosen(kind).attention.visible, True)(rows, rows)[0]  # type: ignore[arg-type]
        assert [" ".join("x" if x else "." for x in row) for row in seen.tolist()] == drawn, kind


# -- random blocks


@pytest.mark.parametrize(("size", "count", "seed"), [(1, 1, 0), (4, 3, 7), (5, 2, 2**32 - 1)])
def test_random_blocks_are_as_many_as_asked(size: int, count: int, seed: int) -> None:
    """Each block of a decoder sees its own and ``count`` earlier ones, or all where there are fewer."""
    rows = Layout.full(1, 16 * size)
    seen = sight(
        chosen({"kind": "random", "size": size, "count": count, "seed": seed}).attention.visible, True
    )(rows, rows)[0]  # type: ignore[arg-type]
    last = seen[size - 1 :: size, ::size]  # the last query of each block, the first key
    assert last.sum(1).tolist() == [1 + min(i, count) for i in range(16)]


def test_random_blocks_are_stateless() -> None:
    """Alone, in a longer sequence, in any order, whatever was drawn before: the same. Another seed draws
    others."""
    visible = Random(2, 2, 5)
    whole = Layout.full(1, 64)
    want = visible(whole, whole)
    sparse._drawn.cache_clear()
    torch.manual_seed(0)
    order = torch.randperm(64)
    mixed_up = Layout(whole.position[:, order], whole.segment)
    for at in (3, 17, 40, 63):
        one = Layout(torch.tensor([[at]]), torch.zeros(1, 1, dtype=torch.int64))
        assert torch.equal(visible(one, whole)[0, 0], want[0, at])
        assert torch.equal(visible(one, mixed_up)[0, 0], want[0, at, order])
        assert torch.equal(visible(one, whole.narrow(0, at + 1))[0, 0], want[0, at, : at + 1])
    assert not torch.equal(Random(2, 2, 6)(whole, whole), want)


def test_random_blocks_are_uniform() -> None:
    """Over many seeds each earlier block is drawn about equally often (χ²)."""
    counts = torch.zeros(30)
    for seed in range(3000):
        counts += torch.from_numpy(sparse._drawn.__wrapped__(seed, 1, 32)[30, :30])
    assert counts.sum() == 3000
    assert float(((counts - 100) ** 2 / 100).sum()) < 66  # 29 degrees of freedom: once in ten thousand


@given(st.integers(0, 2**32 - 1))
def test_hash_is_the_rules(x: int) -> None:
    assert int(sparse._hash(torch.tensor(x))) == mixed(x)


# -- prefixes


def prefix_model(length: int = 4) -> DecoderOnly:
    model = build(chosen({"kind": "prefix", "length": length}, position="rope", dropout=0.0), seed=0)
    assert isinstance(model, DecoderOnly)
    return model.double().eval()


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_prefix_comes_in_one_pass(side: Any) -> None:
    """Cut behind it, all is as without a cache; cut within it, it is refused, with what to do."""
    model, layout = prefix_model(), Layout.padded([9, 6], side)
    ids = torch.randint(4, 30, (2, 9))
    want = model(ids, layout)
    for cut in range(1, 9):
        state = model.start()
        within = bool(
            ((layout.position[:, cut] > 0) & (layout.position[:, cut] < 4) & layout.real[:, cut]).any()
        )
        got = [model.decode(ids[:, :cut], layout.narrow(0, cut), state=state)]
        if within:
            with pytest.raises(UserError, match="give the first 4 tokens of a sequence in one pass") as error:
                model.decode(ids[:, cut:], layout.narrow(cut, 9), state=state)
            assert error.value.where == "model.attention.visible.length"
            continue
        got.append(model.decode(ids[:, cut:], layout.narrow(cut, 9), state=state))
        got_logits = model.output(torch.cat(got, 1))
        torch.testing.assert_close(got_logits[layout.real], want[layout.real], rtol=0, atol=1e-10)


def test_a_prompt_shorter_than_the_prefix_is_refused() -> None:
    model = prefix_model()
    state = model.start()
    model.decode(torch.tensor([[5, 6, 7]]), Layout.full(1, 3), state=state)
    with pytest.raises(UserError, match="a prompt no shorter than that"):
        model.decode(torch.tensor([[8]]), state.next(), state=state)


def test_a_prefix_sees_itself() -> None:
    """Its first token's logits move with its last, and not with what follows."""
    model, ids = prefix_model(), torch.randint(4, 30, (1, 9))
    moved = {}
    for place in (3, 4):
        other = ids.clone()
        other[0, place] = 4 + (int(ids[0, place]) - 3) % 26
        was, now = (model(x, Layout.full(1, 9))[0] for x in (ids, other))
        moved[place] = (was - now).abs().amax(-1) > 1e-12
    assert moved[3].all() and not moved[4][:4].any() and moved[4][4:].all()


@pytest.mark.parametrize(
    ("data", "form", "words"),
    [
        ({"kind": "prefix", "length": 3}, "encoder", "sees both directions everywhere"),
        ({"kind": "prefix", "length": 3}, "encoder_decoder", "has no first tokens that are given"),
        (
            [{"kind": "any", "of": [{"kind": "prefix", "length": 3}]}, "everything"],
            "encoder",
            "both directions",
        ),
        (
            {"kind": "all", "of": [{"kind": "prefix", "length": 3}, {"kind": "window", "width": 2}]},
            "decoder",
            "beside a prefix",
        ),
        ({"kind": "any", "of": []}, "decoder", "an empty list says nothing"),
        ({"kind": "all", "of": ["window"]}, "decoder", "needed"),
        ({"kind": "random", "size": 2, "seed": 2**32}, "decoder", "an integer ≥ 0 and < 4294967296"),
        ({"kind": "blocks", "size": 0}, "decoder", "does not fit"),
    ],
)
def test_refusals(data: Any, form: str, words: str) -> None:
    with pytest.raises(UserError, match=re.escape(words)) as error:
        chosen(data, form=form)
    assert error.value.where.startswith("model.attention.visible")


def test_lists_are_made_narrow_too() -> None:
    """The laws' sequences are short: what is in a list, or beside a prefix, is made narrow like the rest."""
    wide = {"kind": "any", "of": [{"kind": "window", "width": 256}, {"kind": "global", "count": 64}]}
    data = [{"kind": "prefix", "length": 100, "beside": wide}, {"kind": "random", "size": 64, "count": 3}]
    config, notes = narrower(chosen(data, layers=2))
    one, other = config.sights("decoder")
    assert one.dump() == {
        "kind": "prefix",
        "length": 3,
        "beside": {"kind": "any", "of": [{"kind": "window", "width": 4}, {"kind": "global", "count": 2}]},
    }
    assert (other.size, other.count) == (2, 1)  # type: ignore[attr-defined]
    assert "window width 4, not 256" in notes and "random size 2, not 64" in notes
    assert ModelConfig.parse(config.dump()).attention == config.attention


def test_local_and_global_layers() -> None:
    """Five layers of windows to one that sees everything (Gemma Team 2025, section 2): which layer sees what,
    what each keeps, and what it costs."""
    local: list[Any] = [{"kind": "window", "width": 3}] * 5
    config = chosen([*local, "everything"], layers=12)
    model = build(config, seed=0)
    assert isinstance(model, DecoderOnly)
    reach = [2, 2, 2, 2, 2, None]
    assert [v.reach.back for v in model.decoder.visible] == reach * 2
    state, layout = model.start(), Layout.full(1, 1)
    for step in range(60):
        model.decode(torch.tensor([[5]]), layout if not step else state.next(), state=state)
    kept = [layer.kept[0][:, :, : layer.book.stop].shape[2] for layer in state.layers]
    assert kept[5] == kept[11] == 60 and max(kept[:5] + kept[6:11]) <= 2 + 16


def test_composition_is_by_and_and_or() -> None:
    """What is joined in settings is joined in predicates."""
    one, other = ({"kind": "window", "width": 3}, {"kind": "blocks", "size": 2})
    rows = Layout.full(1, 9)

    def seen(data: Any) -> Tensor:
        visible: Visible = sight(chosen(data).attention.visible, True)  # type: ignore[arg-type]
        return visible(rows, rows)

    assert torch.equal(seen({"kind": "all", "of": [one, other]}), seen(one) & seen(other))
    assert torch.equal(seen({"kind": "any", "of": [one, other]}), seen(one) | seen(other))
