"""``triptych embed``: N lines in, N vectors out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triptych.cli.common import check_writable, existing, load_fast, say, warn_cut
from triptych.errors import UserError


def embed(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    file: Annotated[Path, typer.Argument(help="File of lines.")],
    out: Annotated[Path, typer.Option(help="File to write, such as vectors.npy.")],
) -> None:
    """Make a vector of each line: float32, N × the model's width, in NumPy's format.

    Each has length 1, so that the product of two is their cosine; that of a blank line is all zeros.
    """
    from triptych.engine.vectors import write_vectors
    from triptych.text import read_lines

    existing(file, "a file of lines")
    check_writable(out, file)
    lines = read_lines(file)
    if not lines:
        raise UserError("this file is empty: there is nothing to make vectors of", str(file), "name another")
    embedder = load_fast(run).embedder
    vectors, cut = embedder.embed_noting_cuts(lines)
    write_vectors(out, vectors)
    warn_cut([i + 1 for i in cut], embedder.reader.max_length)
    say(f"{out}: {len(vectors):,} vectors of {vectors.shape[1]:,} numbers")
