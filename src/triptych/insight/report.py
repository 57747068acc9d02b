"""A run on one page: ``report.html``, whole in itself, readable for years without a network or a program.

    config ─┬─ tiles, what was trained ─┐
    metrics ┴─ curves (curves.py) ──────┤
    scores, samples ────────────────────┼─ page ─ report.html
    heatmap (pictures.py) ──────────────┘

No script, no link, no picture from elsewhere; the page itself forbids a browser to load anything. Every
text that is not ours is escaped.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from triptych.evaluation import Sample
from triptych.insight.curves import Point, Series, line_chart, moving
from triptych.insight.facts import facts, pick
from triptych.insight.markup import escape, number, span_of_time
from triptych.insight.pictures import Confusion, Heatmap, confusion_svg, heatmap_svg

__all__ = ["Heatmap", "Sample", "write_report"]

Record = dict[str, Any]


def write_report(
    folder: Path,
    *,
    title: str,
    config: dict[str, Any],
    metrics: list[dict[str, Any]],
    samples: list[Sample],
    scores: dict[str, Any] | None,
    heatmap: Heatmap | None,
    notes: Sequence[str] = (),
) -> Path:
    """Write ``report.html`` into ``folder``; parts for which there is nothing are left out.

    Args:
        folder: of the run; must exist.
        title: heading of the page.
        config: the run's settings as plain nested values. ``parameters``, a number, may stand beside them.
        metrics: records of ``metrics.jsonl`` in any order; of two alike the later one counts.
        samples: a few examples of the test set, with what the model made of them.
        scores: ``Scores.to_dict()``, or several of them by name, such as ``{"beam 4": …, "greedy": …}``.
        heatmap: cross-attention over one pair, averaged over the heads.
        notes: what else a reader should know.

    Returns:
        The file.

    Raises:
        UserError: the folder cannot be written to.
    """
    from triptych.text.files import write_text_atomic

    records = sorted((r for r in metrics if isinstance(r, dict)), key=_step)
    languages = (str(pick(config, "text.source") or ""), str(pick(config, "text.target") or ""))
    measures = list(_measures(scores or {}))
    said = [*notes, *_notes(scores or {})]
    parts = [
        _header(title, languages, records),
        _tiles(records, measures),
        _section("What was trained", _facts(config, records)),
        _section("Training", _curves(records)),
        _section("Scores", _scores(measures)),
        _section("Notes", "".join(f"<li>{escape(n)}</li>" for n in dict.fromkeys(said)), "ul"),
        _section("Who was taken for whom", _confusion(scores or {})),
        _section(_named(config), "".join(_sample(s, languages) for s in samples)),
        _section("Cross-attention", _heatmap(heatmap, languages)),
        _section("All settings", _settings(config)),
    ]
    page = _page(title, "\n".join(p for p in parts if p))
    path = folder / "report.html"
    write_text_atomic(path, page)
    return path


def _page(title: str, body: str) -> str:
    style = resources.files("triptych.insight").joinpath("report.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _section(heading: str, content: str, wrap: str = "") -> str:
    """Heading and content, or nothing when there is no content."""
    inner = f"<{wrap}>{content}</{wrap}>" if wrap else content
    return f"<section>\n<h2>{heading}</h2>\n{inner}\n</section>" if content else ""


def _header(title: str, languages: tuple[str, str], records: Sequence[Record]) -> str:
    parts = [f"{languages[0]} → {languages[1]}"] if all(languages) else []
    times = [t for t in (_float(r.get("time")) for r in records) if 0 < t < 4e9]
    if times:
        parts.append(dt.datetime.fromtimestamp(max(times), dt.UTC).strftime("%Y-%m-%d %H:%M UTC"))
    line = " · ".join(parts)
    return f'<header>\n<h1 dir="auto">{escape(title)}</h1>\n<p>{escape(line)}</p>\n</header>'


# -- numbers -----------------------------------------------------------------------------------------------


def _float(value: object) -> float:
    """A number, or NaN for all else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _step(record: Record) -> float:
    step = _float(record.get("step"))
    return step if math.isfinite(step) else 0.0


def _points(records: Sequence[Record], kind: str, key: str) -> list[Point]:
    """``(step, value)`` of one kind of record, ascending; values that are no numbers are NaN."""
    found = {_float(r.get("step")): _float(r[key]) for r in records if r.get("kind") == kind and key in r}
    return sorted((x, y) for x, y in found.items() if math.isfinite(x))


