"""The confusion matrix as a picture: what each cell says, how dark it is, and that all of it can be read."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.insight import Confusion, confusion_svg
from triptych.insight.pictures import MOST_CLASSES, width_of

SVG = "{http://www.w3.org/2000/svg}"


def drawn(confusion: Confusion) -> ET.Element:
    return ET.fromstring(confusion_svg(confusion, standalone=True))


def cells(root: ET.Element) -> dict[str, float]:
    """What hovering over each cell says, and how dark it is."""
    titled = ((rect.find(f"{SVG}title"), rect) for rect in root.iter(f"{SVG}rect"))
    return {str(t.text): float(rect.attrib["fill-opacity"]) for t, rect in titled if t is not None}


def test_each_count_is_its_cell() -> None:
    """As dark as its share of its row; nothing where nothing was said."""
    root = drawn(Confusion(["cats", "no cats"], [[3, 1], [0, 12345]], "who is who"))
    assert cells(root) == {
        "cats → cats: 3 of 4": 0.75,
        "cats → no cats: 1 of 4": 0.25,
        "no cats → no cats: 12,345 of 12,345": 1.0,
    }
    texts = [(t.text, t.attrib.get("style", "")) for t in root.iter(f"{SVG}text")]
    said = [(text, re.search(r"fill:(#\w+)", style)[1]) for text, style in texts if style]  # type: ignore[index]
    assert said == [("3", "#fff"), ("1", "#333"), ("12k", "#fff")], "white on dark, dark on light"
    assert [text for text, style in texts if not style] == [
        "right ↓ said →",
        "cats",
        "cats",
        "no cats",
        "no cats",
    ]
    assert root.attrib["aria-label"] == "who is who"


@pytest.mark.parametrize("classes", [1, 2, 12, 13, 30])
def test_all_of_it_can_be_read(classes: int) -> None:
    """Cells do not overlap, a count fits its cell, letters are not tiny, nothing stands outside."""
    labels = [f"class number {k}" for k in range(classes)]
    root = drawn(Confusion(labels, [[9999] * classes] * classes))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    places, sizes = set(), set()
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        if rect.attrib["class"] == "cell":
            places.add((x, y))
            sizes.add((w, h))
    (cell,) = sizes
    assert len(places) == classes**2
    assert min((abs(a - b) for a, _ in places for b, _ in places if a != b), default=cell[0]) >= cell[0] - 0.1
    for text in root.iter(f"{SVG}text"):
        if size := re.search(r"font-size:([\d.]+)px", text.attrib.get("style", "")):
            assert float(size[1]) >= 8 and float(size[1]) * width_of(str(text.text)) <= cell[0]
        elif text.attrib["class"] == "end":
            assert float(text.attrib["x"]) - 13 * width_of(str(text.text)) >= 0, "labels stand inside"


def test_the_rarest_of_many_classes_are_one() -> None:
    """Nothing is lost: the counts of all that is taken together add up."""
    K = 40
    counts = [[(r * 7 + c * 3) % 11 for c in range(K)] for r in range(K)]
    for r in (3, 17):
        counts[r] = [1000 if c == r else 1 for c in range(K)]
    whole = Confusion([f"c{k}" for k in range(K)], counts, "title")
    shown = whole.folded()
    assert len(shown.labels) == MOST_CLASSES and shown.labels[-1] == "11 others" and shown.title == "title"
    assert {"c3", "c17"} <= set(shown.labels)
    assert sum(map(sum, shown.counts)) == sum(map(sum, counts))
    kept = [int(label[1:]) for label in shown.labels[:-1]]
    assert kept == sorted(kept)
    for i, r in enumerate(kept):
        assert sum(shown.counts[i]) == sum(counts[r])
        assert [shown.counts[i][j] for j in range(len(kept))] == [counts[r][c] for c in kept]
    assert "11 others" in confusion_svg(whole)


@given(st.integers(1, 6), st.integers(1, 6))
def test_a_few_classes_are_as_they_are(classes: int, most: int) -> None:
    whole = Confusion([str(k) for k in range(classes)], [[1] * classes] * classes)
    assert len(whole.folded(most).labels) == min(classes, most)


def test_labels_are_text() -> None:
    root = drawn(Confusion(["<b>", "קטן", "a" * 90], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]))
    shown = [t.text for t in root.iter(f"{SVG}text")]
    assert shown.count("<b>") == 2 and shown.count("קטן") == 2 and any(str(t).endswith("…") for t in shown)


def test_no_classes_no_picture() -> None:
    assert confusion_svg(Confusion([], [])) == ""
    with pytest.raises(AssertionError):
        Confusion(["a"], [[1, 2]])
