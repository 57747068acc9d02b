"""What a form of model is not made for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from triptych.config import parts
from triptych.config.rules.table import Refusal, key_of, refuses
from triptych.config.settings import choices

if TYPE_CHECKING:
    from triptych.config.model import ModelConfig


@refuses("encoder_layers", "form decoder")
@refuses("encoder_mixer", "form decoder")
@refuses("decoder_layers", "form encoder")
@refuses("decoder_mixer", "form encoder")
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
        f"{key_of(m, side)}.kind",
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
        return (f"{mixer.kind} {why}, and the {side} is {needed}", key_of(m, side), mend)
    return None


@refuses(parts.CoAttentionMixer, "any number of model.types but two")
@refuses("types", "mixer coattention, unless there are two")
def _two_texts_to_read(m: ModelConfig) -> Refusal | None:
    found = [side for side, mixer in m.mixing if isinstance(mixer, parts.CoAttentionMixer)]
    if not found or m.types == 2:
        return None
    why = f"coattention is between two texts, and model.types, which tells them apart, is {m.types}"
    return (why, f"{key_of(m, found[0])}.kind", "use form encoder with model.types=2")


@refuses(parts.PatchEmbedding, "form encoder_decoder", "unbuilt")
def _images_of_one_stack(m: ModelConfig) -> Refusal | None:
    if m.reads_ids or m.form != "encoder_decoder":
        return None
    return ("source and target are both texts", "embedding.kind", "use form encoder")


@refuses(parts.PatchEmbedding, "output vocabulary")
def _patches_are_no_words(m: ModelConfig) -> Refusal | None:
    if m.reads_ids or not m.says_words:
        return None
    return ("patches stand in no vocabulary", "output.kind", "use classes, tags or vector")


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


@refuses(parts.RecurrentMixer, "an output of the first or last token, in an encoder's last layer", "harmful")
def _both_directions_are_read(m: ModelConfig) -> Refusal | None:
    last = m.mixers(m.stacks[0])[-1]
    ends = m.form == "encoder" and m.output.whole and m.pool in ("first", "last")
    if not ends or not isinstance(last, parts.RecurrentMixer):
        return None
    why = f"at its {m.pool} token {last.kind} has made no step in one of its directions, which learns nothing"
    return (why, "output.pool", "use mean or max, or another last layer")


@refuses(parts.VocabularyOutput, "scale with tied embeddings that are scaled by √dim", "harmful")
@refuses("tie", "output.scale and scale_embedding together, when the output is tied", "harmful")
@refuses("scale_embedding", "output.scale, when the output is tied", "harmful")
def _scaled_once(m: ModelConfig) -> Refusal | None:
    if not (m.tied and m.scale_embedding and getattr(m.output, "scale", False)):
        return None
    return (
        "tied weights would be scaled up where they are read and down where they are said, and logits "
        "√dim too small to learn from",
        "output.scale",
        "set model.scale_embedding=false, or leave it out",
    )


@refuses("types", "form encoder_decoder", "unbuilt")
def _types_of_one_text(m: ModelConfig) -> Refusal | None:
    if m.form != "encoder_decoder" or not m.types:
        return None
    return ("source and target have no types of tokens", "types", "leave it out, or use another form")
