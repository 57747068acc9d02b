"""Settings that are no choice of kinds, section by section, and keys that choices have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from triptych.config import ModelConfig, Part, choices
from triptych.config.settings import Settings, inner_axis
from triptych.insight.catalogue.costs import attempts, changed, layers
from triptych.insight.catalogue.entries import (
    Key,
    Price,
    Section,
    Setting,
    axes,
    called,
    refused,
    said,
    settings,
)


def plain(root: type[Settings] = ModelConfig) -> dict[type[Settings], dict[str, Setting]]:
    """The sections of the model that are no axes, each with its keys: what is no axis and no section."""
    known = {setting.name: setting for setting in settings(root)}
    out = {root: known}
    for name, field in root.model_fields.items():
        inner = next((one for one in (field.annotation, *get_args(field.annotation)) if _section(one)), None)
        if inner is not None:
            out |= plain(inner)
        if inner is not None or _is_axis(root, name):
            del known[name]
    return out


def _section(annotation: object) -> bool:
    one = annotation if isinstance(annotation, type) else object
    return issubclass(one, Settings) and not issubclass(one, Part)


def _is_axis(cls: type[Settings], name: str) -> bool:
    """Whether a key is an axis itself, and not a choice on one that stands elsewhere."""
    axis = inner_axis(cls.model_fields[name].annotation)
    return axis is not None and axis.section == f"{cls.section}.{name}"


def shared(axis: type[Part]) -> list[tuple[str, dict[str, Setting]]]:
    """The keys of an axis's choices, each with the kinds that have it; of unlike ones, such as those with
    other defaults, each by itself."""
    out: list[tuple[str, dict[str, Setting]]] = []
    for kind, choice in choices(axis).items():
        for setting in settings(choice):
            if not _is_axis(choice, setting.name):
                like = (kinds for _, kinds in out if setting in kinds.values())
                if (kinds := next(like, None)) is None:
                    out.append((setting.name, kinds := {}))
                kinds[kind] = setting
    return out


def sections(name: str) -> list[Section]:
    """Those of a name, or with keys of that name; without a name all that are no axes."""
    out = []
    for cls, known in plain().items():
        _, *path = cls.section.split(".")
        keys = [
            key(setting, cls.section, changed([*path, setting.name], setting, layers(path)))
            for setting in known.values()
            if not name or called(name, cls.section) or called(name, f"{cls.section}.{setting.name}")
        ]
        if keys:
            optional = [s for s in settings(ModelConfig) if [s.name] == path and s.default is None]
            costs = [cost for s in optional for cost in changed(path, s, layers(path, inside=False))]
            out.append(Section(last(cls), cls.section, *said(cls.__doc__), refused(cls), costs, keys))
    return out + [section for axis in axes().values() if name for section in of_choices(axis, name)]


def last(cls: type[Settings]) -> str:
    """A section's name: the last word of its place."""
    return cls.section.rpartition(".")[2]


def key(setting: Setting, section: str, costs: list[Price], of: Sequence[type[Part]] = ()) -> Key:
    """A setting by itself; without a paper of its own, and of one choice alone, it has that of the choice."""
    line, paper = said(setting.description)
    if len(of) == 1:
        paper = paper or said(of[0].__doc__)[1]
    known = {**vars(setting), "description": line}
    place = f"{section}.{setting.name}".removeprefix("model.")
    kinds = [str(one.model_fields["kind"].default) for one in of]
    return Key(**known, paper=paper, of=kinds, refuses=refused(place), costs=costs)


def of_choices(axis: type[Part], name: str) -> Iterator[Section]:
    """An axis as the section of those of its choices' keys that have a name, if there are any."""
    (_, *path), keys = axis.section.split("."), []
    for word, kinds in shared(axis):
        having = [kind for kind in kinds if called(name, f"{axis.section}.{kind}.{word}")]
        if called(name, f"{axis.section}.{word}"):
            having = list(kinds)
        if having:
            setting, of = kinds[having[0]], [choices(axis)[kind] for kind in having]
            made = (data for _, data in attempts(axis, of[0]))
            keys.append(key(setting, axis.section, changed([*path, word], setting, made), of))
    if keys:
        yield Section(last(axis), axis.section, *said(axis.__doc__), refused(axis), [], keys)
