"""Pairwise-covering combinations: every pair of values of any two axes stands in some row."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Chosen = dict[int, int]  # the number of an axis → the number of its value
Pair = tuple[tuple[int, int], tuple[int, int]]


def pairwise(
    axes: Mapping[str, Sequence[Any]], seed: int = 0, legal: Callable[[Row], bool] = lambda row: True
) -> list[Row]:
    """Rows with a value for each axis that cover all pairs a legal row can hold.

    Greedy: each row starts from a pair that is not covered yet, and every other axis takes the value that
    covers the most. About as many rows as the two largest axes have pairs, often few more.
    """
    rng = random.Random(seed)
    names = list(axes)
    sizes = [len(axes[name]) for name in names]
    left = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(range(len(names)), 2)
        for i in range(sizes[a])
        for j in range(sizes[b])
    }

    def is_legal(chosen: Chosen) -> bool:
        return legal({name: axes[name][chosen[a]] for a, name in enumerate(names)})

    rows = []
    found: list[Chosen] = []
    while left:
        pair = rng.choice(sorted(left))
        chosen = _fill(sizes, pair, left, rng, is_legal) or _adapt(found, pair, is_legal)
        if chosen is None:
            left.discard(pair)  # no legal row holds this pair
            continue
        left -= set(itertools.combinations(sorted(chosen.items()), 2))
        found.append(chosen)
        rows.append({name: axes[name][chosen[a]] for a, name in enumerate(names)})
    return rows


def _fill(
    sizes: Sequence[int], pair: Pair, left: set[Pair], rng: random.Random, legal: Callable[[Chosen], bool]
) -> Chosen | None:
    """A legal row around a pair; None when none is found."""
    for attempt in range(12):
        row = dict(pair)
        free = [a for a in range(len(sizes)) if a not in row]
        rng.shuffle(free)
        for a in free:
            gains = [(_gain(row, a, i, left), rng.random()) for i in range(sizes[a])]
            # After some attempts chance decides, so that an illegal corner can be left.
            row[a] = max(range(len(gains)), key=lambda i, g=gains, late=attempt >= 6: g[i][late:])
        if legal(row):
            return row
    return None


def _adapt(found: Sequence[Chosen], pair: Pair, legal: Callable[[Chosen], bool]) -> Chosen | None:
    """A legal row that differs from an earlier one in the pair alone, where legal rows are rare."""
    return next((row for old in found if legal(row := old | dict(pair))), None)


def _gain(row: Chosen, a: int, i: int, left: set[Pair]) -> int:
    """How many pairs that are not covered yet value ``i`` of axis ``a`` would cover."""
    return sum((((b, j), (a, i)) if b < a else ((a, i), (b, j))) in left for b, j in row.items())
