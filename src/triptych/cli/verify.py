"""``triptych verify``: the laws, on the user's own model or configuration."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from triptych.cli.common import configuration, sort_out, with_vocabulary
from triptych.errors import UserError


def verify(
    what: Annotated[
        list[str], typer.Argument(help="Run folder, config.yaml or preset; section.key=value settings.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a law.")] = False,
) -> None:
    """Check that a model keeps the laws: causality, padding, cache, save and load, cost, search and more.

    Exit code 1 when a law is broken; the cause and the place to look are named.
    """
    from triptych.engine import load
    from triptych.insight.laws import table
    from triptych.insight.laws import verify as check

    settings = sort_out(what)[1]
    config, run = configuration(what)
    if run and settings:
        raise UserError("a trained run cannot be changed", settings[0], "verify its config.yaml instead")
    model = load(run).model if run else None
    verdicts = check(with_vocabulary(config), model=model)
    if as_json:
        for verdict in verdicts:
            print(json.dumps(verdict.to_dict(), ensure_ascii=False))
    else:
        print(table(verdicts))
    if any(v.status == "broken" for v in verdicts):
        raise typer.Exit(1)
