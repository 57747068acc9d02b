"""The position-wise network of a block."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from triptych.config.settings import Part

BIAS = "its maps have a bias"


class FeedForward(Part):
    """The position-wise network of a block."""

    section: ClassVar[str] = "model.ffn"
    dim: PositiveInt | None = Field(None, description="inner width; 4 × model.dim when not given")
    bias: bool = Field(True, description=BIAS)


class ReluFeedForward(FeedForward):
    """Two linear maps with a ReLU between (Vaswani et al. 2017, section 3.3)."""

    kind: Literal["relu"] = "relu"


class GeluFeedForward(FeedForward):
    """Two linear maps with an exact GELU between (Hendrycks and Gimpel 2016)."""

    kind: Literal["gelu"] = "gelu"


class GeluTanhFeedForward(FeedForward):
    """Two linear maps with GELU's approximation by tanh between (Hendrycks and Gimpel 2016, section 2)."""

    kind: Literal["gelu_tanh"] = "gelu_tanh"


class SiluFeedForward(FeedForward):
    """Two linear maps with a SiLU, x · sigmoid(x), between (Hendrycks and Gimpel 2016, section 2)."""

    kind: Literal["silu"] = "silu"


class SquaredReluFeedForward(FeedForward):
    """Two linear maps with the square of a ReLU between (So et al. 2021, section 3)."""

    kind: Literal["relu2"] = "relu2"


class GluFeedForward(FeedForward):
    """A sigmoid-gated linear unit and an output map (Dauphin et al. 2017; Shazeer 2020, section 2)."""

    kind: Literal["glu"] = "glu"
    bias: bool = Field(False, description=BIAS)


class GegluFeedForward(FeedForward):
    """A GELU-gated linear unit and an output map (Shazeer 2020, section 2)."""

    kind: Literal["geglu"] = "geglu"
    bias: bool = Field(False, description=BIAS)


class GegluTanhFeedForward(FeedForward):
    """A linear unit gated by GELU's approximation by tanh and an output map, as in T5 1.1 and Gemma (Shazeer
    2020, section 2)."""

    kind: Literal["geglu_tanh"] = "geglu_tanh"
    bias: bool = Field(False, description=BIAS)


class SwigluFeedForward(FeedForward):
    """A SiLU-gated linear unit and an output map (Shazeer 2020, section 2)."""

    kind: Literal["swiglu"] = "swiglu"
    bias: bool = Field(False, description=BIAS)
