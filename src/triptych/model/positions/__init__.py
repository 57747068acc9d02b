"""Position schemes: added to embeddings, rotary, added to scores, related to keys; none."""

from triptych.model.positions import biases as biases  # registers them
from triptych.model.positions import relative as relative
from triptych.model.positions import rotary as rotary
from triptych.model.positions.absolute import NoPosition as NoPosition
from triptych.model.positions.base import Position as Position
