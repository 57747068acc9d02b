"""From ids to vectors."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveInt

from triptych.config.settings import Part


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
    dim: PositiveInt = Field(description="width of the vectors")
