"""Rows read in segments by a causal model: the loss is that of the row, its gradient is cut between them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from triptych.config import ModelConfig
from triptych.config.objectives import CausalObjective
from triptych.data import IGNORE, Batch
from triptych.layout import Layout
from triptych.model import DecoderOnly, build
from triptych.objectives import TokenLoss

T, CUT = 23, 7
MODELS: dict[str, dict[str, Any]] = {
    "transformer-xl": {"position": "xl"},
    "windows": {"position": "rope", "attention": {"visible": {"kind": "window", "width": 5}}},
    "learned": {"position": "learned"},
    "retention": {"position": "rope", "mixer": "retention"},
    "ssm": {"position": "none", "mixer": "ssm"},
    "lstm": {"position": "none", "mixer": "lstm"},
    "experts": {"experts": {"count": 4, "dim": 8}},
}


def made(name: str) -> DecoderOnly:
    sizes = {"form": "decoder", "vocab": 20, "dim": 16, "layers": 2, "heads": 2, "dropout": 0.0}
    model = build(ModelConfig.parse({**sizes, **MODELS[name]}), seed=1)
    assert isinstance(model, DecoderOnly)
    return model.double().train()


def rows() -> Batch:
    """A whole row, one that ends in padding, and one of three sequences."""
    ids, targets = torch.randint(4, 20, (2, 3, T), generator=torch.Generator().manual_seed(0))
    segment, position = torch.zeros(3, T, dtype=torch.int64), torch.arange(T).repeat(3, 1)
    segment[1, 15:], segment[2, 5:], segment[2, 16:] = -1, 1, 2
    position[2, 5:16], position[2, 16:] = torch.arange(11), torch.arange(T - 16)
    targets = targets.masked_fill(segment < 0, IGNORE)
    return Batch(ids, Layout(position, segment), targets, (0, 1, 2))


def loss(segment: int | None) -> TokenLoss:
    return TokenLoss(CausalObjective(label_smoothing=0.1, segment=segment))


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_is_that_of_the_row(name: str) -> None:
    model, batch = made(name), rows()
    for cut in (1, CUT, T, 2 * T):
        got, want = loss(cut).loss(model, batch), loss(None).loss(model, batch)
        assert got.count == want.count
        torch.testing.assert_close(got.nll, want.nll, rtol=1e-9, atol=0)
        if "experts" not in MODELS[name]:  # how evenly they are loaded is of a segment
            torch.testing.assert_close(got.sum, want.sum, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "experts"])
def test_gradients_do_not_leave_their_segment(name: str) -> None:
    """They are those of each segment read after the others were read without gradients."""
    model, batch = made(name), rows()
    own = list(model.parameters())
    got = torch.autograd.grad(loss(CUT).loss(model, batch).sum, own)
    want = [torch.zeros_like(p) for p in own]
    for begin in range(0, T, CUT):
        state, hidden = model.start(), []
        for start in range(0, begin + 1, CUT):
            stop = min(start + CUT, T)
            with torch.set_grad_enabled(start == begin):
                part = batch.layout.narrow(start, stop)
                hidden.append(model.decode(batch.ids[:, start:stop], part, state))
        far = torch.arange(T) // CUT != begin // CUT
        alone = Batch(batch.ids, batch.layout, batch.targets.masked_fill(far, IGNORE), batch.index)
        whole = torch.cat([*hidden, hidden[0].new_zeros(3, T, 16)], 1)[:, :T]
        grads = torch.autograd.grad(loss(None).read(model, alone, whole).sum, own)
        want = [a + b for a, b in zip(want, grads, strict=True)]
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)  # the vocabulary's are in fp32
    full = torch.autograd.grad(loss(None).loss(model, batch).sum, own)
    assert any((a - b).abs().max() > 1e-3 for a, b in zip(got, full, strict=True))


def test_what_is_said_of_loads_is_a_mean_over_segments() -> None:
    model, batch = made("experts"), rows()
    plain = Batch(batch.ids[:, : 2 * CUT], Layout.full(3, 2 * CUT), batch.targets[:, : 2 * CUT], batch.index)
    one = TokenLoss(CausalObjective(label_smoothing=0.0, segment=CUT))
    with_loads = one.loss(model, plain)
    aux: list[torch.Tensor] = []
    hidden = one.in_segments(model, plain, aux)
    assert len(aux) == 2 * 2 and with_loads.count == plain.count
    bare = one.read(model, plain, hidden)
    torch.testing.assert_close(with_loads.sum, bare.plus(aux).sum)
    assert float(sum(aux)) == pytest.approx(float(sum(2 * x for x in aux)) / 2) and float(sum(aux)) > 0
