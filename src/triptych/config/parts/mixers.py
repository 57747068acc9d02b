"""What mixes information along the sequence."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from triptych.config.settings import Part
from triptych.errors import UserError


class Mixer(Part):
    """What mixes information along the sequence.

    Attributes:
        stacks: the stacks it can stand in: causal ones, those that see both directions, or both.
        attends: it is softmax attention, to which model.heads, attention, and all of position apply.
        crosses: it is softmax attention to something else than tokens of its stack: of these, positions and
            what is visible do not apply.
        turns: its queries and keys meet by their product alone, in heads: rotary positions apply.
        takes_source: it reads the source itself, and no cross-attention stands after it.
        orderless: in both directions it treats tokens as a set; positions and what is visible alone tell of
            their order.
    """

    section: ClassVar[str] = "model.mixer"
    stacks: ClassVar[frozenset[str]] = frozenset({"causal", "bidirectional"})
    attends: ClassVar[bool] = False
    turns: ClassVar[bool] = False
    crosses: ClassVar[bool] = False
    takes_source: ClassVar[bool] = False
    orderless: ClassVar[bool] = False


class AttentionMixer(Mixer):
    """Softmax attention (Vaswani et al. 2017, section 3.2)."""

    attends: ClassVar[bool] = True
    orderless: ClassVar[bool] = True
    kind: Literal["attention"] = "attention"


class RecurrentMixer(Mixer):
    """A state that each token changes in turn; in an encoder one in each direction."""

    hidden: PositiveInt | None = Field(
        None, description="width of the state, in each direction; model.dim when not given"
    )


class LstmMixer(RecurrentMixer):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; Gers et al. 2000)."""

    kind: Literal["lstm"] = "lstm"


class GatedMixer(RecurrentMixer):
    """Made of gated recurrent units."""

    reset: Literal["before", "after"] = Field(
        "before",
        description="the state is reset before it is mapped (Cho et al. 2014, section 2.3), or its map is, "
        "after (as torch.nn.GRU has it)",
    )


class GruMixer(GatedMixer):
    """Gated recurrent unit (Cho et al. 2014, section 2.3)."""

    kind: Literal["gru"] = "gru"


class BahdanauMixer(GatedMixer):
    """In a decoder a GRU that reads the source before each step, by additive attention; in an encoder a
    bidirectional GRU (Bahdanau et al. 2015, section 3)."""

    takes_source: ClassVar[bool] = True
    kind: Literal["bahdanau"] = "bahdanau"
    align: PositiveInt | None = Field(
        None, description="width in which states and source are compared; that of the state when not given"
    )


class LuongMixer(RecurrentMixer):
    """In a decoder an LSTM that reads the source after each step, by global attention; in an encoder a
    bidirectional LSTM (Luong et al. 2015, section 3.1)."""

    takes_source: ClassVar[bool] = True
    kind: Literal["luong"] = "luong"
    score: Literal["dot", "general"] = Field(
        "general", description="dot, or general: with a learned map between state and source"
    )
    input_feeding: bool = Field(
        False, description="what was read goes into the next step (Luong et al. 2015, section 3.3)"
    )


class ConvMixer(Mixer):
    """Gated convolution over near tokens (Gehring et al. 2017, section 3.2)."""

    kind: Literal["conv"] = "conv"
    kernel: int = Field(3, ge=2, description="tokens that are mixed, the token itself included")


class RetrievalMixer(Mixer):
    """Softmax attention over the nearest ``width`` tokens and, apart, over the ``top`` best-matching older
    ones, in the library also those of a store, joined by a learned gate a head (Wu et al. 2022, section 3.1).
    """

    stacks: ClassVar[frozenset[str]] = frozenset({"causal"})
    attends: ClassVar[bool] = True
    kind: Literal["retrieval"] = "retrieval"
    width: int = Field(512, ge=2, description="nearest tokens, the token itself included")
    top: PositiveInt = Field(32, description="older tokens that are read, for each query and head")


