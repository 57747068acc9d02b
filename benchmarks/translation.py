"""The whole road on a task: train within a budget, score the test set, time the command.

usage: translation.py TASK [--budget 15m] [--config CONFIG.yaml] [--from en] [--to zh] [--out RUN]
TASK holds train.tsv, dev.tsv and test.tsv.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def triptych(*args: str) -> None:
    """Run the command, its output on ours."""
    subprocess.run([sys.executable, "-m", "triptych", *args], check=True)


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("task", type=Path)
    parse.add_argument("--budget", default="15m")
    parse.add_argument("--config", default="")
    parse.add_argument("--from", dest="source", default="en")
    parse.add_argument("--to", dest="target", default="zh")
    parse.add_argument("--out", default="")
    given = parse.parse_args()
    run = Path(given.out or tempfile.mkdtemp()) / "run"
    task = given.task
    start = time.perf_counter()
    triptych(
        "train", *([given.config] if given.config else []), str(task / "train.tsv"), "--from", given.source,
        "--to", given.target, "--budget", given.budget, "--out", str(run),
        f"data.valid={json.dumps([str(task / 'dev.tsv')])}",
        f"data.test={json.dumps([str(task / 'test.tsv')])}",
    )  # fmt: skip
    print(f"trained and scored in {time.perf_counter() - start:.0f} s")
    source = run / "data" / "test.source"
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        triptych("translate", str(run), str(source), "--beam", "4", "--out", str(run / "test.out"))
        taken.append(time.perf_counter() - start)
    lines = len(source.read_bytes().split(b"\n")) - 1
    print(f"triptych translate, {lines} lines, beam 4, start-up included: {min(taken):.1f} s")


if __name__ == "__main__":
    main()
