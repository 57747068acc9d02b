"""Position schemes: added to embeddings, rotary, added to scores, related to keys; none."""

from triptych.model.positions.absolute import Learned, NoPosition, Sinusoidal
from triptych.model.positions.base import Position
from triptych.model.positions.biases import Alibi, T5Buckets
from triptych.model.positions.relative import Shaw, TransformerXL
from triptych.model.positions.rotary import Rope

__all__ = [
    "Alibi",
    "Learned",
    "NoPosition",
    "Position",
    "Rope",
    "Shaw",
    "Sinusoidal",
    "T5Buckets",
    "TransformerXL",
]
