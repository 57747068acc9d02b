"""Examples as ids → padded batches under a token budget, in a reproducible order.

    examples ─ plan(epoch): lists of example numbers ─ batch(numbers, epoch) ─ Batch

Every objective gives its data this shape: a ``Dataset`` whose ``batch`` makes a ``Batch``.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from triptych.data.store import Numbers
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.text.vocabulary import BOS, EOS, PAD

Ids = Sequence[int]
Side = Literal["left", "right"]

IGNORE = -1
"""In targets and labels: nothing is learned here."""


@dataclass(frozen=True)
class Cursor:
    """Where the reading of the data stands: the next batch to be given."""

    epoch: int = 0
    index: int = 0


@dataclass(frozen=True)
class Batch:
    """What a model reads, and what it is to say.

    Attributes:
        ids: ``[B, T]`` what is read: by the decoder of an encoder–decoder, else by the only stack; of images
            ``[B, T, K]`` the patches.
        layout: where these tokens are.
        targets: ``[B, T]`` what is to be said at each place, ``IGNORE`` where nothing is learned.
        index: which examples these are, in row order.
        source, source_layout: ``[B, S]`` what the encoder of an encoder–decoder reads.
        types: ``[B, T]`` the kind of each token, such as first (0) or second (1) text of a pair.
        labels: ``[B]`` what is to be said of each row as a whole, or ``IGNORE``.
        text: ``[B]`` a number of each row's text: rows that were the same before anything was hidden have the
            same.
    """

    ids: Tensor
    layout: Layout
    targets: Tensor
    index: tuple[int, ...]
    source: Tensor | None = None
    source_layout: Layout | None = None
    types: Tensor | None = None
    labels: Tensor | None = None
    text: Tensor | None = None

    @property
    def count(self) -> int:
        """How many things are learned from it: targets and labels."""
        labels = 0 if self.labels is None else int((self.labels != IGNORE).sum())
        return int((self.targets != IGNORE).sum()) + labels

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, slots, and slots of the source if there is one."""
        return (*self.ids.shape[:2], *(() if self.source is None else self.source.shape[1:]))

    @property
    def given(self) -> tuple[Tensor, Layout]:
        """The source and its layout, of a batch that has one."""
        assert self.source is not None and self.source_layout is not None
        return self.source, self.source_layout

    def to(self, device: torch.device | str) -> Batch:
        """The same on another device."""
        every = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: Any = {k: v.to(device) for k, v in every.items() if isinstance(v, Tensor | Layout)}
        return replace(self, **moved)


def pad(rows: Sequence[Ids], side: Side = "right", fill: int = PAD) -> tuple[Tensor, Layout]:
    """Ids ``[B, T]`` padded to the longest row, and their layout."""
    layout = Layout.padded([len(row) for row in rows], side)
    filled = [
        [*row, *[fill] * (layout.length - len(row))]
        if side == "right"
        else [*[fill] * (layout.length - len(row)), *row]
        for row in rows
    ]
    return torch.tensor(filled, dtype=torch.int64).view(len(rows), layout.length), layout


def translation_batch(
    source: Sequence[Ids], target: Sequence[Ids], index: Sequence[int], side: Side = "right"
) -> Batch:
    """Collate pairs; ids come without specials, which are added here, once."""
    source_ids, source_layout = pad([[*row, EOS] for row in source], side)
    ids, layout = pad([[BOS, *row] for row in target], side)
    targets, _ = pad([[*row, EOS] for row in target], side, IGNORE)
    return Batch(ids, layout, targets, tuple(index), source_ids, source_layout)


class Plan:
    """The batches of an epoch as lists of example numbers, each made when it is asked for.

    Args:
        order: example numbers, batch by batch.
        begin, stop: where each batch begins and stops among them.
    """

    def __init__(self, order: Numbers, begin: Numbers, stop: Numbers) -> None:
        self.order, self.begin, self.stop = order, begin, stop

    def __len__(self) -> int:
        return len(self.begin)

    def __getitem__(self, number: int) -> list[int]:
        examples: list[int] = self.order[self.begin[number] : self.stop[number]].tolist()
        return examples

    def __iter__(self) -> Iterator[list[int]]:
        return map(self.__getitem__, range(len(self)))


