"""Curves and heatmaps: axes hold what they should, means keep the mean, tokens of every script are shown."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.insight import Heatmap, heatmap_svg, save_heatmap_png
from triptych.insight.curves import Axis, Series, line_chart, moving, smooth, thin
from triptych.insight.markup import escape, number, span_of_time, visible
from triptych.insight.pictures import fit, width_of

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20)
POSITIVE = st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20)
SVG = "{http://www.w3.org/2000/svg}"
PNG = b"\x89PNG\r\n\x1a\n"


@given(VALUES, st.booleans())
def test_a_linear_axis_holds_all_and_has_a_few_even_ticks(values: list[float], zero: bool) -> None:
    axis = Axis.over(values, zero=zero)
    slack = 1e-6 * max(map(abs, (axis.low, axis.high)))
    assert axis.low <= min(values) + slack and max(values) - slack <= axis.high
    assert not zero or axis.low <= 0
    assert 2 <= len(axis.ticks) <= 8 and axis.ticks[0] == axis.low and axis.ticks[-1] == axis.high
    gaps = [b - a for a, b in zip(axis.ticks, axis.ticks[1:], strict=False)]
    assert max(gaps) == pytest.approx(min(gaps), rel=1e-3)
    assert (axis.place(axis.low), axis.place(axis.high)) == (0, 1)


@given(POSITIVE)
def test_a_log_axis_keeps_ratios(values: list[float]) -> None:
    axis = Axis.over(values, log=True)
    assert axis.low < min(values) and max(values) < axis.high
    assert all(axis.low <= t <= axis.high for t in axis.ticks)
    middle = math.sqrt(axis.low * axis.high)
    assert axis.place(middle) == pytest.approx(0.5)


def test_ticks_are_round() -> None:
    assert Axis.over([3, 98]).ticks == (0, 20, 40, 60, 80, 100)
    assert Axis.over([0.2, 40], log=True).ticks == (0.2, 0.5, 1, 2, 5, 10, 20)


@given(st.integers(1, 500), st.integers(2, 60))
def test_thinning_keeps_the_mean_and_the_order(n: int, most: int) -> None:
    points = [(float(i), math.sin(i)) for i in range(n)]
    few = thin(points, most)
    assert len(few) <= most and few == sorted(few)
    if n % len(few) == 0:
        assert sum(y for _, y in few) / len(few) == pytest.approx(sum(y for _, y in points) / n)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.integers(0, 9))
def test_smoothing_stays_within_and_leaves_a_line_alone(values: list[float], half: int) -> None:
    soft = smooth([(float(i), y) for i, y in enumerate(values)], half)
    assert all(min(values) - 1e-6 <= y <= max(values) + 1e-6 for _, y in soft)
    assert soft[0][1] == pytest.approx(values[0])  # nothing from the right pulls a falling loss down
    level = smooth([(float(i), 3.0) for i in range(len(values))], half)
    assert all(y == pytest.approx(3) for _, y in level)


def test_moving_mean_has_less_noise() -> None:
    noisy = [(float(i), 2.0 + (-1) ** i) for i in range(400)]
    assert max(abs(y - 2) for _, y in moving(noisy)[20:]) < 0.1


def test_a_chart_breaks_at_a_gap_and_skips_nothing_else() -> None:
    points = [(1.0, 1.0), (2.0, 2.0), (3.0, math.nan), (4.0, 4.0), (5.0, 5.0)]
    svg = line_chart([Series("loss", points, dots=True)], label="x")
    path = re.search(r'class="line one" d="([^"]*)"', svg)
    assert path is not None and path[1].count("M") == 2 and path[1].count("L") == 2
    assert svg.count("<circle") == 4
    assert line_chart([Series("loss", [(1.0, math.nan)])], label="x") == ""
    assert line_chart([], label="x") == ""


def test_a_chart_takes_a_logarithm_over_wide_ranges_only() -> None:
    def heights(values: list[float], **how: str) -> list[float]:
        points = [(float(i), y) for i, y in enumerate(values)]
        svg = line_chart([Series("a", points, dots=True)], label="x", **how)  # type: ignore[arg-type]
        return [float(y) for y in re.findall(r'cy="([\d.]+)"', svg)]

    a, b, c = heights([1, 10, 100])
    assert a - b == pytest.approx(b - c, abs=0.2)
    a, b, c = heights([1, 10, 100], scale="linear")
    assert (b - c) == pytest.approx(10 * (a - b), rel=0.05)
    a, b, c = heights([2, 4, 8])
    assert (b - c) == pytest.approx(2 * (a - b), rel=0.05)


def test_the_lowest_point_is_marked() -> None:
    svg = line_chart([Series("v", [(1.0, 3.0), (2.0, 1.25), (3.0, 2.0)], dots=True, mark=True)], label="x")
    ring = re.search(r'class="ring one" cx="([\d.]+)" cy="([\d.]+)"', svg)
    assert ring is not None and ">1.25</text>" in svg
    assert float(ring[2]) == max(
        float(y) for y in re.findall(r'class="dot one" cx="[\d.]+" cy="([\d.]+)"', svg)
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12345, "12,345"),
        (1.67849, "1.678"),
        (0.0005, "0.0005"),
        (5e-7, "5·10⁻⁷"),
        (1e-9, "10⁻⁹"),
        (-2.5, "-2.5"),
        (100, "100"),
        (3e20, "3·10²⁰"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_times_are_short() -> None:
    seconds = (0, 59.4, 60, 61, 900, 3600, 7500, math.nan)
    assert [span_of_time(s) for s in seconds] == [
        "0 s", "59 s", "1 min", "1 min 1 s", "15 min", "1 h", "2 h 5 min", "–",
    ]  # fmt: skip


def test_tokens_without_ink_are_seen() -> None:
    assert [visible(t) for t in ("", " ", "\n", "a b", "\x00", "猫")] == ["∅", "␣", "␊", "a␣b", "␀", "猫"]
    assert escape("\x07\ud800<") == "\ufffd\ufffd&lt;"


@given(st.text(max_size=60), st.floats(2, 30))
def test_labels_fit(text: str, ems: float) -> None:
    cut = fit(text, ems)
    assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]) and width_of(cut) <= ems + 1e-9)


def test_a_label_is_not_cut_before_its_mark() -> None:
    assert fit("e\u0301" * 30, 5).removesuffix("…").endswith("\u0301")


def cells(svg: str) -> dict[str, float]:
    """What hovering over each cell says, and how strong the cell is drawn."""
    root = ET.fromstring(svg)
    found = {}
    for rect in root.iter(f"{SVG}rect"):
        title = rect.find(f"{SVG}title")
        if title is not None and title.text is not None:
            found[title.text] = float(rect.attrib["fill-opacity"])
    return found


def test_each_weight_is_its_cell() -> None:
    heatmap = Heatmap(["a", "b", "c"], ["x", "y"], [[0.5, 0.25, 0.25], [0.0, 1.0, math.nan]])
    assert cells(heatmap_svg(heatmap, standalone=True)) == {
        "x → a: 0.500": 0.5,
        "x → b: 0.250": 0.25,
        "x → c: 0.250": 0.25,
        "y → b: 1.000": 1.0,
    }


def test_a_picture_of_its_own_is_xml_in_every_script() -> None:
    tokens = ["猫", "▁קטן", "<s>", "&", "ก็", "\x00", "🙂", "a" * 60]
    heatmap = Heatmap(tokens, tokens, [[0.125] * 8] * 8, 'a "title"')
    root = ET.fromstring(heatmap_svg(heatmap, standalone=True))
    shown = [t.text for t in root.iter(f"{SVG}text")]
    for token in tokens[:5]:
        assert shown.count(token) == 2
    assert shown.count("␀") == 2 and root.attrib["aria-label"] == 'a "title"'
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
        assert x >= 0 and x + w <= width and y >= 0 and y + h <= height


@pytest.mark.parametrize(("source", "target"), [([], []), (["a"], []), ([], ["b"])])
def test_no_tokens_no_picture(source: list[str], target: list[str], tmp_path: Path) -> None:
    heatmap = Heatmap(source, target, [[] for _ in target])
    assert heatmap_svg(heatmap) == ""


def test_weights_must_fit_the_tokens() -> None:
    with pytest.raises(AssertionError):
        Heatmap(["a"], ["b"], [[0.5, 0.5]])
    with pytest.raises(AssertionError):
        Heatmap(["a"], ["b", "c"], [[1.0]])


def test_png_where_the_font_has_the_letters(tmp_path: Path) -> None:
    """DejaVu Sans, which comes with matplotlib, has Latin, Greek and Cyrillic."""
    heatmap = Heatmap(["▁river", "$x$"], ["▁река", "ποτάμι"], [[0.5, 0.5], [1, 0]], "mean")
    path = save_heatmap_png(heatmap, tmp_path / "heat.png")
    assert path == tmp_path / "heat.png" and path.read_bytes().startswith(PNG)
    assert [p.name for p in tmp_path.iterdir()] == ["heat.png"]


def test_svg_where_no_font_has_them(tmp_path: Path) -> None:
    """A private-use letter stands for a script that no installed font covers."""
    heatmap = Heatmap(["\U0010fffd"], ["a"], [[1.0]])
    path = save_heatmap_png(heatmap, tmp_path / "heat.png")
    assert path == tmp_path / "heat.svg" and [p.name for p in tmp_path.iterdir()] == ["heat.svg"]
    ET.fromstring(path.read_text(encoding="utf-8"))


def test_svg_where_matplotlib_does_not_join_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matplotlib.__version__", "3.9.2")
    path = save_heatmap_png(Heatmap(["نهر"], ["a"], [[1.0]]), tmp_path / "heat.png")
    assert path.suffix == ".svg"
    assert save_heatmap_png(Heatmap(["river"], ["a"], [[1.0]]), tmp_path / "heat.png").suffix == ".png"


def test_tensors_are_weights_too() -> None:
    import torch

    heatmap = Heatmap(["a", "b"], ["x"], torch.tensor([[0.25, 0.75]]))  # type: ignore[arg-type]
    assert heatmap.rows() == [[0.25, 0.75]]
