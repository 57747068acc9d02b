"""The base of every settings class, and errors that name the nearest key and its section."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from triptych.errors import UserError

if TYPE_CHECKING:  # a checker is to see the fields in the constructor
    from pydantic._internal._model_construction import ModelMetaclass as _InWords
else:

    class _InWords(type(BaseModel)):
        """A constructor that says what is wrong as ``parse`` does."""

        def __call__(cls, *args, **values):
            try:
                return super().__call__(*args, **values)
            except ValidationError as error:
                raise explain(cls, error) from None


class Settings(BaseModel, metaclass=_InWords):
    """Typed, frozen settings; an unknown key is refused.

    Attributes:
        section: where these settings live in the file, e.g. ``model.position`` (for messages).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
    section: ClassVar[str] = ""

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        kinds = _types(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
            raise ValueError("a number is needed")
        return value

    @model_validator(mode="before")
    @classmethod
    def _kind_alone(cls, data: Any) -> Any:
        return {"kind": data} if isinstance(data, str) and "kind" in cls.model_fields else data

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Self:
        """Validate plain data (from YAML or JSON). Raises UserError with section, value and mend."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise explain(cls, error) from None

    def dump(self) -> dict[str, Any]:
        """Plain data that ``parse`` reads back into equal settings."""
        return self.model_dump(mode="json", by_alias=True)


class Part(Settings):
    """Settings of one choice on an axis (a position, a norm, a feed-forward, …).

    An axis is a direct subclass of Part with a ``section``; a choice is a subclass of its axis with a
    ``kind`` that has a default. Defining the class is registering it: ``choices(axis)`` lists them and
    a field of type ``Choice[axis]`` accepts them by ``kind``.
    """

    kind: str


def choices(axis: type[Part]) -> dict[str, type[Part]]:
    """Every registered choice of an axis, by its kind, in the order of definition."""

    def walk(cls: type[Part]) -> Iterator[type[Part]]:
        for sub in cls.__subclasses__():
            if isinstance(sub.model_fields["kind"].default, str):
                yield sub
            yield from walk(sub)

    return {str(sub.model_fields["kind"].default): sub for sub in walk(axis)}


def choose(axis: type[Part], data: Any, default: str) -> Part:
    """Settings of the choice that ``data`` names: a mapping, with ``kind`` or of the default kind, or
    the kind alone."""
    if isinstance(data, Part):
        return data
    known = choices(axis)
    if not isinstance(data, str | Mapping):
        raise UserError(f"{data!r} names no kind", axis.section, f"give one of: {', '.join(known)}")
    given = {"kind": data} if isinstance(data, str) else {"kind": default, **data}
    kind = given["kind"]
    if not isinstance(kind, str) or kind not in known:
        raise UserError(f"unknown kind {kind!r}", f"{axis.section}.kind", _nearest(str(kind), list(known)))
    return known[kind].parse(given)


def part(axis: type[Part], default: str) -> BeforeValidator:
    """The annotation that lets a field of an axis take any of its choices."""
    return BeforeValidator(lambda data: choose(axis, data, default))


def pattern(axis: type[Part], default: str) -> BeforeValidator:
    """The annotation that lets a field take a choice of an axis, or a list of them."""

    def choose_all(data: Any) -> Any:
        if not isinstance(data, list | tuple):
            return data if data is None else choose(axis, data, default)
        if not data:
            raise UserError("an empty list says nothing", axis.section, "name one kind or more")
        return tuple(choose(axis, one, default) for one in data)

    return BeforeValidator(choose_all)


def _types(annotation: Any) -> set[Any]:
    """The plain types in an annotation such as ``Annotated[int, …] | None``."""
    return {annotation}.union(*(_types(inner) for inner in get_args(annotation)))


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    said = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{said}known: {', '.join(known)}"


def _sections(cls: type[Settings], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every (key, section) of a settings tree, for 'did you mean … in section …'."""
    for name, field in cls.model_fields.items():
        yield field.alias or name, prefix
        for inner in _types(field.annotation):
            if isinstance(inner, type) and issubclass(inner, Part):
                for choice in choices(inner).values():
                    yield from ((key, choice.section) for key in choice.model_fields if key != "kind")
            elif isinstance(inner, type) and issubclass(inner, Settings):
                yield from _sections(inner, f"{prefix}.{name}".lstrip("."))


def suggest(root: type[Settings], key: str, section: str) -> str:
    """What a user may have meant by an unknown ``key`` in ``section``."""
    everywhere = list(_sections(root, root.section))
    here = [name for name, place in everywhere if place == section]
    if close := difflib.get_close_matches(key, here, n=1, cutoff=0.6):
        return f"did you mean {close[0]!r} in section {section or 'top level'!r}?"
    if close := difflib.get_close_matches(key, [name for name, _ in everywhere], n=1, cutoff=0.6):
        places = sorted({place or "top level" for name, place in everywhere if name == close[0]})
        return f"did you mean {close[0]!r} in section {' or '.join(map(repr, places))}?"
    return f"section {section or 'top level'!r} knows: {', '.join(dict.fromkeys(here))}"


def explain(root: type[Settings], error: ValidationError) -> UserError:
    """The first of pydantic's complaints in our words."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    path = [str(step) for step in first["loc"]]
    where = ".".join([*([root.section] if root.section else []), *path])
    if isinstance(cause, UserError):
        return UserError(cause.what, cause.where or where, cause.mend)
    if first["type"] == "extra_forbidden":
        section = ".".join([*([root.section] if root.section else []), *path[:-1]])
        return UserError(f"unknown key {path[-1]!r}", where, suggest(root, path[-1], section))
    if first["type"] == "missing":
        return UserError("this key is needed and was not given", where)
    value = first["input"]
    if first["type"] in ("model_type", "model_attributes_type"):
        return UserError(f"{value!r} stands where keys with values should", where)
    return UserError(
        f"{value!r} does not fit: {first['msg'].removeprefix('Value error, ')}", where, _allowed(root, path)
    )


def _allowed(root: type[Settings], path: list[str]) -> str:
    cls: Any = root
    for step in path[:-1]:
        field = cls.model_fields.get(step) if hasattr(cls, "model_fields") else None
        inner = _types(field.annotation) if field else set()
        cls = next((one for one in inner if hasattr(one, "model_fields")), None)  # `X | None` is X
    field = cls.model_fields.get(path[-1]) if hasattr(cls, "model_fields") else None
    return (field.description or "") if field else ""


__all__ = [
    "Annotated",
    "Part",
    "SerializeAsAny",
    "Settings",
    "choices",
    "choose",
    "explain",
    "part",
    "pattern",
    "suggest",
]
