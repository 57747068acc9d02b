"""What cannot be combined, and why: the table behind ``ModelConfig.check`` and ``triptych parts``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from triptych.config import parts
from triptych.config.settings import Settings, choices

if TYPE_CHECKING:
    from triptych.config.model import ModelConfig, Side

Because = Literal["mathematics", "pointless", "harmful", "unbuilt"]
MEANING: dict[Because, str] = {
    "mathematics": "there is no such thing",
    "pointless": "it would change nothing",
    "harmful": "it would break a law",
    "unbuilt": "it could be, and is not here",
}
# Reason, key under ``model``, and what would work.
Refusal = tuple[str, str, str]


@dataclass(frozen=True)
class Rule:
    """Something that is refused.

    Attributes:
        of: the choice, or the axis, that cannot be combined.
        other: with what, in a few words.
        because: of what, as ``MEANING`` has it.
        check: the refusal when a configuration breaks the rule, else None.
    """

    of: type[Settings]
    other: str
    because: Because
    check: Callable[[ModelConfig], Refusal | None]


RULES: list[Rule] = []


def refuses(
    of: type[Settings], other: str, because: Because = "mathematics"
) -> Callable[[Callable[[ModelConfig], Refusal | None]], Callable[[ModelConfig], Refusal | None]]:
    """Decorator: this function finds configurations that break a rule of ``of``."""

    def register(check: Callable[[ModelConfig], Refusal | None]) -> Callable[[ModelConfig], Refusal | None]:
        RULES.append(Rule(of, other, because, check))
        return check

    return register


def _key(m: ModelConfig, side: Side) -> str:
    """The key, under ``model``, that says what mixes in a stack."""
    return m.mixer_key(side).removeprefix("model.")


def _attention_or(m: ModelConfig, instead: str, side: Side | None = None) -> str:
    """What works where no layer (of a stack) is softmax attention."""
    key = _key(m, side or m.stacks[-1])
    return f"{instead}, or let model.{key} be attention, or a list with attention in it"


# -- what the form is not made for: the first reason to be told ------------------------------------------


@refuses(parts.Mixer, "layers of a stack the form does not have")
def _layers_of_the_form(m: ModelConfig) -> Refusal | None:
    for form, missing, other in (("decoder", "encoder", "decoder"), ("encoder", "decoder", "encoder")):
        for key in (f"{missing}_layers", f"{missing}_mixer"):
            if m.form == form and getattr(m, key) is not None:
                plain = key.removeprefix(f"{missing}_")
                return (
                    f"a model of form {form} has no {missing}",
                    key,
                    f"use model.{plain} or model.{other}_{plain}",
                )
    return None


@refuses(parts.BahdanauMixer, "forms without a source")
def _bahdanau_reads(m: ModelConfig) -> Refusal | None:
    return _reads_a_source(m, parts.BahdanauMixer, "gru")


@refuses(parts.LuongMixer, "forms without a source")
def _luong_reads(m: ModelConfig) -> Refusal | None:
    return _reads_a_source(m, parts.LuongMixer, "lstm")


def _reads_a_source(m: ModelConfig, kind: type[parts.Mixer], plain: str) -> Refusal | None:
    found = [(side, mixer) for side, mixer in m.mixing if isinstance(mixer, kind)]
    if m.form == "encoder_decoder" or not found:
        return None
    side, mixer = found[0]
    return (
        f"{mixer.kind} reads a source, and a model of form {m.form} has none",
        f"{_key(m, side)}.kind",
        f"use {plain}, or form encoder_decoder",
    )


@refuses(parts.Mixer, "stacks it cannot mix in")
def _mixers_in_their_stacks(m: ModelConfig) -> Refusal | None:
    for side, mixer in m.mixing:
        needed, why = ("bidirectional", "only goes forwards")
        if side == "decoder":
            needed, why = ("causal", "sees the whole sequence at once")
        if needed in mixer.stacks:
            continue
        other = "encoder" if side == "decoder" else "decoder"
        known: dict[str, type[parts.Mixer]] = choices(parts.Mixer)  # type: ignore[assignment]
        fit = [kind for kind, one in known.items() if needed in one.stacks and not one.takes_source]
        mend = f"use form {other}, or one of {', '.join(fit)}"
        if m.form == "encoder_decoder":
            mend = f"use it in the {other} alone: model.{other}_mixer={mixer.kind}"
        return (f"{mixer.kind} {why}, and the {side} is {needed}", _key(m, side), mend)
    return None


@refuses(parts.SeePrefix, "forms with an encoder", "pointless")
def _prefixes_in_decoders(m: ModelConfig) -> Refusal | None:
    if m.form == "decoder" or not any(seen.lookahead for side in m.stacks for seen in m.sights(side)):
        return None
    if m.form == "encoder":
        why = "a prefix is for decoders, and an encoder sees both directions everywhere"
    else:
        why = "a decoder over a source has no first tokens that are given: a prefix would let it see ahead"
    return (why, "attention.visible.kind", "leave prefix out, or use form decoder")


@refuses(parts.ClassesOutput, "form encoder_decoder", "unbuilt")
@refuses(parts.TagsOutput, "form encoder_decoder", "unbuilt")
@refuses(parts.VectorOutput, "form encoder_decoder", "unbuilt")
def _targets_are_words(m: ModelConfig) -> Refusal | None:
    if m.form != "encoder_decoder" or m.says_words:
        return None
    return (f"a model of form {m.form} says words", "output.kind", "use vocabulary, or another form")


@refuses(parts.ClassesOutput, "pool first in a decoder", "harmful")
@refuses(parts.VectorOutput, "pool first in a decoder", "harmful")
@refuses(parts.VocabularyOutput, "next_sentence in a form that is no encoder", "harmful")
def _first_tokens_know_nothing(m: ModelConfig) -> Refusal | None:
    why = "the first token of a decoder has seen no other, and nothing would be learned of them"
    if m.form == "decoder" and m.output.whole and m.pool == "first":
        return (why, "output.pool", "use last or mean, or form encoder")
    if m.form != "encoder" and getattr(m.output, "next_sentence", False):
        return (why, "output.next_sentence", "leave it out, or use form encoder")
    return None


@refuses(parts.VocabularyOutput, "scale with tied embeddings that are scaled by √dim", "harmful")
def _scaled_once(m: ModelConfig) -> Refusal | None:
    if not (m.tied and m.scale_embedding and getattr(m.output, "scale", False)):
        return None
    return (
        "tied weights would be scaled up where they are read and down where they are said, and logits "
        "√dim too small to learn from",
        "output.scale",
        "set model.scale_embedding=false, or leave it out",
    )


@refuses(parts.Embedding, "types in form encoder_decoder", "unbuilt")
def _types_of_one_text(m: ModelConfig) -> Refusal | None:
    if m.form != "encoder_decoder" or not m.types:
        return None
    return ("source and target have no types of tokens", "types", "leave it out, or use another form")


# -- what would change nothing ---------------------------------------------------------------------------


@refuses(parts.Position, "stacks without softmax attention, when it acts in attention", "pointless")
def _positions_need_attention(m: ModelConfig) -> Refusal | None:
    without = [side for side in m.stacks if not m.attending(side)]
    if m.position.acts != "attention" or not without:
        return None
    return (
        f"{m.position.kind} positions act in softmax attention, and no layer of the {without[0]} is that",
        "position.kind",
        _attention_or(m, "use position none", without[0]),
    )


@refuses(parts.Score, "models without softmax attention, unless it is the usual one", "pointless")
@refuses(parts.Heads, "models without softmax attention, but for their count, dim and bias", "pointless")
@refuses(parts.Mixer, "the softcap, sinks and dropout of softmax attention, if there is none", "pointless")
def _attention_somewhere(m: ModelConfig) -> Refusal | None:
    if m.attends:
        return None
    heads, kinds = m.heads, dict.fromkeys(mixer.kind for _, mixer in m.mixing)
    # Without a value that says "none", count and bias may stay as they are.
    given: dict[str, tuple[object, bool]] = {
        "attention.score": (m.attention.score.kind, m.attention.score != parts.ScaledDot()),
        "attention.softcap": (m.attention.softcap, m.attention.softcap is not None),
        "attention.sinks": ("true", m.attention.sinks),
        "attention.dropout": (m.attention.dropout, m.attention.dropout > 0),
        "heads.kind": (heads.kind, not isinstance(heads, parts.GroupedHeads)),
        "heads.kv": (m.kv_heads, m.kv_heads != heads.count),
        "heads.qk_norm": ("true", heads.qk_norm),
        "heads.dim": (m.head_dim, getattr(heads, "dim", None) is not None and not m.has_heads),
    }
    for key, (value, idle) in given.items():
        if idle:
            return (
                f"{value} would change nothing: nothing is softmax attention where the mixer is "
                f"{' or '.join(kinds)}",
                key,
                _attention_or(m, "leave it out"),
            )
    return None


@refuses(parts.Sight, "layers that are no softmax attention over their own stack", "pointless")
def _sights_are_seen(m: ModelConfig) -> Refusal | None:
    chosen = m.attention.visible if isinstance(m.attention.visible, tuple) else (m.attention.visible,)
    less = [seen.kind for seen in chosen if not isinstance(seen, parts.SeeEverything)]
    layers = [pair for side in m.stacks for pair in zip(m.mixers(side), m.sights(side), strict=True)]
    if not less or any(mixer.attends and seen.kind in less for mixer, seen in layers):
        return None
    return (
        f"{less[0]} would change nothing: no layer that it is for is softmax attention over its own stack",
        "attention.visible",
        _attention_or(m, "leave it out"),
    )


@refuses(parts.LatentHeads, "a width of their rotary key, unless positions are rope", "pointless")
def _keys_that_turn(m: ModelConfig) -> Refusal | None:
    if not isinstance(m.heads, parts.LatentHeads) or m.heads.rotary is None:
        return None
    if isinstance(m.position, parts.Rope):
        return None
    return (
        f"{m.heads.rotary} would change nothing: with positions {m.position.kind} there is no rotary key",
        "heads.rotary",
        "leave it out, or use position rope",
    )


@refuses(parts.BahdanauMixer, "settings of how a source is read, in an encoder alone", "pointless")
@refuses(parts.LuongMixer, "settings of how a source is read, in an encoder alone", "pointless")
def _encoders_read_nothing(m: ModelConfig) -> Refusal | None:
    for mixer in m.mixers("encoder"):
        own = type(mixer).model_fields.keys() - parts.RecurrentMixer.model_fields.keys()
        given = {key for key in own if getattr(mixer, key) != type(mixer).model_fields[key].default}
        if mixer.takes_source and given and mixer not in m.mixers("decoder"):
            key = min(given)
            return (
                f"{getattr(mixer, key)} would change nothing: {mixer.kind} reads a source, and an encoder "
                "has none",
                f"{_key(m, 'encoder')}.{key}",
                "leave it out, or say it in model.decoder_mixer",
            )
    return None


@refuses(parts.Experts, "stacks in which no layer has them", "pointless")
def _experts_somewhere(m: ModelConfig) -> Refusal | None:
    deepest = max(m.depth(side) for side in m.stacks)
    if m.experts is None or m.experts.every <= deepest:
        return None
    return (
        f"each {m.experts.every}th layer is to have experts, and no stack has more than {deepest} layers",
        "experts.every",
        f"use {deepest} or less",
    )


# -- what does not go together ---------------------------------------------------------------------------


@refuses(parts.Sinusoidal, "an odd model.dim")
@refuses(parts.TransformerXL, "an odd model.dim")
def _sine_and_cosine(m: ModelConfig) -> Refusal | None:
    if not isinstance(m.position, parts.Sinusoidal | parts.TransformerXL) or m.dim % 2 == 0:
        return None
    return (
        f"{m.position.kind} positions pair a sine with a cosine, and dim {m.dim} is odd",
        "dim",
        "make model.dim even",
    )


@refuses(parts.Heads, "a model.dim that their count does not divide, unless they have a width of their own")
def _whole_heads(m: ModelConfig) -> Refusal | None:
    if not m.has_heads:
        return None
    if getattr(m.heads, "dim", None) is not None or m.dim % m.heads.count == 0:
        return None
    return (f"dim {m.dim} is not divisible by {m.heads.count} heads", "heads.count", _counts(m))


def _counts(m: ModelConfig) -> str:
    """The nearest counts of heads that work with model.dim."""
    kv, rope = getattr(m.heads, "kv", None) or 1, isinstance(m.position, parts.Rope)
    small = [n for n in range(1, math.isqrt(m.dim) + 1) if m.dim % n == 0]
    divisors = {*small, *(m.dim // n for n in small)}
    good = [n for n in divisors if n % kv == 0 and not (rope and m.dim // n % 2)]
    near = sorted(sorted(good, key=lambda n: (abs(n - m.heads.count), n))[:3])
    return f"choose {', '.join(map(str, near))} heads, or another model.dim" if near else "change model.dim"


@refuses(parts.Rope, "an odd number of turning values")
def _pairs_turn(m: ModelConfig) -> Refusal | None:
    if not isinstance(m.position, parts.Rope):
        return None
    width, share, own = m.rotary_dim, m.position.share, getattr(m.heads, "dim", None) is not None
    if share < 1 and (m.position.turning(width) % 2 or abs(m.position.turning(width) - share * width) > 1e-6):
        return (
            f"{share:g} of a head's {width} values is {share * width:g}, and rotary positions turn pairs",
            "position.share",
            f"choose a share that makes an even number: 2/{width}, 4/{width}, …, 1",
        )
    if width % 2 and not isinstance(m.heads, parts.LatentHeads):
        return (
            f"rope positions turn pairs of values, and a head of {width} is odd",
            "position.kind",
            f"make model.heads.dim even, such as {width + 1}" if own else _counts(m),
        )
    return None


@refuses(parts.DynamicScaling, "a single turning pair")
def _fast_and_slow(m: ModelConfig) -> Refusal | None:
    if not isinstance(m.position, parts.Rope) or not isinstance(m.position.scaling, parts.DynamicScaling):
        return None
    if m.position.turning(m.rotary_dim) > 2:
        return None
    return (
        "dynamic scaling leaves the fastest pair as it is, and there is no other",
        "position.scaling.kind",
        "use linear scaling, or wider heads",
    )


@refuses(parts.Rope, "the additive score")
def _turns_show_in_products(m: ModelConfig) -> Refusal | None:
    if not isinstance(m.position, parts.Rope) or not isinstance(m.attention.score, parts.Additive):
        return None
    return (
        "queries and keys that rope has turned meet by the difference of their positions in a product, and "
        "additive is a sum",
        "attention.score",
        "use scaled_dot, dot or cosine, or other positions",
    )


@refuses(parts.Shaw, "scores that are no plain products")
@refuses(parts.TransformerXL, "scores that are no plain products")
def _relations_are_dotted(m: ModelConfig) -> Refusal | None:
    dotted = isinstance(m.attention.score, parts.Dot | parts.ScaledDot)
    if not isinstance(m.position, parts.Shaw | parts.TransformerXL) or dotted:
        return None
    return (
        f"{m.position.kind} positions are part of the keys, and the score a sum of two products, which "
        f"{m.attention.score.kind} is not",
        "attention.score",
        "use dot or scaled_dot, or other positions",
    )


@refuses(parts.Norm, "placement deep with tied embeddings that are scaled by √dim", "harmful")
def _deep_copies(m: ModelConfig) -> Refusal | None:
    scaled = m.scale_embedding or getattr(m.output, "scale", False)
    if m.norm.placement != "deep" or not m.tied or not scaled:
        return None
    key = "scale_embedding" if m.scale_embedding else "output.scale"
    return (
        "with placement deep a residual stream outweighs its layers; read with the scaled embeddings it was "
        "written with, it begins by repeating its input",
        key,
        f"set model.{key}=false, or model.tie=none",
    )


@refuses(parts.LatentHeads, "a rotary key of odd width")
def _latent_rotary(m: ModelConfig) -> Refusal | None:
    if isinstance(m.heads, parts.LatentHeads) and isinstance(m.position, parts.Rope) and m.rotary_dim % 2:
        return (
            f"a rotary key of {m.rotary_dim} values cannot turn in pairs",
            "heads.rotary",
            "give an even number",
        )
    return None


@refuses(parts.LatentHeads, "qk_norm", "unbuilt")
def _latents_are_normalised(m: ModelConfig) -> Refusal | None:
    if not isinstance(m.heads, parts.LatentHeads) or not m.heads.qk_norm:
        return None
    return (
        "latents of mla are normalised already, before heads are made of them",
        "heads.qk_norm",
        "leave it out",
    )


@refuses(parts.Experts, "a token through more of them than there are")
def _enough_experts(m: ModelConfig) -> Refusal | None:
    if m.experts is None or m.experts.top_k <= m.experts.count:
        return None
    return (
        f"a token cannot pass through {m.experts.top_k} of {m.experts.count} experts",
        "experts.top_k",
        f"use {m.experts.count} or fewer, or more experts",
    )


@refuses(parts.Router, "one expert a token, when a token's gates sum to a constant", "harmful")
def _gates_that_say_something(m: ModelConfig) -> Refusal | None:
    if m.experts is None or m.experts.top_k > 1 or not getattr(m.experts.router, "renormalise", True):
        return None
    return (
        f"the one gate of a {m.experts.router.kind} router would be the same whatever it says, and it would "
        "learn nothing from the loss",
        "experts.top_k",
        "use 2 or more, or router: {kind: softmax}",
    )


@refuses(parts.LuongMixer, "the dot score between states of another width than the source's")
def _dot_of_equal_widths(m: ModelConfig) -> Refusal | None:
    for mixer in m.mixers("decoder"):
        if isinstance(mixer, parts.LuongMixer) and mixer.score == "dot" and mixer.hidden not in (None, m.dim):
            return (
                f"states of width {mixer.hidden} have no dot product with a source of width {m.dim}",
                f"{_key(m, 'decoder')}.score",
                "use general, or leave its hidden out",
            )
    return None


@refuses(parts.RetentionMixer, "heads one value wide")
def _norms_of_heads(m: ModelConfig) -> Refusal | None:
    if m.head_dim > 1 or not any(isinstance(mixer, parts.RetentionMixer) for _, mixer in m.mixing):
        return None
    return (
        "retention normalises each head by itself, which leaves nothing of one value",
        "heads.count",
        "use fewer heads, or set their width model.heads.dim",
    )
