"""Which tokens self-attention may see, beside causality and the borders of sequences."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, SerializeAsAny, model_validator

from triptych.config.settings import Part, part, pattern
from triptych.errors import UserError


class Sight(Part):
    """Which earlier (and, in an encoder, later) tokens self-attention may see, beside causality."""

    section: ClassVar[str] = "model.attention.visible"

    @property
    def lookahead(self) -> int:
        """Positions at the start of a sequence that see each other also in a decoder."""
        return 0


def _listed(chosen: Any) -> Any:
    """One alone is a list of one."""
    return (chosen,) if isinstance(chosen, Sight) else chosen


Sights = Annotated[tuple[SerializeAsAny[Sight], ...], BeforeValidator(_listed), pattern(Sight, "everything")]


class SeeEverything(Sight):
    """Every token of the same segment."""

    kind: Literal["everything"] = "everything"


class SeeWindow(Sight):
    """The nearest ``width`` tokens, the token itself included: a decoder's w keys end at the query; an
    encoder's reach w - 1 to either side (Beltagy et al. 2020, section 3.1)."""

    kind: Literal["window"] = "window"
    width: PositiveInt = Field(description="keys, the query's own included, on each side that is seen")


class SeeDilated(Sight):
    """A window with gaps: every ``step``-th token, ``width`` of them with the token itself; an encoder's are
    w - 1 to either side (Beltagy et al. 2020, section 3.1)."""

    kind: Literal["dilated"] = "dilated"
    width: PositiveInt = Field(description="keys, the query's own included, on each side that is seen")
    step: PositiveInt = Field(description="from one key to the next")


class SeeBlocks(Sight):
    """The tokens of the same block of ``size`` positions and of so many ``neighbours`` of it: those before,
    and in an encoder those after (Zaheer et al. 2020, appendix D)."""

    kind: Literal["blocks"] = "blocks"
    size: PositiveInt = Field(description="positions of a block")
    neighbours: NonNegativeInt = Field(1, description="blocks beside the token's own, on each side")


class SeeGlobal(Sight):
    """The first ``count`` positions of a sequence, which all tokens see and, in an encoder, which see all
    tokens (Beltagy et al. 2020, section 3.1; Zaheer et al. 2020, section 2)."""

    kind: Literal["global"] = "global"
    count: PositiveInt = Field(description="of the first positions")


class SeeRandom(Sight):
    """The token's own block of ``size`` positions and ``count`` earlier blocks, drawn for each block; in an
    encoder two blocks see each other when the later one has drawn the earlier (Zaheer et al. 2020, section
    2)."""

    kind: Literal["random"] = "random"
    size: PositiveInt = Field(description="positions of a block")
    count: PositiveInt = Field(1, description="blocks that each block draws, of those before it")
    seed: int = Field(0, ge=0, lt=2**32, description="of the draws")


class SeePrefix(Sight):
    """The first ``length`` positions, which all tokens see, they themselves too: a prefix language model
    (Raffel et al. 2020, section 3.2.1). What is seen beside them is ``beside``."""

    kind: Literal["prefix"] = "prefix"
    length: PositiveInt = Field(description="positions of the prefix")
    beside: Annotated[
        SerializeAsAny[Sight],
        part(Sight, "everything"),
        Field(description="what is seen beside the prefix"),
    ] = SeeEverything()

    @property
    def lookahead(self) -> int:
        return max(self.length, self.beside.lookahead)


class SeeAll(Sight):
    """What all of these let see."""

    kind: Literal["all"] = "all"
    of: Sights = Field(description="all of which let a key be seen")

    @property
    def lookahead(self) -> int:
        return min(one.lookahead for one in self.of)

    @model_validator(mode="after")
    def _prefix_is_seen(self) -> Self:
        if any(one.lookahead for one in self.of) and not self.lookahead:
            raise UserError(
                "a prefix is not seen by those beside it, and all of them must see it",
                f"{self.section}.of",
                "say what is seen beside a prefix: {kind: prefix, length: …, beside: …}",
            )
        return self


class SeeAny(Sight):
    """What at least one of these lets see: Longformer is a window and global tokens (Beltagy et al. 2020),
    BigBird has random blocks beside (Zaheer et al. 2020)."""

    kind: Literal["any"] = "any"
    of: Sights = Field(description="one of which lets a key be seen")

    @property
    def lookahead(self) -> int:
        return max(one.lookahead for one in self.of)
