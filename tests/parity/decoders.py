"""A decoder of ours and one of ``transformers``: what must agree on padded documents."""

from __future__ import annotations

from typing import Any

import torch

from parity.weights import Match
from triptych.config.objectives import CausalObjective
from triptych.data import BOS, EOS, IGNORE, Batch
from triptych.data.batches import pad
from triptych.objectives import TokenLoss

DOCUMENTS = [[5, 9, 4, 11], [7, 8, 20, 6, 6, 13, 9, 28], [], [10, 5, 5, 12, 21, 4]]


def agree(ours: Any, theirs: Any, match: Match, side: Any, rtol: float) -> None:
    """Logits in double precision; the loss of each next token, its end included, and all gradients."""
    ours, theirs = ours.double(), theirs.double().train()
    ids, layout = pad([[BOS, *one] for one in DOCUMENTS], side)
    said, _ = pad([[*one, EOS] for one in DOCUMENTS], side, IGNORE)
    given = {"input_ids": ids, "attention_mask": layout.real.long(), "position_ids": layout.position}
    got, want = ours(ids, layout), theirs(**given).logits
    torch.testing.assert_close(got[layout.real], want[layout.real], rtol=rtol, atol=rtol / 10)
    # Theirs shifts labels itself: it is given whole documents, and told that their beginnings are not said.
    whole, places = pad([[BOS, *one, EOS] for one in DOCUMENTS], side)
    labels = whole.masked_fill(~places.real | (places.position == 0), -100)
    mask = {"attention_mask": places.real.long(), "position_ids": places.position}
    wanted = theirs(input_ids=whole, labels=labels, **mask).loss
    batch = Batch(ids, layout, said, tuple(range(len(ids))))
    loss = TokenLoss(CausalObjective()).loss(ours, batch)
    assert loss.count == sum(len(one) + 1 for one in DOCUMENTS) == batch.count
    mean = loss.sum / loss.count
    torch.testing.assert_close(mean.double(), wanted.double(), rtol=1e-5, atol=1e-6)
    mean.backward()
    wanted.backward()
    match.assert_gradients(ours, theirs, rtol=1e-4, atol=1e-6)
    ours.zero_grad()
    theirs.zero_grad()
    # Our loss takes its log-softmax in fp32; gradients of the logits themselves are in fp64.
    weight = torch.randn(got.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for logits in (ours(ids, layout), theirs(**given).logits):
        (logits * weight)[layout.real].sum().backward()
    match.assert_gradients(ours, theirs, rtol=10 * rtol, atol=10 * rtol)
