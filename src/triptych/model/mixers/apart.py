"""Each sequence in a row of its own, for what works on whole rows.

    a0 a1 b0 b1 b2  ·  ─→  a0 a1  ·  ─ mix ─→  y0 y1  ·  ─→  y0 y1 z0 z1 z2  ·
                           b0 b1 b2            z0 z1 z2

B rows, T slots, N sequences, L tokens of the longest, C model width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from triptych.layout import Layout


def apart(x_BTC: Tensor, layout: Layout, mix: Callable[[Tensor, Layout], Tensor]) -> Tensor:
    """``mix``, which takes rows of one sequence each and their layout, on rows of several."""
    if layout.plain or not layout.memo("packed", lambda: bool((layout.segment > 0).any())):
        return mix(x_BTC, layout)
    slots_NL, rows, back_BT = layout.memo("apart", lambda: _apart(layout))
    return F.embedding(back_BT, mix(F.embedding(slots_NL, x_BTC.flatten(0, 1)), rows).flatten(0, 1))


def _apart(layout: Layout) -> tuple[Tensor, Layout, Tensor]:
    """Which slot stands where in the new rows, their layout, and where each slot has gone."""
    number = layout.segment + torch.arange(layout.batch, device=layout.segment.device)[:, None] * (1 << 32)
    _, sequence, count = torch.unique(number[layout.real], return_inverse=True, return_counts=True)
    there_NL = torch.arange(int(count.max()), device=count.device) < count[:, None]
    slots_NL, back_BT = torch.zeros_like(there_NL, dtype=torch.int64), torch.zeros_like(number)
    # Sequence by sequence, in the order of slots.
    slots_NL[there_NL] = layout.real.flatten().nonzero()[sequence.argsort(stable=True), 0]
    back_BT.view(-1)[slots_NL[there_NL]] = there_NL.flatten().nonzero()[:, 0]
    return slots_NL, Layout(layout.position.flatten()[slots_NL], there_NL.long() - 1), back_BT
