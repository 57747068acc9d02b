"""Running a trained model: the bundle on disk, and the translator over it."""

from triptych.engine.bundle import Bundle, load, load_weights, read_json, save_weights
from triptych.engine.classifier import Classified, Classifier
from triptych.engine.embedder import Embedder
from triptych.engine.filler import Filler, Guess
from triptych.engine.generator import Generation, Generator, Prompt
from triptych.engine.labels import read_labels, write_labels
from triptych.engine.precision import autocast, evaluating
from triptych.engine.tagger import Tagger
from triptych.engine.translator import Alternative, Translation, Translator

__all__ = [
    "Alternative",
    "Bundle",
    "Classified",
    "Classifier",
    "Embedder",
    "Filler",
    "Generation",
    "Generator",
    "Guess",
    "Prompt",
    "Tagger",
    "Translation",
    "Translator",
    "autocast",
    "evaluating",
    "load",
    "load_weights",
    "read_json",
    "read_labels",
    "save_weights",
    "write_labels",
]
