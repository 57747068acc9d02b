"""Operations of a pass, and where attention's share of them overtakes the feed-forward network's.

A backward pass has two products for each of the forward pass: one for the gradient of each factor. Those of a
factor without a gradient are spared, and the parts know which. (Fused attention kernels compute the scores
again in the backward pass; that is a price of memory, and not counted.)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from triptych.config import ModelConfig
from triptych.config.model import Side
from triptych.model.blocks import products
from triptych.model.experts import feed_forward_cost
from triptych.model.registry import Cost, Place, Shape, part_of
from triptych.model.stack import sights

FARTHEST = 1 << 20  # tokens; a window's share does not grow, and is looked for no further


def backward(cost: Cost) -> int:
    """Operations of the matrix products of the backward pass."""
    return 2 * cost.flops - cost.spared


@dataclass(frozen=True)
class Crossover:
    """The length of a sequence from which attention's products (scores and weighted values) are at least as
    many operations as the feed-forward networks.

    Attributes:
        formula: solved for the length; None where products do not grow with its square (windows).
        found: the first whole length, by search; None when there is none up to ``FARTHEST``.
    """

    formula: float | None
    found: int | None


def crossover(model: ModelConfig, side: Side) -> Crossover | None:
    """That of a stack; None when its tokens never meet in products."""
    layers, seen = layers_alike(model, side), sights(model, side == "decoder")
    places = [Place.of(model, side == "decoder", i) for i in range(model.depth(side))]

    def at(length: int) -> tuple[int, int]:
        shape, meeting = Shape(1, length, length, 1, 1), 0
        for i, many in layers.items():
            mixer = model.mixers(side)[i]
            meeting += many * part_of(mixer).cost(mixer, model, places[i], seen[i], shape).meeting
        return meeting, sum(feed_forward_cost(model, place, length).flops for place in places)

    def over(length: int) -> bool:
        meeting, feeding = at(length)
        return meeting >= feeding

    if not at(1)[0]:
        return None
    high = 1
    while not over(high) and high < FARTHEST:
        high *= 2
    low, found = high // 2, high if over(high) else None
    while found is not None and found - low > 1:
        middle = (low + found) // 2
        low, found = (low, middle) if over(middle) else (middle, found)
    return Crossover(_solved(model, side, at(1), at(2)), found)


def _solved(model: ModelConfig, side: Side, one: tuple[int, int], two: tuple[int, int]) -> float | None:
    """n of a·n² + b·n = f·n, from the operations of one and of two tokens."""
    if any(seen.reach.back is not None for seen in sights(model, side == "decoder")):
        return None
    a, f = (two[0] - 2 * one[0]) / 2, one[1]
    return (f - (one[0] - a)) / a if a > 0 else None


def layers_alike(model: ModelConfig, side: Side) -> Counter[int]:
    """Of the layers of a stack whose mixers cost the same, the first, and how many they are."""
    firsts: dict[tuple[object, ...], int] = {}
    out: Counter[int] = Counter()
    causal = side == "decoder"
    for i, (mixer, seen) in enumerate(zip(model.mixers(side), sights(model, causal), strict=True)):
        probe = part_of(mixer).cost(mixer, model, Place.of(model, causal, i), seen, Shape(1, 1, 1, 1, 1))
        out[firsts.setdefault((mixer, seen, probe), i)] += 1
    return out


def written_out(model: ModelConfig, side: Side, batch: int, length: int, width: int) -> int:
    """Bytes of the attention weights of the layer of a stack that has the most, if they are written out."""
    seen = sights(model, side == "decoder")
    layers = zip(model.mixers(side), seen, strict=True)
    pairs = [products(sight.reach, length, length) for mixer, sight in layers if mixer.attends]
    return batch * model.heads.count * max(pairs, default=0) * width
