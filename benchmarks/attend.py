"""attend() against torch's fused attention: forward and backward, by shape; and a window over a long sequence
in blocks against the same with a mask. Milliseconds, bytes and ratios.

    python benchmarks/attend.py            everything
    python benchmarks/attend.py window     the window alone
"""

from __future__ import annotations

import os

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as the command has it

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from triptych.layout import Layout
from triptych.model.attend import attend
from triptych.model.blocks import in_blocks
from triptych.model.visible import Causal, SameSegment, Window
from triptych.training.machine import keep_memory

SHAPES = ((64, 20), (16, 64), (16, 128), (16, 256))
H, D = 4, 64
LONG, WIDTH = 8192, 256


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


def window(way: str) -> dict[str, float]:
    """One long row in which each token sees the last ``WIDTH``, forward and backward: seconds (the least of
    three), bytes kept for the backward pass, and by how many bytes the process has grown at its peak."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, H, LONG, D, requires_grad=True) for _ in range(3))
    g = torch.randn(1, H, LONG, D)
    kept: dict[int, int] = {}

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    def forward() -> torch.Tensor:
        if way == "dense":
            seen = torch.ones(LONG, LONG, dtype=torch.bool).tril_().triu_(1 - WIDTH)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=D**-0.5)
        visible, layout = SameSegment() & Causal() & Window(WIDTH), Layout.full(1, LONG)

        def meet(q, k, v, query, key):
            return attend(q, k, v, visible.lower(query, key), D**-0.5)

        return in_blocks(q, k, v, visible, layout, layout, meet, relative=True)

    before, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(3):
        start = time.perf_counter()
        forward().backward(g)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        alive = forward()
    del alive
    return {"seconds": min(seconds), "kept": sum(kept.values()), "peak": peak * 1024}


def windows() -> None:
    """Both ways, each in a process of its own: what a process held once counts for ever."""
    found = {}
    for way in ("blocks", "dense"):
        done = subprocess.run([sys.executable, __file__, "window", way], capture_output=True, check=True)
        found[way] = json.loads(done.stdout)
    blocks, dense = found["blocks"], found["dense"]
    print(f"window of {WIDTH} over {LONG:,} tokens, forward and backward, in blocks and with a mask")
    for name, unit, scale in (("seconds", "s", 1), ("kept", "MB", 1e6), ("peak", "MB", 1e6)):
        a, b = blocks[name] / scale, dense[name] / scale
        ratio = f"ratio {b / a:6.1f}" if a else "no growth"  # the process held as much before
        print(f"{name:>9} blocks {a:9.2f} {unit:<2}  dense {b:9.2f} {unit:<2}  {ratio}")


def main() -> None:
    if sys.argv[1:2] == ["window"]:
        print(json.dumps(window(sys.argv[2]))) if sys.argv[2:] else windows()
        return
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
    windows()


if __name__ == "__main__":
    main()
