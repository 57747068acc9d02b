"""How a query and a key are compared."""

from __future__ import annotations

from typing import ClassVar, Literal

from triptych.config.settings import Part


class Score(Part):
    """How a query and a key are compared."""

    section: ClassVar[str] = "model.attention.score"


class ScaledDot(Score):
    """Dot product over the square root of the dimension dotted (Vaswani et al. 2017, section 3.2.1)."""

    kind: Literal["scaled_dot"] = "scaled_dot"


class Dot(Score):
    """Dot product as it is (Luong et al. 2015, section 3.1)."""

    kind: Literal["dot"] = "dot"


class Cosine(Score):
    """Cosine of the angle between query and key, times a learned temperature for each head (Henry et al.
    2020, section 3; Liu et al. 2022, section 3.3)."""

    kind: Literal["cosine"] = "cosine"


class Additive(Score):
    """``v · tanh(W q + U k)`` (Bahdanau et al. 2015, section A.1.2), computed for every query and key: memory
    grows with queries × keys × head width."""

    kind: Literal["additive"] = "additive"
