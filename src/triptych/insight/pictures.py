"""Attention as a picture: target tokens down, source tokens across, darker where more is looked at. And a
confusion matrix: right classes down, said ones across.

The SVG leaves the drawing of letters to the browser, which has or finds a font for every script and knows
right-to-left and joined writing. The PNG is matplotlib's, for places that show no SVG.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from triptych.insight.markup import escape, number, visible

if TYPE_CHECKING:
    from matplotlib.font_manager import FontEntry

__all__ = ["Confusion", "Heatmap", "confusion_svg", "heatmap_svg", "save_heatmap_png"]

LONGEST = 18  # ems of a label; what is longer is cut, and whole on hover
MOST_CLASSES = 30  # in a confusion matrix; the rarest of more are one row and column
_SIDES = "right ↓ said →"
FAINTEST = 0.01  # share of the strongest weight; below it a cell looks empty
# In a file of its own the picture brings its colours along.
_STYLE = (
    "<style>.heatmap{background:#fff;font:13px system-ui,sans-serif}.heatmap text{fill:#333}"
    ".cell{fill:#1d5fa8}.box{fill:none;stroke:#bbb}.end{text-anchor:end}.mid{text-anchor:middle}</style>"
)


@dataclass(frozen=True)
class Heatmap:
    """Weights of attention over one sentence pair.

    Attributes:
        source_tokens: S tokens, as they should be shown.
        target_tokens: T tokens.
        weights: ``[T][S]``; row t says where target token t looked. Lists, an array or a tensor.
        title: one line.
    """

    source_tokens: Sequence[str]
    target_tokens: Sequence[str]
    weights: Sequence[Sequence[float]]
    title: str = ""

    def __post_init__(self) -> None:
        wide = {len(row) for row in self.weights}
        assert len(self.weights) == len(self.target_tokens), "a row of weights for each target token"
        assert wide <= {len(self.source_tokens)}, "a weight for each source token"

    def rows(self) -> list[list[float]]:
        """Weights as plain floats; 0 for what is not a number above 0."""
        rows = [[float(w) for w in row] for row in self.weights]
        return [[w if 0 < w < math.inf else 0.0 for w in row] for row in rows]


def width_of(text: str) -> float:
    """About how many ems wide a browser draws ``text``: enough to leave room for it."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    marks = sum(unicodedata.category(c) in ("Mn", "Me", "Cf") for c in text)
    capitals = sum(c.isupper() or c in "mw@%_" for c in text)
    return wide + 0.58 * (len(text) - wide - marks) + 0.14 * capitals


def fit(text: str, ems: float = LONGEST) -> str:
    """``text``, cut and ended by … when it is wider than ``ems``."""
    if width_of(text) <= ems:
        return text
    kept = text
    while kept and (width_of(kept) > ems - 1 or unicodedata.category(text[len(kept)]).startswith("M")):
        kept = kept[:-1]
    return kept + "…"


def heatmap_svg(
    heatmap: Heatmap, *, source_language: str = "", target_language: str = "", standalone: bool = False
) -> str:
    """The picture as ``<svg>`` text; empty when there are no tokens on one side.

    Args:
        heatmap: what to draw.
        source_language: code, so that a browser takes the fonts for it.
        target_language: code.
        standalone: for a file of its own: with a name space and its own colours, instead of the page's.
    """
    rows, sources, targets = heatmap.rows(), heatmap.source_tokens, heatmap.target_tokens
    if not sources or not targets:
        return ""
    cell = 30 if len(sources) <= 24 else 22
    left = 24 + 13 * max(width_of(fit(visible(t))) for t in targets)
    lean = 13 * max(width_of(fit(visible(s))) for s in sources) * 0.71  # labels stand at 45°
    top = 24 + lean
    wide, high = cell * len(sources), cell * len(targets)
    width, height = left + wide + max(20.0, lean - cell / 2 + 12), top + high + 62
    strongest = max(map(max, rows)) or 1.0
    space = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    parts = [
        f'<svg{space} class="heatmap" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(heatmap.title)}">',
        _STYLE if standalone else "",
    ]
    for s, token in enumerate(sources):
        x, y = left + cell * (s + 0.5) + 4, top - 8
        place = f'transform="translate({x:.1f} {y:.1f}) rotate(-45)"'
        parts.append(_label(visible(token), place, "start", source_language))
    for t, token in enumerate(targets):
        place = f'x="{left - 10:.1f}" y="{top + cell * (t + 0.5) + 4.5:.1f}"'
        parts.append(_label(visible(token), place, "end", target_language))
    parts += _cells(heatmap, rows, strongest, left, top, cell)
    parts.append(f'<rect class="box" x="{left:.1f}" y="{top:.1f}" width="{wide}" height="{high}"/>')
    parts += _scale(strongest, left, top + high + 22)
    return "".join([*parts, "</svg>"])


