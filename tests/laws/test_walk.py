"""Every law holds for every combination of choices, pair by pair."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from pairwise import Row, pairwise
from triptych.config import ModelConfig, Part, choices, parts
from triptych.errors import UserError
from triptych.insight.laws import LAWS, verify

# What a choice needs beside its kind. A choice that needs something and is not here fails the walk.
NEEDED: dict[str, dict[str, Any]] = {
    "learned": {"max": 80},
    "shaw": {"clip": 2},
    "t5": {"buckets": 8, "distance": 7},
    "window": {"width": 3},
    "factorised": {"dim": 6},
    "patches": {"size": 4, "channels": 2},
    "linformer": {"rank": 4, "max": 80},
    "axial": {"width": 3},
    "cells": {"width": 3, "size": 2},
    "bottleneck": {"latents": 3},
    "retrieval": {"width": 3, "top": 2},
    "deformable": {"width": 3, "points": 2},
    "spatial": {"width": 3, "size": 3},
    "dilated": {"width": 2, "step": 2},
    "blocks": {"size": 2},
    "global": {"count": 2},
    "random": {"size": 2},
    "prefix": {"length": 3},
    "classes": {"count": 3},
    "tags": {"count": 4},
    "all": {"of": [{"kind": "window", "width": 4}, {"kind": "dilated", "width": 3, "step": 2}]},
    "any": {"of": [{"kind": "window", "width": 2}, {"kind": "global", "count": 1}]},
}


def every(axis: type[Part]) -> list[dict[str, Any]]:
    """All registered choices of an axis, as plain settings."""
    return [{"kind": kind, **NEEDED.get(kind, {})} for kind in choices(axis)]


SWIN = [{"kind": "cells", "width": 3, "size": 2, "shifted": shifted} for shifted in (False, True)]

AXES: dict[str, list[Any]] = {
    "form": ["encoder_decoder", "decoder", "encoder"],
    "position": [
        *every(parts.Position),
        {"kind": "sinusoidal", "layout": "halves", "offset": 2},
        {
            "kind": "rope",
            "layout": "interleaved",
            "share": 0.5,
            "scaling": {"kind": "yarn", "factor": 4, "original": 8},
        },
    ],
    "norm": every(parts.Norm),
    "placement": ["post", "pre", "sandwich", "parallel", "deep"],
    "ffn": every(parts.FeedForward),
    "heads": [
        {"count": 4},
        {"count": 4, "kv": 2, "qk_norm": True},
        {"count": 4, "kv": 1},
        {"count": 2, "kv": 2, "dim": 6},
        {"kind": "mla", "count": 2},
        {"kind": "mla", "count": 4, "dim": 6, "latent": 10, "rotary": 4, "query": 12},
    ],
    "shaping": [{}, {"softcap": 3.0}, {"sinks": True}, {"softcap": 5.0, "sinks": True}],
    "score": every(parts.Score),
    "mixer": every(parts.Mixer),
    "visible": [*every(parts.Sight), [{"kind": "window", "width": 2}, "everything"], SWIN],
    "tie": ["none", "source", "decoder", "all"],
    "embedding": [*every(parts.Embedding), {"kind": "patches", "size": 4, "class_token": True}],
    "entry": [{}, {"embedding_norm": True}, {"embedding_norm": True, "types": 2}],
    "output": [*every(parts.Output), {"kind": "vocabulary", "transform": "gelu"}],
    "experts": [
        None,
        {"count": 4, "router": "top_softmax"},
        {"count": 3, "shared": 2, "dim": 8, "router": "sigmoid"},
        {"count": 4, "top_k": 1, "capacity": 1.0, "router": {"kind": "softmax", "z": 0.01}},
    ],
    "bias": [True, False],
    "scale_embedding": [True, False],
    "dropout": [(0.1, 0.0), (0.0, 0.0), (0.1, 0.1)],
    "depth": [1, 2, "uneven"],
}


def mixer(row: Row) -> dict[str, Any]:
    """A mixer in the stacks it can stand in."""
    stacks = choices(parts.Mixer)[row["mixer"]["kind"]].stacks  # type: ignore[attr-defined]
    if row["form"] != "encoder_decoder" or len(stacks) == 2:
        return {"mixer": row["mixer"]}
    return {"decoder_mixer" if "causal" in stacks else "encoder_mixer": row["mixer"]}


def heads(row: Row) -> dict[str, Any]:
    """Heads, with a width of the rotary key where there is one."""
    rotary = {} if row["position"]["kind"] == "rope" else {"rotary": None}
    return row["heads"] | {"bias": row["bias"]} | (rotary if "rotary" in row["heads"] else {})


def output(row: Row) -> dict[str, Any]:
    """The output, with what other axes decide of it, so that there are not more rows for it."""
    chosen, pool = row["output"], {"pool": {1: "auto", 2: "max", "uneven": "mean"}[row["depth"]]}
    if chosen["kind"] == "vocabulary":
        pairs = "transform" in chosen and row["form"] == "encoder"
        more = {"bias": row["bias"], "next_sentence": pairs, "scale": not row["scale_embedding"]}
        return chosen | (more if "transform" in chosen else {})
    pooler = {"pooler": row["bias"]} if chosen["kind"] == "classes" else {}
    return chosen | pooler | (pool if chosen["kind"] != "tags" else {})


def settings(row: Row) -> dict[str, Any]:
    """A row of the walk in the user's vocabulary."""
    residual, attention = row["dropout"]
    depth: dict[str, int] = {"layers": row["depth"]} if row["depth"] != "uneven" else {"layers": 1}
    if row["depth"] == "uneven" and row["form"] == "encoder_decoder":
        depth = {"encoder_layers": 2, "decoder_layers": 1}
    return {
        "form": row["form"],
        "vocab": 30,
        "dim": 16,
        "heads": heads(row),
        "attention": {"score": row["score"], "visible": row["visible"], "dropout": attention}
        | row["shaping"],
        **mixer(row),
        "position": row["position"],
        "norm": {**row["norm"], "placement": row["placement"]}
        | ({"bias": row["bias"]} if row["norm"]["kind"] == "layernorm" else {}),
        "ffn": {**row["ffn"], "dim": 32, "bias": row["bias"]},
        "tie": row["tie"],
        "embedding": row["embedding"],
        "output": output(row),
        **row["entry"],
        "experts": row["experts"],
        "scale_embedding": row["scale_embedding"],
        "dropout": residual,
        **depth,
    }


