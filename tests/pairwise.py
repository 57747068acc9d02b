"""Pairwise-covering combinations: every pair of values of any two axes stands in some row."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]


def pairwise(
    axes: Mapping[str, Sequence[Any]], seed: int = 0, legal: Callable[[Row], bool] = lambda row: True
) -> list[Row]:
    """Rows with a value for each axis that cover all pairs a legal row can hold.

    Greedy: each row starts from a pair that is not covered yet, and every other axis takes the value that
    covers the most. About as many rows as the two largest axes have pairs, often few more.
    """
    rng = random.Random(seed)
    names = list(axes)
    left = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(names, 2)
        for i in range(len(axes[a]))
        for j in range(len(axes[b]))
    }
    rows = []
    while left:
        (a, i), (b, j) = rng.choice(sorted(left))
        row = _fill(axes, names, {a: i, b: j}, left, rng, legal)
        if row is None:
            left.discard(((a, i), (b, j)))  # no legal row holds this pair
            continue
        left -= set(itertools.combinations([(n, row[n]) for n in names], 2))
        rows.append({n: axes[n][row[n]] for n in names})
    return rows


def _fill(
    axes: Mapping[str, Sequence[Any]],
    names: Sequence[str],
    start: dict[str, int],
    left: set[tuple[tuple[str, int], tuple[str, int]]],
    rng: random.Random,
    legal: Callable[[Row], bool],
) -> dict[str, int] | None:
    """A legal row around a pair, by index; None when none is found."""
    for attempt in range(50):
        row = dict(start)
        free = [n for n in names if n not in row]
        rng.shuffle(free)
        for name in free:
            gains = [(_gain(names, row, name, i, left), rng.random()) for i in range(len(axes[name]))]
            # After some attempts chance decides, so that an illegal corner can be left.
            row[name] = max(range(len(gains)), key=lambda i, g=gains, late=attempt >= 25: g[i][late:])
        if legal({n: axes[n][row[n]] for n in names}):
            return row
    return None


def _gain(
    names: Sequence[str],
    row: Mapping[str, int],
    name: str,
    i: int,
    left: set[tuple[tuple[str, int], tuple[str, int]]],
) -> int:
    """How many pairs that are not covered yet value ``i`` of ``name`` would cover."""
    order = names.index
    pairs = (sorted([(name, i), (n, row[n])], key=lambda p: order(p[0])) for n in row)
    return sum((one, other) in left for one, other in pairs)
