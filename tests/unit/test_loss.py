"""``Loss`` and cross-entropy with label smoothing: values and gradients against torch and the formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from triptych.config import RunConfig, TranslationObjective
from triptych.data import translation_batch
from triptych.model import build
from triptych.objectives import Loss, TokenLoss, cross_entropy
from triptych.objectives import loss as loss_module

smoothings = st.sampled_from([0.0, 0.1, 0.5, 0.9])


def _inputs(
    tokens: int, width: int, vocab: int, seed: int = 0, scale: float = 2.0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, width, generator=generator).mul_(scale).requires_grad_()
    weight = torch.randn(vocab, width, generator=generator).requires_grad_()
    return hidden, weight, torch.randint(0, vocab, (tokens,), generator=generator)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(2, 33), smoothings, st.integers(0, 99))
def test_is_torchs(tokens: int, width: int, vocab: int, smoothing: float, seed: int) -> None:
    """Value and gradients of both inputs, with what stands before the loss in the chain (times 0.3)."""
    hidden, weight, target = _inputs(tokens, width, vocab, seed)
    got = cross_entropy(hidden, weight, target, smoothing)
    (got.sum * 0.3).backward()
    twins = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    logits = twins[0] @ twins[1].t()
    want = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum")
    (want * 0.3).backward()
    assert got.count == tokens
    assert float(got.sum.detach()) == pytest.approx(float(want.detach()), rel=1e-5, abs=1e-5)
    assert got.nll == pytest.approx(
        float(F.cross_entropy(logits, target, reduction="sum").detach()), rel=1e-5, abs=1e-5
    )
    for mine, twin in zip((hidden, weight), twins, strict=True):
        assert mine.grad is not None and twin.grad is not None
        torch.testing.assert_close(mine.grad.double(), twin.grad, rtol=1e-4, atol=1e-4)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(2, 33), smoothings, st.integers(0, 99))
def test_bias_is_torchs(tokens: int, width: int, vocab: int, smoothing: float, seed: int) -> None:
    """With a bias: value, and gradients of all three, with what stands before the loss in the chain."""
    hidden, weight, target = _inputs(tokens, width, vocab, seed)
    bias = torch.randn(vocab, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    got = cross_entropy(hidden, weight, target, smoothing, bias)
    (got.sum * 0.3).backward()
    twins = [x.detach().double().requires_grad_() for x in (hidden, weight, bias)]
    logits = twins[0] @ twins[1].t() + twins[2]
    want = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum")
    (want * 0.3).backward()
    assert float(got.sum.detach()) == pytest.approx(float(want.detach()), rel=1e-5, abs=1e-5)
    nll = F.cross_entropy(logits, target, reduction="sum").detach()
    assert got.nll == pytest.approx(float(nll), rel=1e-5, abs=1e-5)
    for mine, twin in zip((hidden, weight, bias), twins, strict=True):
        assert mine.grad is not None and twin.grad is not None
        torch.testing.assert_close(mine.grad.double(), twin.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_by_differences(smoothing: float) -> None:
    """Against the loss's own slopes; it is in fp32, so steps are wide and the tolerance with them."""
    hidden, weight, target = (
        x.detach().double().requires_grad_() if x.is_floating_point() else x
        for x in _inputs(5, 4, 6, scale=1.0)
    )
    bias = torch.linspace(-1, 1, 6, dtype=torch.float64).requires_grad_()
    torch.autograd.gradcheck(
        lambda h, w, b: cross_entropy(h, w, target, smoothing, b).sum.double(),
        (hidden, weight, bias),
        eps=1e-2,
        atol=5e-3,
        rtol=1e-2,
        nondet_tol=0.0,
    )


def test_a_bias_alone_can_learn() -> None:
    """With the rest frozen the gradient of the bias is p - q, summed over tokens."""
    hidden, weight, target = (x.detach() for x in _inputs(9, 3, 5))
    bias = torch.zeros(5, requires_grad=True)
    cross_entropy(hidden, weight, target, bias_V=bias).sum.backward()
    q = F.one_hot(target, 5).float()
    torch.testing.assert_close(bias.grad, ((hidden @ weight.t()).softmax(-1) - q).sum(0))


