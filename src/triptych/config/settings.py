"""The base of every settings class, and errors that name the nearest key and its section."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Self, get_args

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

from triptych.errors import UserError, nearest

# An integer beyond it is a slip of the hand: nothing can be so long, and 64 bits would not hold sums of it.
MOST = 2**31


class Settings(BaseModel):
    """Typed, frozen settings; an unknown key is refused.

    Attributes:
        section: where these settings live in the file, e.g. ``model.position`` (for messages).
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
    section: ClassVar[str] = ""

    def __init__(self, /, **values: Any) -> None:
        """A constructor that says what is wrong as ``parse`` does."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise explain(type(self), error) from None

    # Settings within others are validated without it: what is wrong there is told from the root.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool):
            kinds = _types(cls.model_fields[str(info.field_name)].annotation)
            if kinds & {int, float} and bool not in kinds:
                raise ValueError("a number is needed")
        return value

    @field_validator("*")
    @classmethod
    def _no_slip_of_the_hand(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int) and abs(value) > MOST and info.field_name != "seed":
            raise ValueError(f"an integer is at most {MOST:,}")
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

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        choices.cache_clear()


@cache
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
        raise UserError(f"{_plain(data)} names no kind", axis.section, f"give one of: {', '.join(known)}")
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
            return choose(axis, data, default)
        if not data:
            raise UserError("an empty list says nothing", axis.section, "name one kind or more")
        return tuple(choose(axis, one, default) for one in data)

    return BeforeValidator(choose_all)


def _types(annotation: Any) -> set[Any]:
    """The plain types in an annotation such as ``Annotated[int, …] | None``."""
    return {annotation}.union(*(_types(inner) for inner in get_args(annotation)))


def _nearest(word: str, known: list[str]) -> str:
    close = nearest(word, known, n=3, cutoff=0.5)
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
    axis = next((cls for cls in root.__mro__ if Part in cls.__bases__), None)
    kinds = [kind for kind, one in choices(axis).items() if key in one.model_fields] if axis else []
    if kinds:
        own = root.model_fields["kind"].default
        return f"{own} has none; of these kinds it is a setting: {', '.join(kinds)}"
    if close := nearest(key, here):
        return f"did you mean {close[0]!r} in section {section or 'top level'!r}?"
    if close := nearest(key, [name for name, _ in everywhere]):
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
        return UserError(
            f"unknown key {path[-1]!r}", where, suggest(root, path[-1], where.rpartition(".")[0])
        )
    value, said = _plain(first["input"]), fits(root, path)
    if first["type"] == "missing":
        return UserError("this key is needed and was not given", where, f"give {said}")
    if first["type"] in ("model_type", "model_attributes_type"):
        return UserError(f"{value} stands where keys with values should", where, f"give its keys: {said}")
    if known := _node(root, path)[0].get("enum", []):
        return UserError(f"{value} does not fit", where, _nearest(str(first["input"]), list(map(str, known))))
    why = f": {cause}" if cause is not None else ""  # of a validator of our own
    return UserError(f"{value} does not fit{why}", where, f"give {said}" if said else first["msg"])


def _plain(value: Any) -> str:
    """As a file of settings has it, shortened."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


# -- what fits, in words -----------------------------------------------------------------------------------


IN_WORDS = {
    "list": "a list",
    "integer": "an integer",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
}


def fits(root: type[Settings], path: Sequence[str]) -> str:
    """What the key at the end of ``path`` takes: its type, bounds and meaning; of a section its keys."""
    node, schema = _node(root, path)
    if "properties" in node:
        keys = list(node["properties"])
        section = ".".join([*([root.section] if root.section else []), *path])
        defaults = {key: inner.get("default", "…") for key, inner in node["properties"].items()}
        plain = [key for key in node.get("required", keys) if isinstance(defaults[key], int | float | str)]
        told = [f"{section}.{key}={json.dumps(defaults[key], ensure_ascii=False)}" for key in plain[:1]]
        example = f"; such as {told[0]}".replace('"', "") if section and told else ""
        return ", ".join(keys) + example
    if axis := inner_axis(root.model_fields[path[-1]].annotation) if path[-1] in root.model_fields else None:
        many = "a list of kinds" if node.get("type") == "array" else "a kind"
        return f"{many} of {axis.section}: {', '.join(choices(axis))}"
    meaning = node.get("description", "")
    words = re.sub(r"\w+", lambda word: IN_WORDS.get(word[0], word[0]), type_name(node, schema))
    return f"{words}{'; ' * bool(meaning)}{meaning}" if node else ""


def _node(root: type[Settings], path: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON Schema of a key, empty where there is none, and the whole."""
    schema: dict[str, Any] = root.model_json_schema()

    def resolve(node: dict[str, Any]) -> dict[str, Any]:
        """Without references, and of ``X | null`` the X where it has keys or items."""
        for one in [node, *node.get("anyOf", [])]:
            if "$ref" in one:
                one = schema["$defs"][one["$ref"].rpartition("/")[2]]
            if one.keys() & {"properties", "prefixItems", "items"}:
                return one  # type: ignore[no-any-return]
        return node

    node = schema
    for step in path:
        inside = resolve(node)
        known = {str(i): one for i, one in enumerate(inside.get("prefixItems", []))}
        known |= inside.get("properties", {})
        node = known.get(step) or inside.get("items") or {}
    return resolve(node), schema


def inner_axis(annotation: Any) -> type[Part] | None:
    """The axis that a setting chooses from, if it is one."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, Part) else None
    return next((axis for inner in get_args(annotation) if (axis := inner_axis(inner))), None)


def type_name(schema: dict[str, Any], root: dict[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return " or ".join(type_name(one, root) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " | ".join(map(str, schema.get("enum") or [schema["const"]]))
    if schema.get("type") == "array":
        items = schema.get("prefixItems", [schema.get("items", {})])
        return f"list of {', '.join(type_name(one, root) for one in items)}"
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    bounds = [f"{sign} {_number(schema[key])}" for key, sign in signs.items() if key in schema]
    if "multipleOf" in schema:
        bounds.append(f"a multiple of {_number(schema['multipleOf'])}")
    return " ".join([str(schema.get("type", "any")), " and ".join(bounds)]).strip()


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


__all__ = [
    "Annotated",
    "Part",
    "SerializeAsAny",
    "Settings",
    "choices",
    "choose",
    "explain",
    "fits",
    "inner_axis",
    "part",
    "pattern",
    "suggest",
    "type_name",
]
