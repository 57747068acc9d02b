"""Tokens hidden from a model that sees both sides (Devlin et al. 2019, section 3.1 and appendix A.1).

    text      [CLS] t1 t2 t3 t4 t5 [SEP]            15 % chosen: t2, t4, t5, of which
    reads     [CLS] t1 [MASK] t3 t4 x [SEP]         80 % are masked, 10 % become another, 10 % stay
    says        ·   ·   t2  ·  t4 t5  ·

What is chosen is drawn anew each epoch (Liu et al. 2019, section 4.1), and is the same for the same seed,
epoch and row. A document is cut into as few rows as hold it, all of nearly one size.

With next sentences a row is cut in two at a random place, ``[CLS] a [SEP] b [SEP]``. For half of the rows b
is what follows a (label 1); for the others it is as many tokens of another document, the last ones of one of
its rows (label 0). Neither the lengths nor the end of b tell which it is, only what it says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from triptych.config.objectives import MaskedObjective
from triptych.data.batches import IGNORE, Batch, Dataset, pad
from triptych.data.frames import Frame
from triptych.data.packing import check_budget
from triptych.data.store import Numbers, TokenStore
from triptych.errors import UserError
from triptych.text.characters import script_pattern
from triptych.text.tokenizer import Tokenizer
from triptych.text.vocabulary import SPECIALS

FOLLOWS, OTHER = 1, 0
"""The label of a row: its second text follows the first, or is from another document."""
TRIES = 16

_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")
# Of scripts that set no blanks between words.
_ALONE = script_pattern(("Han", "Kana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan", "Yi"))


@dataclass(frozen=True, eq=False)
class Facts:
    """What masking has to know of a vocabulary.

    Attributes:
        frame: ``[CLS]`` and ``[SEP]``.
        mask: ``[MASK]``.
        words: the ids that a text consists of: all but specials and symbols.
        begins, ends: ``[V]`` whether a word begins with an id, whatever stands before it, and whether one
            ends with it, whatever follows.
    """

    frame: Frame
    mask: int
    words: range
    begins: NDArray[np.bool_]
    ends: NDArray[np.bool_]

    @staticmethod
    def of(tokenizer: Tokenizer) -> Facts:
        """Of a tokenizer with the symbols ``[CLS]``, ``[SEP]`` and ``[MASK]``."""
        words = range(len(SPECIALS), tokenizer.size - len(tokenizer.symbols))
        pieces = tokenizer.pieces(range(tokenizer.size))
        begins, ends = np.array([borders(piece) for piece in pieces]).T
        return Facts(Frame.of(tokenizer, "encoder"), tokenizer.symbol_id("[MASK]"), words, begins, ends)


def borders(piece: str) -> tuple[bool, bool]:
    """Whether a word begins with a piece, and whether one ends with it whatever follows.

    A word is what stands between blanks; a punctuation mark, a line end, and a character of a script that
    sets no blanks (Chinese, Thai) are each one by themselves. Bytes of longer characters belong to the word
    before.
    """
    if _BYTES.fullmatch(piece):
        first, last = (chr(int(code, 16)) for code in (piece[3:5], piece[-3:-1]))
    else:
        first, last = piece[:1], piece[-1:]
    begins = not _within(first) or _ALONE.match(first) is not None
    ends = not (_within(last) or last in " \u2581") or _ALONE.match(last) is not None
    return begins, ends


def _within(character: str) -> bool:
    """Letters, digits, marks on them, and bytes of longer characters."""
    return character.isalnum() or "\u0300" <= character <= "\u036f" or "\x80" <= character <= "\xff"


class MaskedData(Dataset):
    """Documents in rows of at most ``length`` tokens, of which some are hidden.

    Raises:
        UserError: no room for text in a row, shares of more than all, or next sentences of one document.
    """

    def __init__(
        self,
        store: TokenStore,
        length: int,
        tokens: int,
        seed: int,
        settings: MaskedObjective,
        facts: Facts,
    ) -> None:
        check_budget(length, tokens)
        _check(settings, length)
        self.store, self.settings, self.facts = store, settings, facts
        frame = 3 if settings.next_sentence else 2
        self.begin, self.stop, self.document = store.cut(length - frame)
        text = self.stop - self.begin
        super().__init__(text + frame, tokens, seed)
        # For the choice of another text: rows by the tokens they have.
        self.by_size = np.argsort(text, kind="stable")
        self.sorted = text[self.by_size]
        if settings.next_sentence and len(np.unique(self.document)) < 2:
            raise UserError(
                "half of the second texts are to come from another document, and there is only one",
                "objective.next_sentence",
                "set data.documents=paragraph or line, give more files, or set objective.next_sentence=false",
            )

    def batch(self, index: Sequence[int], epoch: int = 0) -> Batch:
        """The batch of these rows, with what is hidden in an epoch."""
        read, said, types, labels = zip(*(self.row(i, self.draws(epoch, i)) for i in index), strict=True)
        ids, layout = pad(read)
        targets, kinds = pad(said, fill=IGNORE)[0], pad(types, fill=0)[0]
        follows = torch.tensor(labels) if self.settings.next_sentence else None
        return Batch(ids, layout, targets, tuple(index), types=kinds, labels=follows)

    def row(self, i: int, rng: np.random.Generator) -> tuple[list[int], list[int], list[int], int]:
        """What is read, what is to be said, types and label of a row."""
        texts, label = self.pair(i, rng) if self.settings.next_sentence else ([self.text(i)], IGNORE)
        ids = np.array(self.facts.frame.ids(texts), np.int64)
        chosen = self.chosen(ids, rng)
        read = self.hidden(ids, chosen, rng)
        return read.tolist(), np.where(chosen, ids, IGNORE).tolist(), self.facts.frame.types(texts), label

    def text(self, i: int) -> list[int]:
        """The tokens of a row."""
        ids: list[int] = self.store.ids[self.begin[i] : self.stop[i]].tolist()
        return ids

    # -- which are hidden ----------------------------------------------------------------------------------

    def chosen(self, ids: Numbers, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Which tokens are to be said: ``rate`` of them in the mean, one at least, never a special. With
        whole words it is that share of the words, every one as likely as any other."""
        plain = (ids >= self.facts.words.start) & (ids < self.facts.words.stop)
        if not plain.any():
            return plain
        word = np.arange(plain.sum())
        if self.settings.whole_words:
            word = np.unique(self.words(ids, plain)[plain], return_inverse=True)[1]
        words = int(word[-1]) + 1
        # Rounded at random, so that the mean is exact.
        count = max(1, int(self.settings.rate * words + rng.random()))
        taken = np.zeros(words, bool)
        taken[rng.permutation(words)[:count]] = True
        chosen = plain.copy()
        chosen[plain] = taken[word]
        return chosen

    def words(self, ids: Numbers, plain: NDArray[np.bool_]) -> Numbers:
        """The number of the word that each token belongs to; a special ends one."""
        begins = self.facts.begins[ids] | ~plain
        begins[1:] |= ~plain[:-1] | self.facts.ends[ids[:-1]]
        return begins.cumsum()

    def hidden(self, ids: Numbers, chosen: NDArray[np.bool_], rng: np.random.Generator) -> Numbers:
        """What is read: of those chosen some masked, some another token, the rest as they are."""
        place = np.flatnonzero(chosen)
        fate, words = rng.random(len(place)), self.facts.words
        masked, kept = fate < self.settings.mask, fate >= self.settings.mask + self.settings.random
        # Another: one of all others, so those from its own number on move up by one.
        other = rng.integers(words.start, max(words.stop - 1, words.start + 1), len(place))
        other += other >= ids[place]
        read = ids.copy()
        read[place] = np.where(masked, self.facts.mask, np.where(kept, ids[place], other))
        return read

    # -- next sentences ------------------------------------------------------------------------------------

    def pair(self, i: int, rng: np.random.Generator) -> tuple[list[list[int]], int]:
        """A row cut in two, or its first part and a text of another document; and which it is. Of one token
        nothing is left to tell from."""
        text = self.text(i)
        cut = int(rng.integers(1, max(len(text), 2)))
        first, second = text[:cut], text[cut:]
        if not second:
            return [first, second], IGNORE
        if rng.random() < 0.5:
            return [first, second], FOLLOWS
        return [first, self.text(self.other(i, len(second), rng))[-len(second) :]], OTHER

    def other(self, i: int, size: int, rng: np.random.Generator) -> int:
        """A row of another document, of at least ``size`` tokens if some tries find one."""
        fitting = self.by_size[np.searchsorted(self.sorted, size) :]
        for _ in range(TRIES):
            found = int(rng.choice(fitting))
            if self.document[found] != self.document[i]:
                return found
        left, right = np.searchsorted(self.document, self.document[i] + np.array([0, 1]))
        place = int(rng.integers(len(self.document) - (right - left)))
        return place if place < left else place + int(right - left)


def _check(settings: MaskedObjective, length: int) -> None:
    if settings.mask + settings.random > 1:
        what = (
            f"objective.mask {settings.mask} and objective.random {settings.random} are more than all chosen"
        )
        raise UserError(what, "objective.random", "let them add up to 1 or less")
    least = 5 if settings.next_sentence else 3
    if length < least:
        raise UserError(f"no text fits in {length} tokens", "data.length", f"set it to {least} or more")