class ChannelMixer(Mixer):
    """Each channel times a gate, from the mean of the sequence, and a linear map (squeeze and excitation; Hu
    et al. 2018, section 3)."""

    stacks: ClassVar[frozenset[str]] = frozenset({"bidirectional"})
    orderless: ClassVar[bool] = True
    kind: Literal["channel"] = "channel"
    inner: PositiveInt | None = Field(
        None,
        description="width between the two maps of the gate; model.dim / 16, but 8 or more, when not given",
    )


class HeadsMixer(Mixer):
    """Mixes in heads, of which ``count``, ``dim`` and ``bias`` apply."""


class BottleneckMixer(Mixer):
    """``latents`` learned vectors read each sequence, and its tokens read them: time grows with T · latents
    (Lee et al. 2019, section 3.1; Jaegle et al. 2021, section 3.1)."""

    stacks: ClassVar[frozenset[str]] = frozenset({"bidirectional"})
    crosses: ClassVar[bool] = True
    orderless: ClassVar[bool] = True
    kind: Literal["bottleneck"] = "bottleneck"
    latents: int = Field(
        32, ge=2, description="how many; of one alone a token reads the same whatever it asks"
    )


class CoAttentionMixer(Mixer):
    """The tokens of a row's first text read its second, and those of the second the first, each with weights
    of their own (ViLBERT; Lu et al. 2019, section 2.1, figure 2b)."""

    stacks: ClassVar[frozenset[str]] = frozenset({"bidirectional"})
    crosses: ClassVar[bool] = True
    orderless: ClassVar[bool] = True
    kind: Literal["coattention"] = "coattention"


class LinearMixer(HeadsMixer):
    """Attention with a product of features in place of the softmax: time grows with T (Katharopoulos et al.
    2020, section 3; Choromanski et al. 2021, section 3)."""

    orderless: ClassVar[bool] = True
    kind: Literal["linear"] = "linear"
    map: Literal["elu", "favor"] = Field(
        "elu",
        description="elu: elu(x) + 1; favor: random features whose products are the softmax's on average",
    )
    features: PositiveInt | None = Field(
        None, le=1 << 20, description="of favor, for each head; d ln d of a head d wide when not given"
    )
    seed: NonNegativeInt = Field(0, lt=1 << 32, description="of favor's random features")

    @model_validator(mode="after")
    def _features_are_drawn(self) -> Self:
        for key, given in (("features", self.features is not None), ("seed", self.seed != 0)):
            if given and self.map != "favor":
                raise UserError(
                    f"{self.map} draws no features: it has as many as a head is wide",
                    f"{self.section}.{key}",
                    "leave it out, or use map: favor",
                )
        return self


class RetentionMixer(HeadsMixer):
    """Linear attention whose past decays, in each head at its own rate (Sun et al. 2023, section 2); with
    position rope queries and keys turn, as there."""

    stacks: ClassVar[frozenset[str]] = frozenset({"causal"})
    turns: ClassVar[bool] = True
    kind: Literal["retention"] = "retention"


class SsmMixer(Mixer):
    """A selective state space: a state whose decay and input each token chooses (Mamba; Gu and Dao 2023,
    section 3)."""

    stacks: ClassVar[frozenset[str]] = frozenset({"causal"})
    kind: Literal["ssm"] = "ssm"
    inner: PositiveInt | None = Field(None, description="channels; 2 × model.dim when not given")
    state: PositiveInt = Field(16, description="width of the state of a channel")
    kernel: PositiveInt = Field(4, description="tokens that are mixed before, the token itself included")
    rank: PositiveInt | None = Field(
        None, description="width from which steps are chosen; model.dim / 16, rounded up, when not given"
    )


class LinformerMixer(HeadsMixer):
    """Softmax attention over ``rank`` summaries of each sequence of at most ``max`` tokens: time grows with
    T · rank (Wang et al. 2020, section 4)."""

    stacks: ClassVar[frozenset[str]] = frozenset({"bidirectional"})
    kind: Literal["linformer"] = "linformer"
    rank: int = Field(
        64, ge=2, description="how many summaries; of one alone a token reads the same whatever it asks"
    )
    max: PositiveInt = Field(1024, description="positions that are summed up; no sequence can be longer")
