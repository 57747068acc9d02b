"""What hidden states become: a score for each word, class or tag; or one vector."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeInt, field_validator

from triptych.config.settings import Part

Pool = Literal["auto", "first", "mean", "max", "last"]


class Output(Part):
    """What hidden states become.

    Attributes:
        whole: it says one thing of a row, not one of each of its tokens.
    """

    section: ClassVar[str] = "model.output"
    whole: ClassVar[bool] = False


class VocabularyOutput(Output):
    """A score for each entry of the vocabulary (Vaswani et al. 2017, section 3.4), on the embedding's weights
    when tied."""

    kind: Literal["vocabulary"] = "vocabulary"
    transform: Literal["none", "gelu", "gelu_tanh", "relu"] = Field(
        "none", description="not none: a map, this and a norm stand before (Devlin et al. 2019, their code)"
    )
    bias: bool = Field(False, description="a number for each entry is added")
    scale: bool = Field(
        False, description="hidden states over √model.dim (Raffel et al. 2020, their code, where tied)"
    )
    next_sentence: bool = Field(
        False,
        description="beside it, whether a row's second text follows its first: a map, tanh and two classes "
        "of its first token (Devlin et al. 2019, section 3.1)",
    )


class CountedOutput(Output):
    """A choice among ``count``."""

    count: NonNegativeInt = Field(0, description="how many there are, two or more; 0 leaves it to the data")

    @field_validator("count")
    @classmethod
    def _a_choice(cls, count: int) -> int:
        if count == 1:
            raise ValueError("one alone is no choice")
        return count


class ClassesOutput(CountedOutput):
    """A score for each class, of a whole row (Devlin et al. 2019, section 4.1)."""

    whole: ClassVar[bool] = True
    kind: Literal["classes"] = "classes"
    pool: Pool = Field(
        "auto",
        description="which tokens are read; auto: first in an encoder, last in a decoder; of images a class "
        "token or the mean",
    )
    pooler: bool = Field(False, description="a map and tanh before the classes, as in BERT")


class TagsOutput(CountedOutput):
    """A score for each tag, of each token (Devlin et al. 2019, section 5.3)."""

    kind: Literal["tags"] = "tags"


class VectorOutput(Output):
    """One vector of a whole row: its hidden states, pooled (Reimers and Gurevych 2019, section 3)."""

    whole: ClassVar[bool] = True
    kind: Literal["vector"] = "vector"
    pool: Pool = Field(
        "auto", description="which tokens are read; auto: mean in an encoder, last in a decoder"
    )
