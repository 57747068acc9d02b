"""From ids to vectors."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

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
    dim: int = Field(ge=4, description="width of the vectors; fewer values do not tell words apart")
