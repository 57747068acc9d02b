"""``triptych evaluate``: scores of a run on a test set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from triptych.cli.common import say
from triptych.errors import UserError


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    source: Annotated[
        Path | None, typer.Option(help="Source lines; the run's own test set if not given.")
    ] = None,
    reference: Annotated[Path | None, typer.Option(help="Reference translations, line by line.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Score a run: sacreBLEU BLEU and chrF++ with signatures and 95 % intervals, exact match, perplexity.

    Raw text is scored, with the tokenizer that sacreBLEU has for the target language.
    """
    from triptych.engine import load
    from triptych.evaluation import evaluate as score
    from triptych.objectives import Translation
    from triptych.text import read_aligned
    from triptych.training.loop import dataset_loss
    from triptych.training.machine import keep_memory, prefer_fast_fp32
    from triptych.training.prepare import seen_in_training
    from triptych.training.run import valid_data

    if (source is None) != (reference is None):
        raise UserError("one of --source and --reference is missing", "command line", "give both, or neither")
    own = source is None or reference is None
    source = source or run / "data" / "test.source"
    reference = reference or run / "data" / "test.target"
    keep_memory()
    prefer_fast_fp32()
    bundle = load(run)
    if own and not source.exists():
        raise UserError("the run holds no test set of its own", str(run), "give --source and --reference")
    pairs = read_aligned(source, reference)
    result = score(bundle.translator, pairs.source, pairs.target, bundle.config.decoding)
    kept = [i for i in range(len(pairs)) if pairs.target[i].strip()]
    data = valid_data(bundle, [pairs.source[i] for i in kept], [pairs.target[i] for i in kept])
    loss = dataset_loss(bundle.translator.model, Translation(bundle.config.objective), data, "fp32")
    left_out = len(kept) - len(data)
    seen = seen_in_training(run, pairs.source, pairs.target)
    warning = ""
    if seen and any(seen):
        warning = (
            f"{seen[0]} of {len(pairs)} source lines and {seen[1]} reference lines were trained on: "
            "these scores flatter the model"
        )
    if as_json:
        record = result.scores.to_dict()
        record |= {
            "perplexity": loss.perplexity if len(data) else None,
            "tokens": loss.count,
            "too_long": left_out,
            "trained_on": seen,
            "warning": warning,
        }
        print(json.dumps(record, ensure_ascii=False))
        return
    if warning:
        say(f"warning: {warning}")
    print(result.scores.table())
    if len(data):
        print(f"perplexity  {loss.perplexity:.3f} over {loss.count:,} tokens (the run's own tokens)")
    if left_out:
        print(f"note: {left_out:,} pairs are too long for the model's positions and not in the perplexity")
