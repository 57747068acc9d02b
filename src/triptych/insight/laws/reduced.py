"""Configurations made smaller before they are checked: large models, wide windows; and what was changed."""

from __future__ import annotations

from typing import Any

from triptych.config import ModelConfig, Part, parts
from triptych.model import cost

LARGE = 30_000_000  # parameters; a larger model is made smaller before it is built
# A window as wide as the sequences would hide nothing, and a grid as wide would be one row.
SHORT: dict[type[Part], dict[str, int]] = {
    parts.SeeWindow: {"width": 4},
    parts.SeeDilated: {"width": 3, "step": 2},
    parts.SeeBlocks: {"size": 3, "neighbours": 1},
    parts.SeeGlobal: {"count": 2},
    parts.SeeRandom: {"size": 2, "count": 1},
    parts.SeePrefix: {"length": 3},
    parts.SeeAxial: {"width": 3},
    parts.SeeCells: {"width": 3, "size": 2},
    parts.DeformableMixer: {"width": 3},
    parts.SpatialMixer: {"width": 3},
    parts.RetrievalMixer: {"width": 3, "top": 2},
}


def smaller(config: ModelConfig) -> tuple[ModelConfig, list[str]]:
    """The configuration with fewer words and layers if its model is large, and what was changed."""
    notes = []
    small = config
    if cost(small).parameters > LARGE and small.vocab > 4000:
        small = small.model_copy(update={"vocab": 4000})
        notes.append(f"4000 of {config.vocab} words")
    for depth in (2, 1):
        if cost(small).parameters > LARGE and max(small.encoder_depth, small.decoder_depth) > depth:
            small = small.model_copy(update={"layers": depth, "encoder_layers": None, "decoder_layers": None})
    if (small.encoder_depth, small.decoder_depth) != (config.encoder_depth, config.decoder_depth):
        deep = max(config.encoder_depth, config.decoder_depth)
        notes.append(f"{small.layers} of {deep} layers a stack")
    return small, notes


def narrower(config: ModelConfig) -> tuple[ModelConfig, list[str]]:
    """The configuration with windows and grids that the short sequences of the laws pass, and what was
    changed."""
    notes: list[str] = []

    def short(one: Part) -> Part:
        most = {key: n for key, n in SHORT.get(type(one), {}).items() if getattr(one, key) > n}
        notes.extend(f"{one.kind} {key} {n}, not {getattr(one, key)}" for key, n in most.items())
        inner = {key: shorten(getattr(one, key)) for key in ("of", "beside") if hasattr(one, key)}
        return one.model_copy(update={**most, **inner})

    def shorten(chosen: Any) -> Any:
        return tuple(map(short, chosen)) if isinstance(chosen, tuple) else chosen and short(chosen)

    attention = config.attention.model_copy(update={"visible": shorten(config.attention.visible)})
    mixers = {key: shorten(getattr(config, key)) for key in ("mixer", "encoder_mixer", "decoder_mixer")}
    return config.model_copy(update={"attention": attention, **mixers}), list(dict.fromkeys(notes))
