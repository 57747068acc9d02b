"""Settings of the model's parts: one axis a base class, one choice a subclass.

A choice's docstring is its one-line description and its source. The modules that carry these settings
out live in ``triptych.model`` and are found by the settings' class.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from triptych.config.settings import Part, Settings
from triptych.errors import UserError


class Position(Part):
    """How the model knows where a token is."""

    section: ClassVar[str] = "model.position"


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

    kind: Literal["rope"] = "rope"
    base: PositiveFloat = 10000.0


class NoPosition(Position):
    """No positions: order is seen through the causal mask alone, or not at all."""

    kind: Literal["none"] = "none"


class Norm(Part):
    """How activations are normalised, and where in the block."""

    section: ClassVar[str] = "model.norm"
    placement: Literal["post", "pre"] = "post"


class LayerNorm(Norm):
    """Centred and scaled to unit variance, with gain and bias (Ba et al. 2016)."""

    kind: Literal["layernorm"] = "layernorm"
    eps: PositiveFloat = 1e-5


class RMSNorm(Norm):
    """Scaled to unit root mean square, with gain (Zhang and Sennrich 2019)."""

    kind: Literal["rmsnorm"] = "rmsnorm"
    eps: PositiveFloat = 1e-6


class FeedForward(Part):
    """The position-wise network of a block."""

    section: ClassVar[str] = "model.ffn"
    dim: PositiveInt | None = Field(None, description="inner width; 4 × model.dim when not given")
    bias: bool = True


class ReluFeedForward(FeedForward):
    """Two linear maps with a ReLU between (Vaswani et al. 2017, section 3.3)."""

    kind: Literal["relu"] = "relu"


class GeluFeedForward(FeedForward):
    """Two linear maps with an exact GELU between (Hendrycks and Gimpel 2016)."""

    kind: Literal["gelu"] = "gelu"


class SwigluFeedForward(FeedForward):
    """A SiLU-gated linear unit and an output map (Shazeer 2020, section 2)."""

    kind: Literal["swiglu"] = "swiglu"
    bias: bool = False


class Mixer(Part):
    """What mixes information along the sequence."""

    section: ClassVar[str] = "model.mixer"


class AttentionMixer(Mixer):
    """Softmax attention (Vaswani et al. 2017, section 3.2)."""

    kind: Literal["attention"] = "attention"


class Score(Part):
    """How a query and a key are compared."""

    section: ClassVar[str] = "model.attention.score"


class ScaledDot(Score):
    """Dot product over the square root of the dimension dotted (Vaswani et al. 2017, section 3.2.1)."""

    kind: Literal["scaled_dot"] = "scaled_dot"


class Sight(Part):
    """Which earlier (and, in an encoder, later) tokens self-attention may see, beside causality."""

    section: ClassVar[str] = "model.attention.visible"


class SeeEverything(Sight):
    """Every token of the same segment."""

    kind: Literal["everything"] = "everything"


class SeeWindow(Sight):
    """The nearest ``width`` tokens, the token itself included: a decoder's w keys end at the query; an
    encoder's reach w - 1 to either side (Beltagy et al. 2020, section 3.1)."""

    kind: Literal["window"] = "window"
    width: PositiveInt


class Heads(Part):
    """What is projected, cached and shared among the heads."""

    section: ClassVar[str] = "model.heads"
    count: PositiveInt = 8


class GroupedHeads(Heads):
    """``count`` query heads over ``kv`` key/value heads: equal is MHA, fewer is GQA (Ainslie et al. 2023),
    one is MQA (Shazeer 2019)."""

    kind: Literal["grouped"] = "grouped"
    kv: PositiveInt | None = Field(None, description="key/value heads; as many as count when not given")
    dim: PositiveInt | None = Field(None, description="width of a head; model.dim / count when not given")
    bias: bool = True

    @model_validator(mode="after")
    def _groups_are_whole(self) -> Self:
        if self.kv is not None and self.count % self.kv:
            fits = [n for n in range(1, self.count + 1) if self.count % n == 0]
            raise UserError(
                f"{self.kv} key/value heads do not divide {self.count} heads",
                f"{self.section}.kv",
                f"choose one of {', '.join(map(str, fits))}",
            )
        return self


class AttentionSettings(Settings):
    """Settings of softmax attention that are not parts of their own."""

    section: ClassVar[str] = "model.attention"
    dropout: NonNegativeFloat = Field(0.0, lt=1, description="a share from 0 up to, not including, 1")
