"""From settings to what carries them out, and what each part is told of the place it stands in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

from triptych.config import ModelConfig, Part

if TYPE_CHECKING:
    from torch import Tensor

    from triptych.layout import Layout
    from triptych.model.positions import Position
    from triptych.model.state import LayerState
    from triptych.model.visible import Visible

C = TypeVar("C", bound=Callable[..., Any])
_PARTS: dict[type[Part], Any] = {}


def carries_out(settings: type[Part]) -> Callable[[C], C]:
    """Decorator: this class (or function) is what ``settings`` describe."""

    def register(cls: C) -> C:
        _PARTS[settings] = cls
        return cls

    return register


def part_of(settings: Part) -> Any:
    """What carries out these settings."""
    return _PARTS[type(settings)]


def carried_out(choice: type[Part]) -> Any:
    """What carries out settings of this class; None when nothing is known to."""
    return _PARTS.get(choice)


@dataclass(frozen=True)
class Place:
    """Where a part stands.

    Attributes:
        causal: its stack goes forwards only.
        source: its stack reads a source.
        depth: layers of its stack.
        layer: its own, from 0.
        other: layers of the other stack; 0 when there is none.
    """

    causal: bool
    source: bool = False
    depth: int = 1
    layer: int = 0
    other: int = 0

    @staticmethod
    def of(model: ModelConfig, causal: bool, layer: int = 0) -> Place:
        """A layer of the encoder (both directions) or the decoder (causal) of ``model``."""
        depth, other = model.encoder_depth, model.decoder_depth
        if causal:
            depth, other = other, depth
        return Place(causal, causal and model.form == "encoder_decoder", depth, layer, other)


@dataclass(frozen=True)
class Context:
    """What the parts of a layer are told of the pass they are in.

    Attributes:
        layout: of the tokens in the pass, ``[B, T]``.
        visible: which of the stack's tokens they may see.
        held: what the layer keeps between passes; None without a cache.
        source, source_layout: ``[N, S, C]`` hidden states to read from, and their layout; the hidden states
            are None once the state holds what was made of them.
        aux: where parts put what is to be added to the loss, each a mean over the pass's real tokens; None
            outside training.
        types: ``[B, T]`` of the tokens in the pass; None where all are 0.
    """

    layout: Layout
    visible: Visible
    position: Position
    held: LayerState | None = None
    source: Tensor | None = None
    source_layout: Layout | None = None
    aux: list[Tensor] | None = None
    types: Tensor | None = None

    def at(self, visible: Visible, held: LayerState | None) -> Context:
        """The same pass for another layer."""
        return replace(self, visible=visible, held=held)

    def remember(self, *new: Tensor) -> tuple[list[Tensor], Layout]:
        """Per-token tensors ``[B, G, T, D]`` of this pass joined to those of earlier passes, if there is a
        cache: ``[B, G, S, D]`` each, and the layout of the S tokens."""
        if self.held is None:
            return list(new), self.layout
        return self.held.append(*new), self.held.keys

    def of_source(self, make: Callable[[Tensor], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """What ``make`` gives of the source: from the state, if there is one that has it."""
        if self.held is not None and self.held.cross is not None:
            return self.held.cross
        assert self.source is not None
        kept = make(self.source)
        if self.held is not None:
            self.held.cross = kept
        return kept


@dataclass(frozen=True)
class Shape:
    """How much a pass computes.

    Attributes:
        batch: rows.
        length: new tokens a row.
        keys: tokens a row that are seen, cached ones included.
        source: tokens of a source; 0 without one.
        sources: source rows whose keys and values are made in this pass; 0 when they are cached.
        past: tokens a row that a state holds from earlier passes; None without a state.
    """

    batch: int
    length: int
    keys: int
    source: int = 0
    sources: int = 0
    past: int | None = None

    @property
    def tokens(self) -> int:
        """New tokens in all."""
        return self.batch * self.length


@dataclass(frozen=True)
class Cost:
    """What a part costs.

    Attributes:
        parameters: trained ones.
        flops: floating-point operations of its matrix products (a multiply-add counts two) in one forward
            pass.
        meeting: those of them in which tokens meet tokens: scores, and weighted values.
        spared: what the backward pass has less than twice ``flops``: products for gradients that nothing
            asks for.
    """

    parameters: int = 0
    flops: int = 0
    meeting: int = 0
    spared: int = 0

    def __add__(self, o: Cost) -> Cost:
        return Cost(*map(add, astuple(self), astuple(o)))

    def __mul__(self, times: int) -> Cost:
        return Cost(*(each * times for each in astuple(self)))


def linear_cost(tokens: int, inner: int, outer: int, bias: bool) -> Cost:
    """Cost of a linear map of ``tokens`` vectors."""
    return Cost(inner * outer + (outer if bias else 0), 2 * tokens * inner * outer)
