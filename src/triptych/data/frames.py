"""How one text or two become what an encoder, or a decoder that reads texts as a whole, is given.

encoder   [CLS] a a a [SEP]      [CLS] a a a [SEP] b b [SEP]
types       0   0 0 0   0          0   0 0 0   0   1 1   1
decoder    bos  a a a  eos        bos  a a a  eos  b b  eos
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from triptych.config.objectives import Form
from triptych.data.batches import Ids, pad
from triptych.layout import Layout
from triptych.text.tokenizer import Tokenizer
from triptych.text.vocabulary import BOS, EOS


@dataclass(frozen=True)
class Frame:
    """What stands before the first text, and after each."""

    first: int
    last: int

    @staticmethod
    def of(tokenizer: Tokenizer, form: Form) -> Frame:
        """That of a form of model.

        Raises:
            UserError: an encoder's tokenizer without the symbols ``[CLS]`` and ``[SEP]``.
        """
        if form == "encoder":
            return Frame(tokenizer.symbol_id("[CLS]"), tokenizer.symbol_id("[SEP]"))
        return Frame(BOS, EOS)

    def ids(self, texts: Sequence[Ids]) -> list[int]:
        """One text or two, in the frame."""
        return [self.first, *(token for text in texts for token in (*text, self.last))]

    def types(self, texts: Sequence[Ids]) -> list[int]:
        """0 for the first text and what belongs to it, 1 for the second."""
        return [0, *(number for number, text in enumerate(texts) for _ in range(len(text) + 1))]

    def size(self, texts: Sequence[Ids]) -> int:
        """How many ids they are in the frame."""
        return 1 + sum(len(text) + 1 for text in texts)

    def read(self, rows: Sequence[Sequence[Ids]]) -> tuple[Tensor, Layout, Tensor]:
        """Ids, layout and types of rows of one text or two, padded: ``[B, T]`` each."""
        ids, layout = pad([self.ids(texts) for texts in rows])
        return ids, layout, pad([self.types(texts) for texts in rows], fill=0)[0]
