"""Texts with what is to be said of them: a class, a tag for each word, or which other text belongs to them.

classes   [CLS] a a a [SEP] (b b [SEP])     label  2
tags      [CLS] aa a aa a [SEP]             targets  · 4· 0 1· 4 ·       at the first piece of each word
pairs     [CLS] a0 [SEP]   label 0
          [CLS] a1 [SEP]         1
          [CLS] b0 [SEP]         ·           the second texts, in the rows after all first texts
          [CLS] b1 [SEP]         ·
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from triptych.data.batches import IGNORE, Batch, Dataset, Ids, pad
from triptych.data.frames import Frame
from triptych.data.store import Numbers
from triptych.text.vocabulary import UNK


@dataclass(frozen=True)
class Hiding:
    """Tokens that are not shown, anew each epoch, so that none is relied on (Iyyer et al. 2015, section 3.2).

    Attributes:
        share: of the tokens of a text.
        token: what stands in their place.
    """

    share: float = 0.0
    token: int = UNK

    def __call__(self, ids: Ids, rng: np.random.Generator) -> Ids:
        """The ids as they are shown."""
        if not self.share:
            return ids
        hidden = rng.random(len(ids)) < self.share
        return [self.token if hide else token for token, hide in zip(ids, hidden, strict=True)]


SHOWN = Hiding()


class ClassData(Dataset):
    """One text or two, and the number of their class."""

    def __init__(
        self,
        texts: Sequence[Sequence[Ids]],
        labels: Sequence[int],
        frame: Frame,
        tokens: int,
        seed: int = 1,
        hiding: Hiding = SHOWN,
    ) -> None:
        assert len(texts) == len(labels) and all(len(each) in (1, 2) for each in texts)
        super().__init__([frame.size(each) for each in texts], tokens, seed)
        self.texts, self.labels, self.frame, self.hiding = texts, labels, frame, hiding

    def batch(self, index: Sequence[int], epoch: int = 0) -> Batch:
        """The batch of these texts."""
        rngs = [self.draws(epoch, i) for i in index]
        shown = [[self.hiding(t, rng) for t in self.texts[i]] for i, rng in zip(index, rngs, strict=True)]
        ids, layout, types = self.frame.read(shown)
        labels = torch.tensor([self.labels[i] for i in index])
        return Batch(ids, layout, torch.full_like(ids, IGNORE), tuple(index), types=types, labels=labels)


class TagData(Dataset):
    """Sentences as words, each word as its pieces, and the number of each word's tag (or ``IGNORE``)."""

    def __init__(
        self,
        words: Sequence[Sequence[Ids]],
        tags: Sequence[Sequence[int]],
        frame: Frame,
        tokens: int,
        seed: int = 1,
        hiding: Hiding = SHOWN,
    ) -> None:
        assert len(words) == len(tags)
        for sentence, own in zip(words, tags, strict=True):
            assert len(sentence) == len(own), "a tag a word"
            assert sentence and all(sentence), "a sentence has words, and a word has pieces"
        self.words, self.tags, self.frame, self.hiding = words, tags, frame, hiding
        super().__init__([frame.size([flat(sentence)]) for sentence in words], tokens, seed)

    def batch(self, index: Sequence[int], epoch: int = 0) -> Batch:
        """The batch of these sentences."""
        shown = [[self.hiding(flat(self.words[i]), self.draws(epoch, i))] for i in index]
        ids, layout, types = self.frame.read(shown)
        targets, _ = pad([self.row(i) for i in index], fill=IGNORE)
        return Batch(ids, layout, targets, tuple(index), types=types)

    def row(self, i: int) -> list[int]:
        """What is to be said at each place of a sentence."""
        pairs = zip(self.words[i], self.tags[i], strict=True)
        said = [value for word, tag in pairs for value in (tag, *[IGNORE] * (len(word) - 1))]
        return [IGNORE, *said, IGNORE]


class PairData(Dataset):
    """Pairs of texts that belong together; each is told from all others of its batch.

    Both texts of a pair are rows of the same batch: P pairs are 2P rows, and the budget counts all of them.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[Ids, Ids]],
        frame: Frame,
        tokens: int,
        seed: int = 1,
        hiding: Hiding = SHOWN,
    ) -> None:
        super().__init__([(frame.size([a]), frame.size([b])) for a, b in pairs], tokens // 2, seed)
        self.pairs, self.frame, self.hiding = pairs, frame, hiding

    def slots(self, sizes: Numbers) -> int:
        """First and second texts are padded together."""
        return sizes.size * int(sizes.max())

    def batch(self, index: Sequence[int], epoch: int = 0) -> Batch:
        """The batch of these pairs: first texts, then second texts."""
        rngs = [self.draws(epoch, i) for i in index]
        texts = [
            [self.hiding(self.pairs[i][side], rng)]
            for side in (0, 1)
            for i, rng in zip(index, rngs, strict=True)
        ]
        ids, layout, types = self.frame.read(texts)
        labels = torch.tensor([*range(len(index)), *[IGNORE] * len(index)])
        whole = [tuple(self.pairs[i][side]) for side in (0, 1) for i in index]
        number = {text: n for n, text in enumerate(dict.fromkeys(whole))}
        return Batch(
            ids,
            layout,
            torch.full_like(ids, IGNORE),
            tuple(index),
            types=types,
            labels=labels,
            text=torch.tensor([number[text] for text in whole]),
        )


def flat(words: Sequence[Ids]) -> list[int]:
    """The pieces of all words."""
    return [piece for word in words for piece in word]
