"""Spans taken out of a text, each told after its sentinel (Raffel et al. 2020, section 3.1.4, figure 2).

    text     t1 t2 t3 t4 t5 t6 t7 t8          t3 t4 and t6 t7 are taken out
    source   t1 t2 <0> t5 <1> t8 eos
    target   <0> t3 t4 <1> t6 t7 <2> eos      a last sentinel says that the text ends

``density`` of the tokens are taken out, in spans of ``mean_length`` on average; both numbers are rounded to
whole ones, halves to even, as the paper's own code rounds them. The tokens taken out are cut into that
many spans, and those that stay into the gaps between them, every way of cutting being equally likely.

That code differs in two points. Its texts always begin with a gap and end in a span; here either may stand at
either end, so that a blank at the start can be filled too. And it writes no last sentinel after a span that
ends the text; here, as in the paper's figure, a target always ends with one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from triptych.config.objectives import DenoiseObjective
from triptych.data.batches import Batch, Dataset, translation_batch
from triptych.data.packing import check_budget
from triptych.data.store import Numbers, TokenStore
from triptych.errors import UserError
from triptych.text.tokenizer import Tokenizer

Mask = NDArray[np.bool_]


class SpanData(Dataset):
    """Documents in rows whose source and target have at most ``length`` tokens.

    Args:
        sentinels: their ids, that of ``<extra_id_0>`` first.

    Raises:
        UserError: more spans in a row than sentinels, or a length in which no text fits.
    """

    def __init__(
        self,
        store: TokenStore,
        length: int,
        tokens: int,
        seed: int,
        settings: DenoiseObjective,
        sentinels: Sequence[int],
    ) -> None:
        check_budget(length, tokens)
        self.store, self.settings, self.sentinels = store, settings, np.asarray(sentinels, np.int64)
        fitting = np.arange(1, 2 * length)
        limit = int((np.maximum(*self.sides(fitting)) <= length).cumprod().sum())
        if not limit:
            raise UserError(f"no text fits in {length} tokens", "data.length", "set data.length to 4 or more")
        needed = int(self.noise(fitting[:limit])[1].max()) + 1
        if needed > len(sentinels):
            what = (
                f"rows of {limit} tokens of text have up to {needed - 1} spans, which take {needed} sentinels"
            )
            mend = f"set objective.sentinels to {needed}, or lower data.length"
            raise UserError(f"{what}; there are {len(sentinels)}", "objective.sentinels", mend)
        self.begin, self.stop, _ = store.cut(limit)
        super().__init__(np.stack(self.sides(self.stop - self.begin), 1), tokens, seed)

    def noise(self, text: Numbers) -> tuple[Numbers, Numbers]:
        """How many tokens are taken out of texts of so many tokens, and in how many spans; one at least."""
        taken = np.clip(np.rint(text * self.settings.density), 1, np.maximum(text - 1, 1)).astype(np.int64)
        spans = np.rint(taken / self.settings.mean_length).astype(np.int64)
        return taken, np.clip(spans, 1, np.minimum(taken, text - taken + 1))

    def sides(self, text: Numbers) -> tuple[Numbers, Numbers]:
        """Tokens of source and target, for texts of so many tokens."""
        taken, spans = self.noise(text)
        return text - taken + spans + 1, taken + spans + 2

    def chosen(self, text: int, rng: np.random.Generator) -> Mask:
        """Which tokens of a text are taken out."""
        taken, spans = (int(number) for number in self.noise(np.array(text)))
        # Gaps at the ends may be empty: they are cut one larger and lose one.
        gaps = segmented(text - taken + 2, spans + 1, rng)
        gaps[[0, -1]] -= 1
        lengths = np.empty(2 * spans + 1, np.int64)
        lengths[::2], lengths[1::2] = gaps, segmented(taken, spans, rng)
        return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)

    def batch(self, index: Sequence[int], epoch: int = 0) -> Batch:
        """The batch of these rows, with the spans of an epoch."""
        sides = []
        for i in index:
            text = self.store.ids[self.begin[i] : self.stop[i]].astype(np.int64)
            out = self.chosen(len(text), self.draws(epoch, i))
            sides.append(corrupted(text, out, self.sentinels))
        return translation_batch([s.tolist() for s, _ in sides], [t.tolist() for _, t in sides], index)


def segmented(items: int, parts: int, rng: np.random.Generator) -> Numbers:
    """The sizes of ``parts`` runs, none empty, that ``items`` are cut into; every way equally likely."""
    cuts = np.sort(rng.choice(items - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [items]]))


def corrupted(text: Numbers, out: Mask, sentinels: Numbers) -> tuple[Numbers, Numbers]:
    """Source and target, without bos and eos, of a text of which the tokens ``out`` are taken out."""
    begins = out & ~np.concatenate([[False], out[:-1]])
    count = int(begins.sum())
    source = np.where(begins, sentinels[begins.cumsum() - 1], text)[~out | begins]
    target = np.insert(text[out], np.flatnonzero(begins[out]), sentinels[:count])
    return source, np.append(target, sentinels[count])


def sentinel_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids of a tokenizer's ``<extra_id_0>``, ``<extra_id_1>`` …, in the order of their numbers."""
    named = [re.fullmatch(r"<extra_id_(\d+)>", symbol) for symbol in tokenizer.symbols]
    found = sorted((match for match in named if match), key=lambda match: int(match[1]))
    return [tokenizer.symbol_id(match[0]) for match in found]
