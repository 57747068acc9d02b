"""Reading and writing configurations: YAML files, presets, ``section.key=value`` overrides."""

from __future__ import annotations

import copy
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from triptych.config.presets import PRESETS
from triptych.config.run import RunConfig
from triptych.config.settings import suggest
from triptych.errors import UserError, nearest


class _Loader(yaml.SafeLoader):
    """YAML in which no key of a mapping is given twice: the second would replace the first in silence."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            name = (key.tag, str(key.value))
            if isinstance(key, yaml.ScalarNode) and name in seen:
                what = f"the key {key.value!r} is given twice, first in line {seen[name]}"
                raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
            seen[name] = key.start_mark.line + 1
        return node


def _read(text: str) -> Any:
    return yaml.load(text, _Loader)


def standing(path: Path) -> Literal["", "file", "folder"]:
    """What stands under a name: nothing (also when no file can be called so), a file or a folder.

    Raises UserError where looking is not allowed.
    """
    try:
        mode = path.stat().st_mode
    except PermissionError as error:
        raise UserError(f"cannot be read: {error.strerror}", str(path)) from None
    except (OSError, ValueError):  # ValueError: a zero byte
        return ""
    return "folder" if stat.S_ISDIR(mode) else "file"


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file. Raises UserError with file and line."""
    try:
        data = _read(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UserError(f"byte {error.start} is not UTF-8", str(path), "save the file as UTF-8") from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", str(path)) from None
    except RecursionError:
        raise UserError("nested too deep to be read", str(path), "see `triptych config`") from None
    except ValueError as error:
        raise UserError(f"a value that cannot be read: {error}", str(path), "put it in quotes") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise UserError(f"not YAML: {getattr(error, 'problem', error)}", where) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserError("a configuration is a mapping of sections", str(path), "see `triptych config`")
    return data


def preset(name: str) -> dict[str, Any]:
    """The plain data of a preset. Raises UserError naming the nearest."""
    if name not in PRESETS:
        close = nearest(name, PRESETS)
        said = f"did you mean {close[0]!r}? " if close else ""
        raise UserError(f"there is no preset {name!r}", "--preset", f"{said}known: {', '.join(PRESETS)}")
    return copy.deepcopy(PRESETS[name])


def override(data: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """``data`` with ``section.key=value`` settings laid over it; values are read as YAML."""
    out: dict[str, Any] = copy.deepcopy(dict(data))
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip("."):
            raise UserError(f"{setting!r} is no setting", "command line", "write section.key=value")
        try:
            value = _read(text)
        except RecursionError:
            raise UserError("the value is nested too deep to be read", key, "see `triptych config`") from None
        except (yaml.YAMLError, ValueError):  # ValueError: a date there is not, a number of 5,000 digits
            value = text
        put(out, key.split("."), value, key)
    return out


def put(data: dict[str, Any], path: Sequence[str], value: Any, key: str) -> None:
    """Set ``data[a][b][…] = value``; a part named by its kind alone becomes a mapping first.

    Setting ``….kind`` to another kind drops the settings of the former kind: they are not its own.
    """
    *sections, last = path
    for step in sections:
        inner = data.setdefault(step, {})
        if not isinstance(inner, dict):
            # The short forms: `position: rope`, `heads: 8`.
            inner = {"kind": inner} if isinstance(inner, str) else {"count": inner} if inner else {}
            data[step] = inner
        data = inner
    if not last:
        raise UserError(f"{key!r} is no key", "command line", "write section.key=value")
    old = data.get(last)
    if isinstance(value, str) and isinstance(old, dict) and "kind" in old:
        data, last = old, "kind"  # the short form
    if last == "kind" and data.get("kind", value) != value:
        shared = {k: v for k, v in data.items() if k in ("dim", "placement", "count")}
        data.clear()
        data.update(shared)
    data[last] = value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``over`` laid on it, section by section; a part of another kind replaces whole."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        if isinstance(value, str) and isinstance(old, Mapping) and "kind" in old:
            value = {"kind": value}  # the short form
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            same_kind = value.get("kind") in (None, old.get("kind", value.get("kind")))
            out[key] = merge(old, value) if same_kind else dict(value)
        else:
            out[key] = copy.deepcopy(value)
    return out


def load_config(source: str | Path | Mapping[str, Any], settings: Sequence[str] = ()) -> RunConfig:
    """A run's settings from a YAML file or plain data, with overrides. Raises UserError."""
    if isinstance(source, Mapping):
        return _parse(override(source, settings))
    data = read_yaml(Path(source))
    try:
        return _parse(override(data, settings))
    except UserError as error:
        try:
            _parse(copy.deepcopy(data))
        except UserError:
            # The file is at fault, not what was laid over it.
            raise UserError(error.what, f"{source}: {error.where}", error.mend) from None
        raise


def _parse(data: dict[str, Any]) -> RunConfig:
    top = list(RunConfig.model_fields)
    for key in data:
        if key not in top:
            raise UserError(f"unknown section {key!r}", str(key), _section_meant(str(key), data[key]))
        if data[key] is None:
            data[key] = {}
    return RunConfig.parse(data)


def _section_meant(name: str, given: Any) -> str:
    """What a user may have meant by an unknown section with these keys: the nearest that has the first."""
    close = nearest(name, RunConfig.model_fields)
    for key in given if isinstance(given, dict) and close else ():
        if key in type(getattr(RunConfig(), close[0])).model_fields:
            return f"did you mean {close[0]}.{key}?"
        break
    return suggest(RunConfig, name, "")


def to_yaml(config: RunConfig) -> str:
    """The complete configuration as YAML that ``load_config`` reads back."""
    return yaml.safe_dump(config.dump(), sort_keys=False, allow_unicode=True)


def differences(old: RunConfig, new: RunConfig) -> list[tuple[str, Any, Any]]:
    """Every key whose value differs: (section.key, old, new)."""

    def flat(data: Any, prefix: str = "") -> dict[str, Any]:
        if not isinstance(data, dict):
            return {prefix: data}
        out: dict[str, Any] = {}
        for key, value in data.items():
            out |= flat(value, f"{prefix}.{key}".lstrip("."))
        return out

    a, b = flat(old.dump()), flat(new.dump())
    return [(k, a.get(k), b.get(k)) for k in [*a, *(k for k in b if k not in a)] if a.get(k) != b.get(k)]
