"""What cannot be combined, and why: the table behind ``ModelConfig.check`` and ``triptych parts``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from triptych.config import parts
from triptych.config.settings import Settings

if TYPE_CHECKING:
    from triptych.config.model import ModelConfig

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


@refuses(parts.Heads, "a model.dim that their count does not divide, unless they have a width of their own")
def _whole_heads(m: ModelConfig) -> Refusal | None:
    mixers = [mixer for side in m.stacks for mixer in m.mixers(side)]
    if not (m.attends or any(isinstance(mixer, parts.HeadsMixer) for mixer in mixers)):
        return None
    if getattr(m.heads, "dim", None) is not None or m.dim % m.heads.count == 0:
        return None
    small = [n for n in range(1, math.isqrt(m.dim) + 1) if m.dim % n == 0]
    divisors = {*small, *(m.dim // n for n in small)}
    near = sorted(sorted(divisors, key=lambda n: (abs(n - m.heads.count), n))[:3])
    return (
        f"dim {m.dim} is not divisible by {m.heads.count} heads",
        "heads.count",
        f"choose {', '.join(map(str, near))} heads, or another model.dim",
    )


@refuses(parts.Rope, "an odd number of turning values")
def _pairs_turn(m: ModelConfig) -> Refusal | None:
    if not isinstance(m.position, parts.Rope):
        return None
    width, share = m.rotary_dim, m.position.share
    if share < 1 and (m.position.turning(width) % 2 or abs(m.position.turning(width) - share * width) > 1e-6):
        return (
            f"{share:g} of a head's {width} values is {share * width:g}, and rotary positions turn pairs",
            "position.share",
            f"choose a share that makes an even number: 2/{width}, 4/{width}, …, 1",
        )
    if width % 2 and not isinstance(m.heads, parts.LatentHeads):
        return (
            f"rotary positions turn pairs of values, and a head of {width} is odd",
            "position.kind",
            "make model.dim / model.heads.count even",
        )
    return None


@refuses(parts.DynamicScaling, "a single turning pair")
def _fast_and_slow(m: ModelConfig) -> Refusal | None:
    if not isinstance(m.position, parts.Rope) or not isinstance(m.position.scaling, parts.DynamicScaling):
        return None
    if m.position.turning(m.rotary_dim) > 2:
        return None
    return (
        "another base leaves the fastest pair as it is, and there is no other",
        "position.scaling.kind",
        "use linear scaling, or wider heads",
    )


@refuses(parts.Rope, "the additive score")
def _turns_show_in_products(m: ModelConfig) -> Refusal | None:
    if not isinstance(m.position, parts.Rope) or not isinstance(m.attention.score, parts.Additive):
        return None
    return (
        "turned queries and keys meet by the difference of their positions in a product, not in a sum",
        "attention.score",
        "use a dot product or cosine, or other positions",
    )


@refuses(parts.Shaw, "scores that are no plain products")
@refuses(parts.TransformerXL, "scores that are no plain products")
def _relations_are_dotted(m: ModelConfig) -> Refusal | None:
    dotted = isinstance(m.attention.score, parts.Dot | parts.ScaledDot)
    if not isinstance(m.position, parts.Shaw | parts.TransformerXL) or dotted:
        return None
    return (
        f"{m.position.kind} positions are part of the keys, and scores the sum of two products",
        "attention.score",
        "use dot or scaled_dot, or other positions",
    )


@refuses(parts.Norm, "placement deep with tied embeddings that are scaled by √dim", "harmful")
def _deep_copies(m: ModelConfig) -> Refusal | None:
    if m.norm.placement != "deep" or m.tie == "none" or not m.scale_embedding:
        return None
    return (
        "a residual stream that outweighs its layers, read with the scaled embeddings it was written with, "
        "begins by repeating its input",
        "scale_embedding",
        "set model.scale_embedding=false, or model.tie=none",
    )


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


@refuses(parts.Mixer, "stacks it cannot mix in")
def _mixers_in_their_stacks(m: ModelConfig) -> Refusal | None:
    for side in m.stacks:
        causal = side == "decoder"
        for mixer in m.mixers(side):
            needed = "causal" if causal else "bidirectional"
            if needed not in mixer.stacks:
                why = "sees the whole sequence at once" if causal else "only goes forwards"
                return (
                    f"{mixer.kind} {why}, and the {side} is {needed}",
                    f"{side}_mixer",
                    f"choose another model.{side}_mixer",
                )
    return None


@refuses(parts.Position, "stacks without softmax attention, when it acts in attention", "pointless")
def _positions_need_attention(m: ModelConfig) -> Refusal | None:
    if m.position.acts != "attention" or all(m.attending(side) for side in m.stacks):
        return None
    return (
        f"{m.position.kind} positions act in softmax attention, and a stack has none",
        "position.kind",
        "use position: none, or a mixer pattern with attention in it",
    )


@refuses(parts.LatentHeads, "a rotary key of odd width")
def _latent_rotary(m: ModelConfig) -> Refusal | None:
    if isinstance(m.heads, parts.LatentHeads) and isinstance(m.position, parts.Rope) and m.rotary_dim % 2:
        return (f"a rotary key of {m.rotary_dim} values cannot turn in pairs", "heads.rotary", "make it even")
    return None


@refuses(parts.LatentHeads, "qk_norm", "unbuilt")
def _latents_are_normalised(m: ModelConfig) -> Refusal | None:
    if not isinstance(m.heads, parts.LatentHeads) or not m.heads.qk_norm:
        return None
    return ("latents are normalised already, before heads are made of them", "heads.qk_norm", "leave it out")


@refuses(parts.Mixer, "layers of a stack the form does not have")
def _layers_of_the_form(m: ModelConfig) -> Refusal | None:
    for form, missing, other in (("decoder", "encoder", "decoder"), ("encoder", "decoder", "encoder")):
        for key in (f"{missing}_layers", f"{missing}_mixer"):
            if m.form == form and getattr(m, key) is not None:
                plain = key.removeprefix(f"{missing}_")
                return (
                    f"{'a decoder' if form == 'decoder' else 'an encoder'}-only model has no {missing}",
                    key,
                    f"use model.{plain} or model.{other}_{plain}",
                )
    return None


@refuses(parts.SeePrefix, "forms with an encoder", "pointless")
def _prefixes_in_decoders(m: ModelConfig) -> Refusal | None:
    if m.form == "decoder" or not any(seen.lookahead for side in m.stacks for seen in m.sights(side)):
        return None
    if m.form == "encoder":
        why = "an encoder sees both directions everywhere"
    else:
        why = "a decoder over a source begins from nothing: it has no first tokens that are given"
    return (why, "attention.visible.kind", "leave prefix out, or use form decoder")


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


@refuses(parts.BahdanauMixer, "forms without a source")
def _bahdanau_reads(m: ModelConfig) -> Refusal | None:
    return _reads_a_source(m, parts.BahdanauMixer, "gru")


@refuses(parts.LuongMixer, "forms without a source")
def _luong_reads(m: ModelConfig) -> Refusal | None:
    return _reads_a_source(m, parts.LuongMixer, "lstm")


def _reads_a_source(m: ModelConfig, kind: type[parts.Mixer], plain: str) -> Refusal | None:
    mixers = [mixer for side in m.stacks for mixer in m.mixers(side) if isinstance(mixer, kind)]
    if m.form == "encoder_decoder" or not mixers:
        return None
    return (
        f"{mixers[0].kind} reads a source, and a model of form {m.form} has none",
        "mixer.kind",
        f"use {plain}, or form encoder_decoder",
    )


@refuses(parts.LuongMixer, "the dot score between states of another width than the source's")
def _dot_of_equal_widths(m: ModelConfig) -> Refusal | None:
    for mixer in m.mixers("decoder"):
        if isinstance(mixer, parts.LuongMixer) and mixer.score == "dot" and mixer.hidden not in (None, m.dim):
            return (
                f"states of width {mixer.hidden} have no dot product with a source of width {m.dim}",
                "mixer.score",
                "use score general, or leave mixer.hidden out",
            )
    return None


@refuses(parts.RetentionMixer, "heads one value wide")
def _norms_of_heads(m: ModelConfig) -> Refusal | None:
    mixers = [mixer for side in m.stacks for mixer in m.mixers(side)]
    if m.head_dim > 1 or not any(isinstance(mixer, parts.RetentionMixer) for mixer in mixers):
        return None
    return (
        "retention normalises each head by itself, which leaves nothing of one value",
        "heads.count",
        "use fewer heads, or set their width model.heads.dim",
    )
