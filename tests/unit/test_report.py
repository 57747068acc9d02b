"""The report: well-formed, whole in itself, escaped, and never stopped by a number that is none."""

from __future__ import annotations

import base64
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triptych.config import RunConfig
from triptych.errors import UserError
from triptych.evaluation import score
from triptych.insight import Heatmap, Sample, write_report

VOID = {"meta", "br", "img", "input", "hr", "link", "wbr"}
EVIL = "<script>alert('x')</script>\"&'<img src=http://evil.example/x.png onerror=alert(1)>"
CONFIG = RunConfig.model_validate({"text": {"source": "en", "target": "ar"}, "model": {"vocab": 6000}})
FLOATS = st.floats() | st.sampled_from([0.0, 1e-320, 1e308, -1e308]) | st.none() | st.text(max_size=3)


class Page(HTMLParser):
    """Parses, and fails on a tag that is not closed, or closed out of order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in {tag}: {names}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, f"<{tag}/> outside of SVG is not closed in HTML"
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))


def train(step: int, /, **values: Any) -> dict[str, Any]:
    """A record as training writes it."""
    record = {
        "kind": "train",
        "step": step,
        "time": 1.76e9 + step,
        "loss": 6.0 / step + 2,
        "nll": 5.0 / step + 1,
        "gradient_norm": 1.5,
        "learning_rate": 1e-4 * step,
        "tokens_per_second": 4000.0 + step,
        "memory_mb": 900.0,
        "epoch": 0,
        "progress": step / 10,
        "spent": step * 1.0,
    }
    return record | values


METRICS = [
    *(train(s) for s in range(1, 11)),
    {"kind": "plan", "step": 2, "time": 1.76e9, "steps_left": 8, "step_seconds": 1.0},
    {"kind": "valid", "step": 5, "time": 1.76e9, "nll": 2.25, "perplexity": 9.49, "tokens": 100},
    {"kind": "valid", "step": 10, "time": 1.76e9, "nll": 2.75, "perplexity": 15.6, "tokens": 100},
    {"kind": "final", "step": 10, "time": 1.76e9, "parameters": 1234567, "averaged": 4},
]
SAMPLES = [Sample("Where is it?", "أين هو؟", "أين هو؟"), Sample("a < b & c", "ب", "ج")]
HEATMAP = Heatmap(
    ["▁Where", "▁is", "▁it", "?"], ["▁أين", "▁هو", "؟"], [[0.7, 0.1, 0.1, 0.1]] * 3, "Mean over heads"
)
SCORES = score(["أين هو؟", "ج"], ["أين هو؟", "ب"], "ar", resamples=50).to_dict()


def write(folder: Path, **changes: Any) -> tuple[Page, str]:
    parts: dict[str, Any] = {
        "title": "A run",
        "config": CONFIG.model_dump(mode="json"),
        "metrics": METRICS,
        "samples": SAMPLES,
        "scores": SCORES,
        "heatmap": HEATMAP,
        "notes": ["Three pairs were left out."],
    }
    path = write_report(folder, **parts | changes)
    assert path == folder / "report.html" and [p.name for p in folder.iterdir()] == ["report.html"]
    text = path.read_text(encoding="utf-8")
    return Page(text), text


def test_losses_and_speed_are_of_what_was_counted(tmp_path: Path) -> None:
    words = write(tmp_path)[0].words
    assert "Nats per token" in words and "Tokens a second" in words and "tokens/s" in words
    words = write(tmp_path, metrics=[train(s, unit="images") for s in (1, 2, 3)])[0].words
    assert "Nats per image" in words
    assert "Images a second" in words and "images/s" in words and "tokens/s" not in words


def test_holds_what_it_was_given(tmp_path: Path) -> None:
    page, text = write(tmp_path)
    for wanted in (
        "A run",
        "en → ar",
        "1,234,567",  # parameters
        "6,000 entries",
        "encoder–decoder, 6 + 6 layers",
        f"{SCORES['bleu']['score']:.2f}",
        f"{SCORES['chrf']['low']:.2f} to {SCORES['chrf']['high']:.2f}",
        "2.25",  # the best validation loss, not the last
        "Three pairs were left out.",
        "rough guide",  # a note of the scores
        "a < b & c",
        "أين هو؟",
        "▁Where",
        "label_smoothing: 0.1",  # in the whole config
        "Mean over heads",
    ):
        assert wanted in page.words, wanted
    assert SCORES["bleu"]["signature"] in text.replace("<wbr>", "")
    assert len([a for a in page.all("svg") if "chart" in (a.get("class") or "")]) == 5
    assert page.all("details")


def test_loads_nothing(tmp_path: Path) -> None:
    """No script, no link, nothing fetched; and the page's own policy would stop it."""
    page, text = write(tmp_path, title=EVIL, notes=["see http://example.org"])
    assert not {tag for tag, _ in page.elements} & {"script", "link", "img", "iframe", "a", "object", "use"}
    for tag, attrs in page.elements:
        for name, value in attrs.items():
            assert name not in ("src", "href", "xlink:href", "srcset", "background", "style"), (tag, name)
            assert not name.startswith("on")
            assert name == "aria-label" or "://" not in (value or "")
    style = text[text.index("<style>") : text.index("</style>")]
    assert "@import" not in style and "url(" not in style and "prefers-color-scheme: dark" in style
    policies = [a for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies and "default-src 'none'" in (policies[0]["content"] or "")


def test_everything_is_escaped(tmp_path: Path) -> None:
    config = CONFIG.model_dump(mode="json") | {EVIL: EVIL}
    config["text"] = {"source": EVIL, "target": EVIL}
    page, text = write(
        tmp_path,
        title=EVIL,
        config=config,
        metrics=[train(1, kind=EVIL), {"kind": "final", "step": 1, EVIL: EVIL}],
        samples=[Sample(EVIL, EVIL, EVIL)],
        scores={EVIL: {"score": 1.0, "signature": EVIL, "name": EVIL}, "notes": [EVIL]},
        heatmap=Heatmap([EVIL], [EVIL], [[1.0]], EVIL),
        notes=[EVIL],
    )
    assert "<script" not in text and "<img" not in text
    assert page.words.count("<script>alert('x')</script>") >= 8  # as text it is all there
    assert {a.get("lang") for a in page.all("dd") if "lang" in a} == {EVIL}


def test_text_has_language_and_direction(tmp_path: Path) -> None:
    page, _ = write(tmp_path)
    lines = [a for a in page.all("dd") if "lang" in a]
    assert [a["lang"] for a in lines] == ["en", "ar", "ar"] * 2
    assert all(a.get("dir") == "auto" for a in lines)
    labels = [a for a in page.all("text") if "lang" in a]
    arabic = [a for a in labels if a["lang"] == "ar"]
    assert len(arabic) == 3 and all(a.get("direction") == "rtl" for a in arabic)
    # Right-to-left text starts on its right, so that is where a label left of its row is anchored.
    assert all(a["class"] == "start" for a in arabic)
    assert all("direction" not in a for a in labels if a["lang"] == "en")


def test_locale_codes_become_language_tags(tmp_path: Path) -> None:
    page, _ = write(tmp_path, config={"text": {"source": "zh_Hant", "target": "pt_BR"}})
    assert {a["lang"] for a in page.all("dd") if "lang" in a} == {"zh-Hant", "pt-BR"}


@pytest.mark.parametrize(
    "metrics", [[], [{}], [{"kind": "train"}], [None, 3], [{"kind": "valid", "step": 1}]]
)
def test_nothing_is_a_report_too(tmp_path: Path, metrics: list[Any]) -> None:
    page, _ = write(
        tmp_path, config={}, metrics=metrics, samples=[], scores=None, heatmap=None, notes=(), title=""
    )
    assert page.all("h1") and not page.all("svg") and not page.all("h2")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(FLOATS, FLOATS, FLOATS, st.sampled_from(["train", "valid", "final"])), max_size=6),
    st.floats(),
)
def test_odd_numbers_do_not_stop_it(
    tmp_path: Path, rows: list[tuple[Any, Any, Any, str]], weight: float
) -> None:
    metrics = [
        train(1, kind=kind, step=step, nll=a, learning_rate=b, tokens_per_second=a, spent=b, epoch=a, time=b)
        for step, a, b, kind in rows
    ]
    scores = {"bleu": {"score": weight, "low": None, "high": weight}, "loss": weight}
    _, text = write(tmp_path, metrics=metrics, scores=scores, heatmap=Heatmap(["a"], ["b"], [[weight]]))
    drawn = " ".join(re.findall(r'\b(?:d|x|y|cx|cy|width|height|viewBox|transform)="([^"]*)"', text))
    assert not re.search(r"nan|inf", drawn)


