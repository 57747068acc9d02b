"""Settings chosen from the data, the budget and this machine, where the user has set none.

The rules are few and written out, and what they chose stands in the run's ``config.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from triptych.config import ModelConfig, load_config, merge
from triptych.config.model import MOST_DIM, MOST_LAYERS
from triptych.engine import autocast
from triptych.model import cost
from triptych.training.machine import choose_precision, measure

# (model width, encoder layers, decoder layers), smallest first. Decoders are the shallower half: decoding's
# time is theirs.
SIZES = (
    (128, 2, 2),
    (192, 3, 2),
    (256, 3, 3),
    (384, 4, 3),
    (512, 6, 3),
    (512, 6, 6),
    (768, 8, 6),
    (1024, 8, 8),
)
# Passes over the data that a model should have time for.
EPOCHS = 16
# Share of the speed of large matrix products that training reaches (benchmarks/throughput.py).
SHARE = 0.4
# Padded tokens of a batch.
TOKENS = 2048
# Bytes of text a target token stands for, about.
BYTES = 4.0


@dataclass(frozen=True)
class Facts:
    """What the choice rests on: pairs, bytes of both sides, seconds to train for, products a second."""

    pairs: int
    bytes: int
    seconds: float
    flops: float


LEAST = Facts(pairs=1, bytes=1, seconds=1.0, flops=1.0)


def matmul_speed(precision: str) -> float:
    """Floating-point operations a second of a training-sized matrix product here."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    a, b = torch.randn(2048, 512, device=device), torch.randn(512, 1024, device=device)

    def work() -> float:
        with autocast(precision, device):
            return float((a @ b)[0, 0])

    return 2 * 2048 * 512 * 1024 / measure(work)


def vocabulary(pairs: int) -> int:
    """Entries of the tokenizer: enough for whole words of a large corpus, few enough to be learned from a
    small one."""
    for least, size in ((1_000_000, 32000), (200_000, 16000), (15_000, 8000), (4_000, 4000), (1_000, 2000)):
        if pairs >= least:
            return size
    return 1000


def choose(facts: Facts, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A configuration, as plain data, for this much data and time. What is ``given`` stands, and what
    depends on it follows from it."""
    given = given or {}
    model, kind = _section(given, "model"), _section(given, "training", "schedule").get("kind", "linear")
    accumulate, end = _whole(given, "training.accumulate") or 1, _whole(given, "training.steps")
    batch_tokens = accumulate * (_whole(given, "data.tokens") or TOKENS)
    vocab = vocabulary(facts.pairs)
    tokens = facts.bytes / 2 / BYTES  # a side
    best = SIZES[0]
    for dim, encoder, decoder in SIZES:
        if cost(_model(dim, encoder, decoder, vocab)).parameters > 40 * tokens:
            break  # more parameters than the data can fill
        one = cost(_model(dim, encoder, decoder, vocab), batch=1, length=20, source=20)
        # A corpus too large for many passes in the time still teaches a model a token a parameter.
        need = min(EPOCHS * tokens, one.parameters)
        seconds = 3 * one.flops / 20 * need / (SHARE * facts.flops)  # backward costs twice forward
        if need > end * batch_tokens if end else seconds > facts.seconds:
            break
        best = (dim, encoder, decoder)
    dim, encoder, decoder = _whole(given, "model.dim") or best[0], *best[1:]
    depths = {"encoder_layers": encoder, "decoder_layers": decoder}
    if "layers" in model or model.get("form", "encoder_decoder") != "encoder_decoder":
        depths = {}
    layers = _whole(given, "model.layers")
    deep = _model(dim, layers or encoder, layers or decoder, vocab)
    batch = cost(deep, batch=max(1, batch_tokens // 20), length=20, source=20)
    steps = end or facts.seconds * SHARE * facts.flops / (3 * batch.flops)
    # The more often a pair is seen, the more is to be done against learning it by heart.
    passes = steps * batch_tokens / max(tokens, 1)
    dropout = 0.3 if passes >= 25 else 0.2 if passes >= 8 else 0.1
    return {
        "model": {
            "form": "encoder_decoder",
            "dim": dim,
            **depths,
            # Biases add nothing measurable beside norms, and their gradients cost a pass each.
            "heads": {"count": heads(dim), "bias": False},
            "position": {"kind": "rope"},
            "norm": {"kind": "layernorm", "placement": "pre"},
            "ffn": {"kind": "relu", "dim": 4 * dim, "bias": False},
            "tie": "all",
            "dropout": dropout,
        },
        "text": {"tokenizer": {"kind": "bpe", "size": vocab, "shrink": True}},
        "data": {"tokens": TOKENS},
        "objective": {"label_smoothing": 0.1},
        "decoding": {"beam": 6},
        "training": {
            "schedule": {
                "kind": kind,
                # That of noam is a factor, and its peak is its width's and warm-up's.
                "peak": 1.0 if kind == "noam" else 2e-3 * (256 / dim) ** 0.5,
                "warmup": int(max(min(20, steps), min(400, steps / 12))),
            },
        },
    }


def heads(dim: int) -> int:
    """Heads of about 64 values, at least two where that can be; each of an even number, for rotation."""
    return next((n for n in range(max(2, dim // 64), 0, -1) if dim % (2 * n) == 0), 1)


def fill(given: Mapping[str, Any], pairs: int, size: int, seconds: float) -> dict[str, Any]:
    """``given`` with every open choice made: for so many ``pairs`` of ``size`` bytes in all."""
    precision = choose_precision("auto", torch.device("cuda" if torch.cuda.is_available() else "cpu"), 256)
    return settle(given, Facts(pairs, size, seconds, matmul_speed(precision)))


def settle(given: Mapping[str, Any], facts: Facts = LEAST) -> dict[str, Any]:
    """``given`` with every open choice made for ``facts``: those of the smallest model when not given."""
    chosen = choose(facts, given)
    asked = load_config(merge(merge(chosen, {"model": {"position": "none"}}), given)).model
    # Rotary positions need attention, in every stack, in which they can act.
    if not all(asked.attending(side) for side in asked.stacks):
        chosen = merge(chosen, {"model": {"position": {"kind": "sinusoidal"}}})
    return merge(chosen, given)


def _section(given: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """A section of plain settings that nobody has looked at yet; empty when it is none."""
    found: Any = given
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _whole(given: Mapping[str, Any], key: str) -> int | None:
    """A number that was given; None for one that will be refused, too."""
    *path, last = key.split(".")
    most = {"dim": MOST_DIM, "layers": MOST_LAYERS}.get(last, 1 << 62)
    value = _section(given, *path).get(last)
    return value if type(value) is int and 0 < value <= most else None


def _model(dim: int, encoder: int, decoder: int, vocab: int) -> ModelConfig:
    depths = {"encoder_layers": encoder, "decoder_layers": decoder}
    return ModelConfig.parse({"vocab": vocab, "dim": dim, "heads": heads(dim), "position": "none", **depths})
