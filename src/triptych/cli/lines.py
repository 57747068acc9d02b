"""Lines from a file, from standard input as they arrive, or from who types them."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from triptych.cli.common import say

BLOCK = 2000  # lines at a time: enough to sort by length, few enough to stream


def blocks(file: str, ask: str) -> Iterator[list[str]]:
    """Lines in blocks: all that has arrived, up to a limit, so that a slow writer is answered at once.

    Args:
        file: a path, or - for standard input.
        ask: what is said to who types at a terminal.
    """
    from triptych.text import iter_lines, read_lines

    if file != "-":
        lines = read_lines(Path(file))
        for start in range(0, len(lines), BLOCK):
            yield lines[start : start + BLOCK]
        return
    if sys.stdin.isatty():
        yield from ([line] for line in typed(f"{ask}; an empty line or Ctrl-D ends"))
        return
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=4 * BLOCK)

    def read() -> None:
        try:
            for line in iter_lines(sys.stdin.buffer, "standard input"):
                arrived.put(line)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        block: list[str] = []
        item = arrived.get()
        while isinstance(item, str):
            block.append(item)
            if len(block) >= BLOCK:
                break
            try:
                # A reader that is being fed needs a moment; a person or a slow program does not notice.
                item = arrived.get(timeout=0.02)
            except queue.Empty:
                break
        if block:
            yield block
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return


def typed(ask: str) -> Iterator[str]:
    """What a person types, line by line, up to an empty line or the end."""
    say(ask)
    while True:
        try:
            line = input("> ")
        except EOFError:
            return
        except UnicodeDecodeError as error:
            say(f"byte {error.start + 1} of this line is not UTF-8: it was left out")
            continue
        if not line:
            return
        yield line
