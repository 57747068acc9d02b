"""The law of targets where there is one stack: a decoder's documents, and an encoder's hidden tokens.

decoder   reads  bos t1 t2 │ bos u1      packed, as training has them
          says   t1  t2 eos│ u1  eos
encoder   reads  [CLS] t1 [MASK] t3 [SEP]
          says     ·   ·   t2    ·   ·
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from triptych.config.objectives import MaskedObjective
from triptych.data import BOS, EOS, IGNORE, Batch, Facts, Frame, MaskedData, PackedData, TokenStore
from triptych.insight.laws.subject import SPECIALS, Subject
from triptych.insight.laws.verdict import Compared, true

RUNNING = "src/triptych/data/running.py"
MASKING = "src/triptych/data/masking.py"
SYMBOLS = 3  # [CLS], [SEP] and [MASK]: the highest ids


def documents(s: Subject) -> tuple[Batch, int, list[Compared]]:
    """A batch of some documents, how many targets the model has to learn there, and what was seen of it."""
    most = s.V - SPECIALS - SYMBOLS
    rows = [[SPECIALS + (token - SPECIALS) % most for token in row] for row in s.rows(4).main]
    with tempfile.TemporaryDirectory() as folder:
        store = TokenStore.write(Path(folder) / "documents", ((row, True) for row in rows))
        batch, seen = (packed if s.config.form == "decoder" else hidden)(s, store, rows)
        del store  # it maps a file of the folder
    shown = max(0, s.ahead - 1)  # by a prefix that is seen whole
    count = sum(len(row) + 1 - shown for row in rows) if s.config.form == "decoder" else batch.count
    return replace(batch, types=s.types(batch.ids)), count, seen


def packed(s: Subject, store: TokenStore, rows: list[list[int]]) -> tuple[Batch, list[Compared]]:
    """A decoder's: each document from its beginning to its end, once, beside others."""
    length = 2 * s.longest + 2
    data = PackedData(store, length, len(rows) * length, s.seed)
    batch = data.batch(range(len(data)))
    found = []
    for row in range(len(batch.ids)):
        for number in range(int(batch.layout.segment[row].max()) + 1):
            own = batch.layout.segment[row] == number
            found.append((batch.ids[row][own].tolist(), batch.targets[row][own].tolist()))
    want = [([BOS, *row], [*row, EOS]) for row in rows]
    figure = f"read and to be said: {sorted(found)[:2]} …, and of {sorted(want)[:2]} …"
    return batch, [true("documents, read and said", sorted(found) == sorted(want), figure, "", RUNNING)]


def hidden(s: Subject, store: TokenStore, rows: list[list[int]]) -> tuple[Batch, list[Compared]]:
    """An encoder's: what is to be said is what stood where something was hidden, and never a symbol."""
    frame, words = Frame(s.V - 3, s.V - 2), range(SPECIALS, s.V - SYMBOLS)
    facts = Facts(frame, s.V - 1, words, *np.ones((2, s.V), bool))
    length = s.longest + 2
    data = MaskedData(store, length, len(rows) * length, s.seed, MaskedObjective(rate=0.5), facts)
    batch = data.batch(range(len(data)))
    seen = []
    for row, ids, said, real in zip(rows, batch.ids, batch.targets, batch.layout.real, strict=True):
        whole, chosen = frame.ids([row]), said[real] != IGNORE
        mended = ids[real].where(~chosen, said[real]).tolist()
        text = f"read {ids[real].tolist()}, to be said {said[real].tolist()}, of {whole}"
        seen.append(true("a row with its targets put back", mended == whole, text, "", MASKING))
        ends = chosen.nonzero()[:, 0].tolist()
        inside = bool(ends) and min(ends) > 0 and max(ends) < len(whole) - 1
        seen.append(true("something is to be said, and no symbol", inside, text, "", MASKING))
    return batch, seen
