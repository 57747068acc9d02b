"""``triptych evaluate``: scores of a run on a test set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from triptych.cli.common import check_writable, load_fast, say
from triptych.errors import UserError


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files of examples; the run's own test set if not given.", show_default=False),
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Translation: source lines.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Translation: references, line by line.")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Classes: write the confusion matrix as SVG to this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Score a run by the measures of its objective, with 95 % intervals.

    Translation: sacreBLEU BLEU and chrF++ with signatures, exact match, perplexity. Raw text is scored, with
    the tokenizer that sacreBLEU has for the target language.
    """
    from triptych.training.tasks import task

    if (source is None) != (reference is None):
        raise UserError("one of --source and --reference is missing", "command line", "give both, or neither")
    if source is not None and files:
        mend = "leave one of them out"
        raise UserError("give files, or --source and --reference, not both", "command line", mend)
    if picture is not None:
        check_writable(picture, *map(Path, files or ()))
    bundle = load_fast(run)
    if picture is not None and bundle.config.objective.kind != "classify":
        kind = bundle.config.objective.kind
        raise UserError(f"a run of {kind} has no confusion matrix", "--picture", "leave it out")
    road, config = task(bundle.config), bundle.config
    if source is not None and config.objective.kind not in ("translation", "embed"):
        mend = "name the files alone: triptych evaluate RUN FILE…"
        raise UserError(f"a run of {config.objective.kind} is scored on no pairs", "--source", mend)
    if source is not None and reference is not None:
        files = [str(source), str(reference)]
    if files:
        data = config.data.model_copy(update={"aligned": source is not None})
        config = config.model_copy(update={"data": data})
    part: Any = road.given(config, files) if files else road.held_out(config, run)
    if part is None:
        raise UserError("the run holds no test set of its own", str(run), "name files to evaluate it on")
    result = road.evaluate(bundle, part, say)
    if picture is not None:
        _draw(result.scores.to_dict(), picture)
    record = result.scores.to_dict() | road.trained_on(run, part)
    if result.loss is not None or result.left_out:
        loss = result.loss
        record |= {"perplexity": loss.perplexity if loss else None, "tokens": loss.count if loss else 0}
        record["too_long"] = result.left_out
    if as_json:
        print(json.dumps(record, ensure_ascii=False))
        return
    if record.get("warning"):
        say(f"warning: {record['warning']}")
    print(result.scores.table())
    if result.loss is not None:
        loss = result.loss
        print(f"perplexity  {loss.perplexity:.3f} over {loss.count:,} tokens (the run's own tokens)")
    if result.left_out:
        print(
            f"note: {result.left_out:,} {road.noun} are too long for the model's positions and not in the "
            "perplexity"
        )


def _draw(scores: dict[str, Any], path: Path) -> None:
    from triptych.insight.pictures import Confusion, confusion_svg
    from triptych.text import write_text_atomic

    labels = [str(one["label"]) for one in scores["classes"]]
    write_text_atomic(path, confusion_svg(Confusion(labels, scores["confusion"]), standalone=True))
