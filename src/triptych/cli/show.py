"""``triptych config``: every setting, with its default or a preset's value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from triptych.cli.common import sort_out


def config(
    what: Annotated[
        list[str] | None, typer.Argument(help="config.yaml or preset; section.key=value settings.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="The JSON Schema of the configuration.")] = False,
    presets: Annotated[bool, typer.Option("--presets", help="The names of the presets.")] = False,
) -> None:
    """Print a complete configuration: the defaults, a preset, or a file with settings laid over it."""
    from triptych.config import PRESETS, RunConfig, load_config, preset, to_yaml

    if presets:
        print("\n".join(PRESETS))
        return
    if schema:
        print(json.dumps(RunConfig.model_json_schema(), indent=1, ensure_ascii=False))
        return
    names, settings = sort_out(what or [])
    source = Path(names[0]) if names and Path(names[0]).exists() else preset(names[0]) if names else {}
    print(to_yaml(load_config(source, settings)), end="")
