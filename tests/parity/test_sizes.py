"""The paper's models have the paper's sizes (Vaswani et al. 2017, table 3)."""

from __future__ import annotations

import pytest
import torch

from triptych.config import load_config, preset
from triptych.model import build, cost


def _count(vocab: int, dim: int, inner: int, layers: int) -> int:
    """Weights of the paper's model, term by term; heads do not change it."""
    attention = 4 * (dim * dim + dim)
    ffn = dim * inner + inner + inner * dim + dim
    norm = 2 * dim
    encoder = attention + ffn + 2 * norm
    decoder = 2 * attention + ffn + 3 * norm
    return vocab * dim + layers * (encoder + decoder)


# Exact counts with a vocabulary of 37,000; the paper says 65 and 213 million.
SIZES = [("transformer-base", 63_082_496, 65e6), ("transformer-big", 214_245_376, 213e6)]


@pytest.mark.parametrize(("name", "exact", "paper"), SIZES)
def test_size(name: str, exact: int, paper: float) -> None:
    model = load_config(preset(name)).model
    with torch.device("meta"):  # shapes alone: nothing is allocated
        built = sum(p.numel() for p in build(model).parameters())
    assert built == exact
    assert cost(model).parameters == exact
    assert _count(model.vocab, model.dim, model.ffn_dim, 6) == exact
    assert exact == pytest.approx(paper, rel=0.03)
