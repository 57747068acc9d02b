"""What there is to choose from: every axis and every choice, read from the settings, the registry and the
table of refusals (``triptych parts``). Nothing about them is written here.
"""

from __future__ import annotations

import inspect
import itertools
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from triptych.config import ModelConfig, Part, choices, parts
from triptych.config.load import put
from triptych.config.rules import MEANING, RULES
from triptych.config.settings import inner_axis, type_name
from triptych.errors import UserError, nearest

# The layer whose cost is shown: that of the base model of Vaswani et al. 2017, table 3.
DIM, TOKENS, VOCAB = 512, 512, 1000
SHOWN = f"a layer at dim {DIM} with 8 heads and feed-forward width {4 * DIM}, on {TOKENS} tokens"
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
    """Parameters and operations of ``of`` in the layer that ``SHOWN`` describes."""

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


def axes() -> dict[str, type[Part]]:
    """Every axis of the model by its name: the last word of its section."""
    found = [cls for cls in Part.__subclasses__() if cls.section.startswith("model.") and choices(cls)]
    return {cls.section.rpartition(".")[2]: cls for cls in found}


def catalogue(name: str = "") -> list[Axis]:
    """All axes; or the axis of that name, and choices of that kind. Raises UserError naming the nearest."""
    import triptych.model  # noqa: F401 - its parts register themselves

    known, out = axes(), []
    wanted = name.removeprefix("model.")
    for axis_name, axis in known.items():
        kinds = choices(axis)
        place = axis.section.removeprefix("model.")
        if wanted not in ("", axis_name, place):
            kinds = {k: c for k, c in kinds.items() if wanted in (k, f"{axis_name}.{k}", f"{place}.{k}")}
        if kinds:
            line, paper = said(axis)
            entries = [entry(axis, choice, full=bool(name)) for choice in kinds.values()]
            described = f"{line} ({paper})" if paper else line
            out.append(Axis(axis_name, axis.section, described, refused(axis), entries))
    if not out:
        words = [*known, *(k for axis in known.values() for k in choices(axis))]
        close = nearest(wanted, words, n=3, cutoff=0.5)
        meant = f"did you mean {' or '.join(close)}? " if close else ""
        raise UserError(f"there is no part {name!r}", "parts", f"{meant}axes: {', '.join(known)}")
    return out


def said(cls: type[Part]) -> tuple[str, str]:
    """A docstring's first paragraph without its sources, and these."""
    text = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].replace("``", "")
    text = " ".join(text.split())
    cited = r" ?\(([^()]*\b(?:1[89]|20)\d\d\b[^()]*)\)"
    return re.sub(cited, "", text), "; ".join(re.findall(cited, text))


def entry(axis: type[Part], choice: type[Part], full: bool = True) -> Entry:
    """All that is known of a choice; unless ``full``, without what takes long to find out."""
    from triptych.model.registry import carried_out

    line, paper = said(choice)
    module = carried_out(choice)
    module = getattr(module, "func", module)  # a function with some arguments given
    name = f"{module.__module__}.{module.__qualname__}" if module else ""
    return Entry(
        str(choice.model_fields["kind"].default),
        line,
        paper,
        name,
        list(settings(choice)),
        refused(*choice.__mro__[: choice.__mro__.index(axis)]),
        price(axis, choice) if module else None,
        fits(choice) if issubclass(choice, parts.Mixer) else None,
        never(axis, choice) if full else None,
    )


def settings(choice: type[Part]) -> Iterator[Setting]:
    """Its keys but ``kind``."""
    schema = choice.model_json_schema()
    for name, info in choice.model_fields.items():
        if name != "kind":
            needed = info.is_required()
            default = None if needed else _data(info.default)
            inner = inner_axis(info.annotation)
            kind = type_name(schema["properties"][info.alias or name], schema)
            kind = (
                f"{'list of kinds' if kind.startswith('list') else 'kind'} of {inner.section}"
                if inner
                else kind
            )
            yield Setting(info.alias or name, kind, default, needed, info.description or "")


def _data(value: Any) -> Any:
    """A default as plain data; of a part with nothing but its kind, the kind."""
    if isinstance(value, Part):
        changed = value.dump()
        return changed["kind"] if len(changed) == 1 else changed
    return [_data(one) for one in value] if isinstance(value, tuple) else value


def refused(*classes: type) -> list[Refused]:
    """What the table of refusals says of these classes."""
    return [Refused(r.other, f"{r.because}: {MEANING[r.because]}") for r in RULES if r.of in classes]


