"""Running text for a causal model: packed, each document by itself; or a stream, all documents as one.

    packed   reads  bos t1 t2 t3 │ t4 t5        a document of 5 in pieces of 4
             says   t1  t2 t3 t4 │ t5 eos
    stream   reads  eos t1 t2 t3 │ t4 t5 eos u1 │ u2 …
             says   t1  t2 t3 t4 │ t5 eos u1 u2 │ …

Either way every token of every document and every eos is said once an epoch, nothing else, and nothing is
dropped. Packed, a model knows that a document begins (bos) and never sees another one; streamed (Radford et
al. 2019), it sees whatever comes before in the window. A packed piece that does not begin its document has no
bos, and none reads eos: nothing comes after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from triptych.data.batches import Batch
from triptych.data.packing import PackedRows, Rows, laid
from triptych.data.store import Encoded, Numbers, TokenStore, runs
from triptych.text.vocabulary import BOS

__all__ = ["Encoded", "PackedData", "StreamData", "TokenStore"]


class PackedData(PackedRows):
    """Documents, long ones in pieces of ``length``, packed in rows of that length."""

    def __init__(self, store: TokenStore, length: int, tokens: int, seed: int = 1) -> None:
        size = np.diff(store.borders)
        count = -(-size // length)
        last = count.cumsum() - 1
        # There may be millions of them, so no more is held, and at no time, than is needed.
        spans = np.full(count.sum(), length, np.int32)
        spans[last] = size - (count - 1) * length
        self.store, self.begins = store, np.zeros(len(spans), bool)
        self.begins[last - count + 1] = True
        # One piece follows the other in the store, whatever their documents.
        self.start = spans.cumsum(dtype=np.int64) - spans
        super().__init__(spans, length, tokens, seed)

    def text(self, sequence: Numbers) -> tuple[Numbers, Numbers]:
        """Of these pieces."""
        size = self.spans[sequence]
        at = runs(self.start[sequence], size)
        read = self.store.ids[at].astype(np.int64)
        read[(size.cumsum() - size)[self.begins[sequence]]] = BOS
        return read, self.store.ids[at + 1].astype(np.int64)


class StreamData(Rows):
    """Windows of ``length`` over all documents in a row, an eos before each and after the last.

    The first window of an epoch has a random length, so that borders fall elsewhere each time (in epoch 0 it
    is whole); the last one holds what is left.
    """

    def __init__(self, store: TokenStore, length: int, tokens: int, seed: int = 1) -> None:
        super().__init__(length, tokens, seed)
        self.store = store
        self.sizes = self.sizes_in(0)

    def first(self, epoch: int) -> int:
        """The length of the first window."""
        return self.rng(epoch, "offset").randint(1, self.length) if epoch else self.length

    def windows(self, number: Numbers, epoch: int) -> tuple[Numbers, Numbers]:
        """Where these windows of an epoch begin, and their sizes."""
        stop = self.first(epoch) + number * self.length
        begin = np.maximum(stop - self.length, 0)
        return begin, np.minimum(stop, self.store.places) - begin

    def filled(self, epoch: int) -> Numbers:
        """How many tokens each window of an epoch holds."""
        after = self.store.places - self.first(epoch)
        count = 1 + -(-max(after, 0) // self.length) if self.store.places else 0
        return self.windows(np.arange(count), epoch)[1]

    def batch(self, index: Sequence[int], epoch: int = 0) -> Batch:
        """The batch of these windows of an epoch."""
        begin, size = self.windows(np.asarray(index), epoch)
        at = runs(begin, size)
        read, said = self.store.ids[at].astype(np.int64), self.store.ids[at + 1].astype(np.int64)
        return laid(read, said, size, np.arange(len(index)), index)
