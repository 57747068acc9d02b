"""How a model is run: the precision of its matrix products, and without dropout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The context in which the forward pass runs."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16 if precision == "bf16" else torch.float16)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout; afterwards as before."""
    was = model.training
    if was:
        model.eval()
    try:
        yield
    finally:
        if was:
            model.train()
