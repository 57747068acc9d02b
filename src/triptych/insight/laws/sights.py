"""What each choice of ``model.attention.visible`` lets see, as scalar rules written from the settings alone.

The law of weights compares masks with these, position by position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triptych.config import parts

# (settings, position of the query, position of the key, both directions) → seen, within one sequence.
Rule = Callable[[Any, int, int, bool], bool]


def _everything(settings: parts.SeeEverything, query: int, key: int, both: bool) -> bool:
    return both or key <= query


def _window(settings: parts.SeeWindow, query: int, key: int, both: bool) -> bool:
    return query - settings.width < key < query + (settings.width if both else 1)


def _axial(settings: parts.SeeAxial, query: int, key: int, both: bool) -> bool:
    (a, b), (c, d) = divmod(query, settings.width), divmod(key, settings.width)
    return (a == c or b == d) and (both or key <= query)


def _cells(settings: parts.SeeCells, query: int, key: int, both: bool) -> bool:
    shift = settings.size // 2 if settings.shifted else 0
    a, b = ([(x - shift) // settings.size for x in divmod(at, settings.width)] for at in (query, key))
    return a == b and (both or key <= query)


SEEN: dict[type[parts.Sight], Rule] = {
    parts.SeeEverything: _everything,
    parts.SeeWindow: _window,
    parts.SeeAxial: _axial,
    parts.SeeCells: _cells,
}
