"""attend() against torch's fused attention: forward and backward, by shape. Milliseconds and ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from triptych.layout import Layout
from triptych.model.attend import attend
from triptych.model.visible import Causal, SameSegment
from triptych.training.machine import keep_memory

SHAPES = ((64, 20), (16, 64), (16, 128), (16, 256))
H, D = 4, 64


def median_ms(runs: dict[str, Callable[[], None]], times: int = 40) -> dict[str, float]:
    """Median milliseconds of each, measured in turn so that all meet the same machine."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(times + 3):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if i >= 3:
                taken[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(t) for name, t in taken.items()}


def main() -> None:
    keep_memory()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, H={H}, D={D}; causal and padded")
    for dtype in (torch.float32, torch.bfloat16):
        for B, T in SHAPES:
            q, k, v = (torch.randn(B, H, T, D, dtype=dtype, requires_grad=True) for _ in range(3))
            g = torch.randn(B, H, T, D, dtype=dtype)
            layout = Layout.padded([T - i % 4 for i in range(B)])
            mask = (SameSegment() & Causal()).lower(layout, layout)

            def ours(q=q, k=k, v=v, mask=mask, g=g, way="auto") -> None:
                attend(q, k, v, mask, D**-0.5, way=way).backward(g)

            def fused(q=q, k=k, v=v, mask=mask, g=g) -> None:
                F.scaled_dot_product_attention(q, k, v, attn_mask=mask.seen, scale=D**-0.5).backward(g)

            ms = median_ms({"attend": ours, "sdpa": fused, "short": lambda ours=ours: ours(way="short")})
            print(
                f"{str(dtype)[6:]:>9} {B:3d}×{T:<4d} attend {ms['attend']:7.2f} ms"
                f"   sdpa {ms['sdpa']:7.2f} ms"
                f"   ratio {ms['sdpa'] / ms['attend']:5.2f}   (short {ms['short']:7.2f} ms)"
            )


if __name__ == "__main__":
    main()
