"""``triptych train``: from files of examples to a run folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from triptych.cli.common import check_languages, existing, free_folder, say, sort_out, train_whole
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.config import RunConfig

BUDGET = "15m"


def train(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files of examples (.gz too), or config.yaml, or with --resume a run; and "
            "section.key=value settings.",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            help="What is learned: translation (default), causal, instruction, masked, denoise, classify, "
            "tag, embed."
        ),
    ] = "",
    source_language: Annotated[str, typer.Option("--from", help="Language code of the source side.")] = "",
    target_language: Annotated[str, typer.Option("--to", help="Language code of the target side.")] = "",
    source: Annotated[Path | None, typer.Option(help="Source side of two aligned files.")] = None,
    target: Annotated[Path | None, typer.Option(help="Target side of two aligned files.")] = None,
    init: Annotated[Path | None, typer.Option(help="Run to begin with: its tokenizer and weights.")] = None,
    preset: Annotated[str, typer.Option(help="A named configuration to start from.")] = "",
    budget: Annotated[str, typer.Option(help="Time for everything, e.g. 90s, 15m, 2h.")] = "",
    out: Annotated[Path | None, typer.Option(help="Run folder to write.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run.")] = False,
) -> None:
    """Train a model: a translator, or by --objective a language model, a classifier and more.

    With files alone, everything else is chosen from the data and the time: audit, split, tokenizer, model
    size, schedule. The run folder holds the complete config.yaml that was used.
    """
    started = time.monotonic()
    files, settings = sort_out(what or [])
    if resume:
        named: dict[str, Any] = {"--from": source_language, "--to": target_language, "--preset": preset}
        named |= {"--source": source, "--target": target, "--out": out}
        named |= {"--objective": objective, "--init": init}
        for option, value in named.items():
            if value:
                mend = "leave it out: a run goes on in its folder, with the data and model it began with"
                raise UserError("this does not go with --resume", option, mend)
        _resume(files, settings, budget)
        return
    given, hand_set = _settings(files, source, target, preset)
    options: dict[str, Any] = {"objective": {"kind": objective}} if objective else {}
    options["text"] = {k: v for k, v in (("source", source_language), ("target", target_language)) if v}
    options["training"] = {"budget": budget, "steps": None} if budget else {}
    if init:
        options["training"]["init"] = str(init)
    from triptych.config import load_config, merge, override

    given = override(merge(given, options), settings)
    training = given.get("training") or {}
    endless = isinstance(training, dict) and not training.get("steps") and not training.get("budget")
    if endless:
        given = merge(given, {"training": {"budget": BUDGET}})
    from triptych.training.init import inherit

    given = inherit(given)
    # Before any work: what is wrong with the settings is said first.
    config = load_config(given) if hand_set else _planned(given)
    _check(config)
    from triptych.training.run import check_free
    from triptych.training.tasks import task

    folder = out or _default_folder(config)
    check_free(folder)
    if endless:
        say(f"no --budget given: training for {BUDGET}")
    road = task(config)
    corpus = road.load(config, say)
    if not hand_set:
        from triptych.training.plan import fill

        config = load_config(fill(given, corpus.count, corpus.bytes, config.training.seconds or 3600.0))
    train_whole(config, corpus, folder, started, road.title(config))


def _check(config: RunConfig) -> None:
    """What can be known to be wrong before the data are read."""
    from triptych.training.run import check_form

    translation = config.objective.kind == "translation"
    check_languages(config.text.source, config.text.target)
    if not config.data.train:
        said = "name a file of sentence pairs: triptych train pairs.tsv"
        mend = (
            said if translation else "name files: triptych train FILE… --objective " + config.objective.kind
        )
        raise UserError("no training data", "command line", mend)
    check_form(config)
    if translation and not config.text.target:
        say("no --to language given: scores use sacreBLEU's default tokenizer")


def _planned(given: dict[str, Any]) -> RunConfig:
    """The configuration that is planned around ``given``, as far as it is known before the data are."""
    from triptych.config import load_config
    from triptych.training.plan import settle

    return load_config(settle(given))


def _settings(
    files: list[str], source: Path | None, target: Path | None, preset: str
) -> tuple[dict[str, Any], bool]:
    """Preset, configuration and data files as plain settings; whether the settings were made by hand."""
    from triptych.config import merge, read_yaml
    from triptych.config import preset as preset_data

    given: dict[str, Any] = preset_data(preset) if preset else {}
    hand_set = bool(preset)
    if files and files[0].endswith((".yaml", ".yml")):
        given = merge(given, read_yaml(existing(Path(files[0]), "a configuration")))
        files, hand_set = files[1:], True
    for path in files:
        if (Path(path) / "config.yaml").is_file():
            raise UserError("this is the folder of a run", path, "add --resume to go on with it")
    if (source is None) != (target is None):
        raise UserError("one aligned file needs the other", "--source, --target", "give both")
    if source is not None and target is not None:
        if files:
            raise UserError("give files of pairs or --source and --target, not both", "command line")
        return merge(given, {"data": {"train": [str(source), str(target)], "aligned": True}}), hand_set
    return merge(given, {"data": {"train": files, "aligned": False}} if files else {}), hand_set


def _resume(files: list[str], settings: list[str], budget: str) -> None:
    from triptych.training.run import reopen
    from triptych.training.tasks import silent, task

    if len(files) != 1:
        raise UserError("--resume needs one run folder", "command line", "triptych train RUN --resume")
    folder = Path(files[0])
    if budget:
        settings = [*settings, f"training.budget={budget}"]
    config = reopen(folder, settings, say)
    road = task(config)
    corpus = road.load(config, silent)
    train_whole(config, corpus, folder, time.monotonic(), road.title(config), resume=True)


def _default_folder(config: RunConfig) -> Path:
    stem = Path(config.data.train[0]).name.split(".")[0] or "run"
    kind = "" if config.objective.kind == "translation" else config.objective.kind
    named = (stem, kind, config.text.source, config.text.target)
    return free_folder(Path("runs") / "-".join(x for x in named if x))
