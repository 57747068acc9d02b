"""What there is to choose from, to be read."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from triptych.insight.accounting.text import short
from triptych.insight.catalogue.costs import SHOWN
from triptych.insight.catalogue.entries import Catalogue, Entry, Price, Refused, Setting, as_yaml


def to_dict(found: Catalogue) -> dict[str, Any]:
    """Plain data, for JSON."""
    return {"cost_of": SHOWN, **asdict(found)}


def text(found: Catalogue, width: int, full: bool) -> str:
    """A list to read; ``full`` explains every setting and refusal of a choice."""
    lines: list[str] = []

    def add(text: str, indent: int) -> None:
        lines.extend(textwrap.wrap(text, width, initial_indent=" " * indent, subsequent_indent=" " * indent))

    add(f"Costs are those of {SHOWN}; FLOPs are of matrix products in a forward pass.", 0)
    for axis in found.axes:
        lines.append("")
        add(f"{axis.name} ({axis.section}): {axis.line}", 0)
        for said in _refused(axis.refuses):
            add(said, 2)
        for one in axis.choices:
            lines.append("")
            add(f"{one.kind}: {one.line}", 2)
            for said in _entry(one, axis.name, full):
                add(said, 4)
    for section in found.sections:
        lines.append("")
        add(f"{section.name} ({section.section}): {section.line}", 0)
        for said in (section.paper, *_refused(section.refuses), *map(_price, section.costs)):
            add(said, 2)
        for key in section.keys:
            lines.append("")
            add(f"{key.name}: {key.description}", 2)
            kinds = f"; of {', '.join(key.of)}" if key.of else ""
            known = f"{key.type}, {_default(key)}{kinds}"
            for said in (key.paper, known, *_refused(key.refuses), *map(_price, key.costs)):
                add(said, 4)
    return "\n".join(lines)


def _entry(one: Entry, axis: str, full: bool) -> Iterator[str]:
    """What is said of a choice below its line."""
    alone = defaultdict(str, mixer=" in all layers of a stack")
    yield one.paper
    if full:
        for s in one.settings:
            yield f"{s.name}: {s.type}, {_default(s)}{'; ' * bool(s.description)}{s.description}"
        yield f"carried out by {one.module}"
    else:
        yield " ".join(f"{s.name}={'…' if s.needed else as_yaml(s.default)}" for s in one.settings)
    if one.fits is not None:
        stands = {"encoder_decoder": f" ({' and '.join(one.fits.get('encoder_decoder', ()))})"}
        yield f"in form {', '.join(form + stands.get(form, '') for form in one.fits)}"
    yield from _refused(one.refuses)
    if one.never:
        beside = (f"{name} {', '.join(kinds)}{alone[name]}" for name, kinds in one.never.items())
        yield f"never with {'; '.join(beside)}{alone[axis]}"
    if one.cost:
        yield _price(one.cost)


def _default(setting: Setting) -> str:
    return "needed" if setting.needed else f"default {as_yaml(setting.default)}"


def _refused(refuses: list[Refused]) -> Iterator[str]:
    return (f"not with {no.other} ({no.because})" for no in refuses)


def _price(cost: Price) -> str:
    at, less = f" at {cost.note}" if cost.note else "", "-" * (cost.flops < 0)
    return f"{cost.of}{at}: {cost.parameters:,} parameters, {less}{short(abs(cost.flops))} FLOPs"
