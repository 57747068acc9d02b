"""Many feed-forward networks of which a token passes through a few, and who decides which."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from triptych.config.settings import Part, SerializeAsAny, Settings, part


class Router(Part):
    """Which experts a token goes to, and with what weight (the gates)."""

    section: ClassVar[str] = "model.experts.router"
    balance: NonNegativeFloat = Field(
        0.01, description="weight of the loss that keeps loads even (Fedus et al. 2021, section 2.2)"
    )
    z: NonNegativeFloat = Field(
        0.0, description="weight of the loss that keeps logits small (Zoph et al. 2022, equation 5)"
    )


class SoftmaxRouter(Router):
    """The largest of a softmax over all experts (Lepikhin et al. 2020, section 2.2; Fedus et al. 2021,
    section 2.1)."""

    kind: Literal["softmax"] = "softmax"
    renormalise: bool = Field(False, description="divide the gates of a token by their sum")


class TopSoftmaxRouter(Router):
    """A softmax over the largest logits alone (Shazeer et al. 2017, section 2.1; Jiang et al. 2024, section
    2.1)."""

    kind: Literal["top_softmax"] = "top_softmax"


class SigmoidRouter(Router):
    """A sigmoid an expert. A bias, which takes part in the choice alone, moves against the load after each
    step, without gradient (DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2)."""

    kind: Literal["sigmoid"] = "sigmoid"
    balance: NonNegativeFloat = Field(0.0, description="weight of the loss of uneven loads")
    renormalise: bool = Field(True, description="divide the gates of a token by their sum")
    scale: PositiveFloat = Field(1.0, description="all gates times this")
    rate: NonNegativeFloat = Field(0.001, description="how far a bias moves in a step")


class Experts(Settings):
    """Feed-forward networks of the kind that model.ffn names, in its place, of which each token passes
    through ``top_k`` (Shazeer et al. 2017)."""

    section: ClassVar[str] = "model.experts"
    count: int = Field(8, ge=2, description="experts of a layer (Shazeer et al. 2017, section 2)")
    top_k: PositiveInt = Field(
        2, description="experts a token passes through, up to count (Shazeer et al. 2017, section 2.1)"
    )
    dim: PositiveInt | None = Field(
        None,
        description="inner width of one; that of model.ffn when not given (Dai et al. 2024, section 3.1)",
    )
    shared: NonNegativeInt = Field(
        0, description="more experts, through which every token passes (Dai et al. 2024, section 3.2)"
    )
    every: PositiveInt = Field(
        1, description="each n-th layer of a stack has experts: n, 2n, … (Lepikhin et al. 2020, section 2.1)"
    )
    capacity: PositiveFloat | None = Field(
        None,
        description="tokens an expert takes in training, as a multiple of an even share; the others pass by "
        "(Fedus et al. 2021, section 2.2), in evaluation none",
    )
    router: Annotated[SerializeAsAny[Router], part(Router, "top_softmax")] = TopSoftmaxRouter()