def _latest(records: Sequence[Record], key: str) -> Any:
    """The last value under ``key`` in any record."""
    return next((r[key] for r in reversed(records) if key in r), None)


@dataclass(frozen=True)
class _Measure:
    """A row of the table of scores."""

    name: str
    score: float
    low: float
    high: float
    signature: str


def _unit(records: Sequence[Record]) -> str:
    """What the losses and the speed count, in the plural."""
    return str(_latest(records, "unit") or "tokens")


def _measures(scores: dict[str, Any], group: str = "") -> Iterator[_Measure]:
    """Everything with a ``score`` in a nested dict, and bare numbers but for counts."""
    for key, value in scores.items():
        if isinstance(value, dict) and "score" in value:
            name = str(value.get("name", key))
            bounds = (_float(value.get("low")), _float(value.get("high")))
            yield _Measure(f"{group}{name}", _float(value["score"]), *bounds, str(value.get("signature", "")))
        elif isinstance(value, dict) and key != "counts":
            yield from _measures(value, f"{group}{key}: ")
        elif math.isfinite(_float(value)):
            yield _Measure(f"{group}{str(key).replace('_', ' ')}", _float(value), math.nan, math.nan, "")


def _notes(scores: dict[str, Any]) -> Iterator[str]:
    for key, value in scores.items():
        if isinstance(value, dict):
            yield from _notes(value)
        elif key == "notes" and isinstance(value, list | tuple):
            yield from map(str, value)


# -- parts -------------------------------------------------------------------------------------------------


def _tiles(records: Sequence[Record], measures: Sequence[_Measure]) -> str:
    """The figures one looks for first."""
    tiles = [_score_tile(m) for m in measures if m.signature or math.isfinite(m.low)][:2]
    valid = [(x, y) for x, y in _points(records, "valid", "nll") if math.isfinite(y)]
    if valid:
        best = min(y for _, y in valid)
        tiles.append(("Best validation loss", number(best), f"perplexity {number(_exp(best), 3)}"))
    steps = max(map(_step, records), default=0)
    if steps:
        epoch = _float(_latest(records, "epoch"))
        tiles.append(("Steps", number(steps, 9), f"in epoch {number(epoch + 1)}" if epoch >= 0 else ""))
    spent = _float(_latest(records, "spent"))
    speeds = [y for _, y in _points(records, "train", "tokens_per_second") if math.isfinite(y)]
    speed = f"{number(statistics.median(speeds), 3)} {_unit(records)}/s" if speeds else ""
    if math.isfinite(spent):
        tiles.append(("Training time", span_of_time(spent), speed))
    inner = "".join(
        f'<div><dt>{escape(name)}</dt><dd class="value">{escape(value)}</dd>'
        f'<dd class="aside">{escape(aside)}</dd></div>'
        for name, value, aside in tiles
    )
    return f'<dl class="tiles">{inner}</dl>' if inner else ""


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _score_tile(m: _Measure) -> tuple[str, str, str]:
    span = f"95 %: {m.low:.1f} to {m.high:.1f}" if math.isfinite(m.low) else ""
    return m.name, f"{m.score:.1f}", span


def _facts(config: dict[str, Any], records: Sequence[Record]) -> str:
    rows = facts(config, parameters=_float(_latest(records, "parameters")))
    rows += [
        (key.replace("_", " ").capitalize(), number(value, 6) if isinstance(value, float) else str(value))
        for r in records[::-1]
        if r.get("kind") == "final"
        for key, value in r.items()
        if key not in ("kind", "step", "time", "spent", "parameters") and isinstance(value, str | int | float)
    ]
    inner = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in rows)
    return f'<div class="card"><dl class="facts">{inner}</dl></div>' if inner else ""


