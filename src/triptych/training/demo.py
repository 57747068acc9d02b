"""The demo's settings, and its phrases as a corpus."""

from __future__ import annotations

from typing import Any

from triptych.text import REPORT_ONLY, Pairs, clean
from triptych.text.cldr import PhraseCorpus
from triptych.training.prepare import Corpus

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
    "data": {"tokens": 2048},
    "objective": {"label_smoothing": 0.0},
    "training": {"schedule": {"kind": "linear", "peak": 4e-3, "warmup": 100}},
    "decoding": {"beam": 2},
}


def as_corpus(phrases: PhraseCorpus) -> Corpus:
    """The phrase corpus in the form that training takes; its split is its own."""

    def part(pairs: list[tuple[str, str]], name: str) -> Pairs:
        origin = [(f"CLDR {name}", i + 1) for i in range(len(pairs))]
        return Pairs([s for s, _ in pairs], [t for _, t in pairs], origin)

    train, audit = clean(part(phrases.train, "train"), REPORT_ONLY)
    notes = [f"no CLDR data for: {', '.join(phrases.skipped)}"] if phrases.skipped else []
    return Corpus(train, part(phrases.valid, "valid"), part(phrases.test, "test"), audit, tuple(notes))
