"""What a choice costs, and what changing a setting adds, from the models' own formulas."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import reduce
from operator import getitem
from typing import Any

from triptych.config import ModelConfig, Part, choices
from triptych.config.load import put
from triptych.errors import UserError
from triptych.insight.catalogue.entries import Price, Setting, as_yaml, axes, settings

# The layer whose cost is shown: that of the base model of Vaswani et al. 2017, table 3.
DIM, TOKENS, VOCAB = 512, 512, 1000
SHOWN = (
    f"a layer at dim {DIM} with 8 heads and feed-forward width {4 * DIM}, on {TOKENS} tokens, "
    f"of {VOCAB:,} words"
)
# Tried in turn for a setting that has no default.
GUESSES: tuple[Any, ...] = (64, 16, 8, 4, 2, 0.5)
# Where the choices of a section show in the account of a layer; of others the whole layer is shown.
ROWS: dict[str, tuple[str, ...]] = {
    "model.ffn": ("feed-forward",),
    "model.experts": ("feed-forward",),
    "model.norm": ("norms",),
    "model.mixer": ("mixers",),
    "model.heads": ("mixers",),
    "model.attention": ("mixers",),
    "model.position": ("mixers", "positions"),
    "model.embedding": ("embedding", "output"),
    "model.output": ("output",),
    "": ("mixers", "feed-forward", "norms", "positions"),
}
# What else a choice may need: two texts that are told apart, or something else to say than words.
CLASSES = {"output": {"kind": "classes", "count": 2}}
AROUND: tuple[dict[str, Any], ...] = ({}, {"types": 2}, CLASSES, {"types": 2, **CLASSES})


def price(axis: type[Part], choice: type[Part]) -> Price | None:
    """From the choice's own formulas, in the first layer that can be made with it."""
    from triptych.model.registry import Cost
    from triptych.model.transformer import costs

    for given, data in attempts(axis, choice):
        try:
            found = costs(ModelConfig.parse(data), 1, TOKENS, TOKENS)
        except UserError:
            continue
        side = "encoder" if data["form"] == "encoder" else "decoder"
        names = next(ROWS[section] for section in ROWS if axis.section.startswith(section))
        rows = [name if name in found else f"{side} {name}" for name in names]
        total = sum((found[row] for row in rows), Cost())
        if not axis.section.startswith("model.position"):
            return Price(" and ".join(names), total.parameters, total.flops, given)
        # Positions have no row of their own for what they do in attention.
        without = costs(ModelConfig.parse(data | {"position": "none"}), 1, TOKENS, TOKENS)
        plain = sum((without[row] for row in rows), Cost())
        own = total.parameters - plain.parameters, total.flops - plain.flops
        return Price("beside attention itself", *own, given)
    return None


def guesses(choice: type[Part]) -> Iterator[dict[str, Any]]:
    """Values for the settings that it needs."""
    # A count, or a size, of 0 leaves it to the data.
    left = ("count", "size")
    needed = {s.name: s.type for s in settings(choice) if s.needed or (s.name in left and s.default == 0)}
    plain = next(kind for axis in axes().values() if issubclass(choice, axis) for kind in choices(axis))
    tried = ([[plain], [plain, plain]] if "kind" in kind else GUESSES for kind in needed.values())
    for values in itertools.product(*tried):
        yield dict(zip(needed, values, strict=True))


FORMS = ("decoder", "encoder", "encoder_decoder")


def layer(form: str, position: str = "none", layers: int = 1) -> dict[str, Any]:
    """Settings of a model with one layer a stack."""
    return {"form": form, "vocab": VOCAB, "dim": DIM, "layers": layers, "position": position} | {
        "ffn": {"dim": 4 * DIM}
    }


def attempts(axis: type[Part], choice: type[Part]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Settings of one-layer models with a choice, the plainest first, each with what it adds in words."""
    positions = ("none", "rope", "sinusoidal")
    for given, around, position, form in itertools.product(guesses(choice), AROUND, positions, FORMS):
        data = layer(form, position) | around
        *path, last = axis.section.removeprefix("model.").split(".")
        kind = {"kind": choice.model_fields["kind"].default, **given}
        if last == "ffn":
            kind["dim"] = 4 * DIM
        put(data, [*path, last], kind, axis.section)
        yield ", ".join(f"{k}={v}" for k, v in given.items()), data


# -- settings ----------------------------------------------------------------------------------------------


def layers(path: list[str], inside: bool = True) -> Iterator[dict[str, Any]]:
    """Settings of models to change a section's settings in, or that are without it, the plainest first: what
    is of a whole model shows in one with both stacks, and what is of every n-th layer in two layers."""
    for count, form in itertools.product((1, 2), FORMS if path else FORMS[::-1]):
        data = layer(form, layers=count)
        if path and inside:
            put(data, path, {}, ".".join(path))
        yield data


def changed(path: list[str], setting: Setting, tried: Iterable[dict[str, Any]]) -> list[Price]:
    """What other values of a setting add, in the first of some models that takes any."""
    from triptych.model.transformer import cost

    for data in tried:
        try:
            before = ModelConfig.parse(data)
        except UserError:
            continue
        found, value = [], reduce(getitem, path, before.dump())
        for other in others(setting, value):
            new = deepcopy(data)
            put(new, path, other, setting.name)
            try:
                after = ModelConfig.parse(new)
            except UserError:
                continue
            if before != after:
                old, own = (cost(model, 1, TOKENS, TOKENS) for model in (before, after))
                of = f"{setting.name}={as_yaml(other)} beside {as_yaml(value)}"
                of += f" in form {before.form}" if after.form == before.form else ""
                of += f" with {before.layers} layers" if before.layers > 1 else ""
                found.append(Price(of, own.parameters - old.parameters, own.flops - old.flops))
        if found:
            return found if " | " in setting.type else found[:1]
    return []


def others(setting: Setting, value: Any) -> list[Any]:
    """Other values than a setting has: all words, or the other of two, or numbers to be tried."""
    if " | " in setting.type:
        words = setting.type.removesuffix(" or null").split(" | ")
        return [word for word in words if word != value]
    if isinstance(value, bool):
        return [not value]
    if setting.type.startswith("object"):
        return [{}]
    if not setting.type.startswith(("integer", "number")):
        return []
    return [2 * value, value / 2] if value else [DIM if setting.name == "dim" else 2, 0.5]
