"""``triptych generate``: a text, or a conversation, goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from triptych.cli.common import load_fast, say
from triptych.cli.lines import blocks, typed
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.config import DecodingConfig
    from triptych.engine import Generation, Generator, Prompt

DRAWN = ("temperature", "top_k", "top_p", "min_p", "seed")
BETWEEN = "---"
AS_LINE = str.maketrans({"\\": r"\\", "\n": r"\n", "\r": r"\r"})


def generate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    prompt: Annotated[
        str | None, typer.Argument(help="Text to go on with, or - for one a line from standard input.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens of an output.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Only so many of the likeliest; 0 keeps all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Only the likeliest, of this share together.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Only those this likely beside the likeliest.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="Above 1, what was said is rarer.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Text to end before; may be repeated.")] = None,
    n: Annotated[int, typer.Option("--n", "-n", help="Outputs of each prompt.")] = 1,
    seed: Annotated[int | None, typer.Option(help="Another seed, other outputs.")] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the likeliest token.")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Show the output as it is written.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a prompt.")] = False,
) -> None:
    """Go on with a text; with an instruction run, answer.

    Of - each output is one line, in which \\n is a line end. Without a prompt, at a terminal: a conversation
    with an instruction run, else one output from nothing.
    """
    options = {
        "max_length": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
        "repetition_penalty": repetition_penalty, "stop": stop or None, "seed": seed,
    }  # fmt: skip
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    drawn = [k for k in DRAWN if k in given]
    if greedy and drawn:
        what = f"--{drawn[0].replace('_', '-')} has no effect with --greedy"
        raise UserError(what, "command line", "leave one of them out")
    if greedy or drawn:
        given["strategy"] = "greedy" if greedy else "sample"
    if prompt in (None, "-") and sys.stdin is None:
        raise UserError("standard input is closed", "command line", "give a prompt")
    typing = prompt is None and sys.stdin.isatty()
    lines = prompt == "-" or (prompt is None and not typing)
    if stream and (lines or as_json or n > 1):
        what = "--stream shows one output of one prompt, as text"
        raise UserError(what, "command line", "leave out --stream, or -, --json and --n")
    from triptych.config import DecodingConfig

    generator = load_fast(run).generator
    settings = DecodingConfig.parse({**generator.settings.dump(), **given})
    if typing and generator.template:
        if as_json or n > 1:
            what = "a conversation shows one answer at a time, as text"
            raise UserError(what, "command line", "give a prompt, or leave out --json and --n")
        _converse(generator, settings)
    elif stream:
        _write(generator.stream(_asked(generator, prompt or ""), settings))
        print(flush=True)
    elif not lines:
        (found,) = generator.generate([_asked(generator, prompt or "")], settings, n)
        texts = [_record(prompt or "", 1, found)] if as_json else _apart(found)
        _write(f"{text}\n" for text in texts)
    else:
        number = 0
        for block in blocks("-", "type a prompt to go on with it"):
            outputs = generator.generate([_asked(generator, p) for p in block], settings, n, first=number)
            for line, (text, found) in enumerate(zip(block, outputs, strict=True), number + 1):
                shown = (
                    [_record(text, line, found)] if as_json else [g.text.translate(AS_LINE) for g in found]
                )
                sys.stdout.write("".join(f"{one}\n" for one in shown))
            sys.stdout.flush()
            number += len(block)
    for note in generator.notes:
        say(f"note: {note}")


def _asked(generator: Generator, text: str) -> str | Prompt:
    """A text to go on with, or, where conversations were learned, a user's turn."""
    return generator.dialogue([("user", text)]) if generator.template else text


def _apart(found: Sequence[Generation]) -> list[str]:
    """Outputs of one prompt as lines, with a line between them."""
    return [one for g in found for one in (BETWEEN, g.text)][1:]


def _record(prompt: str, line: int, found: Sequence[Generation]) -> str:
    outputs = [
        {"text": g.text, "reason": g.reason, "tokens": len(g.ids), "logprob": g.logprob} for g in found
    ]
    return json.dumps({"line": line, "prompt": prompt, "outputs": outputs}, ensure_ascii=False)


def _write(pieces: Iterable[str]) -> str:
    """Write pieces as they come; all of them together."""
    whole = ""
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
        whole += piece
    return whole


def _converse(generator: Generator, settings: DecodingConfig) -> None:
    turns: list[tuple[str, str]] = []
    for line in typed("type to talk; /reset begins anew, an empty line or Ctrl-D ends"):
        if line.strip() == "/reset":
            turns = []
            continue
        asked = [*turns, ("user", line)]
        try:
            answer = _write(generator.stream(generator.dialogue(asked), settings, len(turns)))
        except UserError as error:  # such as a conversation that has become too long
            say(f"{error.what}\n  → write less, or begin anew with /reset")
            continue
        print(flush=True)
        turns = [*asked, ("assistant", answer)]
