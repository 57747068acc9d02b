"""JSON records: one object, and the texts under its keys, with file and line in every refusal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from triptych.errors import UserError, nearest

__all__ = ["columns", "field", "is_json", "kind_of", "parse", "shown", "suffix", "text_of"]

JSON_SUFFIXES = {".jsonl", ".json", ".ndjson"}
AS_LINES = "one object a line: `jq -c '.[]' FILE > FILE.jsonl`"
_SURROGATE = re.compile("[\ud800-\udfff]")


def suffix(file: Path) -> str:
    """How the name of a file ends, in lower case, before ``.gz``: ``.txt`` of ``a.TXT.gz``."""
    name = file.with_suffix("") if file.suffix.lower() == ".gz" else file
    return name.suffix.lower()


def is_json(file: Path) -> bool:
    """A file of JSON, by its name."""
    return suffix(file) in JSON_SUFFIXES


def parse(line: str, where: str) -> dict[str, object]:
    """The object that a line holds.

    Raises:
        UserError: no JSON, or no object.
    """
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        mend = AS_LINES if line.lstrip().startswith("[") else "write one JSON object a line"
        raise UserError(f"this line is not JSON: {error.msg}", f"{where}:{error.colno}", mend) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets nested too deep
        raise UserError(
            f"this line cannot be read as JSON: {error}", f"{where}:1", "simplify or drop it"
        ) from None
    if isinstance(record, list):
        raise UserError("this line is a JSON list, not an object", where, AS_LINES)
    if not isinstance(record, dict):
        raise UserError(
            f"this line is {kind_of(record)}, not a JSON object", where, "write one JSON object a line"
        )
    return record


def field(record: Mapping[str, object], name: str, where: str, mend: str) -> object:
    """What stands under ``name``: a key, or a path of keys such as ``translation.en``.

    Args:
        mend: what to do where there is no such key.
    """
    found: object = record
    for key in (name,) if name in record else name.split("."):
        if not isinstance(found, dict) or key not in found:
            raise _no_field(record, name, where, mend)
        found = found[key]
    return found


def text_of(found: object, name: str, where: str) -> str:
    """The value of field ``name``, which must be text that UTF-8 can write."""
    if not isinstance(found, str):
        raise UserError(f"field {name!r} is {kind_of(found)}, not text", where, "write it as a JSON string")
    if _SURROGATE.search(found):
        raise UserError(
            f"field {name!r} holds half of a surrogate pair (such as \\ud83d alone), which is no character",
            where,
            "write both halves or the character itself",
        )
    return found


def kind_of(value: object) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "text"}
    return names.get(type(value), "a number")


def columns(count: int) -> str:
    """So many columns, in words."""
    return "one column" if count == 1 else f"{count} columns"


def shown(text: str, limit: int = 60) -> str:
    """A text in quotes, shortened."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def _no_field(record: Mapping[str, object], name: str, where: str, mend: str) -> UserError:
    keys = _keys(record)
    near = nearest(name, keys)
    listed = ", ".join(repr(key) for key in keys[:20]) + (", …" if len(keys) > 20 else "")
    return UserError(
        f"no field {name!r}; found {listed or 'none at all'}",
        where,
        (f"did you mean {near[0]!r}? " if near else "") + mend,
    )


def _keys(record: Mapping[str, object]) -> list[str]:
    """The keys of a record, those of objects inside it as ``outer.inner``."""
    keys: list[str] = []
    for key, value in record.items():
        keys.extend([f"{key}.{inner}" for inner in value] if isinstance(value, dict) and value else [key])
    return keys
