"""Position schemes: absolute, learned, rotary, none."""

from triptych.model.positions.absolute import Learned, NoPosition, Sinusoidal
from triptych.model.positions.base import Position
from triptych.model.positions.rotary import Rope

__all__ = ["Learned", "NoPosition", "Position", "Rope", "Sinusoidal"]
