"""Settings of the model's parts: one axis a base class, one choice a subclass, one file an axis.

A choice's docstring is its one-line description and its source. The modules that carry these settings
out live in ``triptych.model`` and are found by the settings' class.
"""

from triptych.config.parts.embeddings import Embedding, FactorisedEmbedding, TableEmbedding
from triptych.config.parts.experts import Experts, Router, SigmoidRouter, SoftmaxRouter, TopSoftmaxRouter
from triptych.config.parts.feedforward import (
    FeedForward,
    GegluFeedForward,
    GeluFeedForward,
    GeluTanhFeedForward,
    GluFeedForward,
    ReluFeedForward,
    SiluFeedForward,
    SquaredReluFeedForward,
    SwigluFeedForward,
)
from triptych.config.parts.grids import DeformableMixer, Grid, SeeAxial, SeeCells, SpatialMixer
from triptych.config.parts.heads import GroupedHeads, Heads, LatentHeads
from triptych.config.parts.mixers import (
    AttentionMixer,
    BahdanauMixer,
    BottleneckMixer,
    ChannelMixer,
    ConvMixer,
    GruMixer,
    LstmMixer,
    LuongMixer,
    Mixer,
    RecurrentMixer,
    RetrievalMixer,
)
from triptych.config.parts.norms import LayerNorm, Norm, RMSNorm
from triptych.config.parts.positions import Learned, NoPosition, Position, Rope, Sinusoidal
from triptych.config.parts.scores import Additive, Cosine, Dot, ScaledDot, Score
from triptych.config.parts.sights import SeeEverything, SeeWindow, Sight

__all__ = [
    "Additive",
    "AttentionMixer",
    "BahdanauMixer",
    "BottleneckMixer",
    "ChannelMixer",
    "ConvMixer",
    "Cosine",
    "DeformableMixer",
    "Dot",
    "Embedding",
    "Experts",
    "FactorisedEmbedding",
    "FeedForward",
    "GegluFeedForward",
    "GeluFeedForward",
    "GeluTanhFeedForward",
    "GluFeedForward",
    "Grid",
    "GroupedHeads",
    "GruMixer",
    "Heads",
    "LatentHeads",
    "LayerNorm",
    "Learned",
    "LstmMixer",
    "LuongMixer",
    "Mixer",
    "NoPosition",
    "Norm",
    "Position",
    "RMSNorm",
    "RecurrentMixer",
    "ReluFeedForward",
    "RetrievalMixer",
    "Rope",
    "Router",
    "ScaledDot",
    "Score",
    "SeeAxial",
    "SeeCells",
    "SeeEverything",
    "SeeWindow",
    "Sight",
    "SigmoidRouter",
    "SiluFeedForward",
    "Sinusoidal",
    "SoftmaxRouter",
    "SpatialMixer",
    "SquaredReluFeedForward",
    "SwigluFeedForward",
    "TableEmbedding",
    "TopSoftmaxRouter",
]
