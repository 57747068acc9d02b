"""The command ``triptych``: parse, call, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import io
import os
import sys

# Threads that wait long in a busy loop make everything many times slower as soon as another program wants a
# core; a wait of some microseconds bridges the gap between two operations. Read when the library is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import typer

from triptych.cli import (
    classify,
    data,
    demo,
    embed,
    evaluate,
    fill,
    generate,
    inspect,
    parts,
    search,
    show,
    tag,
    train,
    translate,
    verify,
)
from triptych.errors import UserError

INTERRUPTED = 130

app = typer.Typer(
    name="triptych",
    help="The Transformer, whole: raw text to a trained, verified, explained and fast model.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("translate")(translate.translate)
app.command("generate")(generate.generate)
app.command("fill")(fill.fill)
app.command("classify")(classify.classify)
app.command("tag")(tag.tag)
app.command("embed")(embed.embed)
app.command("search")(search.search)
app.command("evaluate")(evaluate.evaluate)
app.command("verify")(verify.verify)
app.command("parts")(parts.parts)
app.command("inspect")(inspect.inspect)
app.command("config")(show.config)
app.add_typer(data.data, name="data")


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    if version:
        from importlib.metadata import version as number

        typer.echo(f"triptych {number('triptych')}")
        raise typer.Exit


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code: 0 fine, 1 a check failed, 2 wrong use or a file that cannot be
    read or written, 130 interrupted, 141 when whoever reads the output has left."""
    try:
        _streams()
        result = app(args=argv, standalone_mode=False)
        sys.stdout.flush()
        if result == INTERRUPTED:  # the parser makes a code of it
            raise KeyboardInterrupt
        return result if isinstance(result, int) else 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
    except (KeyboardInterrupt, typer.Abort):
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):  # the parser makes the second, of code 1, of the first
        return 141
    except OSError as error:
        place = str(error.filename) if error.filename is not None else ""
        print(f"error: {UserError(error.strerror or str(error), place)}", file=sys.stderr)
    except Exception as error:
        # The parser's own complaints, wherever the library keeps their class.
        if not (hasattr(error, "show") and hasattr(error, "exit_code")):
            raise
        error.show()
    finally:
        _let_go()
    return 2


def _streams() -> None:
    """What is written is UTF-8, whatever the locale says."""
    if sys.stderr is None:  # closed: messages must not go to where output goes
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        raise UserError("standard output is closed", "command line", "send it to a file or to /dev/null")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _let_go() -> None:
    """What could not be written is not tried again, with a message of its own, when Python ends."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
