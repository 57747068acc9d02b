"""Hidden tokens against those of ``transformers``: the same shares of the same fates."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch

from reading import stored
from triptych.config.objectives import MaskedObjective
from triptych.data import EOS, IGNORE, Facts, Frame, MaskedData, TokenStore

V, ROWS, TEXT = 5000, 500, 60
CLS, SEP, MASK = V, V + 1, V + 2


def _theirs(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    from tokenizers import Tokenizer, models
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    names = {"[PAD]": 0, "[UNK]": 1, "[CLS]": CLS, "[SEP]": SEP, "[MASK]": MASK}
    names |= {f"w{n}": n for n in range(2, V)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(names, "[UNK]")),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    collate = DataCollatorForLanguageModeling(tokenizer, mlm=True, mlm_probability=0.15)
    out = collate([{"input_ids": row.tolist()} for row in ids])
    return out["input_ids"], out["labels"].where(out["labels"] != -100, IGNORE)


def _fates(read: torch.Tensor, said: torch.Tensor) -> list[int]:
    """How many were left alone, masked, changed, kept."""
    alone, masked, kept = said == IGNORE, read == MASK, read == said
    seen = Counter(torch.where(alone, 0, torch.where(masked, 1, torch.where(kept, 3, 2))).flatten().tolist())
    return [seen[n] for n in range(4)]


def test_fates_are_those_of_transformers() -> None:
    distinct = stored([TEXT] * ROWS)
    ids = np.where(distinct.ids > EOS, distinct.ids % (V - 4) + 4, EOS)
    facts = Facts(Frame(CLS, SEP), MASK, range(4, V), np.ones(V + 3, bool), np.zeros(V + 3, bool))
    ours, theirs = np.zeros(4), np.zeros(4)
    store = TokenStore(ids, distinct.borders, 0)
    data = MaskedData(store, TEXT + 2, 10 * (TEXT + 2), 1, MaskedObjective(), facts)
    for epoch in range(3):
        for index in data.plan(epoch):
            batch = data.batch(index, epoch)
            ours += _fates(batch.ids, batch.targets)
            theirs += _fates(*_theirs(batch.ids.where(batch.targets == IGNORE, batch.targets)))
    # Two samples of one law: χ² of the table of both, with 3 degrees of freedom; 0.999 is 16.3.
    both = ours + theirs
    assert ours.sum() == theirs.sum() == 3 * ROWS * (TEXT + 2)
    assert sum(((side - both / 2) ** 2 / (both / 2)).sum() for side in (ours, theirs)) < 16.3
