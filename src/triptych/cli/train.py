"""``triptych train``: from files of examples to a run folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from triptych.cli.common import say, sort_out, train_whole
from triptych.cli.planning import BUDGET, asked, check, default_folder
from triptych.errors import UserError


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

    With files alone, everything else is chosen from the data and the time: split, tokenizer, model size,
    schedule. The run folder holds the complete config.yaml that was used.
    """
    started = time.monotonic()
    languages = {k: v for k, v in (("source", source_language), ("target", target_language)) if v}
    if resume:
        named: dict[str, Any] = {"--from": source_language, "--to": target_language, "--preset": preset}
        named |= {"--source": source, "--target": target, "--out": out}
        _resume(what or [], budget, {**named, "--objective": objective, "--init": init})
        return
    options: dict[str, Any] = {"objective": {"kind": objective}} if objective else {}
    options |= {"text": languages, "training": {"budget": budget, "steps": None} if budget else {}}
    if init:
        options["training"]["init"] = str(init)
    request = asked(what or [], options, preset, source, target)
    config = request.config()
    # Before any work: what is wrong with the settings is said first.
    check(config)
    from triptych.training.prepare import check_free
    from triptych.training.tasks import task

    check_free(out or default_folder(config))
    if request.endless:
        say(f"no --budget given: training for {BUDGET}")
    if config.objective.kind == "translation" and not config.text.target:
        say("no --to language given: scores use sacreBLEU's default tokenizer")
    road = task(config)
    corpus = road.load(config, say)
    fitted = request.fitted(corpus, config)
    folder = out or default_folder(config)  # another run may have taken the one that was free
    train_whole(fitted, corpus, folder, started, road.title(config))


def _resume(what: list[str], budget: str, named: dict[str, Any]) -> None:
    from triptych.training.resume import reopen
    from triptych.training.tasks import silent, task

    for option, value in named.items():
        if value:
            mend = "leave it out: a run goes on in its folder, with the data and model it began with"
            raise UserError("this does not go with --resume", option, mend)
    files, settings = sort_out(what)
    if len(files) != 1:
        raise UserError("--resume needs one run folder", "command line", "triptych train RUN --resume")
    folder, started = Path(files[0]), time.monotonic()
    if budget:
        settings = [*settings, f"training.budget={budget}"]
    config = reopen(folder, settings, say)
    road = task(config)
    corpus = road.load(config, silent)
    train_whole(config, corpus, folder, started, road.title(config), resume=True)
