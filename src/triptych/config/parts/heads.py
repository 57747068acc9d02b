"""What is projected, cached and shared among the heads."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from triptych.config.settings import Part
from triptych.errors import UserError


class Heads(Part):
    """What is projected, cached and shared among the heads."""

    section: ClassVar[str] = "model.heads"
    count: PositiveInt = Field(8, description="of queries")
    bias: bool = Field(True, description="the maps have a bias")
    qk_norm: bool = Field(
        False, description="RMSNorm on queries and keys, head by head (Dehghani et al. 2023, section 2)"
    )


class GroupedHeads(Heads):
    """``count`` query heads over ``kv`` key/value heads: equal is MHA, fewer is GQA (Ainslie et al. 2023),
    one is MQA (Shazeer 2019)."""

    kind: Literal["grouped"] = "grouped"
    kv: PositiveInt | None = Field(None, description="key/value heads; as many as count when not given")
    dim: PositiveInt | None = Field(None, description="width of a head; model.dim / count when not given")

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


class LatentHeads(Heads):
    """Keys and values from one small latent vector a token, which alone is cached, beside a rotary key that
    all heads share (MLA; DeepSeek-AI 2024, section 2.1)."""

    kind: Literal["mla"] = "mla"
    dim: PositiveInt | None = Field(None, description="width of a head; model.dim / count when not given")
    latent: PositiveInt | None = Field(
        None, description="width of the cached latent; 4 × the width of a head when not given"
    )
    rotary: PositiveInt | None = Field(
        None, description="width of the shared rotary key; half of a head's when not given"
    )
    query: PositiveInt | None = Field(
        None, description="width of the queries' own latent; queries are projected directly when not given"
    )
