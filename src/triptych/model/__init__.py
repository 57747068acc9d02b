"""ids → hidden states → logits: the Transformer and all its parts. No input or output, no training."""

from triptych.model.state import State
from triptych.model.transformer import (
    DecoderOnly,
    EncoderDecoder,
    EncoderOnly,
    Memory,
    Model,
    build,
    cache_bytes,
    cost,
    tensors,
)

__all__ = [
    "DecoderOnly",
    "EncoderDecoder",
    "EncoderOnly",
    "Memory",
    "Model",
    "State",
    "build",
    "cache_bytes",
    "cost",
    "tensors",
]
