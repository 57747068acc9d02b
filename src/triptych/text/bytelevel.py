"""Byte-level BPE: merges over the bytes of words, so that every text has ids and no character is unknown.

    " the cat" ─ words ─▶ " the", " cat" ─ bytes ─▶ Ġ t h e │ Ġ c a t ─ merges ─▶ "Ġthe", "Ġcat"

    ids:  0 … 3 specials │ 4 … 259 the bytes │ 260 … what the merges make, in their order

The vocabulary is its list of merges, in the file format of GPT-2: a line a merge, each byte written as one
visible character (Radford et al. 2019, section 2.2).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable
from random import Random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from triptych.errors import UserError
from triptych.text.vocabulary import SPECIALS, Settings, sample_lines, too_small

__all__ = ["ByteLevel", "train_merges"]

HEADER = "#version: 0.2\n"
LEAST_SEEN = 2
"""A merge is learned from this many places at least."""


def _alphabet() -> list[str]:
    """The visible character of each byte: itself if it is one in Latin-1, else the next from U+0100."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (chr(0x100 + n) for n in range(256))
    return [chr(byte) if byte in seen else next(others) for byte in range(256)]


ALPHABET = _alphabet()
BYTE = {letter: byte for byte, letter in enumerate(ALPHABET)}


class ByteLevel:
    """A vocabulary of merges."""

    def __init__(self, model: bytes, settings: Settings) -> None:
        lines = model.decode("utf-8").removeprefix(HEADER).split("\n")[:-1]
        merges = [(left, right) for left, right in (line.split(" ") for line in lines)]
        ids = {letter: len(SPECIALS) + byte for byte, letter in enumerate(ALPHABET)}
        for left, right in merges:
            ids.setdefault(left + right, len(SPECIALS) + len(ids))
        self._ids, self._ranks = ids, {pair: rank for rank, pair in enumerate(merges)}
        self._bytes = [bytes(BYTE[letter] for letter in piece) for piece in ids]
        self._tokenizer = _untrained(models.BPE(vocab=ids, merges=merges), settings)
        self.size = len(SPECIALS) + len(ids)

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in found]

    def sample(self, text: str, alpha: float, seed: int) -> list[int]:
        rng = Random(seed)
        words = self._tokenizer.pre_tokenizer.pre_tokenize_str(text)
        return [self._ids[piece] for word, _ in words for piece in self._merged(word, alpha, rng)]

    def decode(self, ids: list[int]) -> str:
        return b"".join(map(self.spell, ids)).decode("utf-8", errors="replace")

    def spell(self, number: int) -> bytes:
        return self._bytes[number - len(SPECIALS)]

    def piece(self, number: int) -> str:
        raw = self.spell(number)
        text = raw.decode("utf-8", errors="replace")
        if text.isprintable() and "\ufffd" not in text:
            return text.replace(" ", "\u2581")
        return "".join(f"<0x{byte:02X}>" for byte in raw)

    def _merged(self, word: str, alpha: float, rng: Random) -> list[str]:
        """A word's pieces when each merge that could be made is left out with probability ``alpha``."""
        pieces = [*word, ""]  # "" is the end, and what went into a piece to its left
        left, right = list(range(-1, len(word))), list(range(1, len(word) + 2))
        queue: list[tuple[int, int, str, str]] = []

        def offer(at: int) -> None:
            pair = pieces[at], pieces[right[at]]
            if pair in self._ranks:
                heapq.heappush(queue, (self._ranks[pair], at, *pair))

        for at in range(len(word)):
            offer(at)
        while queue:
            _, at, *pair = heapq.heappop(queue)
            other = right[at]
            if [pieces[at], pieces[other]] != pair or rng.random() < alpha:
                continue
            pieces[at], pieces[other] = "".join(pair), ""
            right[at] = right[other]
            left[right[at]] = at
            for place in (left[at], at)[left[at] < 0 :]:
                offer(place)
        return [piece for piece in pieces if piece]


def train_merges(settings: Settings, lines: Iterable[str], size: int, extra: int) -> bytes:
    """The merges of a vocabulary of ``size`` entries or, when the text gives no more, fewer.

    Args:
        extra: ids that stand beside it; only errors speak of them.
    """
    least = len(SPECIALS) + 256
    if size < least:
        raise too_small(size + extra, least + extra)
    text = sample_lines(lines, keep_ends=True)
    if not text:
        raise UserError(
            "there is no text to learn a vocabulary from", mend="give at least one line that is not empty"
        )
    prefix = " " * settings.dummy_prefix
    tokenizer = _untrained(models.BPE(), settings)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIALS),
        initial_alphabet=ALPHABET,
        limit_alphabet=256,
        min_frequency=LEAST_SEEN,
        show_progress=False,
        special_tokens=[],
    )
    tokenizer.train_from_iterator((prefix + line for line in text), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return (HEADER + "".join(f"{left} {right}\n" for left, right in merges)).encode()


def _untrained(model: models.BPE, settings: Settings) -> Tokenizer:
    """The pipeline: words by the pattern of GPT-2, which leaves no character out, then bytes."""
    tokenizer = Tokenizer(model)
    steps: list[pre_tokenizers.PreTokenizer]
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    if settings.split_digits:
        steps = [pre_tokenizers.Digits(individual_digits=True), *steps]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return tokenizer
