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
    covers the most of those that are legal. About as many rows as the two largest axes have pairs, often few
    more.
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
    # Rows to begin others with: the plainest, for each value of the first axis, on which most depends.
    plain = [dict.fromkeys(range(len(names)), 0) | {0: i} for i in range(sizes[0])]
    found: list[Chosen] = []
    while left:
        pair = rng.choice(sorted(left))
        near = [row for row in found if any(row[a] == i for a, i in pair)]
        base = next((row for row in plain + near if is_legal(row | dict(pair))), None)
        chosen = _vary(base, sizes, pair, left, rng, is_legal) if base else _fill(sizes, pair, rng, is_legal)
        if chosen is None:
            left.discard(pair)  # no legal row holds this pair
            continue
        left -= set(itertools.combinations(sorted(chosen.items()), 2))
        found.append(chosen)
        rows.append({name: axes[name][chosen[a]] for a, name in enumerate(names)})
    return rows


def _vary(
    base: Chosen,
    sizes: Sequence[int],
    pair: Pair,
    left: set[Pair],
    rng: random.Random,
    legal: Callable[[Chosen], bool],
) -> Chosen:
    """A row around a pair: axis by axis the value that covers the most and keeps ``base`` with it legal."""
    row = dict(pair)
    free = [a for a in range(len(sizes)) if a not in row]
    rng.shuffle(free)
    for a in free:
        gains = [(_gain(row, a, i, left), rng.random()) for i in range(sizes[a])]
        best = sorted(range(sizes[a]), key=lambda i, g=gains: g[i], reverse=True)
        row[a] = next(i for i in best if legal(base | row | {a: i}))
    return row


def _fill(
    sizes: Sequence[int], pair: Pair, rng: random.Random, legal: Callable[[Chosen], bool]
) -> Chosen | None:
    """A legal row around a pair by chance; None when none is found."""
    for _ in range(20):
        if legal(row := {a: rng.randrange(size) for a, size in enumerate(sizes)} | dict(pair)):
            return row
    return None


def _gain(row: Chosen, a: int, i: int, left: set[Pair]) -> int:
    """How many pairs that are not covered yet value ``i`` of axis ``a`` would cover."""
    return sum((((b, j), (a, i)) if b < a else ((a, i), (b, j))) in left for b, j in row.items())
