"""The settings one asks for first, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from triptych.insight.markup import number

__all__ = ["facts", "pick"]


def pick(config: dict[str, Any], key: str) -> Any:
    """The value under ``section.key``; None when there is none."""
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def facts(config: dict[str, Any], parameters: float = math.nan) -> list[tuple[str, str]]:
    """Names and values for a reader, from a run's settings as nested dicts; what is not set is left out."""
    found = pick(config, "parameters")
    if not math.isfinite(parameters) and isinstance(found, int | float):
        parameters = found
    rows = [
        ("Languages", _joined([pick(config, "text.source"), pick(config, "text.target")], " → ")),
        *((name, _joined(_listed(pick(config, f"data.{key}")))) for name, key in _FILES),
        ("Model", _joined(_model(config))),
        ("Parameters", number(parameters, 15) if math.isfinite(parameters) else ""),
        ("Vocabulary", _joined(_vocabulary(config))),
        ("Batch", _joined(_batch(config))),
        ("Optimizer", _joined(_optimizer(config))),
        ("Run", _joined(_run(config))),
        ("Decoding", _joined(_decoding(config))),
    ]
    return [(name, text) for name, text in rows if text]


_FILES = (("Training data", "train"), ("Validation data", "valid"), ("Test data", "test"))


def _joined(parts: Any, glue: str = ", ") -> str:
    return glue.join(str(p) for p in parts if p not in (None, ""))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _with(config: dict[str, Any], key: str, form: str) -> str:
    """``form`` with the value under ``key`` in it; empty when it is not set."""
    value = pick(config, key)
    if value is None:
        return ""
    exact = isinstance(value, int | float) and not isinstance(value, bool)
    return form.format(number(value, 9) if exact else value)


def _model(config: dict[str, Any]) -> Iterator[str]:
    yield str(pick(config, "model.form") or "").replace("_", "–")
    layers = pick(config, "model.layers")
    depths = [pick(config, f"model.{side}_layers") or layers for side in ("encoder", "decoder")]
    form = pick(config, "model.form")
    used = {"encoder": depths[:1], "decoder": depths[1:]}.get(str(form), depths)
    yield f"{_joined(used, ' + ')} layers" if any(used) else ""
    yield _with(config, "model.dim", "width {}")
    heads, kv = pick(config, "model.heads.count"), pick(config, "model.heads.kv")
    yield (
        (f"{heads} heads" + (f" ({kv} for keys and values)" if kv not in (None, heads) else ""))
        if heads
        else ""
    )
    yield _with(config, "model.ffn.kind", "{} feed-forward") + _with(config, "model.ffn.dim", " {}")
    some = _with(config, "model.experts.top_k", " ({} a token)")
    yield _with(config, "model.experts.count", "{} experts") + some
    yield _with(config, "model.position.kind", "{} positions")
    yield _with(config, "model.norm.placement", "{}-norm")
    yield _with(config, "model.dropout", "dropout {}")


def _vocabulary(config: dict[str, Any]) -> Iterator[str]:
    if (size := pick(config, "model.embedding.size")) is not None:
        height, width = (pick(config, f"model.embedding.{side}") for side in ("height", "width"))
        yield f"none: images of {height} × {width} pixels, in patches of {size} × {size}"
        return
    vocab = pick(config, "model.vocab")
    if isinstance(vocab, int) and vocab > 0:
        yield f"{vocab:,} entries"
    else:
        yield _with(config, "text.tokenizer.size", "{} entries")
    yield _with(config, "text.tokenizer.kind", "{}")


def _batch(config: dict[str, Any]) -> Iterator[str]:
    yield _with(config, "data.tokens", "{} tokens")
    times = pick(config, "training.accumulate")
    yield f"× {times} accumulated" if times not in (None, 1) else ""
    yield _with(config, "data.max_length", "sentences up to {} tokens")


def _optimizer(config: dict[str, Any]) -> Iterator[str]:
    yield _with(config, "training.optimizer.kind", "{}")
    yield _with(config, "training.schedule.kind", "{} schedule").replace("_", " ")
    yield _with(config, "training.schedule.peak", "peak {}")
    yield _with(config, "training.schedule.warmup", "{} steps of warm-up")
    yield _with(config, "objective.label_smoothing", "label smoothing {}")


def _run(config: dict[str, Any]) -> Iterator[str]:
    yield _with(config, "training.steps", "{} steps")
    yield _with(config, "training.epochs", "at most {} passes over the data")
    yield _with(config, "training.budget", "budget {}")
    yield _with(config, "training.precision", "{}")
    yield _with(config, "training.seed", "seed {}")


def _decoding(config: dict[str, Any]) -> Iterator[str]:
    strategy = pick(config, "decoding.strategy")
    yield _with(config, "decoding.strategy", "{}")
    if strategy == "beam":
        yield _with(config, "decoding.beam", "{} wide")
        yield _with(config, "decoding.penalty", "{} length penalty") + _with(config, "decoding.alpha", " {}")
