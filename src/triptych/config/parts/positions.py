"""How the model knows where a token is."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveFloat, PositiveInt

from triptych.config.settings import Part

Acts = Literal["embedding", "attention", "nowhere"]


class Position(Part):
    """How the model knows where a token is.

    Attributes:
        acts: where: on the embeddings, in softmax attention, or nowhere.
        relative: only differences of positions count: moving a whole sequence changes nothing.
    """

    section: ClassVar[str] = "model.position"
    acts: ClassVar[Acts] = "embedding"
    relative: ClassVar[bool] = False


class Sinusoidal(Position):
    """Fixed sines and cosines added to the embeddings (Vaswani et al. 2017, section 3.5)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    base: PositiveFloat = 10000.0


class Learned(Position):
    """One trained vector a position, added to the embeddings (Gehring et al. 2017, section 3.1)."""

    kind: Literal["learned"] = "learned"
    max: PositiveInt = 1024


class Rope(Position):
    """Queries and keys rotated by their position (Su et al. 2021, section 3.2.2), half-split layout."""

    acts: ClassVar[Acts] = "attention"
    relative: ClassVar[bool] = True
    kind: Literal["rope"] = "rope"
    base: PositiveFloat = 10000.0


class NoPosition(Position):
    """No positions: order is seen through the causal mask alone, or not at all."""

    acts: ClassVar[Acts] = "nowhere"
    relative: ClassVar[bool] = True
    kind: Literal["none"] = "none"
