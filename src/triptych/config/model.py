"""Settings of the model: what it is made of, and which combinations are possible."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from triptych.config import parts
from triptych.config.settings import SerializeAsAny, Settings, part
from triptych.errors import UserError

Form = Literal["encoder_decoder", "decoder", "encoder"]


class Attention(parts.AttentionSettings):
    """How queries meet keys: score, what may be seen, dropout on the weights."""

    score: Annotated[SerializeAsAny[parts.Score], part(parts.Score, "scaled_dot")] = parts.ScaledDot()
    visible: Annotated[SerializeAsAny[parts.Sight], part(parts.Sight, "everything")] = parts.SeeEverything()


class ModelConfig(Settings):
    """The Transformer's settings; the defaults are the base model of Vaswani et al. 2017, table 3.

    ``vocab`` is the size of the shared vocabulary; 0 means that the tokenizer decides.
    ``layers`` sets both stacks; ``encoder_layers`` and ``decoder_layers`` set one.
    """

    section: ClassVar[str] = "model"

    form: Form = "encoder_decoder"
    vocab: NonNegativeInt = 0
    dim: PositiveInt = 512
    layers: PositiveInt = 6
    encoder_layers: PositiveInt | None = None
    decoder_layers: PositiveInt | None = None
    heads: Annotated[SerializeAsAny[parts.Heads], part(parts.Heads, "grouped")] = parts.GroupedHeads()
    attention: Attention = Attention()
    mixer: Annotated[SerializeAsAny[parts.Mixer], part(parts.Mixer, "attention")] = parts.AttentionMixer()
    position: Annotated[SerializeAsAny[parts.Position], part(parts.Position, "sinusoidal")] = (
        parts.Sinusoidal()
    )
    norm: Annotated[SerializeAsAny[parts.Norm], part(parts.Norm, "layernorm")] = parts.LayerNorm()
    ffn: Annotated[SerializeAsAny[parts.FeedForward], part(parts.FeedForward, "relu")] = (
        parts.ReluFeedForward()
    )
    tie: Literal["none", "decoder", "all"] = Field(
        "all", description="none; decoder (input and output); all (source, target and output)"
    )
    scale_embedding: bool = True
    dropout: NonNegativeFloat = Field(0.1, lt=1, description="a share from 0 up to, not including, 1")

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
    def head_dim(self) -> int:
        """Width of one head."""
        return getattr(self.heads, "dim", None) or self.dim // self.heads.count

    @property
    def kv_heads(self) -> int:
        """Key/value heads, as cached."""
        return getattr(self.heads, "kv", None) or self.heads.count

    @property
    def ffn_dim(self) -> int:
        """Inner width of the feed-forward network."""
        return self.ffn.dim or 4 * self.dim

    def check(self) -> None:
        """Refuse what cannot be. Raises UserError with section, reason and what would work."""
        for broken, what, where, mend in _rules(self):
            if broken:
                raise UserError(what, f"model.{where}", mend)


def _rules(m: ModelConfig) -> list[tuple[bool, str, str, str]]:
    """The table of what cannot be combined: (broken, reason, key, what would work)."""
    divisors = [n for n in range(1, m.dim + 1) if m.dim % n == 0]
    near = sorted(sorted(divisors, key=lambda n: abs(n - m.heads.count))[:3])
    free_width = getattr(m.heads, "dim", None) is not None
    return [
        (
            not free_width and m.dim % m.heads.count != 0,
            f"dim {m.dim} is not divisible by {m.heads.count} heads",
            "heads.count",
            f"choose {', '.join(map(str, near))} heads, or another model.dim",
        ),
        (
            isinstance(m.position, parts.Rope) and m.head_dim % 2 != 0,
            f"rotary positions turn pairs of values, and a head of {m.head_dim} is odd",
            "position.kind",
            "make model.dim / model.heads.count even",
        ),
        (
            isinstance(m.position, parts.Sinusoidal) and m.dim % 2 != 0,
            f"sinusoidal positions pair a sine with a cosine, and dim {m.dim} is odd",
            "dim",
            "make model.dim even",
        ),
        (
            m.form == "decoder" and m.encoder_layers is not None,
            "a decoder-only model has no encoder",
            "encoder_layers",
            "use model.layers or model.decoder_layers",
        ),
        (
            m.form == "encoder" and m.decoder_layers is not None,
            "an encoder-only model has no decoder",
            "decoder_layers",
            "use model.layers or model.encoder_layers",
        ),
    ]