def _label(shown: str, place: str, where: str, language: str = "") -> str:
    """A token or a class; its direction is its own, its anchor the picture's.

    A right-to-left text has its start on the right, so ``start`` and ``end`` swap sides there.
    """
    rtl = _right_to_left(shown)
    side = {"start": "end", "end": "start"}[where] if rtl else where
    turn = ' direction="rtl"' if rtl else ""
    lang = f' lang="{escape(language)}"' if language else ""
    text = escape(fit(shown))
    whole = f"<title>{escape(shown)}</title>" if fit(shown) != shown else ""
    return f'<text class="{side}" {place}{turn}{lang}>{text}{whole}</text>'


def _right_to_left(text: str) -> bool:
    """By the first letter that has a direction (Unicode Standard Annex 9, rules P2 and P3)."""
    strong = (unicodedata.bidirectional(c) for c in text)
    return next((b != "L" for b in strong if b in ("L", "R", "AL")), False)


def _cells(
    heatmap: Heatmap, rows: list[list[float]], strongest: float, left: float, top: float, cell: int
) -> Iterable[str]:
    for t, row in enumerate(rows):
        for s, weight in enumerate(row):
            share = weight / strongest
            if share < FAINTEST:
                continue
            tip = f"{visible(heatmap.target_tokens[t])} → {visible(heatmap.source_tokens[s])}: {weight:.3f}"
            yield (
                f'<rect class="cell" x="{left + cell * s:.1f}" y="{top + cell * t:.1f}" width="{cell}" '
                f'height="{cell}" fill-opacity="{share:.3f}"><title>{escape(tip)}</title></rect>'
            )


def _scale(strongest: float, left: float, y: float) -> Iterable[str]:
    """A strip from no weight to the strongest."""
    for i in range(10):
        yield (
            f'<rect class="cell" x="{left + 26 + 14 * i:.1f}" y="{y:.1f}" width="14" height="12" '
            f'fill-opacity="{(i + 0.5) / 10:.2f}"/>'
        )
    yield f'<rect class="box" x="{left + 26:.1f}" y="{y:.1f}" width="140" height="12"/>'
    yield f'<text x="{left + 18:.1f}" y="{y + 10.5:.1f}" class="end">0</text>'
    yield f'<text x="{left + 174:.1f}" y="{y + 10.5:.1f}">{number(strongest, 2)}</text>'


# -- confusion ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Confusion:
    """Which classes were taken for which.

    Attributes:
        labels: K names.
        counts: ``[K][K]`` examples; row: the right class, column: the one said.
        title: one line.
    """

    labels: Sequence[str]
    counts: Sequence[Sequence[int]]
    title: str = ""

    def __post_init__(self) -> None:
        assert len(self.counts) == len(self.labels), "a row for each class"
        assert {len(row) for row in self.counts} <= {len(self.labels)}, "a column for each class"

    def folded(self, most: int = MOST_CLASSES) -> Confusion:
        """At most so many classes: the rarest are taken together, as the last one."""
        if len(self.labels) <= most:
            return self
        by_size = sorted(range(len(self.labels)), key=lambda k: -sum(self.counts[k]))
        kept = sorted(by_size[: most - 1])
        groups = [*([k] for k in kept), sorted(by_size[most - 1 :])]
        counts = [
            [sum(self.counts[r][c] for r in down for c in across) for across in groups] for down in groups
        ]
        return Confusion([*(self.labels[k] for k in kept), f"{len(groups[-1])} others"], counts, self.title)


def confusion_svg(confusion: Confusion, *, standalone: bool = False) -> str:
    """The picture as ``<svg>`` text; empty without classes. A cell is as dark as its share of its row, and
    holds its count; of more than ``MOST_CLASSES`` the rarest are one.

    Args:
        standalone: for a file of its own: with a name space and its own colours, instead of the page's.
    """
    shown = confusion.folded()
    labels, K = shown.labels, len(shown.labels)
    if not K:
        return ""
    cell = 40 if K <= 12 else 30
    widest = 13 * max(width_of(fit(label)) for label in labels)
    left = 24 + max(widest, 13 * width_of(_SIDES))
    lean = 0.71 * widest  # labels across stand at 45°
    top, size = 42 + lean, cell * K
    width, height = left + size + max(20.0, lean - cell / 2 + 12), top + size + 16
    space = ' xmlns="http://www.w3.org/2000/svg"' if standalone else ""
    parts = [
        f'<svg{space} class="heatmap" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(shown.title)}">',
        _STYLE if standalone else "",
        f'<text class="end" x="{left - 10:.1f}" y="{top - 8:.1f}">{_SIDES}</text>',
    ]
    for k, label in enumerate(labels):
        x, y = left + cell * (k + 0.5) + 4, top - 8
        parts.append(_label(label, f'transform="translate({x:.1f} {y:.1f}) rotate(-45)"', "start"))
        parts.append(_label(label, f'x="{left - 10:.1f}" y="{top + cell * (k + 0.5) + 4.5:.1f}"', "end"))
    for r, row in enumerate(shown.counts):
        for c, count in enumerate(row):
            if count:
                tip = f"{labels[r]} → {labels[c]}: {count:,} of {sum(row):,}"
                parts += _counted(count, count / sum(row), tip, left + cell * c, top + cell * r, cell)
    parts.append(f'<rect class="box" x="{left:.1f}" y="{top:.1f}" width="{size}" height="{size}"/>')
    return "".join([*parts, "</svg>"])


