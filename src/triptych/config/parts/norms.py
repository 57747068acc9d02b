"""How activations are normalised, and where in the block."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat

from triptych.config.settings import Part


class Norm(Part):
    """How activations are normalised, and where in the block."""

    section: ClassVar[str] = "model.norm"
    placement: Literal["post", "pre", "sandwich", "parallel", "deep"] = Field(
        "post",
        description="post: norm(x + f(x)) (Vaswani et al. 2017, section 3.1); pre: x + f(norm(x)) "
        "(Xiong et al. 2020); sandwich: x + norm(f(norm(x))) (Ding et al. 2021, section 4.2); parallel: "
        "x + f(n) + g(n) of one n = norm(x) (Wang and Komatsuzaki 2021); deep: norm(α·x + f(x)) with smaller "
        "first weights (DeepNorm; Wang et al. 2022, section 4.1); all but post and deep end a stack with a "
        "norm",
    )


class LayerNorm(Norm):
    """Centred and scaled to unit variance, with gain and bias (Ba et al. 2016)."""

    kind: Literal["layernorm"] = "layernorm"
    eps: PositiveFloat = Field(1e-5, le=1, description="added to the variance")
    bias: bool = Field(True, description="a number for each value is added")


class RMSNorm(Norm):
    """Scaled to unit root mean square, with gain (Zhang and Sennrich 2019)."""

    kind: Literal["rmsnorm"] = "rmsnorm"
    eps: PositiveFloat = Field(1e-6, le=1, description="added to the mean square")
