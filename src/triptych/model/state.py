"""All that is carried between decoding steps.

Shapes: R rows, N sources (R = N · beams), G key/value heads, S slots, D width of what is kept.

A layer keeps three kinds of things: per-token tensors in slots (keys and values, latents, inputs of a
convolution), what it has made of the source (once), and a carry that is replaced at every step (recurrent
sums). Slots of layers that look equally far back stand in one ``Book``, which knows whose they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from triptych.layout import Layout

CHUNK = 16  # slots added at a time: growth copies are rare, and unused slots few


def filling(reach: int | None, back: int, chunks: Sequence[int]) -> Iterator[int]:
    """Slots in use after each of some passes of so many tokens (see ``Book``)."""
    used = 0
    for length in chunks:
        if reach is not None and used + length > reach + back + CHUNK:
            used = min(used, reach + back)
        used += length
        yield used


def slots(reach: int | None, back: int, chunks: Sequence[int]) -> int:
    """Slots in use after all of them."""
    return [0, *filling(reach, back, chunks)][-1]


class Book:
    """Whose the slots are, for layers whose queries see as far back as each other.

    With a ``reach``, a slot is dropped once ``reach + back`` later tokens of its row have been stored: no
    query can see it again, also after ``back`` tokens are forgotten. Slots are dropped some at a time, when
    there are ``CHUNK`` too many, and what is kept moves to the right: a token costs no copy of the whole.

    Attributes:
        keys: layout of the tokens in slots, ``[R, S]``, those of the pass included.
        start: the slot of the first token of the pass.
        moved: ``[R, S']`` the slots that were kept when some were dropped for this pass; else None.
        total: tokens stored so far, dropped ones included.
    """

    def __init__(self, reach: int | None, back: int) -> None:
        self.reach, self.back = reach, back
        self.start = self.stop = self.total = 0
        self.moved: Tensor | None = None
        self._plain = self._alike = True
        self._dropped, self._lowest = False, 0
        # [3, R, capacity]: positions, segments, and which of the tokens stored it is: slots lose their order.
        self._tokens: Tensor | None = None

    def advance(self, layout: Layout) -> None:
        """Make room for the tokens of a pass, before layers store what is theirs."""
        self.moved = None
        if self.reach is not None and self.stop + layout.length > self.reach + self.back + CHUNK:
            self._drop(self.reach + self.back)
        self._plain = layout.plain and (self.start == self.stop == 0)
        self._alike = self._alike and layout.alike
        self.start, self.stop = self.stop, self.stop + layout.length
        number = torch.arange(self.total, self.total + layout.length, device=layout.position.device)
        self.total += layout.length
        new = torch.stack((layout.position, layout.segment, number.expand_as(layout.position)))
        self._tokens = _store(self._tokens, new, self.start, 2)
        self._see()

    def _drop(self, most: int) -> None:
        if self.stop <= most or self._tokens is None:
            return
        real = self._tokens[1, :, : self.stop] >= 0
        later = real.flip(1).cumsum(1).flip(1) - real.long()  # real tokens stored after this one
        alive = real & (later < most)
        self.moved = alive.long().argsort(dim=1, stable=True)[:, self.stop - most :]
        dead = ~alive.gather(1, self.moved)
        self._tokens = self._tokens.gather(2, self.moved.expand(3, -1, -1))
        self._tokens[1].masked_fill_(dead, -1)
        self.stop, self._dropped = most, True
        self._lowest = max(self._lowest, self.total - self.back)

    def select(self, rows: Tensor) -> None:
        """Keep the given rows in the given order."""
        if self._tokens is not None:
            self._tokens = self._tokens[:, rows]
            self._see()

    def check(self, length: int) -> None:
        """Raises ValueError when slots would be missed after ``truncate(length)``."""
        gone = self.total - length
        if length and self._dropped and (gone > self.back or length < self._lowest):
            raise ValueError(
                f"a state made to go back {self.back} tokens cannot go back {gone} to the first {length}"
            )

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` tokens stored."""
        self.total = length
        if not length:
            self.__dict__.pop("keys", None)
            self.__init__(self.reach, self.back)  # type: ignore[misc]
        elif not self._dropped:
            self.stop = length
            self._see()
        elif self._tokens is not None:
            position, segment, number = self._tokens
            self._tokens = torch.stack((position, segment.masked_fill(number >= length, -1), number))
            self._see()

    def _see(self) -> None:
        assert self._tokens is not None
        position, segment, _ = self._tokens[:, :, : self.stop]
        self.keys = Layout(position, segment, self._plain, self._alike)


class LayerState:
    """What one layer keeps.

    Attributes:
        kept: per-token tensors ``[R, G, capacity, D]``; heads are stored unexpanded.
        cross: what was made of the source, ``[N, …]`` each; once.
        carry: tensors ``[R, …]`` that each step replaces; None before the first.
    """

    def __init__(self, book: Book) -> None:
        self.book = book
        self.kept: list[Tensor] = []
        self.cross: tuple[Tensor, ...] | None = None
        self.carry: tuple[Tensor, ...] | None = None
        self._past: list[tuple[int, tuple[Tensor, ...]]] = []

    @property
    def keys(self) -> Layout:
        """Layout of the tokens in slots."""
        return self.book.keys

    def append(self, *new: Tensor) -> list[Tensor]:
        """Store per-token tensors ``[R, G, T, D]`` of the pass; with the earlier ones, ``[R, G, S, D]``."""
        held: list[Tensor | None] = list(self.kept) or [None] * len(new)
        if (moved := self.book.moved) is not None:
            held = [_take(x, moved) for x in held if x is not None]
        self.kept = [_store(x, y, self.book.start, 2) for x, y in zip(held, new, strict=True)]
        return [x[:, :, : self.book.stop] for x in self.kept]

    def carry_on(self, *carry: Tensor) -> None:
        """Replace the carry by that after the pass."""
        self.carry = carry
        if self.book.back:
            self._past = [*self._past, (self.book.total, carry)][-self.book.back - 1 :]

    def select(self, rows: Tensor, sources: Tensor | None) -> None:
        """See ``State.select``."""
        self.kept = [x[:, :, : self.book.stop][rows] for x in self.kept]  # only the slots in use travel
        if self.carry is not None:
            self.carry = tuple(x[rows] for x in self.carry)
        self._past = [(n, tuple(x[rows] for x in carry)) for n, carry in self._past]
        if self.cross is not None and sources is not None:
            self.cross = tuple(x[sources] for x in self.cross)

    def truncate(self, length: int) -> None:
        """See ``State.truncate``."""
        if not length:
            self.kept, self.carry, self._past = [], None, []
        elif self.carry is not None and self.book.total != length:
            past = [(n, carry) for n, carry in self._past if n <= length]
            if not past or past[-1][0] != length:
                raise ValueError(
                    f"a recurrent state cannot go back to {length} tokens: it goes back to the end of a "
                    f"pass, {self.book.back} passes at most"
                )
            self._past, self.carry = past, past[-1][1]

    def detach(self) -> None:
        """See ``State.detach``. Slots are copied: what is stored next may not change those that an earlier
        pass's gradients need."""
        self.kept = [x.detach().clone() for x in self.kept]
        self.carry = self.carry and tuple(x.detach() for x in self.carry)
        self.cross = self.cross and tuple(x.detach() for x in self.cross)
        self._past = [(n, tuple(x.detach() for x in carry)) for n, carry in self._past]

    def tensors(self) -> list[Tensor]:
        """Everything in use."""
        kept = [x[:, :, : self.book.stop] for x in self.kept]
        past = [x for _, carry in self._past[:-1] for x in carry]
        return [*kept, *(self.cross or ()), *(self.carry or ()), *past]


class State:
    """The cache of a stack.

    Attributes:
        layers: what each layer keeps.
        source: layout of the source, ``[N, S]``; None without one.
        beams: rows a source. Rows of a source stand together: row r reads source r // beams, and the
            source's keys are stored once, not once a beam.
        length: tokens stored so far.
    """

    def __init__(
        self, reaches: Sequence[int | None], source: Layout | None = None, beams: int = 1, back: int = 0
    ) -> None:
        """
        Args:
            reaches: how many positions back each layer looks; None is without limit.
            back: how many tokens ``truncate`` will forget at most. Only states that drop what they no longer
                need (windows, recurrences) must know.
        """
        books = {reach: Book(reach, back) for reach in dict.fromkeys(reaches)}
        self.layers = [LayerState(books[reach]) for reach in reaches]
        self.source, self.beams, self.length = source, beams, 0
        self._newest = Book(1, back)
        self._all = [*books.values(), self._newest]

    def next(self) -> Layout:
        """Where the next token of each row stands, ``[R, 1]``."""
        return self._newest.keys.next()

    def advance(self, layout: Layout) -> None:
        """Make room for the tokens of ``layout``. Called once a pass, before the layers store theirs."""
        self.length += layout.length
        for book in self._all:
            book.advance(layout)

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Keep the given rows in the given order (beam search moves and drops hypotheses).

        ``sources``: which sources remain, when some are finished; row r of the result must belong to
        ``sources[r // beams]``.
        """
        for layer in self.layers:
            layer.select(rows, sources)
        for book in self._all:
            book.select(rows)
        if self.source is not None and sources is not None:
            self.source = self.source.select(sources)

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` tokens. Raises ValueError when more must be forgotten than the
        state was made for."""
        assert 0 <= length <= self.length
        for book in self._all:
            book.check(length)
        for layer in self.layers:
            layer.truncate(length)
        for book in self._all:
            book.truncate(length)
        self.length = length

    def detach(self) -> None:
        """Cut all that is held from the gradients of the passes that made it: a memory of earlier segments of
        a text, in training (Dai et al. 2019, section 3.2)."""
        for layer in self.layers:
            layer.detach()

    def bytes(self) -> int:
        """Memory in use, in bytes: of the tokens so far and of the source."""
        return sum(x.numel() * x.element_size() for layer in self.layers for x in layer.tensors())


def _store(held: Tensor | None, new: Tensor, start: int, axis: int) -> Tensor:
    """``held`` with ``new`` from slot ``start`` on, in more room if need be."""
    stop = start + new.shape[axis]
    if held is None or held.shape[axis] < stop:
        shape = list(new.shape)
        shape[axis] = -(-stop // CHUNK) * CHUNK
        # What stands in unused slots is never read: what is given out are the used ones.
        grown = new.new_empty(shape)
        if held is not None:
            grown.narrow(axis, 0, start).copy_(held.narrow(axis, 0, start))
        held = grown
    held.narrow(axis, start, stop - start).copy_(new)
    return held


def _take(held: Tensor, slots_RS: Tensor) -> Tensor:
    index = slots_RS[:, None, :, None].expand(-1, held.shape[1], -1, held.shape[3])
    return held.gather(2, index)
