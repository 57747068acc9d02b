"""Pairs of id sequences → padded batches under a token budget, in a reproducible order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from triptych.errors import UserError
from triptych.layout import Layout
from triptych.text.vocabulary import BOS, EOS, PAD

Ids = Sequence[int]


@dataclass(frozen=True)
class Cursor:
    """Where the reading of the data stands: the next batch to be given."""

    epoch: int = 0
    index: int = 0


@dataclass(frozen=True)
class TranslationBatch:
    """A batch of sentence pairs.

    Attributes:
        source: ``[B, S]`` source ids, each row ending with eos.
        target_in: ``[B, T]`` bos and the target ids: what the decoder reads.
        target_out: ``[B, T]`` the target ids and eos: what it is to say, ``target_in`` shifted once.
        index: which pairs these are, in row order.
    """

    source: Tensor
    source_layout: Layout
    target_in: Tensor
    target_out: Tensor
    target_layout: Layout
    index: tuple[int, ...]

    def to(self, device: torch.device | str) -> TranslationBatch:
        """The same on another device."""
        return TranslationBatch(
            self.source.to(device),
            self.source_layout.to(device),
            self.target_in.to(device),
            self.target_out.to(device),
            self.target_layout.to(device),
            self.index,
        )


def pad(rows: Sequence[Ids], side: Literal["left", "right"] = "right") -> tuple[Tensor, Layout]:
    """Ids ``[B, T]`` padded to the longest row, and their layout."""
    layout = Layout.padded([len(row) for row in rows], side)
    filled = [
        [*row, *[PAD] * (layout.length - len(row))]
        if side == "right"
        else [*[PAD] * (layout.length - len(row)), *row]
        for row in rows
    ]
    return torch.tensor(filled, dtype=torch.int64).view(len(rows), layout.length), layout


def translation_batch(
    source: Sequence[Ids],
    target: Sequence[Ids],
    index: Sequence[int],
    side: Literal["left", "right"] = "right",
) -> TranslationBatch:
    """Collate pairs; ids come without specials, which are added here, once."""
    source_ids, source_layout = pad([[*row, EOS] for row in source], side)
    target_in, target_layout = pad([[BOS, *row] for row in target], side)
    target_out, _ = pad([[*row, EOS] for row in target], side)
    return TranslationBatch(source_ids, source_layout, target_in, target_out, target_layout, tuple(index))


class ParallelData:
    """Encoded sentence pairs, and the order in which they are read.

    A batch holds pairs of like length and at most ``tokens`` padded tokens on its larger side. The batches of
    an epoch, and their order, depend on ``seed`` and the epoch alone: a cursor is enough to go on exactly.
    """

    def __init__(self, source: Sequence[Ids], target: Sequence[Ids], tokens: int, seed: int = 1) -> None:
        assert len(source) == len(target)
        self.source, self.target, self.tokens, self.seed = source, target, tokens, seed
        # With the special each side carries.
        self.lengths = [(len(s) + 1, len(t) + 1) for s, t in zip(source, target, strict=True)]

    def __len__(self) -> int:
        return len(self.source)

    @property
    def longest(self) -> int:
        """Ids of the longest side of any pair, specials not counted."""
        return max(max(pair) for pair in self.lengths) - 1

    def plan(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch, as lists of pair numbers; every pair exactly once."""
        rng = random.Random(f"{self.seed}/{epoch}")
        # Ties in length are broken anew each epoch, so that neighbours and batch borders change while
        # padding does not grow.
        key = [(t, s + rng.random()) for s, t in self.lengths]
        order = sorted(range(len(self)), key=key.__getitem__)
        batches: list[list[int]] = []
        batch: list[int] = []
        widest = 0
        for i in order:
            width = max(widest, *self.lengths[i])
            if batch and width * (len(batch) + 1) > self.tokens:
                batches.append(batch)
                batch, width = [], max(self.lengths[i])
            batch.append(i)
            widest = width
        if batch:
            batches.append(batch)
        rng.shuffle(batches)
        return batches

    def padding(self, epoch: int = 0) -> float:
        """The share of an epoch's positions, on both sides, that is padding."""
        real = slots = 0
        for batch in self.plan(epoch):
            for side in (0, 1):
                widths = [self.lengths[i][side] for i in batch]
                real, slots = real + sum(widths), slots + max(widths) * len(widths)
        return 1 - real / slots

    def batch(self, index: Sequence[int]) -> TranslationBatch:
        """The batch of these pairs."""
        return translation_batch([self.source[i] for i in index], [self.target[i] for i in index], index)

    def read(self, cursor: Cursor) -> Iterator[tuple[TranslationBatch, Cursor]]:
        """Batches from ``cursor`` on, without end, each with the cursor that follows it.

        Raises:
            UserError: there is nothing at the cursor: no pairs, or it was made with other data.
        """
        while True:
            plan = self.plan(cursor.epoch)
            if cursor.index >= len(plan):
                what = f"batch {cursor.index + 1} of an epoch of {len(plan)} cannot be read"
                raise UserError(what, "data", "go on with the data and the data.tokens of before")
            for i in range(cursor.index, len(plan)):
                last = i + 1 == len(plan)
                cursor = Cursor(cursor.epoch + 1, 0) if last else Cursor(cursor.epoch, i + 1)
                yield self.batch(plan[i]), cursor

    def once(self) -> Iterator[TranslationBatch]:
        """Every pair once, in batches of like length: for evaluation."""
        for index in self.plan(0):
            yield self.batch(index)

    def largest(self) -> TranslationBatch:
        """The batch with the most padded tokens: what memory must hold."""
        plan = self.plan(0)
        return self.batch(
            max(plan, key=lambda b: len(b) * sum(max(self.lengths[i][k] for i in b) for k in (0, 1)))
        )
