"""Training with experts, and from vectors learned elsewhere, as a user does it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import SMALL, Cli, pairs, tsv

ARGS = ("pairs.tsv", "--preset", "small", "--from", "en", "--to", "de", *SMALL, "training.log_every=5",
        "training.validate_every=10", "--out", "run")  # fmt: skip
SPARSE = ("model.experts.count=4", "model.experts.top_k=2")
SIGMOID = (*SPARSE, "model.experts.router=sigmoid", "model.experts.shared=1", "training.steps=40")


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [r for r in map(json.loads, lines) if r["kind"] == kind]


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def vectors(path: Path, width: int, header: bool = True) -> Path:
    """Vectors of the words of the small grammar."""
    rng = random.Random(0)
    words = sorted({w for s, t in pairs() for w in f"{s} {t}".replace(".", " .").split()})
    rows = [f"{w} " + " ".join(f"{rng.gauss(0, 0.5):.4f}" for _ in range(width)) for w in words]
    path.write_text("\n".join([f"{len(rows)} {width}"] * header + rows) + "\n", encoding="utf-8")
    return path


def test_experts_train_and_their_loads_are_recorded(cli: Cli, tmp_path: Path) -> None:
    tsv(tmp_path / "pairs.tsv")
    done = cli("train", *ARGS, *SPARSE, "training.steps=60")
    assert done.returncode == 0, done.stderr
    found = records(tmp_path / "run", "train")
    assert len(found) == 12 and found[-1]["nll"] < found[0]["nll"] / 2
    for record in found:
        assert set(record["experts"]) == {"encoder.blocks.0", "decoder.blocks.0"}
        assert all(len(shares) == 4 for shares in record["experts"].values())
    said = cli("translate", "run", stdin="I see two cats.\n")
    assert said.returncode == 0 and said.stdout.count("\n") == 1, said.stderr


def test_a_killed_run_with_biases_goes_on_exactly(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    for home in (tmp_path, tmp_path / "whole"):
        tsv(home / "pairs.tsv")
    whole = cli("train", *ARGS[:-1], "whole/run", *SIGMOID)
    assert whole.returncode == 0, whole.stderr
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "triptych", "train", *ARGS, *SIGMOID]
    work = subprocess.Popen(
        command, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    metrics, deadline = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 60
    while work.poll() is None and time.monotonic() < deadline:
        if metrics.exists() and metrics.read_text().count('"valid"') >= 2:
            break
        time.sleep(0.005)
    work.send_signal(signal.SIGKILL)
    work.wait()
    done = cli("train", "run", "--resume")
    assert done.returncode == 0 and "going on from step" in done.stderr, done.stderr
    assert weights(tmp_path / "run") == weights(tmp_path / "whole" / "run")
    one, other = (records(run, "train") for run in (tmp_path / "run", tmp_path / "whole" / "run"))
    assert {r["step"]: r["experts"] for r in one} == {r["step"]: r["experts"] for r in other}


@pytest.mark.parametrize("how", ["tuned", "frozen", "factorised"])
def test_training_from_vectors(cli: Cli, tmp_path: Path, how: str) -> None:
    tsv(tmp_path / "pairs.tsv")
    vectors(tmp_path / "v.vec", 24 if how == "factorised" else 32, header=how != "tuned")
    extra = {
        "tuned": (),
        "frozen": ("text.vectors.frozen=true", "model.tie=none"),
        "factorised": ("model.embedding.kind=factorised", "model.embedding.dim=24"),
    }[how]
    done = cli("train", *ARGS, "text.vectors.file=v.vec", *extra, "training.steps=20")
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("vectors: "))
    assert "of running tokens" in line and ("frozen" in line) == (how == "frozen")
    (tmp_path / "v.vec").unlink()  # the run does not need them
    assert cli("translate", "run", stdin="I see two cats.\n").returncode == 0
    if how == "frozen":  # nor to go on, from a checkpoint
        more = cli("train", "run", "--resume", "training.steps=24")
        assert more.returncode == 0 and "going on from step 20" in more.stderr, more.stderr
        states = [torch.load(path)["model"] for path in sorted((tmp_path / "run/checkpoints").iterdir())]
        first, last = (state["source_embedding.weight"] for state in (states[0], states[-1]))
        assert len(states) > 1 and torch.equal(first, last)
        shutil.rmtree(tmp_path / "run" / "checkpoints")
        fresh = cli("train", "run", "--resume", "training.steps=28")
        assert fresh.returncode == 2 and "v.vec: no such file" in fresh.stderr, fresh.stderr


def test_wrong_vectors_are_refused_before_any_work(cli: Cli, tmp_path: Path) -> None:
    tsv(tmp_path / "pairs.tsv")
    vectors(tmp_path / "v.vec", 20)
    done = cli("train", *ARGS, "text.vectors.file=v.vec", "training.steps=20")
    assert done.returncode == 2 and "vectors of 20 values do not fit embeddings of 32" in done.stderr
    assert "factorised, dim: 20" in done.stderr and not (tmp_path / "run").exists()
    missing = cli("train", *ARGS, "text.vectors.file=vv.vec", "training.steps=20")
    assert missing.returncode == 2 and "did you mean v.vec?" in missing.stderr
    frozen = cli("train", *ARGS, "text.vectors.file=v.vec", "text.vectors.frozen=true")
    assert frozen.returncode == 2 and "model.tie=none" in frozen.stderr
    assert "Traceback" not in done.stderr + missing.stderr + frozen.stderr
