"""What would change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triptych.config import parts
from triptych.config.rules.table import Refusal, attention_or, key_of, refuses

if TYPE_CHECKING:
    from triptych.config.model import ModelConfig


@refuses(
    parts.Position,
    "stacks without softmax attention (rope: and without retention), when it acts in attention",
    "pointless",
)
def _positions_need_attention(m: ModelConfig) -> Refusal | None:
    turning = isinstance(m.position, parts.Rope)
    without = [side for side in m.stacks if not m.attending(side, turning)]
    if m.position.acts != "attention" or not without:
        return None
    return (
        f"{m.position.kind} positions act in softmax attention, and no layer of the {without[0]} is that",
        "position.kind",
        attention_or(m, "use position none", without[0]),
    )


@refuses(parts.Score, "models without softmax attention, unless it is the usual one", "pointless")
@refuses(parts.Heads, "models without softmax attention, but for their count, dim and bias", "pointless")
@refuses("attention.softcap", "models without softmax attention", "pointless")
@refuses("attention.sinks", "models without softmax attention", "pointless")
@refuses("attention.dropout", "models without softmax attention", "pointless")
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
                attention_or(m, "leave it out"),
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
        attention_or(m, "leave it out"),
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
                f"{key_of(m, 'encoder')}.{key}",
                "leave it out, or say it in model.decoder_mixer",
            )
    return None


@refuses("experts.every", "fewer layers in each stack", "pointless")
def _experts_somewhere(m: ModelConfig) -> Refusal | None:
    deepest = max(m.depth(side) for side in m.stacks)
    if m.experts is None or m.experts.every <= deepest:
        return None
    return (
        f"each {m.experts.every}th layer is to have experts, and no stack has more than {deepest} layers",
        "experts.every",
        f"use {deepest} or less",
    )
