"""What each choice of ``model.attention.visible`` lets see, as rules for two positions, written from the
settings alone.

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
    seen = {"row": a == c, "column": b == d}.get(settings.axis, a == c or b == d)
    return seen and (both or key <= query)


def _cells(settings: parts.SeeCells, query: int, key: int, both: bool) -> bool:
    shift = settings.size // 2 if settings.shifted else 0
    a, b = ([(x - shift) // settings.size for x in divmod(at, settings.width)] for at in (query, key))
    return a == b and (both or key <= query)


def _dilated(settings: parts.SeeDilated, query: int, key: int, both: bool) -> bool:
    near = [query - i * settings.step for i in range(settings.width)]
    return key in near or (both and 2 * query - key in near)


def _blocks(settings: parts.SeeBlocks, query: int, key: int, both: bool) -> bool:
    away = query // settings.size - key // settings.size
    return abs(away) <= settings.neighbours and (both or key <= query)


def _global(settings: parts.SeeGlobal, query: int, key: int, both: bool) -> bool:
    if both and query < settings.count:
        return True
    return key < settings.count and (both or key <= query)


def _random(settings: parts.SeeRandom, query: int, key: int, both: bool) -> bool:
    one, other = query // settings.size, key // settings.size
    later, earlier = max(one, other), min(one, other)
    drawn = sorted(range(later), key=lambda j: mixed(mixed(mixed(settings.seed) ^ later) ^ j))
    return (earlier == later or earlier in drawn[: settings.count]) and (both or key <= query)


def mixed(x: int) -> int:
    """32 bits that look random, from x: twice x ← (x xor x/2¹⁶) · 0x45d9f3b, and once more x xor x/2¹⁶."""
    for _ in range(2):
        x = (x ^ (x >> 16)) * 0x45D9F3B % 2**32
    return x ^ (x >> 16)


def _prefix(settings: parts.SeePrefix, query: int, key: int, both: bool) -> bool:
    return key < settings.length or SEEN[type(settings.beside)](settings.beside, query, key, both)


def _all(settings: parts.SeeAll, query: int, key: int, both: bool) -> bool:
    return all(SEEN[type(one)](one, query, key, both) for one in settings.of)


def _any(settings: parts.SeeAny, query: int, key: int, both: bool) -> bool:
    return any(SEEN[type(one)](one, query, key, both) for one in settings.of)


SEEN: dict[type[parts.Sight], Rule] = {
    parts.SeeEverything: _everything,
    parts.SeeWindow: _window,
    parts.SeeAxial: _axial,
    parts.SeeCells: _cells,
    parts.SeeDilated: _dilated,
    parts.SeeBlocks: _blocks,
    parts.SeeGlobal: _global,
    parts.SeeRandom: _random,
    parts.SeePrefix: _prefix,
    parts.SeeAll: _all,
    parts.SeeAny: _any,
}
