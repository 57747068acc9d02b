"""Settings of what is learned: one choice an objective, by ``objective.kind``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from triptych.config.parts.outputs import Pool
from triptych.config.settings import Part, choices

Form = Literal["encoder_decoder", "decoder", "encoder"]
Rate = Field(0.0, ge=0, lt=1, description="a share from 0 up to, not including, 1")


class Objective(Part):
    """What is learned from which examples.

    Attributes:
        forms: the forms of model that can learn it, the usual one first.
        readout: the kind of ``model.output`` it needs.
    """

    section: ClassVar[str] = "objective"
    forms: ClassVar[tuple[Form, ...]] = ()
    readout: ClassVar[str] = "vocabulary"
    label_smoothing: float = Rate


class TranslationObjective(Objective):
    """Each target token from the source and the target tokens before it (Vaswani et al. 2017, section 3)."""

    forms: ClassVar[tuple[Form, ...]] = ("encoder_decoder",)
    kind: Literal["translation"] = "translation"
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="a share from 0 up to, not including, 1")
    scheduled_sampling: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of target tokens that are the model's own at the end of training, rising from 0 "
        "(Bengio et al. 2015; in two passes, Mihaylova and Martins 2019)",
    )


class CausalObjective(Objective):
    """Each token from those before it (Radford et al. 2018)."""

    forms: ClassVar[tuple[Form, ...]] = ("decoder",)
    kind: Literal["causal"] = "causal"
    segment: PositiveInt | None = Field(
        None,
        description="rows are read in segments of so many tokens: each sees what its row has before it, as a "
        "memory that gradients do not reach (Dai et al. 2019, section 3.2); the whole row when not given",
    )


class InstructionObjective(Objective):
    """The response to an instruction, and its end: nothing of the prompt (Ouyang et al. 2022; Taori et al.
    2023). ``template`` says how a conversation is written as one text."""

    forms: ClassVar[tuple[Form, ...]] = ("decoder",)
    kind: Literal["instruction"] = "instruction"
    template: Literal["auto", "alpaca", "chatml"] = Field(
        "auto", description="auto: alpaca for instruction files, chatml for messages"
    )


class MaskedObjective(Objective):
    """Tokens that were hidden, from both sides (Devlin et al. 2019, section 3.1 and appendix A.1).

    Of the tokens chosen, ``mask`` become [MASK], ``random`` another token, the rest stay as they are.
    """

    forms: ClassVar[tuple[Form, ...]] = ("encoder",)
    kind: Literal["masked"] = "masked"
    rate: PositiveFloat = Field(0.15, lt=1, description="share of tokens chosen, above 0 and below 1")
    mask: float = Field(0.8, ge=0, le=1, description="share of those chosen that become [MASK]")
    random: float = Field(0.1, ge=0, le=1, description="share of those chosen that become another token")
    whole_words: bool = Field(False, description="choose whole words, all their pieces together")
    next_sentence: bool = Field(
        False, description="pairs of pieces: whether the second follows the first is learned too"
    )


class DenoiseObjective(Objective):
    """Spans that were taken out, each after its sentinel (Raffel et al. 2020, section 3.1.4)."""

    forms: ClassVar[tuple[Form, ...]] = ("encoder_decoder",)
    kind: Literal["denoise"] = "denoise"
    density: PositiveFloat = Field(0.15, lt=1, description="share of tokens taken out, above 0 and below 1")
    mean_length: float = Field(3.0, ge=1, description="mean tokens of a span, 1 or more")
    sentinels: PositiveInt = Field(
        100, le=10_000, description="<extra_id_0> and on, after the vocabulary, up to 10,000"
    )


class Tuned(Objective):
    """What is learned on top of a model that may have been trained before (``training.init``)."""

    forms: ClassVar[tuple[Form, ...]] = ("encoder", "decoder")
    word_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of tokens that are hidden in training, anew each epoch (Iyyer et al. 2015)",
    )
    frozen: bool = Field(False, description="train the new head alone")
    head_rate: PositiveFloat = Field(
        1.0, le=1000, description="the head's learning rate, times the others', up to 1,000"
    )


class ClassifyObjective(Tuned):
    """A class for a text, or for a pair of texts (Devlin et al. 2019, section 4.1)."""

    readout: ClassVar[str] = "classes"
    kind: Literal["classify"] = "classify"
    pool: Pool = Field(
        "auto",
        description="auto: first in an encoder, last in a decoder; of images a class token or the mean",
    )


class TagObjective(Tuned):
    """A tag for each word, read off its first piece (Devlin et al. 2019, section 5.3)."""

    readout: ClassVar[str] = "tags"
    kind: Literal["tag"] = "tag"


class EmbedObjective(Tuned):
    """Vectors of texts: the two of a pair near, all others of the batch far (van den Oord et al. 2018;
    Gao et al. 2021, section 2)."""

    readout: ClassVar[str] = "vector"
    kind: Literal["embed"] = "embed"
    pool: Pool = Field("auto", description="auto: mean in an encoder, last in a decoder")
    temperature: NonNegativeFloat = Field(0.05, gt=0, description="of the cosines, above 0")


def objectives() -> dict[str, type[Objective]]:
    """Every objective, by its kind."""
    return {kind: cls for kind, cls in choices(Objective).items() if issubclass(cls, Objective)}


__all__ = [
    "CausalObjective",
    "ClassifyObjective",
    "DenoiseObjective",
    "EmbedObjective",
    "Form",
    "InstructionObjective",
    "MaskedObjective",
    "Objective",
    "TagObjective",
    "TranslationObjective",
    "Tuned",
    "objectives",
]
