"""Running a trained model: the bundle on disk, and the translator over it."""

from triptych.engine.bundle import Bundle, load, load_weights, read_json, save_weights
from triptych.engine.precision import autocast
from triptych.engine.translator import Alternative, Translation, Translator

__all__ = [
    "Alternative",
    "Bundle",
    "Translation",
    "Translator",
    "autocast",
    "load",
    "load_weights",
    "read_json",
    "save_weights",
]
