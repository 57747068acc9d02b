"""``triptych classify``: N lines in, N classes out; of texts, or of the images whose files the lines name."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from triptych.cli.common import existing, load_fast, say, warn_cut
from triptych.cli.lines import blocks
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.engine import Bundle, Classified
    from triptych.engine.classifier import Text

FEW = 64  # images at a time


def classify(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    file: Annotated[
        str, typer.Argument(help="File of lines, or - for standard input; of images one, or a folder.")
    ] = "-",
    top: Annotated[int, typer.Option(help="Classes a line, with their probabilities.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Tell the class of each line: order kept, blank lines blank.

    A run of pairs of texts takes two a line, with a tab between. A run of images takes names of files; or one
    image; or a folder, each of whose images gives a line: its file, a tab, its class.
    With --top, a line holds the likeliest classes, each with its probability after it, all with tabs between.
    """
    if file != "-" and not Path(file).is_dir():
        existing(Path(file), "a file of lines, or an image")
    bundle = load_fast(run)
    if not bundle.config.model.reads_ids:
        _classify_images(bundle, file, top, as_json)
        return
    classifier = bundle.classifier
    if file != "-":
        _not_images(existing(Path(file), "a file of lines"))
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
        _write(_lines(found, texts, number, top, as_json))
        number += len(block)
    if extra:
        say(f"note: lines of more than two columns, of which the first two were read: {extra:,}")
    warn_cut(cut, classifier.reader.max_length)


def _not_images(file: Path) -> None:
    from triptych.data.images import is_image

    if is_image(file):
        raise UserError("this is an image, and the run reads texts", str(file), "name a file of lines")


def _classify_images(bundle: Bundle, file: str, top: int, as_json: bool) -> None:
    """Of each image that a line names; or of one; or of all in a folder."""
    import numpy as np

    from triptych.data.images import found, is_image
    from triptych.engine.classifier import BLANK

    viewer, number = bundle.viewer, 0
    folder = file != "-" and Path(file).is_dir()
    named = folder or is_image(Path(file))
    given = [str(path) for path in found(Path(file))] if folder else [file]
    if folder and not given:
        raise UserError("there are no images in this folder", file, "name another one")
    if folder and not as_json and (odd := [name for name in given if set(name) & set("\t\r\n")]):
        raise UserError(f"the name {odd[0]!r} holds a tab or a line end", file, "use --json")
    source = "standard input" if file == "-" else file
    whole = [given] if named else blocks(file, "type the name of an image's file to see its class")
    for names in (block[i : i + FEW] for block in whole for i in range(0, len(block), FEW)):
        read, refused = [], None
        for at, name in enumerate(names, number + 1):
            try:
                read.append(viewer.read([Path(name)])[0] if name.strip() else None)
            except UserError as error:  # what came before it is told first
                place = error.where if named else f"{source}:{at}: {error.where}"
                refused = UserError(error.what, place, error.mend)
                break
        pixels = [one for one in read if one is not None]
        told = iter(viewer.classify(np.stack(pixels)) if pixels else ())
        classes = [BLANK if one is None else next(told) for one in read]
        lines = _lines(classes, names[: len(read)], number, top, as_json)
        if folder and not as_json:
            lines = (f"{name}\t{line}" for name, line in zip(names, lines, strict=False))
        _write(lines)
        if refused is not None:
            raise refused
        number += len(names)


def _write(lines: Iterable[str]) -> None:
    sys.stdout.buffer.write("".join(lines).encode("utf-8", "surrogateescape"))
    sys.stdout.flush()


def _pair(columns: list[str], place: str) -> tuple[str, str]:
    """Two texts, both blank where the line is."""
    if len(columns) < 2 and columns[0].strip():
        what = "one text, and this run was trained on pairs of texts"
        raise UserError(what, place, "write two texts with a tab between")
    first, second = [*columns, ""][:2]
    return first, second


def _lines(
    found: Sequence[Classified], texts: Sequence[Text], first: int, top: int, as_json: bool
) -> Iterator[str]:
    for number, (text, c) in enumerate(zip(texts, found, strict=True), first + 1):
        kept = list(c.probabilities.items())[: top or None]
        if as_json:
            record = {"line": number, "text": text, "label": c.label or None, "probability": c.probability}
            yield json.dumps({**record, "probabilities": dict(kept), "cut": c.cut}, ensure_ascii=False) + "\n"
        elif top:
            yield "\t".join(f"{label}\t{p:.4f}" for label, p in kept) + "\n"
        else:
            yield c.label + "\n"
