"""``triptych classify``: N lines in, N classes out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from triptych.cli.common import existing, load_fast, say, warn_cut
from triptych.cli.lines import blocks
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.engine import Classified
    from triptych.engine.classifier import Text


def classify(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    file: Annotated[str, typer.Argument(help="File of lines, or - for standard input.")] = "-",
    top: Annotated[int, typer.Option(help="Classes a line, with their probabilities.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Tell the class of each line: order kept, blank lines blank.

    A run of pairs of texts takes two a line, with a tab between. With --top, a line holds the likeliest
    classes, each with its probability after it, all with tabs between.
    """
    if file != "-":
        existing(Path(file), "a file of lines")
    bundle = load_fast(run)
    classifier = bundle.classifier
    pairs = bundle.texts == 2
    name = "standard input" if file == "-" else file
    cut: list[int] = []
    number = extra = 0
    for block in blocks(file, "type a text, or two with a tab between, to see its class"):
        texts: list[Text] = []
        for at, line in enumerate(block, number + 1):
            columns = line.split("\t")
            extra += pairs and len(columns) > 2
            texts.append(_pair(columns, f"{name}:{at}") if pairs else line)
        found = classifier.classify(texts, number)
        cut += [at for at, c in enumerate(found, number + 1) if c.cut]
        sys.stdout.buffer.write("".join(_lines(found, texts, number, top, as_json)).encode())
        sys.stdout.flush()
        number += len(block)
    if extra:
        say(f"note: lines of more than two columns, of which the first two were read: {extra:,}")
    warn_cut(cut, classifier.reader.max_length)


def _pair(columns: list[str], place: str) -> tuple[str, str]:
    """Two texts, both blank where the line is."""
    if len(columns) < 2 and columns[0].strip():
        what = "one text, and this run was trained on pairs of texts"
        raise UserError(what, place, "write two texts with a tab between")
    first, second = [*columns, ""][:2]
    return first, second


def _lines(found: list[Classified], texts: list[Text], first: int, top: int, as_json: bool) -> Iterator[str]:
    for number, (text, c) in enumerate(zip(texts, found, strict=True), first + 1):
        kept = list(c.probabilities.items())[: top or None]
        if as_json:
            record = {"line": number, "text": text, "label": c.label or None, "probability": c.probability}
            yield json.dumps({**record, "probabilities": dict(kept), "cut": c.cut}, ensure_ascii=False) + "\n"
        elif top:
            yield "\t".join(f"{label}\t{p:.4f}" for label, p in kept) + "\n"
        else:
            yield c.label + "\n"
