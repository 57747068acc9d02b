"""What there is to choose from: every axis with its choices, and every section with its keys, read from the
settings, the registry and the table of refusals (``triptych parts``). Nothing about them is written here.
"""

from __future__ import annotations

from triptych.config import Part, choices, parts
from triptych.errors import UserError, nearest
from triptych.insight.catalogue.combinations import fits, never
from triptych.insight.catalogue.costs import price
from triptych.insight.catalogue.entries import Axis, Catalogue, Entry, axes, called, refused, said, settings
from triptych.insight.catalogue.sections import last, plain, sections, shared


def catalogue(name: str = "") -> Catalogue:
    """All there is; or the axes, choices, sections and keys of that name, which may stand behind what they
    are in (``top_k``, ``experts.top_k``). Raises UserError naming the nearest."""
    import triptych.model  # noqa: F401 - its parts register themselves

    found = Catalogue([], [])
    for axis_name, axis in axes().items():
        kinds = choices(axis)
        if name and not called(name, axis.section):
            kinds = {k: c for k, c in kinds.items() if called(name, f"{axis.section}.{k}")}
        if kinds:
            line, paper = said(axis.__doc__)
            entries = [entry(axis, choice, full=bool(name)) for choice in kinds.values()]
            described = f"{line} ({paper})" if paper else line
            found.axes.append(Axis(axis_name, axis.section, described, refused(axis), entries))
    found.sections.extend(sections(name))
    if not found.axes + found.sections:
        kinds_of = {axis_name: choices(axis) for axis_name, axis in axes().items()}
        words = [*kinds_of, *(kind for kinds in kinds_of.values() for kind in kinds)]
        words += [word for cls, keys in plain().items() for word in (last(cls), *keys)]
        words += [key for axis in axes().values() for key, _ in shared(axis)]
        close = nearest(name.removeprefix("model."), dict.fromkeys(words), n=3, cutoff=0.5)
        meant = f"did you mean {' or '.join(close)}? " if close else ""
        known = f"axes: {', '.join(kinds_of)}; sections: {', '.join(map(last, plain()))}"
        raise UserError(f"there is no part {name!r}", "parts", meant + known)
    return found


def entry(axis: type[Part], choice: type[Part], full: bool = True) -> Entry:
    """All that is known of a choice; unless ``full``, without what takes long to find out."""
    from triptych.model.registry import carried_out

    line, paper = said(choice.__doc__)
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
