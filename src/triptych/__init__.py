"""Triptych: the Transformer, whole.

>>> import triptych
>>> bundle = triptych.load("runs/demo-en-zh")            # doctest: +SKIP
>>> bundle.translate(["in 3 days"])                      # doctest: +SKIP
['3天后']

A model from a configuration:

>>> config = triptych.ModelConfig.parse({"vocab": 1000, "dim": 64, "layers": 2, "heads": 4})
>>> model = triptych.build(config, seed=1)
>>> sum(p.numel() for p in model.parameters()) == triptych.cost(config).parameters
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triptych.config import ModelConfig, RunConfig, load_config, preset
    from triptych.engine import Bundle, load
    from triptych.errors import UserError
    from triptych.layout import Layout
    from triptych.model import build, cost

_HOME = {
    "Bundle": "engine",
    "Layout": "layout",
    "ModelConfig": "config",
    "RunConfig": "config",
    "UserError": "errors",
    "build": "model",
    "cost": "model",
    "load": "engine",
    "load_config": "config",
    "preset": "config",
}


def __getattr__(name: str) -> Any:
    """Import on first use: ``import triptych`` costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module 'triptych' has no attribute {name!r}")
    return getattr(import_module(f"triptych.{_HOME[name]}"), name)


__all__ = [
    "Bundle",
    "Layout",
    "ModelConfig",
    "RunConfig",
    "UserError",
    "build",
    "cost",
    "load",
    "load_config",
    "preset",
]
