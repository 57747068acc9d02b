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
NEEDED: dict[str, dict[str, Any]] = {"learned": {"max": 80}, "window": {"width": 3}}


def every(axis: type[Part]) -> list[dict[str, Any]]:
    """All registered choices of an axis, as plain settings."""
    return [{"kind": kind, **NEEDED.get(kind, {})} for kind in choices(axis)]


AXES: dict[str, list[Any]] = {
    "form": ["encoder_decoder", "decoder", "encoder"],
    "position": every(parts.Position),
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
    "visible": [*every(parts.Sight), [{"kind": "window", "width": 2}, "everything"]],
    "tie": ["none", "decoder", "all"],
    "bias": [True, False],
    "scale_embedding": [True, False],
    "dropout": [(0.1, 0.0), (0.0, 0.0), (0.1, 0.1)],
    "depth": [1, 2, "uneven"],
}


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
        "heads": {**row["heads"], "bias": row["bias"]},
        "attention": {"score": row["score"], "visible": row["visible"], "dropout": attention}
        | row["shaping"],
        "mixer": row["mixer"],
        "position": row["position"],
        "norm": {**row["norm"], "placement": row["placement"]},
        "ffn": {**row["ffn"], "dim": 32, "bias": row["bias"]},
        "tie": row["tie"],
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


ROWS = [*pairwise(AXES, seed=4, legal=legal), *(wild(seed) for seed in range(4))]


RELATIVE = ("rope", "none")


def does_not_apply(row: Row) -> set[int]:
    """The laws that say nothing about this row: written out, so that none can skip unnoticed."""
    out = set()
    if row["form"] == "encoder":
        out |= {1, 4, 6, 18}
    if row["form"] != "encoder_decoder":
        out |= {19}
    if row["position"]["kind"] != "rope":
        out |= {16}
    if row["position"]["kind"] not in RELATIVE:
        out |= {15}
    return out


@pytest.mark.parametrize("row", ROWS, ids=label)
def test_laws_hold(row: Row) -> None:
    verdicts = verify(ModelConfig.parse(settings(row)), seed=1)
    assert [v.number for v in verdicts] == sorted(LAWS)
    broken = [f"{v.number} {v.name}: {v.seen} ({v.cause})" for v in verdicts if v.status == "broken"]
    assert not broken
    assert {v.number for v in verdicts if v.status == "skipped"} == does_not_apply(row)


def test_walk_covers_every_legal_pair() -> None:
    met = {pair for row in ROWS for pair in itertools.combinations([(n, str(row[n])) for n in AXES], 2)}
    for a, b in itertools.combinations(AXES, 2):
        for x, y in itertools.product(AXES[a], AXES[b]):
            if ((a, str(x)), (b, str(y))) not in met:
                others = [n for n in AXES if n not in (a, b)]
                rng = random.Random(0)
                for _ in range(30):
                    row = {n: rng.choice(AXES[n]) for n in others} | {a: x, b: y}
                    assert not legal(row), f"{a}={x} with {b}={y} is legal and never walked"


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
