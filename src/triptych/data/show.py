"""A batch as a table that a person can read: what is read, what is to be said, and where each token is.

row 1 of 2 · example 7 · label 1
  slot  token   target  segment  position  type  learned
  0     [CLS]   ·       0        0         0     no
  1     [MASK]  ▁cat    0        1         0     yes
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from torch import Tensor

from triptych.data.batches import IGNORE, Batch
from triptych.layout import Layout
from triptych.text.tokenizer import Tokenizer

NOTHING = "·"
"""Where nothing is to be said."""

Columns = dict[str, list[str]]


def show(batch: Batch, tokenizer: Tokenizer, tags: Sequence[str] | None = None) -> str:
    """A batch, row by row, the source first where there is one.

    Args:
        tags: the names of what is to be said, by number, when that is no token: of tags, or of classes.
    """
    rows, slots = batch.ids.shape
    parts = [f"rows: {rows} · slots: {slots} · to be said: {batch.count}"]
    for row in range(rows):
        parts.append("\n" + _title(batch, row, tags))
        if batch.source is not None:
            source, layout = batch.given
            parts += ["  source", *_table(_read(source[row], layout, row, tokenizer)), "  target"]
        parts += _table(_columns(batch, row, tokenizer, tags))
    return "\n".join(parts) + "\n"


def _title(batch: Batch, row: int, names: Sequence[str] | None) -> str:
    # A batch of pairs of texts has two rows an example.
    title = f"row {row + 1} of {len(batch.ids)} · example {batch.index[row % len(batch.index)]}"
    if batch.labels is None:
        return title
    label = int(batch.labels[row])
    return f"{title} · label {NOTHING if label == IGNORE else names[label] if names else label}"


def _columns(batch: Batch, row: int, tokenizer: Tokenizer, tags: Sequence[str] | None) -> Columns:
    """All that is known of each place of a row."""
    columns = _read(batch.ids[row], batch.layout, row, tokenizer)
    targets: list[int] = batch.targets[row].tolist()
    names = _names(targets, tokenizer)
    if tags is not None and batch.labels is None:
        names = [tags[target] for target in targets]
    said = [name if t != IGNORE else NOTHING for name, t in zip(names, targets, strict=True)]
    out = {"slot": columns.pop("slot"), "token": columns.pop("token"), "target": said, **columns}
    if batch.types is not None:
        out["type"] = [str(kind) for kind in batch.types[row].tolist()]
    return {**out, "learned": ["no" if target == IGNORE else "yes" for target in targets]}


def _read(ids: Tensor, layout: Layout, row: int, tokenizer: Tokenizer) -> Columns:
    """What is read at each place of a row; padding is in no segment and at no position."""
    segment: list[int] = layout.segment[row].tolist()
    position: list[int] = layout.position[row].tolist()
    return {
        "slot": [str(slot) for slot in range(len(segment))],
        "token": _names(ids.tolist(), tokenizer),
        "segment": [str(number) if number >= 0 else "pad" for number in segment],
        "position": [str(p) if s >= 0 else "" for p, s in zip(position, segment, strict=True)],
    }


def _names(ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """Pieces, with what cannot be seen written out."""
    return [
        "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in piece)
        for piece in tokenizer.pieces(ids)
    ]


def _table(columns: Columns) -> list[str]:
    """Columns side by side, each as wide as its widest entry."""
    entries = [[name, *column] for name, column in columns.items()]
    widths = [max(map(_width, column)) for column in entries]
    return [
        "  "
        + "  ".join(
            text + " " * (width - _width(text)) for text, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in zip(*entries, strict=True)
    ]


def _width(text: str) -> int:
    """Cells of a terminal: two for a wide character, none for a mark on the one before."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )
