"""``triptych verify``: the laws, on the user's own model or configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from triptych.cli.common import sort_out
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
    from triptych.config import PRESETS, load_config, preset
    from triptych.engine import load
    from triptych.insight.laws import table
    from triptych.insight.laws import verify as check

    names, settings = sort_out(what)
    if len(names) != 1:
        raise UserError(
            "name one run, configuration or preset", "command line", f"presets: {', '.join(PRESETS)}"
        )
    name, path, model = names[0], Path(names[0]), None
    if path.is_dir():
        if settings:
            raise UserError("a trained run cannot be changed", settings[0], "verify its config.yaml instead")
        bundle = load(path)
        config, model = bundle.config, bundle.model
    elif path.exists():
        config = load_config(path, settings)
    elif path.suffix in (".yaml", ".yml"):
        raise UserError("there is no such file", name, "name a run folder, a configuration or a preset")
    else:
        config = load_config(preset(name), settings)
    asked = config.model
    if not asked.vocab:  # the tokenizer would decide, and this is what it is asked for
        asked = asked.model_copy(update={"vocab": config.text.tokenizer.size})
    verdicts = check(asked, model=model)
    if as_json:
        for verdict in verdicts:
            print(json.dumps(verdict.to_dict(), ensure_ascii=False))
    else:
        print(table(verdicts))
    if any(v.status == "broken" for v in verdicts):
        raise typer.Exit(1)
