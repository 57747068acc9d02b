"""Which keys a query may see: predicates over layouts that compose with ``&`` and ``|``.

Shapes: B batch (1 where all rows are alike), T queries, S keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from triptych.config import parts
from triptych.layout import Layout
from triptych.model.registry import carries_out, part_of

Shape = Literal["all", "causal", "mixed"]


class Reach(NamedTuple):
    """What is seen at most: keys so many positions back from the query and ahead of it (None is no limit),
    the ``first`` keys of a sequence, and by its ``wide`` first queries, no more than ``first``, all keys."""

    back: int | None
    ahead: int | None
    first: int = 0
    wide: int = 0


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _most(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)


def near(query_BT: Tensor, key_BS: Tensor, most: int) -> Tensor:
    """``bool[B, T, S]``: no further apart than ``most``; no difference is stored."""
    q, k = query_BT[:, :, None], key_BS[:, None, :]
    return (k >= q - most) & (k <= q + most)


def all_of_few(query: Layout, key: Layout, most: int) -> Shape:
    """Where the first ``most`` positions see each other: all is seen when there are no more."""
    return "all" if query.plain and key.plain and max(query.length, key.length) <= most else "mixed"


class Visible:
    """A predicate over query and key layouts.

    Subclasses are values (frozen dataclasses): equal predicates give equal masks and share them.

    Attributes:
        relative: only differences of positions count, and not where a sequence begins (``is_relative``).
    """

    relative: ClassVar[bool] = False

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        """``bool[B, T, S]``: true where the query may see the key."""
        raise NotImplementedError

    def shape(self, query: Layout, key: Layout) -> Shape:
        """What is known without computing: everything is seen, or exactly the causal triangle is."""
        return "mixed"

    @property
    def reach(self) -> Reach:
        """Which keys are seen at most."""
        return Reach(None, None)

    def lower(self, query: Layout, key: Layout) -> Mask:
        """The mask for ``attend``, computed once for a pair of layouts."""

        def make() -> Mask:
            shape = self.shape(query, key)
            if shape == "all" or (shape == "causal" and query.length == 1 and key.length == 1):
                return Mask(None, causal=False)
            one = query.alike and key.alike
            seen = self(query.first(), key.first()) if one else self(query, key)
            return Mask(seen[:, None], causal=shape == "causal")

        # The key layout itself is part of the memo's key: it stays alive with the memo, so its identity
        # cannot be taken by another. A layout that held itself would wait for the garbage collector.
        return query.memo((self, None if key is query else key), make)

    def __and__(self, other: Visible) -> Visible:
        return Both(self, other)

    def __or__(self, other: Visible) -> Visible:
        return Either(self, other)


class Mask:
    """A lowered predicate.

    Attributes:
        seen: ``bool[B or 1, 1, T, S]``, or None when everything is seen.
        causal: the mask is exactly the causal triangle of one unpadded sequence a row.
    """

    def __init__(self, seen: Tensor | None, causal: bool = False) -> None:
        self.seen, self.causal = seen, causal
        self._bias: dict[torch.dtype, Tensor] = {}
        self._rows: Tensor | Literal[False] | None = False

    def bias(self, dtype: torch.dtype) -> Tensor | None:
        """``[B or 1, 1, T, S]``: 0 where seen, the lowest finite number where not, to be added to scores."""
        if self.seen is None:
            return None
        if dtype not in self._bias:
            zero = torch.zeros((), dtype=dtype, device=self.seen.device)
            self._bias[dtype] = torch.where(self.seen, zero, torch.finfo(dtype).min)
        return self._bias[dtype]

    @property
    def rows(self) -> Tensor | None:
        """``bool[B or 1, 1, T, 1]``: queries that see anything; None when all of them do."""
        if self._rows is False:
            some = None if self.seen is None or self.causal else self.seen.any(-1, keepdim=True)
            self._rows = None if some is None or bool(some.all()) else some
        return self._rows


@dataclass(frozen=True)
class Everything(Visible):
    """Every key, padding too."""

    relative = True

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        return query.segment.new_ones(query.batch, query.length, key.length, dtype=torch.bool)

    def shape(self, query: Layout, key: Layout) -> Shape:
        return "all"


@dataclass(frozen=True)
class SameSegment(Visible):
    """Keys of the query's own segment: never padding, never a neighbour in a packed row."""

    relative = True

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        q, k = query.segment[:, :, None], key.segment[:, None, :]
        return (q == k) & (q >= 0)

    def shape(self, query: Layout, key: Layout) -> Shape:
        return "all" if query.plain and key.plain else "mixed"