@given(smoothings, st.integers(2, 12))
def test_is_its_formula(smoothing: float, vocab: int) -> None:
    """-Σ q·log p with q = (1 - ε)·onehot + ε/V over the whole vocabulary (Szegedy et al. 2016, section 7);
    the gradient of the logits is p - q."""
    hidden, _, target = _inputs(7, vocab, vocab)
    identity = torch.eye(vocab).requires_grad_()  # hidden values are the logits
    got = cross_entropy(hidden, identity, target, smoothing)
    got.sum.backward()
    x = hidden.detach().double().numpy()
    p = np.exp(x - x.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    q = np.full_like(p, smoothing / vocab)
    q[np.arange(7), target.numpy()] += 1 - smoothing
    assert float(got.sum.detach()) == pytest.approx(-(q * np.log(p)).sum(), rel=1e-5)
    assert hidden.grad is not None
    np.testing.assert_allclose(hidden.grad.numpy(), p - q, atol=1e-5)


def test_smoothing_has_its_own_floor() -> None:
    """A model that knows the target for sure pays for it; the best it can do is the entropy of q."""
    vocab, smoothing = 8, 0.1
    q = torch.full((vocab,), smoothing / vocab)
    q[3] += 1 - smoothing
    loss = cross_entropy(q.log()[None], torch.eye(vocab), torch.tensor([3]), smoothing)
    assert loss.mean == pytest.approx(float(-(q * q.log()).sum()), rel=1e-5)
    sure = torch.zeros(1, vocab).index_fill_(1, torch.tensor([3]), 30.0)
    assert cross_entropy(sure, torch.eye(vocab), torch.tensor([3]), smoothing).mean > loss.mean


@pytest.mark.parametrize("tokens", [15, 16, 17, 48, 50])
def test_chunks_do_not_show(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of sixteen tokens, the last one short or whole, against one chunk."""

    def run() -> tuple[float, float, Tensor | None, Tensor | None, Tensor | None]:
        hidden, weight, target = _inputs(tokens, 5, 11)
        bias = torch.linspace(-1, 1, 11).requires_grad_()
        loss = cross_entropy(hidden, weight, target, 0.1, bias)
        loss.sum.backward()
        return float(loss.sum.detach()), loss.nll, hidden.grad, weight.grad, bias.grad

    whole = run()
    monkeypatch.setattr(loss_module, "CHUNK", 1)
    for a, b in zip(whole, run(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_gradients_only_where_wanted() -> None:
    """A frozen table gets none; without gradients none are computed."""
    hidden, weight, target = _inputs(4, 3, 5)
    weight.requires_grad_(False)
    cross_entropy(hidden, weight, target).sum.backward()
    assert hidden.grad is not None and weight.grad is None
    with torch.inference_mode():
        assert not cross_entropy(hidden, weight, target).sum.requires_grad


def test_extreme_logits() -> None:
    """No overflow, and a perplexity that is infinite rather than an error."""
    hidden = torch.tensor([[1e4, 0.0], [0.0, 1e4]])
    right = cross_entropy(hidden, torch.eye(2), torch.tensor([0, 1]))
    wrong = cross_entropy(hidden, torch.eye(2), torch.tensor([1, 0]))
    assert (right.mean, right.perplexity) == (0.0, 1.0)
    assert wrong.mean == 1e4 and wrong.perplexity == math.inf


def test_no_tokens() -> None:
    hidden = torch.zeros(0, 3, requires_grad=True)
    loss = cross_entropy(hidden, torch.zeros(5, 3), torch.zeros(0, dtype=torch.int64), 0.1)
    loss.sum.backward()
    assert (loss.mean, loss.count, loss.nll) == (0.0, 0, 0.0)
    assert hidden.grad is not None and hidden.grad.shape == (0, 3)


def test_bf16_autocast() -> None:
    """The product is in bf16, the softmax in fp32: near the exact loss, gradients of the weights' dtype."""
    hidden, weight, target = _inputs(200, 16, 50, scale=1.0)
    exact = cross_entropy(hidden, weight, target, 0.1).mean
    bias = torch.zeros(50, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = cross_entropy(hidden, weight, target, 0.1, bias)
    loss.sum.backward()
    assert loss.sum.dtype == torch.float32
    assert loss.mean == pytest.approx(exact, rel=1e-2)
    for x in (hidden, weight, bias):
        assert x.grad is not None and x.grad.dtype == torch.float32 and x.grad.isfinite().all()


@given(st.lists(st.tuples(st.floats(0, 1e3), st.integers(1, 1000)), min_size=1, max_size=6))
def test_losses_add(parts: list[tuple[float, int]]) -> None:
    """Sums and counts add; the mean is over all tokens, not of the means."""
    total = Loss(torch.zeros(()), 0, 0.0)
    for value, count in parts:
        total = total + Loss(torch.tensor(value), count, value / 2)
    count = sum(c for _, c in parts)
    assert total.count == count
    assert total.mean == pytest.approx(sum(v for v, _ in parts) / count, rel=1e-4, abs=1e-6)
    assert total.perplexity == pytest.approx(math.exp(sum(v for v, _ in parts) / 2 / count), rel=1e-4)


def _model(**settings: Any) -> Any:
    data = {"vocab": 13, "dim": 16, "layers": 1, "heads": 2, "ffn": {"dim": 16}, **settings}
    return build(RunConfig.parse({"model": data}).model, seed=1)


def test_translation_counts_targets_and_their_ends() -> None:
    """One prediction a target token and one for its end; none for padding, none for the start."""
    model = _model(dropout=0.0)
    source, target = [[5, 6], [7]], [[4, 5, 6, 7], [8]]
    objective = TokenLoss(TranslationObjective(label_smoothing=0.0))
    both = objective.loss(model, translation_batch(source, target, (0, 1)))
    alone = [
        objective.loss(model, translation_batch([s], [t], (0,))) for s, t in zip(source, target, strict=True)
    ]
    assert (both.count, [a.count for a in alone]) == (7, [5, 2])
    assert both.nll == pytest.approx(sum(a.nll for a in alone), rel=1e-5)
    # By hand: log-probabilities of target_out at its own places.
    batch = translation_batch(source, target, (0, 1))
    logits = model(batch.source, batch.source_layout, batch.ids, batch.layout)
    logp = logits.log_softmax(-1)
    want = -sum(
        float(logp[b, t, i].detach()) for b, row in enumerate(target) for t, i in enumerate([*row, 3])
    )
    assert both.nll == pytest.approx(want, rel=1e-5)


def test_evaluation_is_not_smoothed() -> None:
    model = _model(dropout=0.0)
    batch = translation_batch([[5, 6]], [[4, 5]], (0,))
    objective = TokenLoss(TranslationObjective(label_smoothing=0.3))
    training = objective.loss(model.train(), batch)
    evaluating = objective.loss(model.eval(), batch)
    assert evaluating.mean * evaluating.count == pytest.approx(evaluating.nll, rel=1e-6)
    assert training.nll == pytest.approx(evaluating.nll, rel=1e-6)
    assert abs(training.mean - evaluating.mean) > 1e-4
