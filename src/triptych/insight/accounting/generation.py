"""Generating token by token, with a cache and without.

    without:  step n computes all n tokens so far, the keys and values of the source too
    with:     step n computes token n, which reads what is kept of the others

Sums over all steps are exact: of mixers each step is computed, of the other parts what is linear in tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from triptych.config import ModelConfig, Part
from triptych.insight.accounting.passes import layers_alike
from triptych.model.attention import CrossAttention
from triptych.model.experts import feed_forward_cost
from triptych.model.registry import Place, Shape, part_of
from triptych.model.stack import sights, stack_costs
from triptych.model.state import filling


@dataclass(frozen=True)
class Work:
    """Operations of the matrix products of one part of a decoder, in all its layers.

    Attributes:
        step, step_cached: of the last step.
        total, total_cached: of all steps.
    """

    part: str
    step: int = 0
    step_cached: int = 0
    total: int = 0
    total_cached: int = 0

    def __add__(self, o: Work) -> Work:
        return Work(
            self.part,
            self.step + o.step,
            self.step_cached + o.step_cached,
            self.total + o.total,
            self.total_cached + o.total_cached,
        )


def generation(model: ModelConfig, rows: int, steps: int, source: int) -> list[Work]:
    """The table for ``steps`` tokens in each of ``rows`` rows, each row with a source of ``source`` tokens.
    Logits are made of the newest token alone."""
    meetings, alone = Work("mixers: attention"), Work("mixers: projections")
    for i, layers in layers_alike(model, "decoder").items():
        met, other = _mixer(model, i, rows, steps, source)
        for _ in range(layers):
            meetings, alone = meetings + met, alone + other
    out = [alone, meetings]
    reading = sum(not mixer.takes_source for mixer in model.mixers("decoder"))
    if source and reading:
        out += _cross(model, reading, rows, steps, source)
    places = [Place.of(model, True, i) for i in range(model.decoder_depth)]
    last = sum(feed_forward_cost(model, place, rows).flops for place in places)
    out.append(_linear("feed-forward", last, steps))
    newest = part_of(model.output).cost(model.output, model, rows, 1).flops
    looked_up = part_of(model.embedding).cost(model.embedding, model, rows).flops
    if looked_up:
        out.append(_linear("embedding", looked_up, steps))
    out.append(Work("output", newest, newest, newest * steps, newest * steps))
    return out


def encoding(model: ModelConfig, rows: int, source: int) -> int:
    """Operations of encoding the sources, once."""
    shape = Shape(rows, source, source)
    looked_up = part_of(model.embedding).cost(model.embedding, model, rows * source)
    return int(looked_up.flops + sum(cost.flops for cost in stack_costs(model, False, shape).values()))


def _mixer(model: ModelConfig, layer: int, rows: int, steps: int, source: int) -> tuple[Work, Work]:
    """Of one layer's mixer: its tokens' meeting, and the rest."""
    settings: Part = model.mixers("decoder")[layer]
    part, place, seen = part_of(settings), Place.of(model, True, layer), sights(model, True)[layer]
    met, other = [0, 0, 0, 0], [0, 0, 0, 0]
    slots = filling(part.sees(settings, seen), 0, [1] * steps)
    for n, used in enumerate(slots, 1):
        whole = part.cost(settings, model, place, seen, Shape(rows, n, n, source, rows))
        cached = Shape(rows, 1, used, source, rows * (n == 1), past=n - 1)
        newest = part.cost(settings, model, place, seen, cached)
        for i, cost in enumerate((whole, newest)):
            met[i], other[i] = cost.meeting, cost.flops - cost.meeting
            met[i + 2] += met[i]
            other[i + 2] += other[i]
    return Work("", *met), Work("", *other)


def _linear(part: str, one: int, steps: int) -> Work:
    """Of what costs ``one`` for each token."""
    return Work(part, one * steps, one, one * steps * (steps + 1) // 2, one * steps)


def _cross(model: ModelConfig, layers: int, rows: int, steps: int, source: int) -> list[Work]:
    """Of cross-attention: its queries and output map, its products, and what is made of the source."""

    def cost(length: int, sources: int) -> tuple[int, int]:
        found = CrossAttention.cost(model, Shape(rows, length, 0, source, sources))
        return layers * found.meeting, layers * (found.flops - found.meeting)

    opening = cost(0, 0)[1]  # what is done with the kept ones in each pass
    making = cost(0, rows)[1] - opening
    met, asking = cost(1, 0)[0], cost(1, 0)[1] - opening
    opened = Work("", opening, opening, opening * steps, opening * steps)
    return [
        _linear("cross-attention: projections", asking, steps) + opened,
        _linear("cross-attention: attention", met, steps),
        Work("cross-attention: keys and values", making, 0, making * steps, making),
    ]
