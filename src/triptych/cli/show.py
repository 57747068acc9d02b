"""``triptych config``: every setting, with its default or a preset's value."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from triptych.cli.common import configuration, sort_out


def config(
    what: Annotated[
        list[str] | None, typer.Argument(help="config.yaml or preset; section.key=value settings.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="The JSON Schema of the configuration.")] = False,
    presets: Annotated[bool, typer.Option("--presets", help="The names of the presets.")] = False,
) -> None:
    """Print a complete configuration: the defaults, a preset, or a file with settings laid over it."""
    from triptych.config import PRESETS, RunConfig, load_config, to_yaml

    if presets:
        print("\n".join(PRESETS))
        return
    if schema:
        print(json.dumps(RunConfig.model_json_schema(), indent=1, ensure_ascii=False))
        return
    names, settings = sort_out(what or [])
    print(to_yaml(configuration(what or [])[0] if names else load_config({}, settings)), end="")