def legal(row: Row) -> bool:
    """Whether the configuration accepts it. Only what it refuses with a reason is left out."""
    try:
        ModelConfig.parse(settings(row))
    except UserError:
        return False
    return True


def wild(seed: int) -> Row:
    """A row drawn at random."""
    rng = random.Random(seed)
    while not legal(row := {name: rng.choice(values) for name, values in AXES.items()}):
        pass
    return row


def label(row: Row) -> str:
    """A name for a row."""

    def short(value: Any) -> str:
        if isinstance(value, dict):
            return "".join(str(v) for v in value.values())
        return str(value)

    return "-".join(
        short(row[n]) for n in ("form", "position", "norm", "placement", "ffn", "heads", "visible", "tie")
    )


ROWS = [*pairwise(AXES, seed=5, legal=legal), *(wild(seed) for seed in range(4))]


RELATIVE = ("rope", "none", "alibi", "shaw", "t5", "xl")
WITHOUT_SOFTMAX = (
    "lstm",
    "gru",
    "conv",
    "linear",
    "retention",
    "ssm",
    "linformer",
    "channel",
    "deformable",
    "spatial",
)
GRIDS = ("axial", "cells", "deformable", "spatial")
SETS = ("attention", "linear", "bottleneck", "channel", "coattention")
BY_PLACE = ("blocks", "global", "random", "prefix")


