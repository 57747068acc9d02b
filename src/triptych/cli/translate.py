"""``triptych translate``: N lines in, N lines out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from triptych.cli.common import check_writable, existing, load_fast
from triptych.cli.lines import blocks
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.engine import Translation


def translate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    file: Annotated[str, typer.Argument(help="File of lines, or - for standard input.")] = "-",
    out: Annotated[Path | None, typer.Option(help="File to write; standard output if not given.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beam width; 1 is greedy.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Exponent of the length penalty.")] = None,
    penalty: Annotated[str | None, typer.Option(help="Length penalty: gnmt or power.")] = None,
    n_best: Annotated[int | None, typer.Option(help="Outputs a line.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching.")] = False,
    temperature: Annotated[float | None, typer.Option(help="With --sample; 0 is greedy.")] = None,
    top_k: Annotated[int | None, typer.Option(help="With --sample; 0 keeps all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="With --sample.")] = None,
    min_p: Annotated[float | None, typer.Option(help="With --sample.")] = None,
    seed: Annotated[int | None, typer.Option(help="With --sample.")] = None,
    min_length: Annotated[int | None, typer.Option(help="Fewest tokens of an output.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Most tokens of an output.")] = None,
    no_repeat_ngram: Annotated[int | None, typer.Option(help="No n-gram of this length twice.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse over-long lines, do not split.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Translate lines: order kept, blank lines blank.

    Over-long lines are split at sentence ends and joined again. With --n-best and without --json, each output
    is a line `number ||| text ||| score`, numbers from 0.
    """
    if file != "-":
        existing(Path(file), "a file of lines")
    elif sys.stdin is None:
        raise UserError("standard input is closed", "command line", "name a file of lines")
    if out is not None:
        check_writable(out, Path(file if file != "-" else "/dev/stdin"))
    options = {
        "beam": beam, "alpha": alpha, "penalty": penalty, "n_best": n_best, "temperature": temperature,
        "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed, "min_length": min_length,
        "max_length": max_length, "no_repeat_ngram": no_repeat_ngram,
    }  # fmt: skip
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    if sample:
        given["strategy"] = "sample"
    elif only := [k for k in ("temperature", "top_k", "top_p", "min_p", "seed") if k in given]:
        raise UserError(
            f"--{only[0].replace('_', '-')} has no effect without --sample", "command line", "add --sample"
        )
    from triptych.config import DecodingConfig

    bundle = load_fast(run)
    settings = DecodingConfig.parse({**bundle.config.decoding.dump(), **given})
    bundle.translator.check(settings)
    listing = settings.n_best > 1 and not as_json
    written: list[str] = []
    number = 0
    for block in blocks(file, "type a line to translate it"):
        found = bundle.translator.translate(block, settings, strict=strict, align=as_json, first=number)
        text = "".join(_lines(found, block, number, as_json, listing))
        number += len(block)
        if out is None:
            sys.stdout.buffer.write(text.encode())
            sys.stdout.flush()
        else:
            written.append(text)
    if out is not None:
        from triptych.text import write_text_atomic

        write_text_atomic(out, "".join(written))


def _lines(
    found: list[Translation], sources: list[str], first: int, as_json: bool, listing: bool
) -> Iterator[str]:
    for i, (source, t) in enumerate(zip(sources, found, strict=True)):
        if as_json:
            record = {
                "line": first + i + 1,
                "source": source,
                "source_tokens": t.source_pieces,
                "parts": t.split,
                "alternatives": [asdict(a) for a in t.alternatives],
            }
            yield json.dumps(record, ensure_ascii=False) + "\n"
        elif listing:
            for a in t.alternatives:
                yield f"{first + i} ||| {a.text} ||| {a.score:.4f}\n"
        else:
            yield t.text + "\n"
