"""What a choice can stand beside, found by trial."""

from __future__ import annotations

import itertools
from typing import Any

from triptych.config import ModelConfig, Part, choices
from triptych.config.load import put
from triptych.errors import UserError
from triptych.insight.catalogue.costs import AROUND, guesses
from triptych.insight.catalogue.entries import axes

STACKS: dict[str, tuple[str, ...]] = {
    "encoder_decoder": ("encoder", "decoder"), "decoder": ("decoder",), "encoder": ("encoder",)
}  # fmt: skip


def fits(mixer: type[Part]) -> dict[str, list[str]]:
    """The stacks of each form that it can stand in."""
    found = {
        form: [side for side in sides if possible(form, (f"{side}_mixer", example(mixer)))]
        for form, sides in STACKS.items()
    }
    return {form: sides for form, sides in found.items() if sides}


def never(axis: type[Part], choice: type[Part]) -> dict[str, list[str]]:
    """The choices of other axes that no model of one layer a stack has beside it."""

    def keys(axis: type[Part]) -> list[str]:
        key = axis.section.removeprefix("model.")
        return [key, *(f"{side}_{key}" for side in STACKS["encoder_decoder"])] if key == "mixer" else [key]

    own = example(choice)

    def beside(other: type[Part], one: dict[str, Any]) -> bool:
        pairs = itertools.product(STACKS, keys(axis), keys(other))
        return any(possible(form, (mine, own), (key, one)) for form, mine, key in pairs)

    within = {one for one in axes().values() if one.section.rpartition(".")[0] in _sections()}
    found = {
        name: [kind for kind, one in choices(other).items() if not beside(other, example(one))]
        for name, other in axes().items()
        if other is not axis and not {axis, other} & within
    }
    return {name: kinds for name, kinds in found.items() if kinds}


def _sections() -> set[str]:
    return {axis.section for axis in axes().values()}


def possible(form: str, *chosen: tuple[str, dict[str, Any]]) -> bool:
    """Whether there is a model of one layer a stack with these choices, each under its key."""
    for around in AROUND:
        data: dict[str, Any] = {"form": form, "layers": 1, "position": "none", **around}
        for key, choice in chosen:
            put(data, key.split("."), dict(choice), key)
        try:
            ModelConfig.parse(data)
        except UserError:
            continue
        return True
    return False


def example(choice: type[Part]) -> dict[str, Any]:
    """Its kind, and of what it needs the first guess that it takes."""
    kind = {"kind": choice.model_fields["kind"].default}
    for given in guesses(choice):
        try:
            choice.parse({**kind, **given})
        except UserError:
            continue
        return {**kind, **given}
    return kind
