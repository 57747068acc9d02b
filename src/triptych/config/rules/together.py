"""What does not go together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from triptych.config import parts
from triptych.config.rules.table import Refusal, key_of, refuses

if TYPE_CHECKING:
    from triptych.config.model import ModelConfig


@refuses(parts.Sinusoidal, "an odd model.dim")
@refuses(parts.TransformerXL, "an odd model.dim")
@refuses("dim", "positions sinusoidal or xl, when it is odd")
def _sine_and_cosine(m: ModelConfig) -> Refusal | None:
    if not isinstance(m.position, parts.Sinusoidal | parts.TransformerXL) or m.dim % 2 == 0:
        return None
    return (
        f"{m.position.kind} positions pair a sine with a cosine, and dim {m.dim} is odd",
        "dim",
        "make model.dim even",
    )


@refuses("dim", "a heads.count that does not divide it, unless heads.dim is given")
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


@refuses(parts.LatentHeads, "layers of retention, with positions rope", "unbuilt")
def _keys_as_wide_as_heads(m: ModelConfig) -> Refusal | None:
    latent = isinstance(m.heads, parts.LatentHeads) and isinstance(m.position, parts.Rope)
    if not latent or not any(mixer.turns for _, mixer in m.mixing):
        return None
    return (
        "rope turns a part of a latent head's key, and in layers of retention whole heads",
        "heads.kind",
        "use grouped heads, or another mixer than retention",
    )


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


@refuses(parts.PatchEmbedding, "grids of another width than its images", "harmful")
@refuses(parts.PatchEmbedding, "grids, with a class token", "harmful")
def _grids_of_patches(m: ModelConfig) -> Refusal | None:
    image = m.embedding
    if not isinstance(image, parts.PatchEmbedding):
        return None
    for side in m.stacks:
        for grid in _grids((*m.mixers(side), *m.sights(side))):
            where = grid.section.removeprefix("model.")
            if image.columns not in (0, grid.width):
                what = f"a grid of {grid.width} columns, and {image.columns} patches stand side by side"
                return (what, f"{where}.width", f"set it to {image.columns}")
            if image.class_token:
                mend = "leave it out, and let output.pool be mean"
                return ("a class token stands on no grid", "embedding.class_token", mend)
    return None


def _grids(choices: Iterable[Any]) -> Iterator[parts.Grid]:
    """Those of the choices that go by rows and columns, and those within them."""
    for part in choices:
        if isinstance(part, parts.Grid):
            yield part
        yield from _grids(getattr(part, "of", ()))
        yield from _grids([part.beside] if getattr(part, "beside", None) else ())


@refuses(parts.PatchEmbedding, "types of tokens", "pointless")
@refuses("types", "embedding patches", "pointless")
def _patches_of_one_type(m: ModelConfig) -> Refusal | None:
    if m.reads_ids or not m.types:
        return None
    return ("types tell two texts apart, and an image is one", "types", "leave it out")


@refuses(parts.PatchEmbedding, "fewer positions than it has patches")
def _a_position_for_each_patch(m: ModelConfig) -> Refusal | None:
    needed = getattr(m.embedding, "tokens", 0)
    for where, most in m.limits().items():
        if most < needed:
            what = f"an image has {needed} tokens, and there are {most} positions"
            return (what, where.removeprefix("model."), f"set it to {needed}")
    return None


@refuses(parts.Norm, "placement deep with tied embeddings that are scaled by √dim", "harmful")
@refuses("tie", "norm.placement deep and scale_embedding together, when the output is tied", "harmful")
@refuses("scale_embedding", "norm.placement deep, when the output is tied", "harmful")
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


@refuses("experts.top_k", "an experts.count that is less")
def _enough_experts(m: ModelConfig) -> Refusal | None:
    if m.experts is None or m.experts.top_k <= m.experts.count:
        return None
    return (
        f"a token cannot pass through {m.experts.top_k} of {m.experts.count} experts",
        "experts.top_k",
        f"use {m.experts.count} or fewer, or more experts",
    )


@refuses(parts.Router, "one expert a token, when a token's gates sum to a constant", "harmful")
@refuses("experts.top_k", "gates that sum to a constant, when it is 1", "harmful")
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
                f"{key_of(m, 'decoder')}.score",
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
