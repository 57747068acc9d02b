"""Settings of the model's parts: one axis a base class, one choice a subclass, one file an axis.

A choice's docstring is its one-line description and its source. The modules that carry these settings
out live in ``triptych.model`` and are found by the settings' class.
"""

from triptych.config.parts.embeddings import Embedding, TableEmbedding
from triptych.config.parts.feedforward import (
    FeedForward,
    GeluFeedForward,
    ReluFeedForward,
    SwigluFeedForward,
)
from triptych.config.parts.heads import GroupedHeads, Heads, LatentHeads
from triptych.config.parts.mixers import AttentionMixer, Mixer
from triptych.config.parts.norms import LayerNorm, Norm, RMSNorm
from triptych.config.parts.positions import Learned, NoPosition, Position, Rope, Sinusoidal
from triptych.config.parts.scores import Additive, Cosine, Dot, ScaledDot, Score
from triptych.config.parts.sights import SeeEverything, SeeWindow, Sight

__all__ = [
    "Additive",
    "AttentionMixer",
    "Cosine",
    "Dot",
    "Embedding",
    "FeedForward",
    "GeluFeedForward",
    "GroupedHeads",
    "Heads",
    "LatentHeads",
    "LayerNorm",
    "Learned",
    "Mixer",
    "NoPosition",
    "Norm",
    "Position",
    "RMSNorm",
    "ReluFeedForward",
    "Rope",
    "ScaledDot",
    "Score",
    "SeeEverything",
    "SeeWindow",
    "Sight",
    "Sinusoidal",
    "SwigluFeedForward",
    "TableEmbedding",
]
