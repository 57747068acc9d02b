"""Kill a run anywhere: resumed, it ends in the very same weights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import SMALL, Cli, tsv
from triptych.training.tasks.translation import TranslationTask

ARGS = ("pairs.tsv", "--preset", "small", "--from", "en", "--to", "de", *SMALL, "training.steps=60",
        "training.validate_every=10", "training.log_every=1", "training.accumulate=2")  # fmt: skip


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def losses(run: Path) -> dict[int, float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {r["step"]: r["loss"] for r in records if r["kind"] == "train"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from cli.conftest import run_cli

    home = tmp_path_factory.mktemp("whole")
    tsv(home / "pairs.tsv")
    done = run_cli("train", *ARGS, "--out", "run", cwd=home)
    assert done.returncode == 0, done.stderr
    return home / "run"


@pytest.mark.parametrize("at", [0, 7, 31, 60])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_resumed_is_uninterrupted(
    whole: Path, cli: Cli, tmp_path: Path, at: int, how: signal.Signals
) -> None:
    tsv(tmp_path / "pairs.tsv")
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "triptych", "train", *ARGS, "--out", "run"]
    work = subprocess.Popen(
        command, cwd=tmp_path, env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    config = tmp_path / "run" / "config.yaml"
    deadline = time.monotonic() + 60
    while work.poll() is None and time.monotonic() < deadline:
        seen = metrics.read_text().count('"train"') if metrics.exists() else 0
        if config.exists() and seen >= at:
            break
        time.sleep(0.005)
    work.send_signal(how)
    work.wait()
    done = cli("train", "run", "--resume")
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    assert weights(run) == weights(whole)
    assert losses(run) == losses(whole)
    assert not list(run.rglob("*.tmp*"))


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(whole: Path, cli: Cli, tmp_path: Path) -> None:
    import shutil

    tsv(tmp_path / "pairs.tsv")
    shutil.copytree(whole, tmp_path / "run")
    newest = max((tmp_path / "run" / "checkpoints").iterdir())
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(bytes(data))
    done = cli("train", "run", "--resume")
    assert done.returncode == 0, done.stderr
    assert newest.name in done.stderr and "damaged" in done.stderr and "going on from step 50" in done.stderr
    assert weights(tmp_path / "run") == weights(whole)


def test_changes_are_shown_or_refused(whole: Path, cli: Cli, tmp_path: Path) -> None:
    import shutil

    tsv(tmp_path / "pairs.tsv")
    shutil.copytree(whole, tmp_path / "run")
    refused = cli("train", "run", "--resume", "model.dropout=0.5")
    assert refused.returncode == 2 and "model.dropout: 0.1 → 0.5" in refused.stderr
    longer = cli("train", "run", "--resume", "training.steps=70")
    assert longer.returncode == 0 and "training.steps: 60 → 70" in longer.stderr
    assert max(losses(tmp_path / "run")) == 70
    (tmp_path / "pairs.tsv").write_text(
        "a\tb\n" * 3 + "c\td\ne\tf\ng\th\ni\tj\nk\tl\nm\tn\n", encoding="utf-8"
    )
    other = cli("train", "run", "--resume")
    assert other.returncode == 2 and "data" in other.stderr


def test_a_used_folder_is_not_overwritten(whole: Path, cli: Cli, tmp_path: Path) -> None:
    tsv(tmp_path / "pairs.tsv")
    before = weights(whole)
    done = cli("train", *ARGS, "--out", str(whole))
    assert done.returncode == 2 and "not empty" in done.stderr and weights(whole) == before


def test_a_default_folder_that_is_taken_meanwhile_is_left_alone(
    here: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run begins there while the pairs are read."""
    tsv(tmp_path / "pairs.tsv")
    load, other = TranslationTask.load, tmp_path / "runs" / "pairs-en-de" / "data"

    def meanwhile(*args: Any) -> Any:
        other.mkdir(parents=True)
        return load(*args)

    monkeypatch.setattr(TranslationTask, "load", meanwhile)
    done = here("train", *ARGS, "training.steps=1")
    assert done.returncode == 0, done.stderr
    assert list(other.parent.iterdir()) == [other] and not any(other.iterdir())
    assert (tmp_path / "runs" / "pairs-en-de-2" / "model.safetensors").exists()


def test_divergence_stops_in_words(cli: Cli, tmp_path: Path) -> None:
    tsv(tmp_path / "pairs.tsv")
    done = cli(
        "train",
        *ARGS,
        "--out",
        "run",
        "training.schedule.peak=1e30",
        "training.schedule.warmup=1",
        "training.optimizer.clip=0",
    )
    assert done.returncode == 2, done.stderr
    assert (
        "step" in done.stderr and "training.schedule.peak" in done.stderr and "Traceback" not in done.stderr
    )
