"""Line charts as SVG text: sharp at any size, coloured by the page's style sheet, light and dark.

points (x, y) ─ thin out ─ Axis (linear or log, round ticks) ─ <svg>
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from triptych.insight.markup import escape, number

__all__ = ["Axis", "Point", "Series", "line_chart", "moving", "smooth", "thin"]

Point = tuple[float, float]
POINTS = 600  # more than this in one line only makes the file larger
LARGEST = 1e200  # beyond it, differences and ticks overflow


@dataclass(frozen=True)
class Series:
    """Points of one line.

    Attributes:
        name: as in the legend; empty leaves it out there.
        points: ``(x, y)``, x ascending; a y that is not finite breaks the line.
        look: CSS class that colours it: ``one``, ``two``; with ``faint`` it stays in the background.
        dots: mark each point, with its value on hover.
        mark: label the lowest point.
    """

    name: str
    points: Sequence[Point]
    look: str = "one"
    dots: bool = False
    mark: bool = False


def finite(points: Iterable[Point]) -> list[Point]:
    """Without the points that cannot be drawn."""
    return [(x, y) for x, y in points if _drawable(x, y)]


def _drawable(x: float, y: float) -> bool:
    return abs(x) < LARGEST and abs(y) < LARGEST  # neither holds for NaN


def thin(points: Sequence[Point], most: int = POINTS) -> list[Point]:
    """At most ``most`` points: means over runs of neighbours of equal length (the last may be shorter)."""
    if len(points) <= most:
        return list(points)
    run = math.ceil(len(points) / most)
    groups = [points[i : i + run] for i in range(0, len(points), run)]
    return [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups]


def smooth(points: Sequence[Point], half: int) -> list[Point]:
    """Each y the mean over ``half`` neighbours on both sides.

    Near the start as many on the right as there are on the left: a loss falls steeply there, and a mean
    over the right alone would be far below it. Near the end there are fewer on the right.
    """
    total = [0.0]
    for _, y in points:
        total.append(total[-1] + y)
    result = []
    for i, (x, _) in enumerate(points):
        before = min(half, i)
        first, last = i - before, min(i + before, len(points) - 1)
        result.append((x, (total[last + 1] - total[first]) / (last + 1 - first)))
    return result


@dataclass(frozen=True)
class Axis:
    """Values ``low … high`` mapped to 0 … 1, with round ticks.

    >>> Axis.over([3, 98]).ticks
    (0.0, 20.0, 40.0, 60.0, 80.0, 100.0)
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    @staticmethod
    def over(values: Sequence[float], *, log: bool = False, zero: bool = False, steps: int = 5) -> Axis:
        """An axis that holds all ``values`` (finite; positive for ``log``), and 0 too if ``zero``."""
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        if log:
            return Axis._log(low, high, steps)
        low = min(low, 0.0) if zero else low
        if high - low <= max(1e-9 * max(abs(low), abs(high)), 1 / LARGEST):
            pad = abs(high) / 2 or 1.0
            low, high = (low if zero else low - pad), high + pad
        step = _round_step((high - low) / steps)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return Axis(first * step, last * step, tuple(i * step for i in range(first, last + 1)))

    @staticmethod
    def _log(low: float, high: float, steps: int) -> Axis:
        low, high = low / 1.05, high * 1.05
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        multiples = (1, 2, 5) if len(decades) <= steps else (1,)
        ticks = tuple(t for d in decades for t in (m * 10.0**d for m in multiples) if low <= t <= high)
        return Axis(low, high, ticks, log=True)

    def place(self, value: float) -> float:
        """0 at ``low``, 1 at ``high``."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def _round_step(rough: float) -> float:
    """The smallest 1, 2, 2.5 or 5 times a power of ten that is not below ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next((m * power for m in (1, 2, 2.5, 5) if m * power >= rough * (1 - 1e-9)), 10 * power)


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    width: int = 920,
    height: int = 340,
    scale: Literal["auto", "linear"] = "auto",
    zero: bool = False,
    x_label: str = "step",
) -> str:
    """One ``<svg>`` with all series over common axes; empty when there is nothing to draw.

    Args:
        series: drawn in the given order, the last on top.
        label: what the picture shows, for readers that do not see it.
        width: of the drawing in its own units; it scales to the page.
        height: of the drawing.
        scale: of y; ``auto`` takes a logarithm when the largest is more than ten times the smallest.
        zero: a linear y axis starts at 0.
        x_label: what x counts.
    """
    seen = [p for s in series for p in finite(s.points)]
    if not seen:
        return ""
    values = [y for _, y in seen]
    log = scale == "auto" and min(values) > 1 / LARGEST and max(values) > 10 * min(values)
    left = min(x for x, _ in seen)
    x_axis = Axis.over([0.0 if left >= 0 else left, *(x for x, _ in seen)], steps=6 if width > 600 else 4)
    y_axis = Axis.over(values, log=log, zero=zero)
    legend = [s for s in series if s.name]
    frame = _Frame(width, height, 62, 34 if len(legend) > 1 else 14, x_axis, y_axis)
    look = "chart wide" if width > 600 else "chart"
    parts = [f'<svg class="{look}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">']
    parts += frame.grid(x_label)
    for s in series:
        parts += _draw(s, frame)
    parts += [_best(s, frame) for s in series if s.mark and finite(s.points)]
    parts += _legend(legend, frame.left)
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class _Frame:
    """Where values land in the drawing."""

    width: int
    height: int
    left: int
    top: int
    x_axis: Axis
    y_axis: Axis

    @property
    def right(self) -> int:
        return self.width - 24

    @property
    def bottom(self) -> int:
        return self.height - 34

    def at(self, x: float, y: float) -> Point:
        across = self.left + (self.right - self.left) * self.x_axis.place(x)
        return across, self.bottom - (self.bottom - self.top) * self.y_axis.place(y)

    def grid(self, x_label: str) -> list[str]:
        """Lines and numbers of both axes."""
        parts = []
        for t in self.y_axis.ticks:
            y = self.at(self.x_axis.low, t)[1]
            parts.append(f'<path class="grid" d="M{self.left} {y:.1f}H{self.right}"/>')
            parts.append(f'<text x="{self.left - 9}" y="{y + 4:.1f}" class="end">{number(t)}</text>')
        for t in self.x_axis.ticks:
            x = self.at(t, self.y_axis.high)[0]
            parts.append(f'<path class="grid" d="M{x:.1f} {self.bottom}v4"/>')
            text = f"{escape(x_label)} {number(t)}" if t == self.x_axis.ticks[-1] else number(t)
            where = "end" if t == self.x_axis.ticks[-1] else "mid"
            shift = 12 if where == "end" else 0
            parts.append(f'<text x="{x + shift:.1f}" y="{self.bottom + 20}" class="{where}">{text}</text>')
        return parts


