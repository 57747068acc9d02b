"""What is known of a choice or a setting, and how its words are read from the code."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from triptych.config import Part, choices
from triptych.config.rules import MEANING, RULES
from triptych.config.settings import Settings, inner_axis, type_name


@dataclass(frozen=True)
class Setting:
    """A key of a choice; ``default`` is None where one is needed."""

    name: str
    type: str
    default: Any
    needed: bool
    description: str


@dataclass(frozen=True)
class Refused:
    """What a choice, or an axis, cannot be combined with."""

    other: str
    because: str


@dataclass(frozen=True)
class Price:
    """Parameters and operations of ``of`` in the layer that ``SHOWN`` describes; ``note`` says what else it
    was given."""

    of: str
    parameters: int
    flops: int
    note: str = ""


@dataclass(frozen=True)
class Entry:
    """A choice.

    Attributes:
        line, paper: from its docstring.
        module: what carries it out.
        cost: None where no layer can be made with it at that size.
        fits: of a mixer, the stacks it can stand in, by form; None of others.
        never: by axis, the choices that cannot stand beside it, of a mixer where all layers of a stack have
            it; None when it was not asked for.
    """

    kind: str
    line: str
    paper: str
    module: str
    settings: list[Setting]
    refuses: list[Refused]
    cost: Price | None
    fits: dict[str, list[str]] | None = None
    never: dict[str, list[str]] | None = None


@dataclass(frozen=True)
class Axis:
    """An axis and its choices."""

    name: str
    section: str
    line: str
    refuses: list[Refused]
    choices: list[Entry] = field(default_factory=list)


@dataclass(frozen=True)
class Key(Setting):
    """A setting that is shown by itself.

    Attributes:
        paper: from its description, which is without it.
        of: the kinds that have it, of a key of an axis's choices.
        costs: what other values add.
    """

    paper: str
    of: list[str]
    refuses: list[Refused]
    costs: list[Price]


@dataclass(frozen=True)
class Section:
    """A section that is no choice of kinds, and its keys; or an axis with the keys of its choices that were
    asked for by name. ``costs``: of having the section at all, where that is a choice."""

    name: str
    section: str
    line: str
    paper: str
    refuses: list[Refused]
    costs: list[Price]
    keys: list[Key]


@dataclass(frozen=True)
class Catalogue:
    """What there is."""

    axes: list[Axis]
    sections: list[Section]


def axes() -> dict[str, type[Part]]:
    """Every axis of the model by its name: the last word of its section."""
    found = [cls for cls in Part.__subclasses__() if cls.section.startswith("model.") and choices(cls)]
    return {cls.section.rpartition(".")[2]: cls for cls in found}


def said(doc: str | None) -> tuple[str, str]:
    """The first paragraph of a docstring, or of a description, without its sources, and these."""
    text = inspect.cleandoc(doc or "").split("\n\n")[0].replace("``", "")
    text = " ".join(text.split())
    cited = r" ?\(([^()]*\b(?:1[89]|20)\d\d\b[^()]*)\)"
    return re.sub(cited, "", text), "; ".join(re.findall(cited, text))


def settings(choice: type[Settings]) -> Iterator[Setting]:
    """The keys of a choice, or of a section, but ``kind``."""
    schema = choice.model_json_schema()
    for name, info in choice.model_fields.items():
        if name != "kind":
            needed = info.is_required()
            default = None if needed else _data(info.default)
            inner = inner_axis(info.annotation)
            kind = type_name(schema["properties"][info.alias or name], schema)
            if inner:
                many = "list of kinds" if kind.startswith("list") else "kind"
                more = " or list of kinds" * (" list " in kind) + " of "
                kind = f"{many}{more}{inner.section}{' or null' * kind.endswith('null')}"
            yield Setting(info.alias or name, kind, default, needed, info.description or "")


def _data(value: Any) -> Any:
    """A default as plain data; of a part with nothing but its kind, the kind."""
    if isinstance(value, Part):
        changed = value.dump()
        return changed["kind"] if len(changed) == 1 else changed
    return [_data(one) for one in value] if isinstance(value, tuple) else value


def refused(*of: type | str) -> list[Refused]:
    """What the table of refusals says of these classes or keys."""
    return [Refused(r.other, f"{r.because}: {MEANING[r.because]}") for r in RULES if r.of in of]


def called(name: str, place: str) -> bool:
    """Whether a dotted place has that name: all of it, or what it ends with."""
    return f".{place}".endswith(f".{name}")


def as_yaml(value: Any) -> str:
    """A value as YAML has it."""
    return value if isinstance(value, str) else json.dumps(value)
