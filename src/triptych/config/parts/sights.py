"""Which tokens self-attention may see, beside causality and the borders of sequences."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import PositiveInt

from triptych.config.settings import Part


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