@dataclass(frozen=True)
class Causal(Visible):
    """Keys at or before the query's position."""

    relative = True

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        return key.position[:, None, :] <= query.position[:, :, None]

    def shape(self, query: Layout, key: Layout) -> Shape:
        return "causal" if query.plain and key.plain and query.length == key.length else "mixed"

    @property
    def reach(self) -> Reach:
        return Reach(None, 0)


@dataclass(frozen=True)
class Window(Visible):
    """Keys less than ``width`` positions away: with ``Causal``, ``width`` keys including the query's own
    (Beltagy et al. 2020, section 3.1)."""

    width: int
    relative = True

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        return near(query.position, key.position, self.width - 1)

    def shape(self, query: Layout, key: Layout) -> Shape:
        return all_of_few(query, key, self.width)

    @property
    def reach(self) -> Reach:
        return Reach(self.width - 1, self.width - 1)


@dataclass(frozen=True)
class Both(Visible):
    """What both predicates let see."""

    one: Visible
    other: Visible

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        return self.one(query, key) & self.other(query, key)

    def shape(self, query: Layout, key: Layout) -> Shape:
        shapes = {self.one.shape(query, key), self.other.shape(query, key)}
        return "mixed" if "mixed" in shapes else "causal" if "causal" in shapes else "all"

    @property
    def reach(self) -> Reach:
        one, other = sorted((self.one.reach, self.other.reach), key=lambda reach: reach.first)
        near = _least(one.back, other.back), _least(one.ahead, other.ahead)
        if one.first or not other.first or one.ahead is None:
            return Reach(*near, other.first, max(one.wide, other.wide))
        # Within what is near alone, or, of wide queries too, no further than a causal one sees.
        return Reach(*near, other.first + one.ahead) if one.back is None else one


@dataclass(frozen=True)
class Either(Visible):
    """What at least one of two predicates lets see."""

    one: Visible
    other: Visible

    def __call__(self, query: Layout, key: Layout) -> Tensor:
        return self.one(query, key) | self.other(query, key)

    def shape(self, query: Layout, key: Layout) -> Shape:
        shapes = {self.one.shape(query, key), self.other.shape(query, key)}
        return "all" if "all" in shapes else "mixed" if "mixed" in shapes else "causal"

    @property
    def reach(self) -> Reach:
        one, other = self.one.reach, self.other.reach
        near = _most(one.back, other.back), _most(one.ahead, other.ahead)
        return Reach(*near, max(one.first, other.first), max(one.wide, other.wide))


def is_relative(seen: Visible) -> bool:
    """Whether only differences of positions count in what is seen."""
    if isinstance(seen, Both | Either):
        return is_relative(seen.one) and is_relative(seen.other)
    return seen.relative


def sight(settings: parts.Sight, causal: bool) -> Visible:
    """What self-attention may see in a layer: the settings' choice, within a sequence."""
    seen: Visible = part_of(settings)(settings, causal)
    return SameSegment() & seen


def direction(causal: bool) -> Visible:
    """All that a stack may see."""
    return Causal() if causal else Everything()


@carries_out(parts.SeeEverything)
def _everything(settings: parts.SeeEverything, causal: bool) -> Visible:
    return direction(causal)


@carries_out(parts.SeeWindow)
def _window(settings: parts.SeeWindow, causal: bool) -> Visible:
    return direction(causal) & Window(settings.width)
