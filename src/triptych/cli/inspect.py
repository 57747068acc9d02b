"""``triptych inspect``: what a model costs, before it is built."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from triptych.cli.common import configuration, with_vocabulary


def inspect(
    what: Annotated[
        list[str], typer.Argument(help="Run folder, config.yaml or preset; section.key=value settings.")
    ],
    batch: Annotated[int, typer.Option(help="Rows.")] = 1,
    source: Annotated[int | None, typer.Option(help="Tokens of a source; 128 if not given.")] = None,
    target: Annotated[int | None, typer.Option(help="Tokens of a row in training; 128 if not given.")] = None,
    generate: Annotated[
        int | None, typer.Option(help="Tokens generated one at a time; as many as --target if not given.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="fp32, bf16 or fp16.")] = "fp32",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Account for a model: parameters, operations forward and backward, memory, with a cache and without.

    Figures are from formulas; what is kept for the backward pass is counted on tensors without values.
    """
    model = with_vocabulary(configuration(what)[0])
    from triptych.insight.accounting import account, sizes, table
    from triptych.training.machine import prefer_fast_fp32

    prefer_fast_fp32()  # as training does: what attention keeps hangs on it
    figures = account(model, sizes(model, batch, target, source, generate, dtype))
    print(json.dumps(figures.to_dict(), ensure_ascii=False) if as_json else table(figures))
