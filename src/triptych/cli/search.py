"""``triptych search``: the lines nearest to a query, by their vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from triptych.cli.common import existing, load_fast, say, warn_cut
from triptych.errors import UserError


def search(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    file: Annotated[Path, typer.Argument(help="File of lines to search.")],
    query: Annotated[str, typer.Argument(help="What to search for.")],
    top: Annotated[int, typer.Option(help="Lines to give.", min=1)] = 5,
    vectors: Annotated[
        Path | None, typer.Option(help="The lines' vectors, as `triptych embed` wrote them with this run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line found.")] = False,
) -> None:
    """Find the lines nearest to a query: number, cosine and line, with tabs between, the nearest first.

    Blank lines are never found.
    """
    from triptych.engine.vectors import read_vectors
    from triptych.text import read_lines

    existing(file, "a file of lines")
    lines = read_lines(file)
    if not any(map(str.strip, lines)):
        raise UserError("there is nothing to search: no line with text", str(file), "name another file")
    embedder = load_fast(run).embedder
    if vectors is not None:
        made = read_vectors(existing(vectors, "a file of vectors"), len(lines), embedder.width)
    else:
        made, cut = embedder.embed_noting_cuts(lines)
        warn_cut([i + 1 for i in cut], embedder.reader.max_length)
    if embedder.cuts(query):
        say(f"warning: the query is longer than {embedder.reader.max_length} tokens: its end was not read")
    for found in embedder.search(query, made, top):
        line = lines[found.number]
        record = {"line": found.number + 1, "score": found.score, "text": line}
        shown = (
            json.dumps(record, ensure_ascii=False)
            if as_json
            else f"{found.number + 1}\t{found.score:.4f}\t{line}"
        )
        print(shown)
