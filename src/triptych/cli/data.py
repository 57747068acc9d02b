"""``triptych data show``: a batch as the model will see it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from triptych.cli.common import say
from triptych.cli.planning import asked, check
from triptych.errors import UserError

data = typer.Typer(help="Look at training data as the model will see it.", no_args_is_help=True)


@data.callback()
def _data() -> None:
    """Look at training data as the model will see it."""


@data.command("show")
def show(
    what: Annotated[
        list[str], typer.Argument(help="Files of examples, or config.yaml; section.key=value settings.")
    ],
    objective: Annotated[str, typer.Option(help="What is learned, as for `triptych train`.")] = "",
    init: Annotated[Path | None, typer.Option(help="Run whose tokenizer is used.")] = None,
    preset: Annotated[str, typer.Option(help="A named configuration to start from.")] = "",
    rows: Annotated[int, typer.Option(help="Rows of the batch to show.")] = 2,
    epoch: Annotated[int, typer.Option(help="Epoch to show; draws differ from one to the next.")] = 0,
) -> None:
    """Print rows of a training batch: tokens, targets, segments, positions, and what is learned.

    Nothing is trained or written. Use it to check a template, a mask or how documents are packed.
    """
    if rows < 1 or epoch < 0:
        raise UserError(
            "there is nothing to show", "--rows, --epoch", "give 1 row or more, and epoch 0 or more"
        )
    options: dict[str, Any] = {"objective": {"kind": objective}} if objective else {}
    if init:
        options["training"] = {"init": str(init)}
    request = asked(what, options, preset, None, None)
    config = request.config()
    check(config)
    if not config.model.reads_ids:
        raise UserError("images are not read as tokens", "data show", "look at the files themselves")
    from triptych.data.show import show as table
    from triptych.training.prepare import prepare
    from triptych.training.tasks import task

    corpus = task(config).load(config, say)
    with tempfile.TemporaryDirectory() as folder:
        ready = prepare(request.fitted(corpus, config), corpus, Path(folder) / "run", say)
        batch = ready.train.batch(ready.train.plan(epoch)[0][:rows], epoch)
        assert ready.tokenizer is not None
        names = corpus.facts.get("labels") or None
        print(table(batch, ready.tokenizer, names))
