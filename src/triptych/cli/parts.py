"""``triptych parts``: what there is to choose from."""

from __future__ import annotations

import json
import shutil
from typing import Annotated

import typer


def parts(
    kind: Annotated[
        str,
        typer.Argument(
            help="An axis, such as position, a choice, such as rope, a section, such as experts, or a key, "
            "such as tie; all when not given."
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """List what a model can be made of, parts and plain settings: what each is, its paper, settings and cost.

    What each cannot be combined with, and why, stands beside it.
    """
    from triptych.insight.catalogue import catalogue
    from triptych.insight.catalogue.text import text, to_dict

    found = catalogue(kind)
    if as_json:
        print(json.dumps(to_dict(found), ensure_ascii=False))
        return
    width = min(shutil.get_terminal_size((100, 24)).columns, 110)
    print(text(found, width, full=bool(kind)))
