"""Seeing what a model does and what a run did. Names are loaded on first use: not all need torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triptych.insight.pictures import Confusion, Heatmap, confusion_svg, heatmap_svg, save_heatmap_png
    from triptych.insight.report import Sample, write_report

__all__ = [
    "Confusion",
    "Heatmap",
    "Sample",
    "confusion_svg",
    "heatmap_svg",
    "save_heatmap_png",
    "write_report",
]

_PLACES = {
    "Confusion": "pictures",
    "Heatmap": "pictures",
    "Sample": "report",
    "confusion_svg": "pictures",
    "heatmap_svg": "pictures",
    "save_heatmap_png": "pictures",
    "write_report": "report",
}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