def _curves(records: Sequence[Record]) -> str:
    train, valid = _points(records, "train", "nll"), _points(records, "valid", "nll")
    loss = [
        Series("", train, "one faint"),
        Series("training", moving(train), "one"),
        Series("validation", valid, "two", dots=True, mark=True),
    ]
    unit = escape(_unit(records))
    caption = f"Nats per {unit.removesuffix('s')}, without smoothing."
    caption += " Training: each record faint, their moving mean strong."
    big = line_chart([s for s in loss if s.points], label="training and validation loss over steps")
    parts = [_figure("Loss", f'<div class="scroll">{big}</div>' if big else "", caption)]
    small = []
    for key, name, zero in (
        ("learning_rate", "Learning rate", True),
        ("tokens_per_second", f"{unit.capitalize()} a second", True),
        ("gradient_norm", "Gradient norm, before clipping", False),
        ("memory_mb", "Memory, MiB", True),
    ):
        points = _points(records, "train", key)
        noisy = key in ("gradient_norm", "tokens_per_second")
        lines = [Series("", points, "one faint"), Series("", moving(points), "one")]
        chart = line_chart(
            lines if noisy else [Series("", points, "one")],
            label=f"{name} over steps",
            width=450,
            height=230,
            scale="auto" if key == "gradient_norm" else "linear",
            zero=zero,
        )
        small.append(_figure(name, chart))
    inner = "".join(small)
    lost = sum(not math.isfinite(y) for _, y in (*train, *valid))
    parts.append(f'<div class="charts">{inner}</div>' if inner else "")
    parts.append(
        f'<p class="soft small">{lost} losses that are no numbers are not drawn.</p>' if lost else ""
    )
    return "".join(parts)


def _figure(title: str, picture: str, caption: str = "") -> str:
    if not picture:
        return ""
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure><div class="title">{title}</div>{picture}{below}</figure>'


def _scores(measures: Iterable[_Measure]) -> str:
    rows = []
    for m in measures:
        span = f"{m.low:.2f} to {m.high:.2f}" if math.isfinite(m.low) else "–"
        signature = escape(m.signature).replace("|", "|<wbr>")  # where a line may break
        score = f"{m.score:.2f}" if math.isfinite(m.score) else "–"
        rows.append(
            f'<tr><th scope="row">{escape(m.name)}</th><td class="num">{score}</td>'
            f'<td class="num">{span}</td><td><code>{signature}</code></td></tr>'
        )
    head = (
        '<thead><tr><th scope="col">Score</th><th scope="col" class="num">Value</th>'
        '<th scope="col" class="num">95 % interval</th><th scope="col">Signature</th></tr></thead>'
    )
    table = f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="card scroll">{table}</div>' if rows else ""


def _language(code: str) -> str:
    """A ``lang`` attribute, so that a browser takes the fonts of that language."""
    return f' lang="{escape(code.replace("_", "-"))}"' if code else ""


def _sample(sample: Sample, languages: tuple[str, str]) -> str:
    same = sample.hypothesis.strip() == sample.reference.strip()
    mark = ' <span class="same" title="equal to the reference">=</span>' if same else ""
    source, target = map(_language, languages)
    return (
        '<dl class="sample">'
        f'<dt>Source</dt><dd dir="auto"{source}>{escape(sample.source)}</dd>'
        f'<dt>Reference</dt><dd dir="auto"{target}>{escape(sample.reference)}</dd>'
        f'<dt>Output{mark}</dt><dd class="said" dir="auto"{target}>{escape(sample.hypothesis)}</dd></dl>'
    )


def _named(config: dict[str, Any]) -> str:
    """What the samples are."""
    kind = str(pick(config, "objective.kind") or "translation")
    return {"translation": "Translations", "causal": "Continuations", "instruction": "Answers"}.get(
        kind, "Examples"
    )


def _confusion(scores: dict[str, Any]) -> str:
    """The confusion matrix of scores that have one."""
    if not scores.get("confusion"):
        return ""
    labels = [str(one["label"]) for one in scores["classes"]]
    picture = confusion_svg(Confusion(labels, scores["confusion"]))
    caption = (
        "Rows: the right class. Columns: the class that was said. Stronger colour: a larger share of the row."
    )
    return _figure("", f'<div class="scroll">{picture}</div>', caption)


def _heatmap(heatmap: Heatmap | None, languages: tuple[str, str]) -> str:
    if heatmap is None:
        return ""
    source, target = (code.replace("_", "-") for code in languages)
    picture = heatmap_svg(heatmap, source_language=source, target_language=target)
    caption = "Rows: tokens that are written. Columns: tokens of the source. Stronger colour: looked at more."
    inner = f'<div class="scroll">{picture}</div>' if picture else ""
    return _figure(f'<span dir="auto">{escape(heatmap.title)}</span>', inner, caption)


def _settings(config: dict[str, Any]) -> str:
    """All settings as YAML, as in ``config.yaml``."""
    import yaml

    plain = json.loads(json.dumps(config, default=str))
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100) if plain else ""
    inner = f"<summary>config.yaml</summary><pre>{escape(text)}</pre>"
    return f"<details>{inner}</details>" if text else ""
