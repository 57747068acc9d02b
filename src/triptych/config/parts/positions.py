"""How the model knows where a token is."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, SerializeAsAny, model_validator

from triptych.config.settings import Part, part
from triptych.errors import UserError

Acts = Literal["embedding", "attention", "nowhere"]
Pairs = Literal["interleaved", "halves"]


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
    base: float = Field(10000.0, gt=1, description="of the wavelengths")
    layout: Pairs = Field(
        "interleaved", description="interleaved: sine and cosine in turn; halves: all sines, then all cosines"
    )
    offset: NonNegativeInt = Field(0, description="added to every position")


class Learned(Position):
    """One trained vector a position, added to the embeddings (Gehring et al. 2017, section 3.1)."""

    kind: Literal["learned"] = "learned"
    max: PositiveInt = Field(1024, description="positions that are learned; no sequence can be longer")


class RopeScaling(Part):
    """How rotary positions reach further than the length they were trained with."""

    section: ClassVar[str] = "model.position.scaling"

    @property
    def stretch(self) -> float:
        """What turned queries and keys are multiplied by."""
        return 1.0


class NoScaling(RopeScaling):
    """Not at all."""

    kind: Literal["none"] = "none"


class Scaled(RopeScaling):
    """By a factor."""

    factor: float = Field(ge=1, description="how many times further than trained")


class LinearScaling(Scaled):
    """Positions divided by the factor (Chen et al. 2023, section 2.3)."""

    kind: Literal["linear"] = "linear"


class Extended(Scaled):
    """By a factor of the length trained with.

    Attributes:
        rises: two keys, of which the second must be the greater.
    """

    rises: ClassVar[tuple[str, str]]
    original: PositiveInt = Field(description="tokens of the longest sequence trained with before")

    @model_validator(mode="after")
    def _is_greater(self) -> Self:
        low, high = self.rises
        least, given = getattr(self, low), getattr(self, high)
        if given <= least:
            raise UserError(
                f"{given} is not above {low}, {least}", f"{self.section}.{high}", f"give more than {least}"
            )
        return self


class DynamicScaling(Extended):
    """The base grows with the length to be served, fast pairs turn as before (dynamic NTK; Peng et al. 2023,
    section 3.3). That length is set, not followed: followed, each new token would turn all keys anew."""

    kind: Literal["dynamic"] = "dynamic"
    rises: ClassVar[tuple[str, str]] = ("original", "length")
    length: PositiveInt = Field(description="tokens of the longest sequence to be served")


class YarnScaling(Extended):
    """Slow pairs turn slower by the factor, fast ones as before, a ramp between; scores are sharpened (YaRN;
    Peng et al. 2023, sections 3.2 and 3.4)."""

    kind: Literal["yarn"] = "yarn"
    rises: ClassVar[tuple[str, str]] = ("beta_slow", "beta_fast")
    beta_fast: PositiveFloat = Field(32.0, description="fast: so many turns over the trained length")
    beta_slow: PositiveFloat = Field(1.0, description="slow: so many turns over the trained length")
    attention_factor: PositiveFloat | None = Field(
        None, description="what turned values are multiplied by; 0.1 · ln factor + 1 when not given"
    )

    @property
    def stretch(self) -> float:
        """Section 3.4 there."""
        return self.attention_factor or 0.1 * math.log(self.factor) + 1


class Llama3Scaling(Extended):
    """Slow pairs turn slower by the factor, fast ones as before, a ramp in turns between (Meta 2024, code of
    Llama 3.1)."""

    kind: Literal["llama3"] = "llama3"
    rises: ClassVar[tuple[str, str]] = ("low_freq_factor", "high_freq_factor")
    low_freq_factor: PositiveFloat = Field(1.0, description="slow: so many turns over the trained length")
    high_freq_factor: PositiveFloat = Field(4.0, description="fast: so many turns over the trained length")


class Rope(Position):
    """Queries and keys rotated by their position (Su et al. 2021, section 3.2.2)."""

    acts: ClassVar[Acts] = "attention"
    relative: ClassVar[bool] = True
    kind: Literal["rope"] = "rope"
    base: float = Field(10000.0, gt=1, description="of the wavelengths")
    layout: Pairs = Field(
        "halves", description="halves: value i turns with value i + n/2; interleaved: with its neighbour"
    )
    share: float = Field(1.0, gt=0, le=1, description="of a head's values, the first so many turn")
    scaling: Annotated[
        SerializeAsAny[RopeScaling],
        part(RopeScaling, "none"),
        Field(description="how they reach further than they were trained"),
    ] = NoScaling()

    def turning(self, width: int) -> int:
        """How many of ``width`` values turn."""
        return round(self.share * width)


class Shaw(Position):
    """A trained vector a difference of positions, clipped, joins keys and values (Shaw et al. 2018, section
    3.2); heads and layers share them."""

    acts: ClassVar[Acts] = "attention"
    relative: ClassVar[bool] = True
    kind: Literal["shaw"] = "shaw"
    clip: PositiveInt = Field(16, description="greater differences count as this one")


class T5Buckets(Position):
    """A trained number a head and bucket of differences is added to scores (Raffel et al. 2020, section 2.1):
    near differences have a bucket each, far ones share logarithmically wider ones. T5 uses the dot score."""

    acts: ClassVar[Acts] = "attention"
    relative: ClassVar[bool] = True
    kind: Literal["t5"] = "t5"
    buckets: int = Field(32, ge=4, multiple_of=2, description="an encoder halves them")
    distance: PositiveInt = Field(128, description="differences from here on share the last bucket")

    @model_validator(mode="after")
    def _room_for_far_ones(self) -> Self:
        if self.distance <= self.buckets // 2:
            raise UserError(
                f"{self.buckets // 2} buckets of one difference each pass a distance of {self.distance}",
                f"{self.section}.distance",
                f"give more than {self.buckets // 2}, or fewer buckets",
            )
        return self


class Alibi(Position):
    """A penalty that grows with distance, faster in some heads, is added to scores (Press et al. 2022,
    section 3); both ways in an encoder."""

    acts: ClassVar[Acts] = "attention"
    relative: ClassVar[bool] = True
    kind: Literal["alibi"] = "alibi"


class TransformerXL(Position):
    """Sinusoids of differences, mapped to keys, and a bias of queries for content and one for position (Dai
    et al. 2019, section 3.3). The memory of segments, in training, is ``objective.segment``."""

    acts: ClassVar[Acts] = "attention"
    relative: ClassVar[bool] = True
    kind: Literal["xl"] = "xl"


class NoPosition(Position):
    """No positions: order is seen through the causal mask alone, or not at all."""

    acts: ClassVar[Acts] = "nowhere"
    relative: ClassVar[bool] = True
    kind: Literal["none"] = "none"
