"""Llama of ``transformers`` at equal weights, in float64: logits, the loss of documents, and all gradients.

Rotary positions in halves, RMSNorm, SwiGLU, no biases, grouped key/value heads.
"""

from __future__ import annotations

from typing import Any

import pytest

from parity.decoders import agree
from parity.test_decoder_only import llama


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kv", [4, 2, 1])
def test_llama(kv: int, tied: bool, side: Any) -> None:
    """Angles are in fp32 on both sides, and rounded apart."""
    agree(*llama(tied, kv), side, rtol=1e-5)


def test_llama_of_another_base() -> None:
    agree(*llama(True, 2, head_dim=6, base=500000.0), "right", rtol=1e-5)