def _draw(series: Series, frame: _Frame) -> list[str]:
    """The line, broken where a value is missing, and its dots."""
    pieces, is_open = [], False
    for x, y in _thin_whole(series.points):
        if _drawable(x, y):
            across, down = frame.at(x, y)
            # h0: a point without neighbours still shows, as a dot of the line's width
            pieces.append(f"L{across:.1f} {down:.1f}" if is_open else f"M{across:.1f} {down:.1f}h0")
        is_open = _drawable(x, y)
    parts = [f'<path class="line {series.look}" d="{"".join(pieces)}"/>']
    if series.dots and len(series.points) <= POINTS:
        for x, y in finite(series.points):
            across, down = frame.at(x, y)
            tip = f"{escape(series.name)}, step {number(x)}: {number(y)}"
            parts.append(
                f'<circle class="dot {series.look}" cx="{across:.1f}" cy="{down:.1f}" r="3.5">'
                f"<title>{tip}</title></circle>"
            )
    return parts


def _thin_whole(points: Sequence[Point]) -> Iterable[Point]:
    """Thinned out, unless a gap would be lost in a mean."""
    return thin(points) if len(finite(points)) == len(points) else points


def _best(series: Series, frame: _Frame) -> str:
    """A ring and the value at the lowest point; the text stays inside the frame."""
    x, y = min(finite(series.points), key=lambda p: p[1])
    across, down = frame.at(x, y)
    share = (across - frame.left) / (frame.right - frame.left)
    where = "start" if share < 0.12 else "end" if share > 0.88 else "mid"
    text_y = down - 14 if down > frame.bottom - 30 else down + 24
    return (
        f'<circle class="ring {series.look}" cx="{across:.1f}" cy="{down:.1f}" r="6.5"/>'
        f'<text class="best {where}" x="{across:.1f}" y="{text_y:.1f}">{number(y)}</text>'
    )


def _legend(series: Sequence[Series], left: int) -> list[str]:
    """Names above the drawing, left to right; text width is guessed, so with room to spare."""
    if len(series) < 2:
        return []
    parts, x = [], float(left)
    for s in series:
        parts.append(f'<path class="line {s.look}" d="M{x:.0f} 14h18"/>')
        parts.append(f'<text x="{x + 26:.0f}" y="18">{escape(s.name)}</text>')
        x += 26 + 7.5 * len(s.name) + 22
    return parts


def moving(points: Sequence[Point]) -> list[Point]:
    """The trend of noisy points: a centred mean over about a twentieth of them."""
    good = finite(points)
    return smooth(good, max(1, len(good) // 40))
