"""Settings of a whole run: text, data, objective, training, decoding; one YAML file."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from triptych.config.model import ModelConfig
from triptych.config.objectives import Objective, TranslationObjective
from triptych.config.settings import SerializeAsAny, Settings, part
from triptych.errors import UserError

Beta = Annotated[float, Field(ge=0, lt=1, description="two shares from 0 up to, not including, 1")]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63, description="a whole number of at most 63 bits")]


class TokenizerConfig(Settings):
    """How text becomes ids. ``size`` counts all entries, the four specials included."""

    section: ClassVar[str] = "text.tokenizer"
    kind: Literal["bpe", "unigram", "char", "byte", "bytebpe"] = "bpe"
    size: PositiveInt = 8000
    shrink: bool = Field(
        False, description="take the largest vocabulary the corpus gives if size is too much"
    )
    coverage: PositiveFloat = Field(
        0.9995, le=1, description="share of characters with an entry of their own"
    )
    byte_fallback: bool = True
    dummy_prefix: bool = True


class CleaningConfig(Settings):
    """What the audit may change or drop; everything else it only reports.

    ``max_ratio``: a pair is dropped when its length ratio is this many times off the corpus's usual one.
    """

    section: ClassVar[str] = "text.cleaning"
    trim: bool = True
    collapse_space: bool = False
    strip_zero_width: bool = False
    dedupe: bool = True
    drop_copies: bool = False
    max_ratio: PositiveFloat | None = Field(6.0, gt=1, description="above 1, or null to drop none")


class VectorsConfig(Settings):
    """Vectors learned elsewhere that embeddings begin with: text as word2vec, GloVe and fastText write it."""

    section: ClassVar[str] = "text.vectors"
    file: str
    frozen: bool = Field(False, description="keep the whole embedding as it begins")


class TextConfig(Settings):
    """Languages, cleaning, tokenizer, vectors."""

    section: ClassVar[str] = "text"
    source: str = Field("", description="language code of the source side, e.g. en")
    target: str = Field("", description="language code of the target side, e.g. zh")
    tokenizer: TokenizerConfig = TokenizerConfig()
    cleaning: CleaningConfig = CleaningConfig()
    vectors: VectorsConfig | None = None

    @field_validator("source", "target", mode="before")
    @classmethod
    def _norwegian(cls, code: Any) -> Any:
        """YAML reads an unquoted ``no`` as false."""
        return "no" if code is False else code


class DataConfig(Settings):
    """Files and batches.

    ``train`` (and ``valid``, ``test``): files of the objective's examples; for translation one or more TSV or
    JSON-lines files, or two aligned files when ``aligned`` is true. Without ``valid`` or ``test`` files, that
    many examples are split off ``train``, those that share a text together. ``tokens`` is the padded size of
    a batch, the larger of its two sides.

    Running text (causal, masked, denoise) is cut into rows of ``length`` tokens: ``packed`` puts whole
    documents, or pieces of long ones, side by side in a row, isolated from each other; ``stream`` reads all
    text as one.
    """

    section: ClassVar[str] = "data"
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    aligned: bool = False
    fields: tuple[str, ...] = Field(
        (), description="names of the columns or keys to read; by the objective when not given"
    )
    column: int | None = Field(
        None, description="column of the tags in a CoNLL file, from 1, or from the end: -1 is the last"
    )
    repair: bool = Field(
        False, description="make BIO tags that are not balanced so, instead of refusing them"
    )
    documents: Literal["file", "paragraph", "line"] = Field(
        "file", description="what one document is in a plain text file"
    )
    shift: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="share of its sides by which an image is moved at most, anew each epoch; its edges are "
        "repeated",
    )
    flip: bool = Field(
        False, description="mirror an image, left to right, with probability 1/2, anew each epoch"
    )
    packing: Literal["packed", "stream"] = "packed"
    length: PositiveInt = Field(256, description="tokens of a row of running text")
    valid_size: NonNegativeInt | None = Field(None, description="examples; by the corpus when not given")
    test_size: NonNegativeInt | None = Field(None, description="examples; by the corpus when not given")
    max_length: PositiveInt = Field(
        256, description="longest side in tokens; longer examples are left out and counted"
    )
    tokens: PositiveInt = 2048

    @field_validator("train", "valid", "test", mode="before")
    @classmethod
    def _one_file(cls, files: Any) -> Any:
        """``train: pairs.tsv`` is short for a list of one."""
        return [files] if isinstance(files, str) else files


class OptimizerConfig(Settings):
    """Adam (Vaswani et al. 2017, section 5.3) or AdamW with no decay on biases and norms."""

    section: ClassVar[str] = "training.optimizer"
    kind: Literal["adam", "adamw"] = "adamw"
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    eps: PositiveFloat = 1e-9
    weight_decay: NonNegativeFloat = 0.0
    clip: NonNegativeFloat = Field(1.0, description="largest gradient norm; 0 does not clip")


class ScheduleConfig(Settings):
    """Learning rate over steps: ``peak`` is reached after ``warmup`` steps.

    noam: d^-0.5 · min(t^-0.5, t · warmup^-1.5) · peak (Vaswani et al. 2017, section 5.3; there peak = 1);
    inverse_sqrt: peak · (warmup / t)^0.5; cosine and linear fall to ``floor`` · peak, where the step after
    the last would be.
    """

    section: ClassVar[str] = "training.schedule"
    kind: Literal["noam", "inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    peak: PositiveFloat = 1e-3
    warmup: NonNegativeInt = 500
    floor: float = Field(0.0, ge=0, le=1, description="a share of the peak, from 0 to 1")

    @model_validator(mode="before")
    @classmethod
    def _factor(cls, data: Any) -> Any:
        """The peak of noam is a factor, and that of the paper is 1."""
        noam = isinstance(data, dict) and data.get("kind") == "noam"
        return {"peak": 1.0, **data} if noam else data

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if self.floor and self.kind not in ("cosine", "linear"):
            what, mend = f"{self.kind} falls to no floor", "leave it out, or use cosine or linear"
            raise UserError(what, "training.schedule.floor", mend)
        return self


class TrainingConfig(Settings):
    """The loop: length, precision, checkpoints. One of ``steps``, ``epochs`` and ``budget`` ends it; with the
    last two, what comes first."""

    section: ClassVar[str] = "training"
    init: str | None = Field(None, description="a run to begin with: its tokenizer, model and weights")
    steps: PositiveInt | None = None
    epochs: PositiveFloat | None = Field(None, le=1e6, description="passes over the training data, up to 1e6")
    budget: str | None = Field(None, description="wall-clock time such as 90s, 15m or 2h")
    accumulate: PositiveInt = 1
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    validate_every: PositiveInt | None = Field(None, description="steps; a twelfth of the run when not given")
    keep: PositiveInt = Field(4, description="checkpoints kept, and averaged at the end")
    log_every: PositiveInt = 20
    tensorboard: bool = False
    seed: Seed = 1

    @property
    def seconds(self) -> float | None:
        """The budget in seconds."""
        return duration(self.budget, "training.budget") if self.budget is not None else None

    @field_validator("budget", mode="before")
    @classmethod
    def _bare_seconds(cls, budget: Any) -> Any:
        """``budget: 90`` is a number in YAML."""
        number = isinstance(budget, int | float) and not isinstance(budget, bool)
        return str(budget) if number else budget

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.budget is not None:
            duration(self.budget, "training.budget")
        for key in ("budget", "epochs"):
            if self.steps is not None and getattr(self, key) is not None:
                raise UserError(f"both steps and {key} are set", f"training.{key}", "keep one of them")
        return self


class DecodingConfig(Settings):
    """How output is chosen. ``penalty`` and ``alpha``: length normalisation of finished beams,
    gnmt ((5 + |y|) / 6)^alpha (Wu et al. 2016, section 7) or power |y|^alpha. ``repetition_penalty``: Keskar
    et al. 2019, section 4.1."""

    section: ClassVar[str] = "decoding"
    strategy: Literal["beam", "greedy", "sample"] = "beam"
    beam: PositiveInt = Field(4, le=2**12)
    penalty: Literal["gnmt", "power"] = "gnmt"
    alpha: float = Field(0.6, ge=-20, le=20, description="an exponent from -20 to 20")
    n_best: PositiveInt = Field(1, le=2**12)
    temperature: NonNegativeFloat = 1.0
    top_k: NonNegativeInt = Field(0, description="0 keeps all")
    top_p: PositiveFloat = Field(1.0, le=1, description="above 0, up to 1")
    min_p: float = Field(0.0, ge=0, le=1, description="a share from 0 to 1")
    repetition_penalty: PositiveFloat = Field(1.0, description="above 0; 1 is off")
    seed: Seed = 1
    min_length: NonNegativeInt = 0
    max_length: PositiveInt | None = Field(
        None, le=2**20, description="tokens; by the source length when not given"
    )
    no_repeat_ngram: NonNegativeInt = 0
    stop: tuple[str, ...] = Field((), description="generated text ends before any of these")

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop(cls, stop: Any) -> Any:
        """``stop: "###"`` is short for a list of one."""
        return [stop] if isinstance(stop, str) else stop

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if "" in self.stop:
            raise UserError("an empty text would stop at once", "decoding.stop", "leave it out")
        kept = self.beam if self.strategy == "beam" else 1
        if self.strategy != "sample" and self.n_best > kept:
            raise UserError(
                f"{self.n_best} best of {kept} hypotheses cannot be given",
                "decoding.n_best",
                f"use a beam of {self.n_best} or more",
            )
        if self.max_length is not None and self.min_length > self.max_length:
            raise UserError("min_length is above max_length", "decoding.min_length", "lower it")
        return self


# What has a use for images, or for texts, alone.
OF_IMAGES = ("data.shift", "data.flip")
OF_TEXTS = (
    "model.vocab", "text.source", "text.target", "text.cleaning", "text.tokenizer", "text.vectors",
    "data.aligned", "data.fields", "data.column", "data.repair", "data.documents", "data.packing",
    "data.length", "data.max_length",
)  # fmt: skip
RUNNING = ("causal", "masked", "denoise")
READ_BY = {
    "text.source": ("translation",),
    "text.target": ("translation",),
    "text.cleaning": ("translation",),
    "data.fields": ("translation", *RUNNING, "classify", "embed"),
    "data.column": ("tag",),
    "data.repair": ("tag",),
    "data.documents": RUNNING,
    # Rows of a run that is begun with come with its other settings, and those of one stream are causal.
    "data.packing": ("causal", "instruction", "classify", "tag", "embed"),
    "data.max_length": ("translation", "classify", "tag", "embed"),
}
"""The objectives that read a setting of texts and data; with others it would change nothing."""


class RunConfig(Settings):
    """All settings of a run, as in ``config.yaml``."""

    model: ModelConfig = ModelConfig()
    text: TextConfig = TextConfig()
    data: DataConfig = DataConfig()
    objective: Annotated[SerializeAsAny[Objective], part(Objective, "translation")] = TranslationObjective()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()

    @model_validator(mode="after")
    def _texts_or_images(self) -> Self:
        why, mend = "images are no texts", "leave it out"
        if self.model.reads_ids:
            why = "images are moved, and this model reads texts"
            mend = "leave it out, or use model.embedding=patches"
        for where in OF_IMAGES if self.model.reads_ids else OF_TEXTS:
            if self.is_set(where):
                raise UserError(why, where, mend)
        return self

    @model_validator(mode="after")
    def _of_the_objective(self) -> Self:
        kind = self.objective.kind
        for where, kinds in READ_BY.items():
            if self.is_set(where) and kind not in kinds:
                mend = f"leave it out; it is of the objective {' or '.join(kinds)}"
                raise UserError(f"{kind} does not read this", where, mend)
        return self

    @model_validator(mode="after")
    def _segments_are_parts(self) -> Self:
        segment = getattr(self.objective, "segment", None)
        if segment is not None and segment >= self.data.length:
            what = f"rows are of {self.data.length} tokens (data.length), and this is no part of one"
            raise UserError(what, "objective.segment", "make it less, or data.length more")
        return self

    def is_set(self, where: str) -> bool:
        """Whether a key of a section is not as it is when nothing is said."""
        section, _, key = where.partition(".")
        own = getattr(self, section)
        return bool(getattr(own, key) != type(own).model_fields[key].default)

    @model_validator(mode="after")
    def _frozen_alone(self) -> Self:
        if self.text.vectors is not None and self.text.vectors.frozen and self.model.tied:
            raise UserError(
                f"with tie {self.model.tie} the output map is the embedding, and would be frozen with it",
                "text.vectors.frozen",
                "set model.tie=none, or text.vectors.frozen=false",
            )
        return self


def duration(text: str, where: str) -> float:
    """Seconds of ``90s``, ``15m``, ``2h``, ``1h30m`` or a bare number of seconds. Raises UserError."""
    total, number, good = 0.0, "", bool(text)
    for c in text.strip().lower():
        if c.isdecimal() or c == ".":
            number += c
        elif c in "smhd" and number.replace(".", "", 1).isdigit():
            total, number = total + float(number) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[c], ""
        else:
            good = False
    if number:
        good = good and number.replace(".", "", 1).isdigit() and total == 0
        total = float(number) if good else 0.0
    if not good or not 0 < total < math.inf:
        raise UserError(f"{text!r} is no length of time", where, "write 90s, 15m or 2h")
    return total
