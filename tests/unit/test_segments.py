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
from triptych.objectives import TokenLoss, run

T, CUT = 23, 7
MODELS: dict[str, dict[str, Any]] = {
    "transformer-xl": {"position": "xl"},
    "windows": {"position": "rope", "attention": {"visible": {"kind": "window", "width": 5}}},
    "learned": {"position": "learned"},
    "retention": {"position": "rope", "mixer": "retention"},
    "ssm": {"position": "none", "mixer": "ssm"},
    "lstm": {"position": "none", "mixer": "lstm"},
    "experts": {"experts": {"count": 4, "dim": 8}},
    "sized logits": {
        "experts": {"count": 4, "dim": 8, "router": {"kind": "top_softmax", "balance": 0.0, "z": 0.7}}
    },
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
        if name != "experts":  # how evenly they are loaded is of a segment
            torch.testing.assert_close(got.sum, want.sum, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", [name for name in MODELS if "experts" not in MODELS[name]])
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


@pytest.mark.parametrize("cut", [1, CUT])
def test_what_is_a_mean_over_tokens_stays_that_of_the_row(cut: int) -> None:
    """The size of a router's logits (z), whatever of a segment is padding."""
    model, batch = made("sized logits"), rows()
    got, want = loss(cut).loss(model, batch), loss(None).loss(model, batch)
    torch.testing.assert_close(got.sum, want.sum, rtol=1e-9, atol=0)
    without = loss(None).read(model, batch, run(model, batch))
    assert float((want.sum - without.sum) / want.count) > 0.01


def test_loads_are_those_of_the_segments() -> None:
    """How evenly experts are loaded is of a segment; each counts by its tokens."""
    model, batch = made("experts"), rows()
    got = loss(CUT).loss(model, batch)
    plain = loss(None).read(model, batch, run(model, batch))
    state, want = model.start(), torch.zeros((), dtype=torch.float64)
    for start in range(0, T, CUT):
        part, own = batch.layout.narrow(start, min(start + CUT, T)), list[torch.Tensor]()
        model.decode(batch.ids[:, start : start + CUT], part, state, aux=own)
        assert len(own) == 2, "one a layer"
        want = want + sum(own) * int(part.real.sum())
    mean = want / int(batch.layout.real.sum())
    torch.testing.assert_close((got.sum - plain.sum) / got.count, mean, rtol=1e-6, atol=1e-9)
    assert float(mean.detach()) > 0