def _counted(count: int, share: float, tip: str, x: float, y: float, cell: int) -> Iterable[str]:
    """A cell with its count, which is white where the cell is dark."""
    title = f"<title>{escape(tip)}</title>"
    yield (
        f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{cell}" height="{cell}" '
        f'fill-opacity="{share:.3f}">{title}</rect>'
    )
    text = f"{count:,}" if count < 10_000 else f"{number(count / 1000, 2)}k"
    colour, points = "#fff" if share > 0.5 else "#333", min(12.0, 1.7 * (cell - 4) / len(text))
    yield (
        f'<text class="mid" x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}" '
        f'style="fill:{colour};font-size:{points:.1f}px">{text}{title}</text>'
    )


# -- PNG ---------------------------------------------------------------------------------------------------


def save_heatmap_png(heatmap: Heatmap, path: Path) -> Path:
    """Draw the heatmap with matplotlib; as SVG beside ``path`` when no installed font has all its letters.

    Returns:
        The file written: ``path``, or the same name with ``.svg``.

    Raises:
        UserError: the file cannot be written.
    """
    from triptych.text.files import write_bytes_atomic, write_text_atomic

    shown = [visible(t) for t in (*heatmap.source_tokens, *heatmap.target_tokens)]
    fonts = _fonts("".join((*shown, heatmap.title)))
    if fonts is None or not heatmap.source_tokens or not heatmap.target_tokens:
        path = path.with_suffix(".svg")
        write_text_atomic(path, heatmap_svg(heatmap, standalone=True))
        return path
    write_bytes_atomic(path, _png(heatmap, fonts))
    return path


def _png(heatmap: Heatmap, fonts: list[str]) -> bytes:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.family": fonts, "font.size": 10, "text.parse_math": False}):
        size = (2.5 + 0.36 * len(heatmap.source_tokens), 2 + 0.36 * len(heatmap.target_tokens))
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        image = axes.imshow(heatmap.rows(), cmap="Blues", vmin=0, aspect="equal")
        for axis, tokens in ((axes.xaxis, heatmap.source_tokens), (axes.yaxis, heatmap.target_tokens)):
            axis.set_ticks(range(len(tokens)), [fit(visible(t)) for t in tokens])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        for label in axes.get_xticklabels():
            label.set(rotation=45, ha="left", rotation_mode="anchor")
        axes.set_xlabel(heatmap.title, labelpad=10)
        figure.colorbar(image, ax=axes, fraction=0.04, aspect=30)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", bbox_inches="tight")
        return buffer.getvalue()


def _fonts(text: str) -> list[str] | None:
    """Font families that together have every letter of ``text``, in the order to ask them; None without.

    Before matplotlib 3.11 letters stand side by side as they come, which is wrong for right-to-left and
    joined scripts: None there too.
    """
    import matplotlib as mpl
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    shaped = any(unicodedata.bidirectional(c) in ("R", "AL") or unicodedata.combining(c) for c in text)
    version = tuple(int(n) for n in re.findall(r"\d+", mpl.__version__)[:2])
    if shaped and version < (3, 11):
        return None
    missing = {ord(c) for c in text if unicodedata.category(c) not in ("Cf", "Cc", "Zs")}
    families: list[str] = []
    for entry in _by_preference(font_manager.fontManager.ttflist):
        try:
            found = missing & FT2Font(entry.fname).get_charmap().keys()
        except (OSError, RuntimeError):  # a broken font file is not ours to mend
            continue
        if found or not families:
            families.append(entry.name)
            missing -= found
        if not missing:
            return families
    return None


def _by_preference(entries: Iterable[FontEntry]) -> list[FontEntry]:
    """Upright fonts of normal weight: matplotlib's own first, then Noto, then the others.

    Without "Last Resort", which has a picture of an unknown letter for every letter.
    """

    def rank(entry: FontEntry) -> tuple[int, str]:
        names = ("DejaVu Sans", "Noto Sans")
        return next((i for i, n in enumerate(names) if entry.name.startswith(n)), len(names)), entry.name

    usable = (e for e in entries if e.style == "normal" and e.weight in (400, "normal", "regular"))
    return sorted((e for e in usable if not e.name.startswith("Last Resort")), key=rank)
