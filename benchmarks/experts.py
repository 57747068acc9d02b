"""Experts against a dense network of the same active width, forward and backward. Milliseconds and ratios."""

from __future__ import annotations

import os

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command has it

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig
from triptych.layout import Layout
from triptych.model.experts import feed_forward
from triptych.model.registry import Context, Place
from triptych.model.visible import Everything
from triptych.training.machine import keep_memory, prefer_fast_fp32

ROWS, LENGTH = 64, 32  # 2,048 tokens
EXPERTS, CHOSEN = 8, 2
WIDTHS = ((256, "relu", 1024), (512, "relu", 2048), (512, "swiglu", 1408))


def built(dim: int, kind: str, inner: int, experts: dict[str, int] | None) -> nn.Module:
    """The network of a layer: ``inner`` wide, or experts of which as much is active."""
    model = ModelConfig.parse({"dim": dim, "ffn": {"kind": kind, "dim": inner}, "experts": experts})
    return feed_forward(model, Place.of(model, True))


def step(network: nn.Module, x: Tensor, grad: Tensor, low: bool) -> None:
    """Forward and backward, in bf16 when ``low``."""
    context = Context(Layout.full(ROWS, LENGTH), Everything(), nn.Identity(), aux=[])
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        y = network(x, context)
    y.backward(grad.to(y.dtype))
    network.zero_grad()


def median_ms(runs: dict[str, Callable[[], None]], times: int = 15) -> dict[str, float]:
    """Median milliseconds of each, measured in turn so that all meet the same machine."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(times + 2):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if i >= 2:
                taken[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(t) for name, t in taken.items()}


def main() -> None:
    keep_memory()
    prefer_fast_fp32()  # as training does
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {ROWS * LENGTH:,} tokens")
    print(f"{CHOSEN} of {EXPERTS} experts against a dense network of their joint width")
    for dim, kind, inner in WIDTHS:
        x, grad = torch.randn(ROWS, LENGTH, dim, requires_grad=True), torch.randn(ROWS, LENGTH, dim)
        experts = {"count": EXPERTS, "top_k": CHOSEN, "dim": inner // CHOSEN}
        networks = {"dense": built(dim, kind, inner, None), "experts": built(dim, kind, inner, experts)}
        for low in (False, True):
            ms = median_ms({name: partial(step, n, x, grad, low) for name, n in networks.items()})
            print(
                f"{'bf16' if low else 'fp32'} {dim:4d} {kind:>6} {inner:5d}"
                f"   dense {ms['dense']:7.1f} ms   experts {ms['experts']:7.1f} ms"
                f"   ratio {ms['experts'] / ms['dense']:5.2f}"
            )


if __name__ == "__main__":
    main()
