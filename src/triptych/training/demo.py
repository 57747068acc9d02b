"""The demo's settings."""

from __future__ import annotations

from typing import Any

from triptych.training.tasks.translation import BUILT_IN

CONFIG: dict[str, Any] = {
    "model": {
        "dim": 128,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "heads": {"count": 4, "bias": False},
        "position": {"kind": "rope"},
        "norm": {"kind": "layernorm", "placement": "pre"},
        "ffn": {"kind": "relu", "dim": 512, "bias": False},
        "dropout": 0.0,
    },
    "text": {"tokenizer": {"kind": "bpe", "size": 1000, "shrink": True, "coverage": 1.0}},
    "data": {"train": [BUILT_IN], "tokens": 2048},
    "objective": {"label_smoothing": 0.0},
    "training": {"schedule": {"kind": "linear", "peak": 4e-3, "warmup": 100}},
    "decoding": {"beam": 2},
}
