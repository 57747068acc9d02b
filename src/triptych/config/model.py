"""Settings of the model: what it is made of, and which combinations are possible."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from triptych.config import parts
from triptych.config.rules import RULES
from triptych.config.settings import SerializeAsAny, Settings, part, pattern
from triptych.errors import UserError

Form = Literal["encoder_decoder", "decoder", "encoder"]
Side = Literal["encoder", "decoder"]
# More is a slip of the hand, and would take for ever to count.
MOST_DIM, MOST_LAYERS = 2**20, 2**12

# A choice for all layers, or a list of choices that is repeated over them.
Mixers = Annotated[
    SerializeAsAny[parts.Mixer] | tuple[SerializeAsAny[parts.Mixer], ...], pattern(parts.Mixer, "attention")
]
Sights = Annotated[
    SerializeAsAny[parts.Sight] | tuple[SerializeAsAny[parts.Sight], ...], pattern(parts.Sight, "everything")
]


class Attention(Settings):
    """How queries meet keys: score, what may be seen, and what is done to the weights (Vaswani et al. 2017,
    section 3.2)."""

    section: ClassVar[str] = "model.attention"
    score: Annotated[SerializeAsAny[parts.Score], part(parts.Score, "scaled_dot")] = parts.ScaledDot()
    visible: Sights = parts.SeeEverything()
    dropout: NonNegativeFloat = Field(
        0.0,
        lt=1,
        description="of attention weights: a share from 0 up to, not including, 1 "
        "(Radford et al. 2018, section 4.1)",
    )
    softcap: float | None = Field(
        None,
        ge=0.1,
        le=10000,
        description="scores s become cap · tanh(s / cap) (Gemma Team 2024, section 2)",
    )
    sinks: bool = Field(
        False,
        description="a learned logit a head joins the softmax: a query may attend to nothing "
        "(OpenAI 2025, gpt-oss, section 2.2)",
    )


class ModelConfig(Settings):
    """The Transformer's settings; the defaults are the base model (Vaswani et al. 2017, table 3).

    ``vocab`` is the size of the shared vocabulary; 0 means that the tokenizer decides.
    ``layers`` and ``mixer`` set both stacks; those that begin with ``encoder_`` or ``decoder_`` set one. A
    list of mixers, or of what is visible, is a pattern repeated over the layers of a stack.
    """

    section: ClassVar[str] = "model"

    form: Form = Field(
        "encoder_decoder",
        description="a source is read and a target said (Vaswani et al. 2017, section 3.1); one text goes on "
        "from left to right (Radford et al. 2018, section 3.1); one text is seen both ways (Devlin et al. "
        "2019, section 3)",
    )
    vocab: NonNegativeInt = Field(
        0,
        description="entries of the one vocabulary; 0: the tokenizer decides (Vaswani et al. 2017, "
        "section 5.1)",
    )
    dim: PositiveInt = Field(
        512, le=MOST_DIM, description="width of the model (Vaswani et al. 2017, section 3.1)"
    )
    layers: PositiveInt = Field(
        6, le=MOST_LAYERS, description="layers of each stack (Vaswani et al. 2017, section 3.1)"
    )
    encoder_layers: PositiveInt | None = Field(
        None,
        le=MOST_LAYERS,
        description="layers of the encoder, when not model.layers (Kasai et al. 2021)",
    )
    decoder_layers: PositiveInt | None = Field(
        None,
        le=MOST_LAYERS,
        description="layers of the decoder, when not model.layers (Kasai et al. 2021)",
    )
    heads: Annotated[SerializeAsAny[parts.Heads], part(parts.Heads, "grouped")] = parts.GroupedHeads()
    attention: Attention = Attention()
    mixer: Mixers = parts.AttentionMixer()
    encoder_mixer: Mixers | None = Field(
        None, description="what mixes in the encoder, when not model.mixer (Chen et al. 2018)"
    )
    decoder_mixer: Mixers | None = Field(
        None, description="what mixes in the decoder, when not model.mixer (Chen et al. 2018)"
    )
    position: Annotated[SerializeAsAny[parts.Position], part(parts.Position, "sinusoidal")] = (
        parts.Sinusoidal()
    )
    norm: Annotated[SerializeAsAny[parts.Norm], part(parts.Norm, "layernorm")] = parts.LayerNorm()
    ffn: Annotated[SerializeAsAny[parts.FeedForward], part(parts.FeedForward, "relu")] = (
        parts.ReluFeedForward()
    )
    experts: parts.Experts | None = None
    embedding: Annotated[SerializeAsAny[parts.Embedding], part(parts.Embedding, "table")] = (
        parts.TableEmbedding()
    )
    output: Annotated[SerializeAsAny[parts.Output], part(parts.Output, "vocabulary")] = (
        parts.VocabularyOutput()
    )
    types: NonNegativeInt = Field(
        0,
        description="kinds of tokens, such as first and second text, with a vector each; 0: none "
        "(Devlin et al. 2019, section 3)",
    )
    tie: Literal["none", "source", "decoder", "all"] = Field(
        "all",
        description="embeddings that are one: none; source (source and target); decoder (target and output); "
        "all (all three) (Press and Wolf 2017; Inan et al. 2017; Vaswani et al. 2017, section 3.4)",
    )
    scale_embedding: bool = Field(
        True, description="embeddings are multiplied by √dim (Vaswani et al. 2017, section 3.4)"
    )
    embedding_norm: bool = Field(
        False,
        description="a norm of the embeddings, positions and types joined (Devlin et al. 2019, their code)",
    )
    dropout: NonNegativeFloat = Field(
        0.1,
        lt=1,
        description="of embeddings, and of what a sublayer adds: a share from 0 up to, not including, 1 "
        "(Srivastava et al. 2014; Vaswani et al. 2017, section 5.4)",
    )

    @model_validator(mode="before")
    @classmethod
    def _heads_by_count(cls, data: Any) -> Any:
        """``heads: 8`` is short for ``heads: {count: 8}``."""
        if isinstance(data, dict) and "heads" in data:
            heads = data["heads"]
            if isinstance(heads, int) and not isinstance(heads, bool):
                data = {**data, "heads": {"count": heads}}
        return data

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self.check()
        return self

    @property
    def encoder_depth(self) -> int:
        """Layers of the encoder; 0 in a decoder-only model."""
        return 0 if self.form == "decoder" else self.encoder_layers or self.layers

    @property
    def decoder_depth(self) -> int:
        """Layers of the decoder; 0 in an encoder-only model."""
        return 0 if self.form == "encoder" else self.decoder_layers or self.layers

    @property
    def stacks(self) -> tuple[Side, ...]:
        """The stacks of the form."""
        both: dict[str, tuple[Side, ...]] = {"decoder": ("decoder",), "encoder": ("encoder",)}
        return both.get(self.form, ("encoder", "decoder"))

    def depth(self, side: Side) -> int:
        """Layers of a stack."""
        return self.encoder_depth if side == "encoder" else self.decoder_depth

    def mixers(self, side: Side) -> tuple[parts.Mixer, ...]:
        """The mixer of each layer of a stack."""
        own = self.encoder_mixer if side == "encoder" else self.decoder_mixer
        return _repeat(own or self.mixer, self.depth(side))

    def mixer_key(self, side: Side) -> str:
        """The key that says what mixes in a stack."""
        return "model.mixer" if getattr(self, f"{side}_mixer") is None else f"model.{side}_mixer"

    def limits(self, *sides: Side) -> dict[str, int]:
        """Where it says how many tokens a sequence may have, and what it says: of some stacks, or of all."""
        found: dict[str, int] = {}
        for side in sides or self.stacks:
            keys = [
                ("model.position", self.position),
                *((self.mixer_key(side), m) for m in self.mixers(side)),
            ]
            for key, chosen in keys:
                if (most := getattr(chosen, "max", None)) is not None:
                    found[f"{key}.max"] = min(most, found.get(f"{key}.max", most))
        return found

    def max_positions(self, *sides: Side) -> int | None:
        """Tokens of the longest sequence that some stacks take, or all; None is without limit."""
        return min(self.limits(*sides).values(), default=None)

    def sights(self, side: Side) -> tuple[parts.Sight, ...]:
        """What each layer of a stack may see, beside causality and the borders of sequences."""
        return _repeat(self.attention.visible, self.depth(side))

    @property
    def lookahead(self) -> int:
        """Positions at the start of a sequence that see each other also in a decoder."""
        layers = zip(self.mixers("decoder"), self.sights("decoder"), strict=True)
        return max((seen.lookahead for mixer, seen in layers if mixer.attends), default=0)

    def attending(self, side: Side, turning: bool = False) -> bool:
        """Whether some layer of a stack is softmax attention over its own tokens, or something else in which
        rotary positions act if that is asked for (``turning``)."""
        return any(mixer.attends or (turning and mixer.turns) for mixer in self.mixers(side))

    @property
    def mixing(self) -> list[tuple[Side, parts.Mixer]]:
        """The mixer of every layer, each with its stack."""
        return [(side, mixer) for side in self.stacks for mixer in self.mixers(side)]

    @property
    def attends(self) -> bool:
        """Whether there is softmax attention with heads anywhere: in a stack, or between them."""
        both = self.form == "encoder_decoder"
        between = both and not all(mixer.takes_source for mixer in self.mixers("decoder"))
        return between or any(mixer.attends or mixer.crosses for _, mixer in self.mixing)

    @property
    def has_heads(self) -> bool:
        """Whether there is anything with heads."""
        return self.attends or any(isinstance(mixer, parts.HeadsMixer) for _, mixer in self.mixing)

    @property
    def reads_ids(self) -> bool:
        """Whether it reads ids; else patches of images."""
        return not isinstance(self.embedding, parts.PatchEmbedding)

    @property
    def says_words(self) -> bool:
        """Whether its output is a score for each word."""
        return isinstance(self.output, parts.VocabularyOutput)

    @property
    def tied(self) -> bool:
        """Whether the output has the embedding's weights."""
        return self.tie in ("decoder", "all") and self.says_words

    @property
    def shared(self) -> bool:
        """Whether source and target have one embedding."""
        return self.tie in ("source", "all")

    @property
    def pool(self) -> str:
        """Which tokens of a row an output of whole rows reads."""
        both_ways = isinstance(self.mixers(self.stacks[0])[-1], parts.RecurrentMixer)
        first = isinstance(self.output, parts.ClassesOutput) and self.reads_ids and not both_ways
        usual = "first" if first else "mean"
        last = self.form == "decoder" or getattr(self.embedding, "class_token", False)
        chosen: str = getattr(self.output, "pool", "auto")
        return chosen if chosen != "auto" else "last" if last else usual

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return getattr(self.heads, "dim", None) or self.dim // self.heads.count

    @property
    def kv_heads(self) -> int:
        """Key/value heads, as cached."""
        return getattr(self.heads, "kv", None) or self.heads.count

    @property
    def rotary_dim(self) -> int:
        """Width of what rotary positions turn."""
        if isinstance(self.heads, parts.LatentHeads):
            return self.heads.rotary or self.head_dim // 2
        return self.head_dim

    @property
    def ffn_dim(self) -> int:
        """Inner width of the feed-forward network."""
        return self.ffn.dim or 4 * self.dim

    @property
    def embedding_dim(self) -> int:
        """Width of a row of the embedding."""
        return getattr(self.embedding, "dim", None) or self.dim

    def routed(self, layer: int) -> bool:
        """Whether a layer, from 0, has experts in place of its feed-forward network."""
        return self.experts is not None and (layer + 1) % self.experts.every == 0

    def check(self) -> None:
        """Refuse what cannot be. Raises UserError with section, reason and what would work."""
        for rule in RULES:
            if refusal := rule.check(self):
                what, where, mend = refusal
                raise UserError(what, f"model.{where}", mend)


def _repeat(choice: Any, count: int) -> tuple[Any, ...]:
    given = choice if isinstance(choice, tuple) else (choice,)
    return tuple(given[i % len(given)] for i in range(count))
