"""Texts in, vectors of unit length out: the cosine of two texts is the product of their vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F

from triptych.engine.lines import are_text
from triptych.engine.rows import Reader
from triptych.engine.vectors import Vectors
from triptych.errors import UserError
from triptych.model import DecoderOnly, EncoderOnly
from triptych.text import Tokenizer
from triptych.text.characters import is_blank


@dataclass(frozen=True)
class Found:
    """One text that was found.

    Attributes:
        number: of the text, from 0.
        score: the cosine of its vector and the query's, from -1 to 1.
    """

    number: int
    score: float


class Embedder:
    """Makes vectors with a model and its tokenizer. Row n is that of text n.

    Args:
        max_length: tokens of a text that the model takes; what is beyond is cut.
    """

    def __init__(self, model: EncoderOnly | DecoderOnly, tokenizer: Tokenizer, max_length: int = 256) -> None:
        self.reader = Reader(model, tokenizer, max_length)

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return self.reader.model.config.dim

    def embed(self, texts: Sequence[str], first: int = 0) -> Vectors:
        """``[N, C]``: vectors of length 1; zeros, which are near nothing, for blank texts."""
        return self.embed_noting_cuts(texts, first)[0]

    def embed_noting_cuts(self, texts: Sequence[str], first: int = 0) -> tuple[Vectors, list[int]]:
        """The vectors, and the numbers of the texts that were cut.

        Args:
            first: number of the first text in the whole input, for messages.
        """
        are_text(texts, first)
        seen = [i for i, text in enumerate(texts) if not is_blank(text)]
        rows = [
            self.reader.row([ids]) for ids in self.reader.tokenizer.encode_batch([texts[i] for i in seen])
        ]
        out = np.zeros((len(texts), self.width), np.float32)
        for n, vector_C in self.reader.read(rows):
            out[seen[n]] = F.normalize(vector_C, dim=-1).numpy()
        return out, [i for i, row in zip(seen, rows, strict=True) if row.cut]

    def cuts(self, text: str) -> bool:
        """Whether the end of a text is not read."""
        return self.reader.row([self.reader.tokenizer.encode(text)]).cut

    def search(self, query: str, vectors_NC: Vectors, top: int = 5) -> list[Found]:
        """The ``top`` nearest of some vectors of this model, nearest first, then in order; zeros are left
        out.

        Raises:
            UserError: a blank query.
        """
        if is_blank(query):
            raise UserError("there is nothing to search for", "the query", "give a text")
        scores_N = vectors_NC @ self.embed([query])[0]
        filled = np.flatnonzero(vectors_NC.any(1))
        order = filled[np.argsort(-scores_N[filled], kind="stable")[:top]]
        return [Found(int(i), float(scores_N[i])) for i in order]
