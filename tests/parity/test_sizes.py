"""Presets have the sizes that were published."""

from __future__ import annotations

import pytest
import torch

import triptych
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


# Exact counts of what was published, as the published weights have them.
PUBLISHED = [
    ("gpt2-small", 124_439_808),
    ("gpt2-medium", 354_823_168),
    ("llama-tiny", 15_191_712),  # stories15M
    ("llama-1b", 1_235_814_400),  # Llama 3.2 1B
    ("bert-base", 110_106_428),  # with all heads of pre-training
    ("t5-small", 60_506_624),
]


@pytest.mark.parametrize(("name", "published"), PUBLISHED)
def test_published_size(name: str, published: int) -> None:
    model = load_config(preset(name)).model
    assert triptych.cost(model).parameters == published
    with torch.device("meta"):
        assert sum(p.numel() for p in build(model).parameters()) == published


def test_published_size_of_vit() -> None:
    """With the thousand classes of ImageNet."""
    model = load_config(preset("vit-base"), ["model.output.count=1000"]).model
    assert triptych.cost(model).parameters == 86_567_656
    with torch.device("meta"):
        assert sum(p.numel() for p in build(model).parameters()) == 86_567_656


@pytest.mark.parametrize(("name", "published"), [("bert-base", 109_482_240), ("bert-tiny", 4_385_920)])
def test_bert_without_its_heads(name: str, published: int) -> None:
    """What is published of BERT has a pooler and no head: neither the map, norm and bias before the
    vocabulary nor the two classes of next sentences."""
    model = load_config(preset(name)).model
    C = model.dim
    heads = (C * C + C) + 2 * C + model.vocab + (2 * C + 2)
    assert triptych.cost(model).parameters - heads == published
    bare = load_config(preset(name), ["model.output={kind: classes, count: 2, pooler: true}"]).model
    assert triptych.cost(bare).parameters - (2 * C + 2) == published


def test_nanogpt_without_positions() -> None:
    """nanoGPT reports 0.80 million, and does not count positions."""
    model = load_config(preset("nanogpt-char")).model
    without = triptych.cost(model).parameters - 64 * model.dim
    C = model.dim
    assert without == 65 * C + 4 * (12 * C * C + 2 * C) + C == 795_904
