"""What several commands share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.errors import UserError, nearest

if TYPE_CHECKING:
    from triptych.config import ModelConfig, RunConfig
    from triptych.engine import Bundle
    from triptych.insight.report import Heatmap
    from triptych.training.run import Outcome
    from triptych.training.tasks import Corpus

_SETTING = re.compile(r"[A-Za-z_]\w*(\.\w+)*=.*", re.DOTALL)
_LOCALE = re.compile(r"[A-Za-z0-9]+([-_][A-Za-z0-9]+)*")
_KNOWN_SHAPE = re.compile(r"[A-Za-z]{2,3}([-_].*)?")


def say(text: str) -> None:
    """A line for the user, beside the output proper."""
    print(text, file=sys.stderr, flush=True)


def sort_out(items: Sequence[str]) -> tuple[list[str], list[str]]:
    """Positional arguments apart: (files, ``section.key=value`` settings)."""
    from triptych.config.load import standing

    settings = [i for i in items if _SETTING.fullmatch(i) and not standing(Path(i))]
    return [i for i in items if i not in settings], settings


def configuration(what: Sequence[str]) -> tuple[RunConfig, Path | None]:
    """The configuration that is named, with settings laid over it, and the run folder if it is a run's."""
    from triptych.config import PRESETS, load_config, preset
    from triptych.config.load import standing

    names, settings = sort_out(what)
    if len(names) != 1:
        said = "name one run, configuration or preset"
        if names:
            said = f"{names[1]!r} stands beside {names[0]!r}, and is no section.key=value setting"
        mend = f"name one run, configuration or preset, then settings; presets: {', '.join(PRESETS)}"
        raise UserError(said, "command line", mend)
    name, path = names[0], Path(names[0])
    stands = standing(path)
    if stands == "folder":
        if not standing(path / "config.yaml"):
            raise UserError("this is no run folder", name, "give the folder that `triptych train` wrote")
        return load_config(path / "config.yaml", settings), path
    if stands == "file":
        return load_config(path, settings), None
    if name not in PRESETS:
        kinds = "file" if path.suffix in (".yaml", ".yml") else "run, configuration or preset"
        raise UserError(f"there is no such {kinds}", name, _nearest(path, list(PRESETS)))
    return load_config(preset(name), settings), None


