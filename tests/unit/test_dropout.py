"""Dropout: a share within binomial bounds, exact scaling, one mask for both passes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triptych.model.dropout import Dropout, dropout

N = 400_003  # not a multiple of four: a draw serves four values


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.9])
def test_share(p: float) -> None:
    """Within five standard deviations of a binomial."""
    zeros = int((dropout(torch.ones(N), p, True) == 0).sum())
    assert abs(zeros - p * N) < 5 * math.sqrt(N * p * (1 - p))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_values_are_independent(p: float) -> None:
    """Neighbours, values of one draw, and two calls fall together as often as chance says."""
    one, other = (dropout(torch.ones(N), p, True) == 0 for _ in range(2))
    pairs = [(one, other), *((one[:-lag], one[lag:]) for lag in (1, 2, 3, 4, 8))]
    for a, b in pairs:
        n, both = len(a), int((a & b).sum())
        assert abs(both - p * p * n) < 5 * math.sqrt(n * p * p)


@given(st.floats(0.001, 0.99), st.integers(0, 2**31))
def test_kept_values_are_scaled_exactly(p: float, seed: int) -> None:
    """By one factor, 1 / (1 - p) to within the 16 bits of a draw."""
    torch.manual_seed(seed)
    x = torch.randn(257)
    y = dropout(x, p, True)
    kept = y != 0
    share = round(p * 32768) / 32768
    assert abs(share - p) <= 0.5 / 32768
    torch.testing.assert_close(y[kept], x[kept] / (1 - share), rtol=1e-6, atol=0)


def test_mean_is_kept() -> None:
    y = dropout(torch.ones(N), 0.3, True)
    assert float(y.mean()) == pytest.approx(1, abs=5 * math.sqrt(0.3 / 0.7 / N))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4, 5), (1,), (0,), (4, 0)])
def test_gradient_has_the_mask_of_the_values(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = (torch.rand(shape) + 1).to(dtype).requires_grad_()
    y = dropout(x, 0.4, True)
    weight = torch.rand(shape).to(dtype) + 1
    y.backward(weight)
    assert x.grad is not None and x.grad.dtype == y.dtype == dtype and y.shape == shape
    assert torch.equal(x.grad == 0, y == 0)
    torch.testing.assert_close(x.grad / weight, y.detach() / x.detach(), rtol=2e-2, atol=0)


def test_transposed_values() -> None:
    """The mask follows places, whatever the order in memory."""
    x = torch.arange(1.0, 41.0).view(5, 8).t().requires_grad_()
    y = dropout(x, 0.5, True)
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.where(y == 0, 0.0, 2.0))
    torch.testing.assert_close(y, x.detach() * x.grad)


def test_infinite_values_are_dropped_too() -> None:
    """Dropped is zero, not zero times the value."""
    y = dropout(torch.full((1000,), float("inf")), 0.5, True)
    assert (y == 0).any() and not y.isnan().any()


def test_the_input_is_left_alone() -> None:
    x = torch.ones(100)
    dropout(x, 0.5, True)
    assert torch.equal(x, torch.ones(100))


def test_random_state_repeats_it() -> None:
    x = torch.randn(1000)
    state = torch.get_rng_state()
    first = dropout(x, 0.3, True)
    second = dropout(x, 0.3, True)
    torch.set_rng_state(state)
    assert torch.equal(dropout(x, 0.3, True), first)
    assert not torch.equal(first, second)


def test_evaluation_is_identity() -> None:
    """The very tensor; no random number is spent, outside training or without a share."""
    x, state = torch.randn(10), torch.get_rng_state()
    module = Dropout(0.5).eval()
    assert module(x) is x and dropout(x, 0.5, False) is x and dropout(x, 0.0, True) is x
    assert torch.equal(torch.get_rng_state(), state)
    module.train()
    assert (module(torch.ones(1000)) == 0).any()


@pytest.mark.parametrize("p", [1e-9, 1 - 1e-9])
def test_shares_next_to_the_ends(p: float) -> None:
    """As configurations allow them: nothing breaks, and what is kept stays finite."""
    y = dropout(torch.ones(1000), p, True)
    assert y.isfinite().all()
    assert float((y == 0).float().mean()) == pytest.approx(p, abs=0.01)
