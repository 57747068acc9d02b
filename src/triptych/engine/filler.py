"""Texts with holes in, what may stand in them out: a masked encoder at its own task.

texts ─ split at [MASK], encode: [CLS] … [MASK] … [SEP] ─ batches ─ logits at the holes ─ the likeliest
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from triptych.data import pad
from triptych.engine.lines import are_text
from triptych.engine.precision import evaluating
from triptych.errors import UserError
from triptych.model import EncoderOnly
from triptych.text import Tokenizer
from triptych.text.vocabulary import SPECIALS as NAMES

CLS, SEP, MASK = "[CLS]", "[SEP]", "[MASK]"
SPECIALS = len(NAMES)  # ids below it are no text
TOKENS = 8192  # most padded tokens of a batch


@dataclass(frozen=True)
class Guess:
    """A token for a hole.

    Attributes:
        piece: its name, such as ``▁the``.
        probability: among all tokens.
        text: the whole text with it in the hole; other holes stay.
    """

    piece: str
    probability: float
    text: str


class Filler:
    """Fills holes, each by itself: what others are filled with is not known to it."""

    def __init__(self, model: EncoderOnly, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.cls, self.sep, self.mask = map(tokenizer.symbol_id, (CLS, SEP, MASK))
        self.words = tokenizer.size - len(tokenizer.symbols)  # ids from here on are symbols
        self.known = model.config.max_positions()

    def fill(self, texts: Sequence[str], top: int = 5, first: int = 0) -> list[list[list[Guess]]]:
        """For each text, for each of its holes in order, the ``top`` likeliest tokens, best first.

        Specials and symbols are no guesses. ``[MASK]`` alone is read as a symbol.

        Args:
            first: number of the first text in the whole input, for messages.

        Raises:
            UserError: a text without a hole, or longer than the model's positions; no guesses asked for.
        """
        if top < 1:
            raise UserError(f"{top} guesses are none", "top", "ask for 1 or more")
        are_text(texts, first)
        ids = [self._encode(text, f"line {number}") for number, text in enumerate(texts, first + 1)]
        out: list[list[list[Guess]]] = [[] for _ in ids]
        order = sorted(range(len(ids)), key=lambda i: (-len(ids[i]), i))
        while order:
            count = max(1, TOKENS // len(ids[order[0]]))
            chunk, order = order[:count], order[count:]
            for i, found in zip(chunk, self._fill([ids[i] for i in chunk], top), strict=True):
                out[i] = found
        return out

    def _encode(self, text: str, where: str) -> list[int]:
        if MASK not in text:
            raise UserError(
                f"there is no {MASK} in this text", where, f"write {MASK} where a token is missing"
            )
        if self.tokenizer.kind not in ("char", "byte"):
            text = text.replace(f" {MASK}", MASK)  # a blank belongs to the token after it, which is missing
        ids = [self.cls]
        for n, run in enumerate(text.split(MASK)):
            ids += [self.mask] if n else []
            ids += self.tokenizer.encode(run, begins=n == 0)
        ids.append(self.sep)
        if self.known is not None and len(ids) > self.known:
            what = f"{len(ids)} tokens with {CLS} and {SEP}, and the model knows {self.known} positions"
            raise UserError(what, where, "shorten it")
        return ids

    @torch.inference_mode()
    def _fill(self, rows: Sequence[list[int]], top: int) -> list[list[list[Guess]]]:
        ids, layout = pad(rows)
        device = next(self.model.parameters()).device
        with evaluating(self.model):
            hidden = self.model.encode(ids.to(device), layout.to(device))
            row, place = (ids == self.mask).nonzero(as_tuple=True)
            logits = self.model.output(hidden[row.to(device), place.to(device)]).float()
        p = logits.softmax(-1)[:, SPECIALS : self.words]
        best, token = (x.tolist() for x in p.topk(min(top, p.shape[1]), -1))
        out: list[list[list[Guess]]] = [[] for _ in rows]
        for r, t, values, tokens in zip(row.tolist(), place.tolist(), best, token, strict=True):
            said = zip(values, (SPECIALS + i for i in tokens), strict=True)
            out[r].append([self._guess(rows[r], t, i, value) for value, i in said])
        return out

    def _guess(self, row: list[int], place: int, token: int, probability: float) -> Guess:
        text = self.tokenizer.decode([*row[1:place], token, *row[place + 1 : -1]])
        return Guess(self.tokenizer.pieces([token])[0], probability, text)