def test_numbers_that_are_none_are_told(tmp_path: Path) -> None:
    page, _ = write(tmp_path, metrics=[*METRICS, train(11, nll=math.nan), train(12, nll=math.inf)])
    assert "2 losses that are no numbers are not drawn" in page.words


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=20), st.lists(st.text(max_size=5), min_size=1, max_size=4))
def test_any_text_can_be_shown(tmp_path: Path, text: str, tokens: list[str]) -> None:
    """Controls and lone surrogates too: they have no place in HTML and leave a mark instead."""
    sample = Sample(text, text, "\x00\ud800" + text)
    weights = [[1 / len(tokens)] * len(tokens)] * len(tokens)
    page, whole = write(
        tmp_path, samples=[sample], heatmap=Heatmap(tokens, tokens, weights, text), title=text
    )
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]", whole)
    assert len([a for a in page.all("rect") if "cell" in (a["class"] or "")]) >= len(tokens) ** 2


def test_later_records_win_and_order_does_not_matter(tmp_path: Path) -> None:
    again = [{"kind": "valid", "step": 5, "time": 1.76e9, "nll": 2.125}]
    page, one = write(tmp_path, metrics=[*METRICS, *again])
    assert "2.125" in page.words and "2.25" not in page.words
    _, two = write(tmp_path, metrics=[*METRICS[::-1], *again])
    assert one == two


