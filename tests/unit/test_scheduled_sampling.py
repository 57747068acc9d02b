"""Scheduled sampling: what a decoder reads is its own, at as many places as is asked, and nothing else."""

from __future__ import annotations

import pytest
import torch

from triptych.config import ModelConfig, TranslationObjective
from triptych.data import translation_batch
from triptych.model import EncoderDecoder, build
from triptych.objectives import TokenLoss, learned

SOURCE, TARGET = [[5, 6, 7], [8], [9, 10]], [[11, 12, 13, 14], [15], []]


@pytest.fixture
def model() -> EncoderDecoder:
    settings = {"vocab": 20, "dim": 16, "layers": 1, "heads": 2, "dropout": 0.0}
    made = build(ModelConfig.parse(settings), seed=1)
    assert isinstance(made, EncoderDecoder)
    return made.double()


@pytest.mark.parametrize("side", ["left", "right"])
def test_all_of_it_is_what_the_model_says(model: EncoderDecoder, side: str) -> None:
    batch = translation_batch(SOURCE, TARGET, range(3), side)  # type: ignore[arg-type]
    mixed = TokenLoss(TranslationObjective()).mixed(model, batch, 1.0)
    for row in range(3):
        # By hand, each row alone: its start stays, then what the model says at the place before.
        alone = translation_batch([SOURCE[row]], [TARGET[row]], [row])
        said = model(*alone.given, alone.ids, alone.layout)[0].argmax(-1).tolist()
        want = [alone.ids[0, 0].item(), *said[:-1]]
        assert mixed.ids[row][batch.layout.real[row]].tolist() == want
    padding = ~batch.layout.real
    assert torch.equal(mixed.ids[padding], batch.ids[padding])
    assert torch.equal(mixed.targets, batch.targets)


def test_the_share_is_that_of_the_places(model: EncoderDecoder) -> None:
    rows = [[4 + (i * j) % 16 for j in range(40)] for i in range(1, 101)]
    batch = translation_batch(rows, rows, range(100))
    torch.manual_seed(3)
    loss = TokenLoss(TranslationObjective())
    whole, part = (loss.mixed(model, batch, share).ids != batch.ids for share in (1.0, 0.25))
    assert not (part & ~whole).any()
    drawn, places = int(part.sum()), int(whole.sum())
    assert abs(drawn - places / 4) < 5 * (places * 3 / 16) ** 0.5
    assert torch.equal(loss.mixed(model, batch, 0.0).ids, batch.ids)


def test_it_rises_with_training_and_is_off_in_evaluation(model: EncoderDecoder) -> None:
    batch = translation_batch(SOURCE, TARGET, range(3))
    plain = TokenLoss(TranslationObjective(label_smoothing=0.0))
    own = TokenLoss(TranslationObjective(label_smoothing=0.0, scheduled_sampling=1.0))
    want = plain.loss(model.train(), batch).nll
    assert own.loss(model, batch, progress=0.0).nll == want
    assert own.loss(model, batch, progress=1.0).nll != want
    assert own.loss(model.eval(), batch, progress=1.0).nll == want


def test_a_prefix_that_is_seen_whole_is_not_learned() -> None:
    """Its targets stand in what is read."""
    prefix = {"visible": {"kind": "prefix", "length": 3}}
    settings = {"form": "decoder", "vocab": 20, "dim": 16, "layers": 1, "heads": 2, "attention": prefix}
    model = build(ModelConfig.parse(settings), seed=1)
    batch = translation_batch(SOURCE, TARGET, range(3))
    at = batch.layout.position
    assert torch.equal(learned(model, batch), batch.layout.real & (at >= 2))
    assert TokenLoss(TranslationObjective()).count(model, batch) == int((batch.layout.real & (at >= 2)).sum())
