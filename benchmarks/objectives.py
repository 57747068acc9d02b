"""The whole road on tasks that are not translation: train within a budget, score, time the commands.

usage: objectives.py WHAT DATA [--budget 10m] [--out FOLDER] [key=value …]

sst2         DATA holds train.tsv and dev.tsv: a text and its class a line
tags         DATA holds *train*, *dev* and *test* in CoNLL-U, .gz too
pretraining  DATA holds text.txt, and train.tsv and dev.tsv as sst2: half of the budget for hidden tokens of
             the text, the other half for the classes; and all of it for the classes alone, to compare
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from triptych.config.run import duration


def triptych(*args: str) -> None:
    """Run the command, its output on ours; say what was run and how long it took."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "triptych", *args], check=True)
    print(f"$ triptych {shlex.join(args)}\n{time.perf_counter() - start:.0f} s")


def scores(run: Path) -> dict[str, Any]:
    """Of the test part, as the run's last record has them."""
    last = (run / "metrics.jsonl").read_text("utf-8").splitlines()[-1]
    return dict(json.loads(last)["scores"])


def train(run: Path, objective: str, file: Path, *args: str) -> None:
    """Train into ``run``."""
    triptych("train", str(file), "--objective", objective, "--out", str(run), *args)


def held_out(valid: Path, test: Path) -> list[str]:
    """Files for validation and test."""
    return [f"data.{name}={json.dumps([str(file)])}" for name, file in (("valid", valid), ("test", test))]


def classes(data: Path, run: Path, budget: str, settings: list[str]) -> float:
    """Accuracy on dev.tsv, by which the weights are also chosen, as is usual where no other part is open."""
    dev = data / "dev.tsv"
    train(run, "classify", data / "train.tsv", "--budget", budget, *held_out(dev, dev), *settings)
    return float(scores(run)["accuracy"]["score"])


def sst2(data: Path, out: Path, budget: str, settings: list[str]) -> None:
    """Classes of sentences, from nothing; the files of the test, where there is one, at the end."""
    print(f"accuracy on dev.tsv: {classes(data, out / 'sst2', budget, settings):.2f} %")
    if (data / "test.tsv").exists():
        triptych("evaluate", str(out / "sst2"), str(data / "test.tsv"))


def tags(data: Path, out: Path, budget: str, settings: list[str]) -> None:
    """Tags of words, from nothing."""
    part = {
        name: next(p for p in sorted(data.iterdir()) if name in p.name) for name in ("train", "dev", "test")
    }
    files = held_out(part["dev"], part["test"])
    train(out / "tags", "tag", part["train"], "--budget", budget, *files, *settings)
    print(f"accuracy on the test part: {scores(out / 'tags')['accuracy']['score']:.2f} %")


def pretraining(data: Path, out: Path, budget: str, settings: list[str]) -> None:
    """Hidden tokens of running text first, classes after it; against classes alone for as long."""
    half = f"{duration(budget, '--budget') / 2:.0f}s"
    train(out / "masked", "masked", data / "text.txt", "--budget", half, "data.documents=line")
    init = ["--init", str(out / "masked")]
    after = classes(data, out / "after", half, [*init, *settings])
    alone = classes(data, out / "alone", budget, settings)
    print(f"accuracy on dev.tsv: {after:.2f} % after hidden tokens, {alone:.2f} % from nothing")


WHAT: dict[str, Callable[[Path, Path, str, list[str]], None]] = {
    "sst2": sst2,
    "tags": tags,
    "pretraining": pretraining,
}


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("what", choices=WHAT)
    parse.add_argument("data", type=Path)
    parse.add_argument("--budget", default="10m")
    parse.add_argument("--out", type=Path)
    parse.add_argument("settings", nargs="*", help="key=value, as of triptych train")
    given = parse.parse_args()
    WHAT[given.what](given.data, given.out or Path(tempfile.mkdtemp()), given.budget, given.settings)


if __name__ == "__main__":
    main()
