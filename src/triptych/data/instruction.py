"""Conversations of which only a part is learned, packed whole.

ids      bos  u u u  r r eos          reads   bos u u u r r
learned   0   0 0 0  1 1  1           says     ·  · · r r eos
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from triptych.data.batches import IGNORE, Ids
from triptych.data.packing import PackedRows
from triptych.data.store import Numbers, runs


class InstructionData(PackedRows):
    """Examples as ids and, for each id, whether it is to be learned; specials are among them.

    What is read is all but the last id. An example is never cut: whoever makes this leaves out those of more
    than ``length`` + 1 ids, and says so; and those of which nothing is learned.
    """

    def __init__(
        self, examples: Sequence[tuple[Ids, Sequence[bool]]], length: int, tokens: int, seed: int = 1
    ) -> None:
        assert all(len(ids) == len(learned) and any(learned[1:]) for ids, learned in examples)
        spans = np.array([len(ids) - 1 for ids, _ in examples], np.int64)
        self.start = spans.cumsum() - spans
        self.ids = _flat([ids[:-1] for ids, _ in examples])
        said, learned = _flat([ids[1:] for ids, _ in examples]), _flat([flags[1:] for _, flags in examples])
        self.said = np.where(learned, said, IGNORE)
        super().__init__(spans, length, tokens, seed)

    def text(self, sequence: Numbers) -> tuple[Numbers, Numbers]:
        """Of these examples."""
        at = runs(self.start[sequence], self.spans[sequence])
        return self.ids[at], self.said[at]


def _flat(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.fromiter((value for row in rows for value in row), np.int64)