def _nearest(path: Path, presets: list[str]) -> str:
    """Presets, and runs and configurations of the same folder, whose names are close to the one given."""
    try:
        files = [str(p) for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml") or p.is_dir()]
    except OSError:
        files = []
    close = nearest(str(path), [*presets, *sorted(files)], n=3)
    said = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return f"{said}known presets: {', '.join(presets)}"


def with_vocabulary(config: RunConfig) -> ModelConfig:
    """The model's settings; where the tokenizer would decide on the vocabulary, it is what is asked of it,
    and where the data would decide on classes or tags, they are two, and on images, they are of 224 × 224
    pixels."""
    from triptych.config.parts import PatchEmbedding

    vocab, output = config.model.vocab or config.text.tokenizer.size, config.model.output
    if getattr(output, "count", None) == 0:
        output = output.model_copy(update={"count": 2})
    embedding = config.model.embedding
    if isinstance(embedding, PatchEmbedding):
        from triptych.data.images import chosen

        embedding = chosen(embedding, (224, 224))
    return config.model.model_copy(update={"vocab": vocab, "output": output, "embedding": embedding})


def free_folder(wanted: Path) -> Path:
    """``wanted``, or the first of ``wanted-2``, ``wanted-3``, … that is not taken."""
    from triptych.config.load import standing

    folder, n = wanted, 1
    while (stands := standing(folder)) and (stands == "file" or any(folder.iterdir())):
        n += 1
        folder = wanted.with_name(f"{wanted.name}-{n}")
    return folder


def check_languages(source: str, target: str) -> None:
    """Refuse the same language on both sides, and what is no code; warn of a code that nothing knows."""
    for option, code in (("--from", source), ("--to", target)):
        if code and not _LOCALE.fullmatch(code):
            what = f"{code!r} is no language code"
            raise UserError(what, option, "write letters, digits, - and _ alone, such as en or pt_BR")
        if code and not _KNOWN_SHAPE.fullmatch(code):
            say(f"warning: {option} {code}: a language code begins with two or three letters, such as en, de")
    if source and source.casefold().replace("_", "-") == target.casefold().replace("_", "-"):
        raise UserError(
            f"both sides are {target!r}: there is nothing to translate",
            "--from, --to",
            "give two languages; for a correction task name them apart, such as en and en-corrected",
        )


def existing(path: Path, what: str) -> Path:
    """``path`` if it is a file. Raises UserError."""
    from triptych.config.load import standing

    stands = standing(path)
    if stands == "folder":
        raise UserError(f"this is a folder, and {what} is needed", str(path), "name a file in it")
    if not stands:
        raise UserError("there is no such file", str(path), f"check the name; {what} is needed")
    return path


def check_writable(path: Path, *read: Path) -> None:
    """Refuse, before any work, a file that could not be written after it, or is one of those that are
    ``read``. Raises UserError."""
    from triptych.config.load import standing

    folder, stands = Path(os.path.realpath(path)).parent, standing(path)
    if stands == "folder":
        raise UserError("this is a folder, so no file can be written here", str(path), "name a file in it")
    if not stands and standing(folder) != "folder":
        raise UserError(f"there is no folder {folder} to write to", str(path), "make the folder first")
    if not os.access(folder if not stands or path.is_file() else path, os.W_OK):
        raise UserError("this file may not be written", str(path), "check that you may write there")
    if any(standing(one) and standing(path) and os.path.samefile(path, one) for one in read):
        raise UserError("this is the file that is read, and it would be lost", str(path), "name another")


def load_fast(run: Path) -> Bundle:
    """A run, with the process made ready for many batches."""
    from triptych.engine import load
    from triptych.training.machine import keep_memory, prefer_fast_fp32

    keep_memory()
    prefer_fast_fp32()
    return load(run)


def warn_cut(lines: Sequence[int], most: int) -> None:
    """Say which lines, by number, were not read to their end."""
    if lines:
        places = ", ".join(map(str, lines[:5])) + (", …" if len(lines) > 5 else "")
        count = f"{len(lines):,} (line{'s' * (len(lines) > 1)} {places})"
        say(f"warning: lines longer than {most} tokens, whose ends were not read: {count}")


def report(folder: Path, title: str, outcome: Outcome) -> Path:
    """Write ``report.html`` for a finished run."""
    from triptych.engine import read_json
    from triptych.insight.report import write_report
    from triptych.training.monitor import read_metrics

    bundle, test = outcome.bundle, outcome.test
    return write_report(
        folder,
        title=title,
        config=bundle.config.dump(),
        metrics=read_metrics(folder / "metrics.jsonl"),
        samples=test.samples[:12] if test else [],
        scores=test.scores.to_dict() if test else None,
        heatmap=_heatmap(outcome),
        notes=[str(n) for n in read_json(folder / "data.json").get("notes", [])],
    )


def _heatmap(outcome: Outcome) -> Heatmap | None:
    """Where a translator looked, for a sentence long enough to show a pattern and short enough to read."""
    from triptych.insight.report import Heatmap
    from triptych.training.tasks import most_ids

    bundle = outcome.bundle
    if bundle.config.objective.kind != "translation" or outcome.test is None:
        return None
    encode, most = bundle.tokenizer.encode, most_ids(bundle.config)
    both = [(encode(s.source), encode(s.hypothesis)) for s in outcome.test.samples[:500]]
    fit = [pair for pair in both if max(map(len, pair)) <= most]
    if not fit:
        return None
    source, target = min(fit, key=lambda pair: abs(len(pair[1]) - 9))
    pieces = bundle.tokenizer.pieces
    return Heatmap(
        [*pieces(source), "</s>"],
        [*pieces(target), "</s>"],
        bundle.translator.attention(source, target).tolist(),
        "Which source tokens each target token was produced from (mean over heads and layers)",
    )


def train_whole(
    config: RunConfig, corpus: Corpus[Any], folder: Path, started: float, title: str, resume: bool = False
) -> None:
    """Train, or go on, to the report; an interruption says how to go on."""
    from triptych.training.run import train

    for note in corpus.notes:
        say(f"warning: {note}")
    try:
        outcome = train(config, corpus, folder, say, resume=resume, started=started)
    except KeyboardInterrupt:
        if (folder / "config.yaml").exists():
            say(f"\nstopped; go on with `triptych train {folder} --resume`")
        raise
    report(folder, title, outcome)
    summary(folder, outcome)


# What a finished run is good for.
NEXT = {
    "translation": "triptych translate {}",
    "causal": "triptych generate {}",
    "instruction": "triptych generate {}",
    "masked": 'triptych fill {} "… [MASK] …"',
    "denoise": "triptych train FILE… --init {}",
    "classify": "triptych classify {}",
    "tag": "triptych tag {}",
    "embed": 'triptych search {} FILE "query"',
}


def summary(folder: Path, outcome: Outcome) -> None:
    """The end of a training command: scores, samples, where everything is."""
    from triptych.training.monitor import clock

    if outcome.test is not None:
        for sample in outcome.test.samples[:6]:
            print(f"  {sample.source}\n    → {sample.hypothesis}\n    = {sample.reference}")
        print(outcome.test.scores.table())
    valid, readout = outcome.valid, outcome.bundle.config.objective.readout
    how = f"perplexity {valid.perplexity:.3f}" if readout == "vocabulary" else f"loss {valid.mean_nll:.4f}"
    print(f"validation {how}; {clock(outcome.seconds)} in all")
    following = NEXT[outcome.bundle.config.objective.kind].format(folder)
    print(f"run: {folder}\nreport: {folder / 'report.html'}\nnext: {following}")
