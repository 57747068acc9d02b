"""Texts as a model reads them whole, and what it says of them, in batches of like length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from triptych.data.batches import Ids
from triptych.data.frames import Frame
from triptych.engine.precision import evaluating
from triptych.model import DecoderOnly, EncoderOnly
from triptych.text import Tokenizer

# Padded tokens of a batch: large enough to fill the processor, small enough to stay in its caches.
TOKENS = 6144


@dataclass(frozen=True)
class Row:
    """One text or two as ids, without specials.

    Attributes:
        cut: the end of a text was left out.
    """

    texts: list[Ids]
    cut: bool = False


class Reader:
    """Reads texts with a model of one stack.

    Args:
        max_length: tokens of the texts of a row, without specials, that the model takes at most.
    """

    def __init__(self, model: EncoderOnly | DecoderOnly, tokenizer: Tokenizer, max_length: int) -> None:
        self.model, self.tokenizer, self.max_length = model, tokenizer, max_length
        self.frame = Frame.of(tokenizer, model.config.form)
        self.positions = model.config.max_positions()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def room(self, texts: int) -> int:
        """Tokens, without specials, that a row of so many texts may have."""
        return min(self.max_length, (self.positions or 2**62) - 1 - texts)

    def row(self, texts: Sequence[Ids]) -> Row:
        """A row of one text or two; what is too long is cut at its end, always the longer text (Devlin et al.
        2019, their code)."""
        lengths = [len(text) for text in texts]
        over = sum(lengths) - self.room(len(texts))
        for _ in range(over):
            lengths[lengths.index(max(lengths))] -= 1
        return Row([text[:n] for text, n in zip(texts, lengths, strict=True)], over > 0)

    @torch.inference_mode()
    def read(self, rows: Sequence[Row]) -> Iterator[tuple[int, Tensor]]:
        """The model's output for each row, with its number; long rows first. Outputs of each token come with
        those of the padding on the right."""
        sizes = [self.frame.size(row.texts) for row in rows]
        order = sorted(range(len(rows)), key=lambda i: (-sizes[i], i))
        while order:
            count = max(1, TOKENS // sizes[order[0]])
            chunk, order = order[:count], order[count:]
            ids, layout, types = self.frame.read([rows[i].texts for i in chunk])
            with evaluating(self.model):
                said = self.model(ids.to(self.device), layout.to(self.device), types.to(self.device))
            yield from zip(chunk, said.float().cpu(), strict=True)
