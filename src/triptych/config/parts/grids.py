"""Choices that read a sequence as the raster of a grid: position p is row p // width, column p % width."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from triptych.config.parts.mixers import HeadsMixer, Mixer
from triptych.config.parts.sights import Sight
from triptych.config.settings import Settings
from triptych.errors import UserError


class Grid(Settings):
    """What stands on a grid; of an image, a column is a patch. Where no token of a sequence stands, nothing
    does: the last row may be short."""

    width: int = Field(ge=2, description="columns of the grid")


class SeeAxial(Grid, Sight):
    """The tokens of the same row, of the same column, or of either: a pattern of rows and columns over layers
    is the Axial Transformer's (Ho et al. 2019, section 2.2)."""

    kind: Literal["axial"] = "axial"
    axis: Literal["both", "row", "column"] = Field(
        "both", description="what is seen: its row, its column, both"
    )


class SeeCells(Grid, Sight):
    """The tokens of the same cell of ``size`` × ``size``; ``shifted`` moves the borders by half a cell. A
    pattern of both over layers is Swin's (Liu et al. 2021, section 3.2)."""

    kind: Literal["cells"] = "cells"
    size: int = Field(ge=2, description="rows and columns of a cell")
    shifted: bool = Field(False, description="cells begin half a cell further, in rows and columns")


class DeformableMixer(Grid, HeadsMixer):
    """Each head reads ``points`` places of the grid that the token itself chooses, between tokens by bilinear
    interpolation (Zhu et al. 2021, section 4.1)."""

    stacks: ClassVar[frozenset[str]] = frozenset({"bidirectional"})
    kind: Literal["deformable"] = "deformable"
    points: PositiveInt = Field(4, description="places that each head reads")


class SpatialMixer(Grid, Mixer):
    """Each token times a gate, from the means and maxima over channels of the ``size`` × ``size`` tokens
    around it, and a linear map (CBAM; Woo et al. 2018, section 3.2)."""

    stacks: ClassVar[frozenset[str]] = frozenset({"bidirectional"})
    kind: Literal["spatial"] = "spatial"
    size: PositiveInt = Field(7, description="rows and columns of what a gate depends on; odd")

    @model_validator(mode="after")
    def _has_a_middle(self) -> Self:
        if self.size % 2 == 0:
            raise UserError(f"{self.size} has no middle", f"{self.section}.size", "choose an odd number")
        return self