def test_scores_of_several_ways_have_their_names(tmp_path: Path) -> None:
    page, _ = write(tmp_path, scores={"greedy": SCORES, "beam 4": SCORES, "perplexity": 4.5})
    for wanted in ("greedy: BLEU", "beam 4: chrF++", "perplexity 4.50"):
        assert wanted in page.words
    assert page.words.count("rough guide") == 1


def test_equal_output_is_marked(tmp_path: Path) -> None:
    page, _ = write(tmp_path)
    assert len([a for a in page.all("span") if a.get("class") == "same"]) == 1


def test_same_input_same_bytes_and_a_second_write_replaces(tmp_path: Path) -> None:
    _, one = write(tmp_path)
    _, two = write(tmp_path)
    assert one == two
    assert len(one) < 100_000
    assert not re.search(base64.b64encode(b"\x89PNG")[:4].decode(), one)


def test_many_records_stay_small(tmp_path: Path) -> None:
    many = [train(s, nll=2 + 1 / s) for s in range(1, 20_001)]
    _, text = write(tmp_path, metrics=many)
    assert len(text) < 200_000


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="folder"):
        write(tmp_path / "absent")


def test_settings_without_decoder_or_files(tmp_path: Path) -> None:
    page, _ = write(
        tmp_path, config={"model": {"form": "decoder", "layers": 2, "heads": {"count": 8, "kv": 2}}}
    )
    assert "decoder, 2 layers, 8 heads (2 for keys and values)" in page.words
