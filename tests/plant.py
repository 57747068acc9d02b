"""Planting faults: a function runs with one piece of its text changed, wherever it is already imported."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import pytest


def plant(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], old: str, new: str) -> None:
    """Replace ``old``, which must stand exactly once in the function's source, by ``new`` for this test.

    The code object is exchanged, not the name, so that ``from … import`` copies are reached too.
    """
    inner = inspect.unwrap(getattr(function, "__func__", function))
    assert isinstance(inner, FunctionType)
    source = textwrap.dedent(inspect.getsource(inner))
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {inner.__qualname__}"
    lines = source.replace(old, new).split("\n")
    while lines[0].startswith("@"):
        lines.pop(0)
    monkeypatch.setattr(inner, "__code__", _code(inner, "\n".join(lines)))


def _code(function: FunctionType, source: str) -> CodeType:
    """The code of ``source``, with the same free names as ``function`` (such as ``__class__`` of super)."""
    free = "".join(f"    {name} = None\n" for name in function.__code__.co_freevars)
    outer = f"def _outer():\n{free}{textwrap.indent(source, '    ')}\n    return {function.__name__}\n"
    flag = __future__.annotations.compiler_flag
    scope: dict[str, Any] = {}
    exec(
        compile(outer, function.__code__.co_filename, "exec", flags=flag, dont_inherit=True),
        function.__globals__,
        scope,
    )
    code: CodeType = scope["_outer"]().__code__
    assert code.co_freevars == function.__code__.co_freevars
    return code
