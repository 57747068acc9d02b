"""What standard input and output do to a command: full, closed, left, of another encoding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a POSIX shell and /dev/full")


def shell(line: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of bash in which ``$T`` is the command; the exit code is that of the command."""
    own = {**os.environ, "OMP_NUM_THREADS": "1", "T": f"{sys.executable} -m triptych", **env}
    return subprocess.run(
        ["bash", "-c", line], check=False, cwd=cwd, env=own, capture_output=True, timeout=120
    )


def one_message(done: subprocess.CompletedProcess[bytes], *words: str) -> None:
    text = done.stderr.decode()
    assert done.returncode == 2, (done.returncode, text)
    assert text.startswith("error: ") and text.count("error") == 1, text
    assert "Traceback" not in text and "ignored" not in text
    for word in words:
        assert word in text


@pytest.mark.parametrize("command", ["config small", "inspect small", "--help"])
def test_a_full_disk(command: str, tmp_path: Path) -> None:
    one_message(shell(f"$T {command} > /dev/full", tmp_path), "No space left")


def test_a_full_disk_under_a_translation(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("I see two cats.\n", encoding="utf-8")
    one_message(shell(f"$T translate {trained} in.txt > /dev/full", tmp_path), "No space left")


def test_closed_streams(trained: Path, tmp_path: Path) -> None:
    one_message(shell("$T config small >&-", tmp_path), "standard output is closed")
    one_message(shell(f"$T translate {trained} <&-", tmp_path), "standard input is closed")
    done = shell("$T config nosuch 2>&-", tmp_path)
    assert (done.returncode, done.stdout) == (2, b""), "messages never go to where output goes"


@pytest.mark.parametrize("command", ["config small", "config --schema", "--help"])
def test_a_reader_that_leaves(command: str, tmp_path: Path) -> None:
    done = shell(f"(sleep 0.1; $T {command}; echo $? >&2) | true", tmp_path)
    assert done.stderr == b"141\n"


def test_output_is_utf8_whatever_the_locale(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("text: {source: 中}\n", encoding="utf-8")
    done = shell("$T config c.yaml", tmp_path, PYTHONIOENCODING="latin-1")
    assert done.returncode == 0 and "source: 中" in done.stdout.decode("utf-8")
