"""Several sequences in one row, as segments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from triptych.insight.laws.subject import Placed, Rows, Subject
from triptych.layout import Layout


def pack(s: Subject, rows: Rows, groups: Sequence[Sequence[int]]) -> tuple[Placed, Placed | None]:
    """Each group of rows in one row, and their sources likewise, if there are any. Segments of a source
    stand in another order than their targets: a segment is known by its number, not by its place."""
    main = _pack(s, rows.main, groups, backwards=False)
    return main, _pack(s, rows.source, groups, backwards=True) if rows.source else None


def _pack(
    s: Subject, sequences: Sequence[Sequence[int]], groups: Sequence[Sequence[int]], backwards: bool
) -> Placed:
    """Segments 0, 1, … with a slot of padding after each."""
    packed = []
    for group in groups:
        slots: list[tuple[int, int, int]] = []  # id, position, segment
        for number, i in sorted(enumerate(group), reverse=backwards):
            slots += [(token, place, number) for place, token in enumerate(sequences[i])]
            slots.append((s.words(1)[0], 0, -1))
        packed.append(slots)
    width = max(map(len, packed))
    ids, position, segment = torch.tensor([x + [(0, 0, -1)] * (width - len(x)) for x in packed]).unbind(-1)
    return ids.contiguous(), Layout(position.contiguous(), segment.contiguous())


def unpack(out_BTV: Tensor, layout: Layout, groups: Sequence[Sequence[int]]) -> list[Tensor]:
    """What belongs to each sequence, by the sequence's number."""
    found = {
        i: out_BTV[row][layout.segment[row] == number]
        for row, group in enumerate(groups)
        for number, i in enumerate(group)
    }
    return [found[i] for i in sorted(found)]