# -- costs -------------------------------------------------------------------------------------------------


def price(axis: type[Part], choice: type[Part]) -> Price | None:
    """From the choice's own formulas, in the first layer that can be made with it."""
    from triptych.model.registry import Cost
    from triptych.model.transformer import costs

    for given, settings in attempts(axis, choice):
        try:
            found = costs(ModelConfig.parse(settings), 1, TOKENS, TOKENS)
        except UserError:
            continue
        side = "encoder" if settings["form"] == "encoder" else "decoder"
        names = next(ROWS[section] for section in ROWS if axis.section.startswith(section))
        rows = [name if name in found else f"{side} {name}" for name in names]
        total = sum((found[row] for row in rows), Cost())
        if not axis.section.startswith("model.position"):
            return Price(" and ".join(names), total.parameters, total.flops, given)
        # Positions have no row of their own for what they do in attention.
        without = costs(ModelConfig.parse(settings | {"position": "none"}), 1, TOKENS, TOKENS)
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


def attempts(axis: type[Part], choice: type[Part]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Settings of one-layer models with a choice, the plainest first, each with what it adds in words."""
    forms, positions = ("decoder", "encoder", "encoder_decoder"), ("none", "rope", "sinusoidal")
    for given, around, position, form in itertools.product(guesses(choice), AROUND, positions, forms):
        data: dict[str, Any] = {"form": form, "vocab": VOCAB, "dim": DIM, "layers": 1, "position": position}
        data |= {"ffn": {"dim": 4 * DIM}, **around}
        *path, last = axis.section.removeprefix("model.").split(".")
        kind = {"kind": choice.model_fields["kind"].default, **given}
        if last == "ffn":
            kind["dim"] = 4 * DIM
        put(data, [*path, last], kind, axis.section)
        yield ", ".join(f"{k}={v}" for k, v in given.items()), data


# -- combinations ------------------------------------------------------------------------------------------

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


# -- text --------------------------------------------------------------------------------------------------


def to_dict(found: Sequence[Axis]) -> dict[str, Any]:
    """Plain data, for JSON."""
    return {"cost_of": SHOWN, "axes": [asdict(axis) for axis in found]}


def text(found: Sequence[Axis], width: int, full: bool) -> str:
    """A list to read; ``full`` explains every setting and refusal."""
    from triptych.insight.accounting.text import short

    lines: list[str] = []
    alone = defaultdict(str, mixer=" in all layers of a stack")

    def add(text: str, indent: int) -> None:
        lines.extend(textwrap.wrap(text, width, initial_indent=" " * indent, subsequent_indent=" " * indent))

    add(f"Costs are those of {SHOWN}; FLOPs are of matrix products in a forward pass.", 0)
    lines.append("")
    for axis in found:
        add(f"{axis.name} ({axis.section}): {axis.line}", 0)
        for no in axis.refuses:
            add(f"not with {no.other} ({no.because})", 2)
        for one in axis.choices:
            lines.append("")
            add(f"{one.kind}: {one.line}", 2)
            if one.paper:
                add(one.paper, 4)
            if full:
                for s in one.settings:
                    default = "needed" if s.needed else f"default {_plain(s.default)}"
                    add(f"{s.name}: {s.type}, {default}{'; ' * bool(s.description)}{s.description}", 4)
                add(f"carried out by {one.module}", 4)
            elif one.settings:
                add(" ".join(f"{s.name}={'…' if s.needed else _plain(s.default)}" for s in one.settings), 4)
            if one.fits is not None:
                stands = {"encoder_decoder": f" ({' and '.join(one.fits.get('encoder_decoder', ()))})"}
                add(f"in form {', '.join(form + stands.get(form, '') for form in one.fits)}", 4)
            for no in one.refuses:
                add(f"not with {no.other} ({no.because})", 4)
            if one.never:
                beside = (f"{name} {', '.join(kinds)}{alone[name]}" for name, kinds in one.never.items())
                add(f"never with {'; '.join(beside)}{alone[axis.name]}", 4)
            if one.cost:
                at = f" at {one.cost.note}" if one.cost.note else ""
                add(
                    f"{one.cost.of}{at}: {one.cost.parameters:,} parameters, {short(one.cost.flops)} FLOPs", 4
                )
        lines.append("")
    return "\n".join(lines[:-1])


def _plain(value: Any) -> str:
    """As YAML has it."""
    return value if isinstance(value, str) else json.dumps(value)
