"""What this machine is good at: measured, not guessed from a name."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

# fp32 products may run in a faster kernel where its error stays at fp32's own (rounding is 6e-8).
EXACT = 1e-5


def prefer_fast_fp32() -> bool:
    """Let fp32 products use the fast kernels if they are exact on this machine; whether they are.

    Where there is a GPU nothing is changed: the setting is one for all devices, and there it means TF32,
    which is not exact.
    """
    if torch.cuda.is_available():
        return False
    old = torch.get_float32_matmul_precision()
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, 256, generator=generator) for _ in range(2))
    torch.set_float32_matmul_precision("medium")
    exact = a.double() @ b.double()
    error = float(((a @ b).double() - exact).abs().max() / exact.abs().max())
    if error > EXACT:
        torch.set_float32_matmul_precision(old)
    return error <= EXACT


def keep_memory() -> None:
    """Have the C library keep freed memory for the next step instead of giving it back to the system, which
    would clear every large tensor's pages anew each time it is made. Does nothing where there is no glibc."""
    if not sys.platform.startswith("linux"):
        return
    trim_threshold, mmap_threshold = -1, -3  # malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return
    mallopt(mmap_threshold, 1 << 30)
    mallopt(trim_threshold, 2**31 - 1)


def measure(run: Callable[[], object], times: int = 12) -> float:
    """The shortest of a few runs, in seconds."""
    run()
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def choose_precision(wanted: str, device: torch.device, dim: int) -> str:
    """``fp32``, ``bf16`` or ``fp16``: as wanted, or by ``auto`` whichever computes a linear map and its
    gradients faster at the model's width."""
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp16"
    w = torch.randn(4 * dim, dim, requires_grad=True)
    x = torch.randn(1024, dim, requires_grad=True)

    def work(low: bool) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            y = F.linear(x, w)
        y.backward(y.detach())  # type: ignore[no-untyped-call]

    threads = torch.get_num_threads()
    # On one thread, so that another program on a core does not decide.
    torch.set_num_threads(1)
    try:
        low, full = measure(lambda: work(True)), measure(lambda: work(False))
    finally:
        torch.set_num_threads(threads)
    # bf16 costs casts elsewhere in the model: it must win clearly.
    return "bf16" if low < 0.8 * full else "fp32"
