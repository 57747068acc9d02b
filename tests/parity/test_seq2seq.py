"""Encoder–decoders against ``transformers`` at equal weights: logits, losses, gradients.

Marian is the paper's model (post-norm, sinusoidal positions, one shared table); mBART is its pre-norm
relative with learned positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from parity.hf_seq2seq import marian, mbart
from parity.weights import Match, ragged_ids
from triptych.config import TranslationObjective
from triptych.data import translation_batch
from triptych.objectives import TokenLoss

V = 23
SOURCE = [[5, 9, 4, 22, 7], [8], [6, 6, 10, 21, 11, 4, 13]]
TARGET = [[7, 4], [12, 5, 9, 20, 6, 8], [4, 4, 19, 5]]
Pair = Callable[..., tuple[Any, Any, Match]]
PAIRS = [pytest.param(marian, "relu", id="marian-relu"), pytest.param(mbart, "gelu", id="mbart-gelu")]


@pytest.mark.parametrize(("pair", "act"), PAIRS)
def test_logits(pair: Pair, act: str) -> None:
    ours, theirs, _ = pair(V, act)
    ours, theirs = ours.double(), theirs.double()
    source, source_layout, source_real = ragged_ids([4, 7, 1], V, seed=1)
    target, target_layout, real = ragged_ids([5, 2, 8], V, seed=2)
    want = theirs(
        input_ids=source,
        attention_mask=source_real.long(),
        decoder_input_ids=target,
        decoder_attention_mask=real.long(),
    ).logits
    got = ours(source, source_layout, target, target_layout)
    torch.testing.assert_close(got[real], want[real], rtol=1e-6, atol=1e-6)
    assert got[real].std() > 0.5  # the distributions are not the trivial uniform one


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("pair", "act"), PAIRS)
def test_loss_and_gradients(pair: Pair, act: str, side: Any, smoothing: float) -> None:
    """Theirs is padded on the right; ours on either side gives the same."""
    ours, theirs, match = pair(V, act)
    batch = translation_batch(SOURCE, TARGET, range(3), side)
    loss = TokenLoss(TranslationObjective(label_smoothing=smoothing)).loss(ours, batch)
    (loss.sum / loss.count).backward()
    right = translation_batch(SOURCE, TARGET, range(3))
    real = right.layout.real
    logits = theirs(
        input_ids=right.source,
        attention_mask=right.source_layout.real.long(),
        decoder_input_ids=right.ids,
        decoder_attention_mask=real.long(),
    ).logits
    labels = right.targets.masked_fill(~real, -100)
    want = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
    want.backward()
    assert loss.count == sum(len(t) + 1 for t in TARGET)
    assert loss.mean == pytest.approx(float(want.detach()), rel=1e-6)
    plain = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    assert loss.nll == pytest.approx(float(plain.detach()), rel=1e-6)
    match.assert_gradients(ours, theirs, rtol=1e-4, atol=2e-6)


def test_their_own_loss() -> None:
    """``labels=`` in transformers means the same shift: their loss is our mean."""
    ours, theirs, _ = marian(V)
    batch = translation_batch(SOURCE, TARGET, range(3))
    labels = batch.targets.masked_fill(~batch.layout.real, -100)
    want = theirs(input_ids=batch.source, attention_mask=batch.source_layout.real.long(), labels=labels).loss
    loss = TokenLoss(TranslationObjective(label_smoothing=0.0)).loss(ours, batch)
    assert loss.mean == pytest.approx(float(want.detach()), rel=1e-6)