def does_not_apply(row: Row) -> set[int]:
    """The laws that say nothing about this row: written out, so that none can skip unnoticed."""
    out = set()
    if row["form"] == "encoder":
        out |= {1, 4, 6, 18}
    if row["output"]["kind"] != "vocabulary":
        out |= {18, 19}
    if row["output"]["kind"] == "vector":
        out |= {11}
    if (
        row["form"] != "encoder_decoder"
        and row["mixer"]["kind"] in WITHOUT_SOFTMAX
        and row["experts"] is None
    ):
        out |= {13}
    if row["position"]["kind"] != "rope":
        out |= {16}
    if row["position"]["kind"] not in RELATIVE or row["mixer"]["kind"] == "linformer":
        out |= {15}
    if any(kind in str(row["visible"]) for kind in BY_PLACE):
        out |= {15}
    reads = "attention" if "decoder_mixer" in mixer(row) else row["mixer"]["kind"]  # in the encoder
    near = reads == "attention" and row["visible"] != {"kind": "everything"}
    if row["form"] == "decoder" or row["position"]["kind"] != "none" or near or reads not in SETS:
        out |= {14}
    if any(grid in str(row[axis]) for grid in GRIDS for axis in ("mixer", "visible")):
        out |= {15}
    return out


def begins_by_copying(row: Row) -> bool:
    """What law 11 is there to find, and says: a residual stream that little is added to, read with the
    scaled embedding it was written with, begins by repeating its input. Then this scale breaks the law."""
    if row["tie"] in ("none", "source") or row["output"]["kind"] != "vocabulary":
        return False
    given = settings(row)
    plain = given | {"scale_embedding": False, "output": given["output"] | {"scale": False}}
    (verdict,) = verify(ModelConfig.parse(plain), seed=1, only=[11])
    return verdict.status == "holds"


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_laws_hold(row: Row) -> None:
    verdicts = verify(ModelConfig.parse(settings(row)), seed=1)
    assert [v.number for v in verdicts] == sorted(LAWS)
    verdicts = [v for v in verdicts if (v.number, v.status) != (11, "broken") or not begins_by_copying(row)]
    broken = [f"{v.number} {v.name}: {v.seen} ({v.cause})" for v in verdicts if v.status == "broken"]
    assert not broken
    assert {v.number for v in verdicts if v.status == "skipped"} == does_not_apply(row)


def test_walk_covers_every_legal_pair() -> None:
    met = {pair for row in ROWS for pair in itertools.combinations([(n, str(row[n])) for n in AXES], 2)}
    plainest = {n: values[0] for n, values in AXES.items()}
    for a, b in itertools.combinations(AXES, 2):
        for x, y in itertools.product(AXES[a], AXES[b]):
            if ((a, str(x)), (b, str(y))) not in met:
                others = [n for n in AXES if n not in (a, b)]
                rng = random.Random(0)
                drawn = [{n: rng.choice(AXES[n]) for n in others} for _ in range(30)]
                for row in (plainest, *drawn):
                    assert not legal(row | {a: x, b: y}), f"{a}={x} with {b}={y} is legal and never walked"


def test_pairwise_covers_and_is_small() -> None:
    axes = {"a": [1, 2, 3], "b": "xyz", "c": [True, False], "d": "pqr"}
    rows = pairwise(axes)
    for one, other in itertools.combinations(axes, 2):
        want = set(itertools.product(axes[one], axes[other]))
        assert {(row[one], row[other]) for row in rows} == want
    assert len(rows) <= 13
    assert rows == pairwise(axes)
    odd = pairwise(axes, legal=lambda row: not (row["a"] == 1 and row["b"] == "x"))
    assert all((row["a"], row["b"]) != (1, "x") for row in odd)
    assert {(row["a"], row["d"]) for row in odd} == set(itertools.product(axes["a"], axes["d"]))
