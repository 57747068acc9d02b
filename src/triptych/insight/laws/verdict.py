"""What a law says: comparisons, the verdict they add up to, and how verdicts are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Status = Literal["holds", "broken", "skipped"]

# In float64 a forward pass of dozens of layers rounds to about 1e-13; a fault moves at least 1e-5.
EXACT = 1e-9
# Search hands logits on in fp32, and the loss takes its log-softmax in fp32, which rounds to 6e-8.
SINGLE = 1e-5
# Rotary angles are in fp32: at position p an angle is off by up to p · 6e-8, and a norm by a few 6e-8.
ANGLE = 1e-4


@dataclass(frozen=True)
class Verdict:
    """A law's outcome.

    Attributes:
        seen: what was compared, with figures; for a skipped law, why it was skipped.
        cause: the likely cause in words; empty unless broken.
        place: the file of the package to look at; empty unless broken.
        seconds: how long the check took.
    """

    number: int
    name: str
    status: Status
    seen: str
    cause: str = ""
    place: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Compared:
    """One comparison of a law.

    ``cause`` and ``place`` stand in for the law's own when this comparison fails for another reason.
    """

    what: str
    holds: bool
    figure: str
    difference: float = 0.0
    cause: str = ""
    place: str = ""


class Skip(Exception):  # noqa: N818 - not an error
    """The law says nothing about this model; the message says why."""


def close(
    what: str,
    got: Tensor | Sequence[Tensor],
    want: Tensor | Sequence[Tensor],
    tolerance: float = EXACT,
    cause: str = "",
    place: str = "",
) -> Compared:
    """The largest difference is within tolerance, relative to the largest wanted value (1 if smaller)."""
    difference = distance(got, want)
    figure = f"largest difference {difference:.1e}, tolerance {tolerance:.0e}"
    return Compared(what, difference <= tolerance, figure, difference, cause, place)


def differ(
    what: str, one: Tensor | Sequence[Tensor], other: Tensor | Sequence[Tensor], cause: str
) -> Compared:
    """Two results that must not be the same."""
    difference = distance(one, other)
    return Compared(
        what, difference > EXACT, f"largest difference {difference:.1e}, and there must be one", 0, cause
    )


def true(what: str, holds: bool, figure: str = "", cause: str = "", place: str = "") -> Compared:
    """A condition, with the figures that show it."""
    return Compared(what, bool(holds), figure, 0.0, cause, place)


def distance(got: Tensor | Sequence[Tensor], want: Tensor | Sequence[Tensor]) -> float:
    """Largest difference relative to the largest wanted value; infinite for other shapes or NaN."""
    ones = [got] if isinstance(got, Tensor) else list(got)
    others = [want] if isinstance(want, Tensor) else list(want)
    if [x.shape for x in ones] != [x.shape for x in others]:
        return math.inf
    pairs = [(a.double(), b.double()) for a, b in zip(ones, others, strict=True) if a.numel()]
    if not pairs:
        return 0.0
    scale = max(1.0, *(float(b.abs().max()) for _, b in pairs))
    worst = torch.stack([(a - b).abs().max() for a, b in pairs]).max()
    return float(worst) / scale if bool(worst.isfinite()) else math.inf


def summary(seen: Sequence[Compared], notes: Sequence[str]) -> str:
    """A line for a law that holds: how many comparisons, and the one that came nearest to failing."""
    worst = max(seen, key=lambda c: c.difference)
    many = f"{len(seen)} comparisons" if len(seen) > 1 else "1 comparison"
    nearest = f"; {worst.what}: {worst.figure}" if worst.figure else f"; {worst.what}"
    return f"{many}{nearest}" + "".join(f"; {note}" for note in notes)


def table(verdicts: Sequence[Verdict]) -> str:
    """Verdicts as text, a line each; a broken law with what was seen, its likely cause and its place."""
    width = max((len(v.name) for v in verdicts), default=0)
    lines = []
    for v in verdicts:
        head = (
            f"{v.number:>3}  {v.name:<{width}}  {v.status.upper() if v.status == 'broken' else v.status:<7}"
        )
        lines.append(f"{head}  {v.seconds:6.2f} s  {v.seen}")
        if v.status == "broken":
            lines += [f"{'':>5}likely cause: {v.cause}", f"{'':>5}look in: {v.place}"]
    count = {status: sum(v.status == status for v in verdicts) for status in ("holds", "broken", "skipped")}
    lines.append(f"{count['holds']} hold, {count['broken']} broken, {count['skipped']} skipped")
    return "\n".join(lines)
