"""GPT-2 of ``transformers`` at equal weights, in float64: logits, the loss of documents, and all gradients.

Pre-norm, learned positions, biases everywhere, tied, and GELU by tanh (``gelu_new``) as published.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from parity.decoders import agree
from parity.test_decoder_only import gpt2


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("act", ["gelu_new", "gelu", "relu"])
def test_gpt2(act: str, side: Any) -> None:
    agree(*gpt2(act), side, rtol=1e-9)


def test_the_activation_is_seen() -> None:
    """GELU by tanh and the exact one differ by less than single precision often shows."""
    ours, _, _ = gpt2("gelu_new")
    other, _, _ = gpt2("gelu")
    x = torch.linspace(-3, 3, 50, dtype=torch.float64)
    act, exact = (model.double().decoder.blocks[0].ffn.act(x) for model in (ours, other))
    assert 1e-5 < float((act - exact).abs().max()) < 1e-3
