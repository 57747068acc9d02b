"""``triptych fill``: what may stand where [MASK] stands."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from triptych.cli.common import load_fast
from triptych.cli.lines import blocks
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.engine import Guess


def fill(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    text: Annotated[
        str, typer.Argument(help="Text with [MASK] in it, a file of such lines, or - for standard input.")
    ] = "-",
    top: Annotated[int, typer.Option(help="Guesses for each [MASK].")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a text.")] = False,
) -> None:
    """The likeliest tokens for each [MASK] of a text, with their probabilities.

    Several are guessed each by itself, the others left open.
    """
    if text == "-" and sys.stdin is None:
        raise UserError("standard input is closed", "command line", "give a text")
    from triptych.config.load import standing
    from triptych.engine.filler import MASK

    filler = load_fast(run).filler
    if text != "-" and MASK not in text and standing(Path(text)) != "file":
        what = f"there is no {MASK} in this text, and no file of this name"
        raise UserError(what, text, f"write {MASK} where a token is missing")
    number = 0
    for block in [[text]] if MASK in text else blocks(text, f"type a text with {MASK} in it"):
        for line, found in zip(block, filler.fill(block, top, first=number), strict=True):
            number += 1
            sys.stdout.write(_record(line, number, found) if as_json else "".join(_table(line, found)))
        sys.stdout.flush()


def _record(text: str, line: int, found: Sequence[Sequence[Guess]]) -> str:
    masks = [[asdict(guess) for guess in guesses] for guesses in found]
    return json.dumps({"line": line, "text": text, "masks": masks}, ensure_ascii=False) + "\n"


def _table(text: str, found: Sequence[Sequence[Guess]]) -> Iterator[str]:
    yield f"{text}\n"
    for guesses in found:
        width = max(len(guess.piece) for guess in guesses)
        yield from (f"  {g.probability:6.1%}  {g.piece:<{width}}  {g.text}\n" for g in guesses)
        yield "\n"
