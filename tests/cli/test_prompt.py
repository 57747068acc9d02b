"""The interactive prompt, on a pseudo-terminal as a person would use it."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


class Terminal:
    """``triptych translate RUN`` with a terminal on standard input; its output as it appears."""

    def __init__(self, run: Path) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "triptych", "translate", str(run)],
            stdin=slave, stdout=slave, stderr=slave,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", "TERM": "dumb"},
        )  # fmt: skip
        os.close(slave)
        self.seen = ""

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """Output up to and with ``text``; what follows is kept for the next call."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            try:
                self.seen += os.read(self.master, 4096).decode("utf-8", "replace")
            except OSError:  # the other side is closed
                raise AssertionError(f"ended without {text!r}: {self.seen!r}") from None
        found, _, self.seen = self.seen.partition(text)
        return found + text

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.master, text.encode())

    def leaves(self) -> int:
        """The exit code."""
        return self.process.wait(timeout=30)


@pytest.fixture
def terminal(trained: Path) -> Iterator[Terminal]:
    found = Terminal(trained)
    yield found
    if found.process.poll() is None:
        found.process.kill()
    os.close(found.master)


def test_each_line_is_answered_before_the_next(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    for source, target in (("I see two cats.", "ich sehe zwei Katzen."), ("you know ten books.", "Bücher.")):
        terminal.type(source + "\n")
        assert target in terminal.wait_for("> ").replace("\r\n", "\n")
    terminal.type("\x04")  # Ctrl-D
    assert terminal.leaves() == 0


def test_an_empty_line_ends(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    terminal.type("\n")
    assert terminal.leaves() == 0


def test_ctrl_c_leaves_without_a_traceback(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    for _ in range(
        20
    ):  # until the read has begun a signal waits for the next key, and a person presses again
        terminal.process.send_signal(signal.SIGINT)
        try:
            assert terminal.process.wait(timeout=2) == 130
            break
        except subprocess.TimeoutExpired:
            continue
    assert terminal.process.poll() == 130
    assert "Traceback" not in terminal.seen


def test_bytes_that_are_no_text_are_said_and_the_prompt_stays(terminal: Terminal) -> None:
    terminal.wait_for("> ")
    os.write(terminal.master, b"caf\xe9\n")
    assert "not UTF-8" in terminal.wait_for("> ")
    terminal.type("I see two cats.\n")
    assert "ich sehe zwei Katzen." in terminal.wait_for("> ")
