"""Settings chosen from the data, the budget and this machine, where the user has set none.

The rules are few and written out, and what they chose stands in the run's ``config.yaml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from triptych.config import ModelConfig, merge
from triptych.model import cost
from triptych.training.machine import autocast, choose_precision, measure

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


def choose(facts: Facts) -> dict[str, Any]:
    """A configuration, as plain data, for this much data and time."""
    vocab = vocabulary(facts.pairs)
    tokens = facts.bytes / 2 / BYTES  # a side
    best = SIZES[0]
    for dim, encoder, decoder in SIZES:
        if cost(_model(dim, encoder, decoder, vocab)).parameters > 40 * tokens:
            break  # more parameters than the data can fill
        one = cost(_model(dim, encoder, decoder, vocab), batch=1, length=20, source=20)
        # A corpus too large for many passes in the time still teaches a model a token a parameter.
        need = min(EPOCHS * tokens, one.parameters)
        if 3 * one.flops / 20 * need / (SHARE * facts.flops) > facts.seconds:  # backward costs twice forward
            break
        best = (dim, encoder, decoder)
    dim, encoder, decoder = best
    batch = cost(_model(dim, encoder, decoder, vocab), batch=TOKENS // 20, length=20, source=20)
    steps = facts.seconds * SHARE * facts.flops / (3 * batch.flops)
    # The more often a pair is seen, the more is to be done against learning it by heart.
    passes = steps * TOKENS / max(tokens, 1)
    dropout = 0.3 if passes >= 25 else 0.2 if passes >= 8 else 0.1
    return {
        "model": {
            "form": "encoder_decoder",
            "dim": dim,
            "encoder_layers": encoder,
            "decoder_layers": decoder,
            # Biases add nothing measurable beside norms, and their gradients cost a pass each.
            "heads": {"count": max(2, dim // 64), "bias": False},
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
                "kind": "linear",
                "peak": 2e-3 * (256 / dim) ** 0.5,
                "warmup": int(max(20, min(400, steps / 12))),
            },
        },
    }


def fill(given: Mapping[str, Any], pairs: int, size: int, seconds: float) -> dict[str, Any]:
    """``given`` with every open choice made: for so many ``pairs`` of ``size`` bytes in all."""
    precision = choose_precision("auto", torch.device("cuda" if torch.cuda.is_available() else "cpu"), 256)
    facts = Facts(pairs, size, seconds, matmul_speed(precision))
    filled = merge(choose(facts), given)
    if "position" not in given.get("model", {}) and not _turns(filled["model"]):
        filled = merge(filled, {"model": {"position": {"kind": "sinusoidal"}}})
    return filled


def _turns(model: Mapping[str, Any]) -> bool:
    """Whether every stack has attention in which rotary positions can act."""
    asked = ModelConfig.parse({**model, "position": "none"})
    return all(asked.attending(side) for side in asked.stacks)


def _model(dim: int, encoder: int, decoder: int, vocab: int) -> ModelConfig:
    heads = {"count": max(2, dim // 64)}
    return ModelConfig.parse(
        {"vocab": vocab, "dim": dim, "heads": heads, "encoder_layers": encoder, "decoder_layers": decoder}
    )
