"""From ids, or from patches of an image, to vectors."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from triptych.config.settings import Part
from triptych.errors import UserError


class Embedding(Part):
    """From ids to vectors, and from vectors to the vocabulary when tied."""

    section: ClassVar[str] = "model.embedding"


class TableEmbedding(Embedding):
    """One trained vector for each entry of the vocabulary (Vaswani et al. 2017, section 3.4)."""

    kind: Literal["table"] = "table"


class FactorisedEmbedding(Embedding):
    """A narrow vector for each entry and one map to the width of the model (Lan et al. 2019, ALBERT, section
    3.1); the output goes the same way back."""

    kind: Literal["factorised"] = "factorised"
    dim: int = Field(ge=4, description="width of the vectors; fewer values do not tell words apart")


class PatchEmbedding(Embedding):
    """One map for every patch of an image, a square of pixels: patches are read row by row, in place of ids
    (ViT; Dosovitskiy et al. 2021, section 3.1)."""

    kind: Literal["patches"] = "patches"
    size: NonNegativeInt = Field(
        0, le=1024, description="side of a patch, in pixels; 0 leaves it to the data"
    )
    height: NonNegativeInt = Field(
        0, le=1 << 16, description="of an image, in pixels: whole patches; 0 leaves it to the data"
    )
    width: NonNegativeInt = Field(
        0, le=1 << 16, description="of an image, in pixels: whole patches; 0 leaves it to the data"
    )
    channels: PositiveInt = Field(
        3, le=1024, description="values of a pixel; of image files 3, colours, or 1, grey"
    )
    class_token: bool = Field(
        False, description="a learned vector stands behind the last patch, for an output with pool last"
    )

    @model_validator(mode="after")
    def _whole_patches(self) -> Self:
        for key in ("height", "width"):
            pixels = getattr(self, key)
            if self.size and pixels % self.size:
                low = pixels - pixels % self.size
                near = " or ".join(str(n) for n in (low, low + self.size) if n)
                raise UserError(
                    f"{pixels} pixels are no whole patches of {self.size}",
                    f"{self.section}.{key}",
                    f"use {near}, or another size: images are scaled to what is said here",
                )
        return self

    @property
    def values(self) -> int:
        """Values of a token: the patch's pixels, and with a class token whether it is that."""
        return self.channels * self.size**2 + self.class_token

    @property
    def columns(self) -> int:
        """Patches side by side; 0 when that is left to the data."""
        return self.width // self.size if self.size else 0

    @property
    def tokens(self) -> int:
        """Of an image; 0 when that is left to the data."""
        patches = self.columns * (self.height // self.size) if self.size else 0
        return patches + self.class_token if patches else 0
