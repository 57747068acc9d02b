"""What several commands share."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.config import ModelConfig, RunConfig
    from triptych.training.run import Outcome

_SETTING = re.compile(r"[A-Za-z_]\w*(\.\w+)*=.*", re.DOTALL)


def say(text: str) -> None:
    """A line for the user, beside the output proper."""
    print(text, file=sys.stderr, flush=True)


def sort_out(items: Sequence[str]) -> tuple[list[str], list[str]]:
    """Positional arguments apart: (files, ``section.key=value`` settings)."""
    settings = [i for i in items if _SETTING.fullmatch(i) and not Path(i).exists()]
    return [i for i in items if i not in settings], settings


def configuration(what: Sequence[str]) -> tuple[RunConfig, Path | None]:
    """The configuration that is named, with settings laid over it, and the run folder if it is a run's."""
    from triptych.config import PRESETS, load_config, preset

    names, settings = sort_out(what)
    if len(names) != 1:
        raise UserError(
            "name one run, configuration or preset", "command line", f"presets: {', '.join(PRESETS)}"
        )
    name, path = names[0], Path(names[0])
    if path.is_dir():
        if not (path / "config.yaml").exists():
            raise UserError("this is no run folder", name, "give the folder that `triptych train` wrote")
        return load_config(path / "config.yaml", settings), path
    if path.exists():
        return load_config(path, settings), None
    if path.suffix in (".yaml", ".yml"):
        raise UserError("there is no such file", name, "name a run folder, a configuration or a preset")
    return load_config(preset(name), settings), None


def with_vocabulary(config: RunConfig) -> ModelConfig:
    """The model's settings; where the tokenizer would decide on the vocabulary, it is what is asked of it."""
    vocab = config.model.vocab or config.text.tokenizer.size
    return config.model.model_copy(update={"vocab": vocab})


def free_folder(wanted: Path) -> Path:
    """``wanted``, or the first of ``wanted-2``, ``wanted-3``, … that is not taken."""
    folder, n = wanted, 1
    while folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        n += 1
        folder = wanted.with_name(f"{wanted.name}-{n}")
    return folder


def check_languages(source: str, target: str) -> None:
    """Refuse the same language on both sides."""
    if source and source == target:
        raise UserError(
            f"both sides are {source!r}: there is nothing to translate",
            "--from, --to",
            "give two languages; for a correction task name them apart, such as en and en-corrected",
        )


def existing(path: Path, what: str) -> Path:
    """``path`` if it is a file. Raises UserError."""
    if path.is_dir():
        raise UserError(f"this is a folder, and {what} is needed", str(path), "name a file in it")
    if not path.exists():
        raise UserError("there is no such file", str(path), f"check the name; {what} is needed")
    return path


def report(folder: Path, title: str, outcome: Outcome) -> Path:
    """Write ``report.html`` for a finished run."""
    from triptych.engine import read_json
    from triptych.insight.report import Heatmap, Sample, write_report
    from triptych.training.monitor import read_metrics

    bundle, tokenizer = outcome.bundle, outcome.bundle.tokenizer
    samples = [Sample(s, r, t.text) for s, r, t in outcome.samples[:12]]
    heatmap = None
    if outcome.samples:
        # One that is long enough to show a pattern and short enough to read.
        source, _, found = min(outcome.samples, key=lambda s: abs(len(s[2].alternatives[0].pieces) - 9))
        source_ids, target_ids = tokenizer.encode(source), tokenizer.encode(found.text)
        weights = bundle.translator.attention(source_ids, target_ids)
        heatmap = Heatmap(
            [*tokenizer.pieces(source_ids), "</s>"],
            [*tokenizer.pieces(target_ids), "</s>"],
            weights.tolist(),
            "Which source tokens each target token was produced from (mean over heads and layers)",
        )
    notes: list[str] = [str(n) for n in read_json(folder / "data.json").get("notes", [])]
    scores: dict[str, Any] | None = outcome.scores.to_dict() if outcome.scores else None
    return write_report(
        folder,
        title=title,
        config=bundle.config.dump(),
        metrics=read_metrics(folder / "metrics.jsonl"),
        samples=samples,
        scores=scores,
        heatmap=heatmap,
        notes=notes,
    )


def summary(folder: Path, outcome: Outcome) -> None:
    """The end of a training command: scores, samples, where everything is."""
    from triptych.training.monitor import clock

    for source, reference, found in outcome.samples[:6]:
        print(f"  {source}\n    → {found.text}\n    = {reference}")
    if outcome.scores is not None:
        print(outcome.scores.table())
    print(f"validation perplexity {outcome.valid.perplexity:.3f}; {clock(outcome.seconds)} in all")
    print(f"run: {folder}\nreport: {folder / 'report.html'}\nnext: triptych translate {folder}")
