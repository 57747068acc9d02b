"""From ids to vectors."""

from __future__ import annotations

from typing import ClassVar, Literal

from triptych.config.settings import Part


class Embedding(Part):
    """From ids to vectors, and from vectors to the vocabulary when tied."""

    section: ClassVar[str] = "model.embedding"


class TableEmbedding(Embedding):
    """One trained vector for each entry of the vocabulary (Vaswani et al. 2017, section 3.4)."""

    kind: Literal["table"] = "table"