class Dataset(ABC):
    """Examples, and the order in which they are read.

    A batch holds examples of like length and at most ``tokens`` padded tokens on its larger side. The
    batches of an epoch, and their order, depend on ``seed`` and the epoch alone: a cursor is enough to go on
    exactly.

    Attributes:
        sizes: ``[examples, sides]`` the slots that each example takes on each side that is padded by itself
            (source, target; or one side).
    """

    def __init__(self, sizes: ArrayLike, tokens: int, seed: int = 1) -> None:
        sizes = np.asarray(sizes, np.int64)
        self.sizes = sizes[:, None] if sizes.ndim == 1 else sizes
        self.tokens, self.seed = tokens, seed

    def __len__(self) -> int:
        return len(self.sizes)

    @abstractmethod
    def batch(self, index: Sequence[int], epoch: int = 0) -> Batch:
        """The batch of these examples; what is drawn for them depends on seed, epoch and example alone."""

    @property
    def longest(self) -> int:
        """Slots of the longest side of any example."""
        return int(self.sizes.max())

    def sizes_in(self, epoch: int) -> Numbers:
        """The sizes of an epoch's examples: ``sizes``, unless they are cut anew each epoch."""
        return self.sizes

    def rng(self, *key: int | str) -> random.Random:
        """Random draws, the same for the same seed and key: an epoch, or an epoch and an example."""
        return random.Random("/".join(map(str, (self.seed, *key))))

    def draws(self, *key: int | str) -> np.random.Generator:
        """Random draws of numpy, the same for the same seed and key."""
        return np.random.default_rng(self.rng(*key).getrandbits(128))

    def plan(self, epoch: int) -> Plan:
        """The batches of an epoch, every example exactly once."""
        rng, count = self.rng(epoch), len(self)
        # Ties in length are broken anew each epoch, so that neighbours and batch borders change while
        # padding does not grow.
        first = self.sizes[:, 0] + np.fromiter((rng.random() for _ in range(count)), np.float64, count)
        order = np.lexsort([first, *self.sizes.T[1:]])
        width, borders = self.sizes.max(1, initial=0)[order], [0]
        while (at := borders[-1]) < count:
            coming = np.maximum.accumulate(width[at : at + self.tokens // width[at] + 1])
            taken = np.searchsorted(coming * np.arange(1, len(coming) + 1), self.tokens, "right")
            borders.append(at + max(int(taken), 1))
        shuffled = list(range(len(borders) - 1))
        rng.shuffle(shuffled)
        begin, stop = np.array([borders[:-1], borders[1:]], np.int64)[:, shuffled]
        return Plan(order, begin, stop)

    def padding(self, epoch: int = 0) -> float:
        """The share of an epoch's positions, on all sides, that is padding."""
        sizes = self.sizes_in(epoch)
        slots = sum(self.slots(sizes[batch]) for batch in self.plan(epoch))
        return 1 - int(sizes.sum()) / max(slots, 1)

    def slots(self, sizes: Numbers) -> int:
        """The positions, on all sides and with padding, of a batch of examples of these sizes."""
        return len(sizes) * int(sizes.max(0).sum())

    def read(self, cursor: Cursor) -> Iterator[tuple[Batch, Cursor]]:
        """Batches from ``cursor`` on, without end, each with the cursor that follows it.

        Raises:
            UserError: there is nothing at the cursor: no examples, or it was made with other data.
        """
        while True:
            plan = self.plan(cursor.epoch)
            if cursor.index >= len(plan):
                what = f"batch {cursor.index + 1} of an epoch of {len(plan)} cannot be read"
                raise UserError(what, "data", "go on with the data and the data.tokens of before")
            epoch = cursor.epoch
            for i in range(cursor.index, len(plan)):
                cursor = Cursor(epoch + 1, 0) if i + 1 == len(plan) else Cursor(epoch, i + 1)
                yield self.batch(plan[i], epoch), cursor

    def once(self) -> Iterator[Batch]:
        """Every example once, in batches of like length: for evaluation."""
        for index in self.plan(0):
            yield self.batch(index)

    def largest(self) -> Batch:
        """The batch with the most padded tokens: what memory must hold."""
        return self.batch(max(self.plan(0), key=lambda batch: self.slots(self.sizes[batch])))


class ParallelData(Dataset):
    """Encoded sentence pairs."""

    def __init__(self, source: Sequence[Ids], target: Sequence[Ids], tokens: int, seed: int = 1) -> None:
        # With the special each side carries.
        super().__init__(
            [(len(s) + 1, len(t) + 1) for s, t in zip(source, target, strict=True)], tokens, seed
        )
        self.source, self.target = source, target

    def batch(self, index: Sequence[int], epoch: int = 0) -> Batch:
        """The batch of these pairs."""
        return translation_batch([self.source[i] for i in index], [self.target[i] for i in index], index)
