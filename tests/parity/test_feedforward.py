"""Feed-forward networks against numpy written from the papers, and against ``torch`` and ``transformers``."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from parity.weights import shaken
from triptych.config import ModelConfig, choices, parts
from triptych.model.registry import part_of

Array = np.ndarray[Any, Any]


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _gelu(x: Array) -> Array:
    return np.asarray(x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2))))


PLAIN: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * _sigmoid(x),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
}
GATED: dict[str, Callable[[Array], Array]] = {
    "glu": _sigmoid,
    "geglu": _gelu,
    "geglu_tanh": PLAIN["gelu_tanh"],
    "swiglu": lambda x: x * _sigmoid(x),
}
# By the names that transformers has for them.
THEIRS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "silu": "silu",
    "relu2": "relu2",
    "glu": "sigmoid",
    "geglu": "gelu",
    "geglu_tanh": "gelu_new",
    "swiglu": "silu",
}


def _network(kind: str, bias: bool = True) -> Any:
    model = ModelConfig.parse({"dim": 6, "heads": 1, "ffn": {"kind": kind, "dim": 10, "bias": bias}})
    return shaken(part_of(model.ffn)(model.ffn, model)).double()


def test_all_kinds_are_here() -> None:
    assert set(choices(parts.FeedForward)) >= set(PLAIN) | set(GATED) == set(THEIRS)


@pytest.mark.parametrize("kind", [*PLAIN, *GATED])
def test_feed_forward_is_its_formula(kind: str) -> None:
    network = _network(kind)
    x = 2 * torch.randn(40, 6, dtype=torch.float64)
    weight, bias, back, end = (p.detach().numpy() for p in network.parameters())
    h = x.numpy() @ weight.T + bias
    if kind in GATED:
        gate, up = h[:, :10], h[:, 10:]
        h = GATED[kind](gate) * up
    else:
        h = PLAIN[kind](h)
    np.testing.assert_allclose(network(x).detach().numpy(), h @ back.T + end, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [*PLAIN, *GATED])
def test_gradients_are_those_of_transformers_activations(kind: str) -> None:
    from transformers.activations import ACT2FN

    network = _network(kind, bias=False)
    x = torch.randn(7, 6, dtype=torch.float64)
    act = ACT2FN[THEIRS[kind]]

    def other(x: Tensor, inner: Tensor, outer: Tensor) -> Tensor:
        h = F.linear(x, inner)
        h = act(h[:, :10]) * h[:, 10:] if kind in GATED else act(h)
        return F.linear(h, outer)

    twins = [t.detach().clone().requires_grad_() for t in (x, *network.parameters())]
    mine = x.clone().requires_grad_()
    network(mine).pow(3).sum().backward()
    other(*twins).pow(3).sum().backward()
    for ours, twin in zip([mine, *network.parameters()], twins, strict=True):
        torch.testing.assert_close(ours.grad, twin.grad, rtol=1e-9, atol=1e-12)
