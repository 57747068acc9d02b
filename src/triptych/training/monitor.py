"""What a run says while it works: ``metrics.jsonl``, a progress line, optional TensorBoard."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from triptych.errors import UserError
from triptych.text.files import write_text_atomic


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole records of a metrics file; a last line cut by a kill is passed over."""
    records = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").split("\n"):
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
    return records


class Monitor:
    """Records go to ``metrics.jsonl`` (one JSON object a line, flushed), progress to standard error.

    On a terminal progress is one live line; elsewhere plain lines, at most one every ten seconds.
    """

    def __init__(self, folder: Path, tensorboard: bool = False, quiet: bool = False) -> None:
        self.path = folder / "metrics.jsonl"
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self.said = -math.inf
        self.width = 0
        self.board: Any = None  # begun by the first record
        self.boards: Callable[..., Any] | None = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise UserError(
                    "TensorBoard is not installed", "training.tensorboard", "pip install tensorboard"
                ) from None
            self.boards = partial(SummaryWriter, str(folder / "tensorboard"))

    def close(self) -> None:
        """What TensorBoard is to show is written out."""
        if self.board is not None:
            self.board.close()

    def rewind(self, step: int) -> None:
        """Forget records after ``step``, before any is made: they are about to be made again."""
        if self.boards is not None:
            self.boards = partial(self.boards, purge_step=step + 1)
        kept = [r for r in read_metrics(self.path) if r.get("step", 0) <= step]
        write_text_atomic(self.path, "".join(json.dumps(r) + "\n" for r in kept))

    def record(self, kind: str, step: int, **values: Any) -> None:
        """One record."""
        entry = {"kind": kind, "step": step, "time": round(time.time(), 3), **values}
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry, ensure_ascii=False, allow_nan=True) + "\n")
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror}", str(self.path)) from None
        if self.boards is not None:
            self.board = self.board or self.boards()
            for name, value in values.items():
                if isinstance(value, int | float):
                    self.board.add_scalar(f"{kind}/{name}", value, step)

    def progress(self, text: str) -> None:
        """The state of the work; replaces what stood there before."""
        now = time.monotonic()
        if self.quiet or now - self.said < (0.2 if self.live else 10):
            return
        self.said = now
        if self.live:
            sys.stderr.write("\r" + text.ljust(self.width))
            self.width = len(text)
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def line(self, text: str) -> None:
        """A line that stays."""
        if self.quiet:
            return
        if self.live and self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            self.width = 0
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def clock(seconds: float) -> str:
    """``75`` → ``1:15``; hours when there are any."""
    s = max(0, round(seconds))
    return f"{s // 3600}:{s % 3600 // 60:02d}:{s % 60:02d}" if s >= 3600 else f"{s // 60}:{s % 60:02d}"
