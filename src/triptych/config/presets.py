"""Named starting points. Every preset is plain data in the user's vocabulary, and any key can be changed."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    # Vaswani et al. 2017, table 3 and section 5.3, with the shared vocabulary of about 37,000 entries.
    "transformer-base": {
        "model": {
            "form": "encoder_decoder",
            "vocab": 37000,
            "dim": 512,
            "layers": 6,
            "heads": {"count": 8},
            "position": {"kind": "sinusoidal"},
            "norm": {"kind": "layernorm", "placement": "post"},
            "ffn": {"kind": "relu", "dim": 2048},
            "tie": "all",
            "dropout": 0.1,
        },
        "text": {"tokenizer": {"kind": "bpe", "size": 37000}},
        "data": {"tokens": 25000},
        "training": {
            "steps": 100000,
            "optimizer": {"kind": "adam", "clip": 0.0},
            "schedule": {"kind": "noam", "peak": 1.0, "warmup": 4000},
        },
    },
    "transformer-big": {
        "model": {
            "form": "encoder_decoder",
            "vocab": 37000,
            "dim": 1024,
            "layers": 6,
            "heads": {"count": 16},
            "position": {"kind": "sinusoidal"},
            "norm": {"kind": "layernorm", "placement": "post"},
            "ffn": {"kind": "relu", "dim": 4096},
            "tie": "all",
            "dropout": 0.3,
        },
        "text": {"tokenizer": {"kind": "bpe", "size": 37000}},
        "data": {"tokens": 25000},
        "training": {
            "steps": 300000,
            "optimizer": {"kind": "adam", "clip": 0.0},
            "schedule": {"kind": "noam", "peak": 1.0, "warmup": 4000},
        },
    },
    # A laptop's translator: pre-norm, rotary positions, a schedule that ends with the run.
    "small": {
        "model": {
            "form": "encoder_decoder",
            "dim": 256,
            "layers": 3,
            "heads": {"count": 4, "bias": False},
            "position": {"kind": "rope"},
            "norm": {"kind": "layernorm", "placement": "pre"},
            "ffn": {"kind": "relu", "dim": 1024, "bias": False},
            "tie": "all",
            "dropout": 0.1,
        },
        "text": {"tokenizer": {"kind": "bpe", "size": 8000}},
        "data": {"tokens": 2048},
        "training": {"schedule": {"kind": "linear", "peak": 2e-3, "warmup": 300}},
    },
    # Deep encoder, shallow decoder: nearly all of decoding's cost is in the decoder (Kasai et al. 2021).
    "student": {
        "model": {
            "form": "encoder_decoder",
            "dim": 512,
            "encoder_layers": 6,
            "decoder_layers": 2,
            "heads": {"count": 8},
            "position": {"kind": "rope"},
            "norm": {"kind": "rmsnorm", "placement": "pre"},
            "ffn": {"kind": "relu", "dim": 2048},
            "tie": "all",
            # Scaled, a wide pre-norm model with tied embeddings begins by repeating its input.
            "scale_embedding": False,
            "dropout": 0.1,
        },
        "text": {"tokenizer": {"kind": "bpe", "size": 16000}},
        "data": {"tokens": 8192},
        "training": {"schedule": {"kind": "linear", "peak": 1e-3, "warmup": 1000}},
    },
}
