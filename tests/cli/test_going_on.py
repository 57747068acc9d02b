"""Going on with a run that is not, or no longer, what it was begun as; and runs that are never begun."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from cli.conftest import SMALL, Cli, run_cli, tsv
from cli.test_bad_input import refused
from triptych.training.checkpoint import list_checkpoints, save_checkpoint
from triptych.training.prepare import alone

ARGS = ("pairs.tsv", "--preset", "small", "--from", "en", "--to", "de", *SMALL, "model.dim=16",
        "model.ffn.dim=32", "decoding.strategy=greedy")  # fmt: skip


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 30 steps, and another of the same size by another tokenizer."""
    home = tmp_path_factory.mktemp("begun")
    tsv(home / "pairs.tsv")
    small = ("training.steps=30", "training.validate_every=10")
    for name, extra in (
        ("run", ()),
        ("other", ("text.tokenizer.kind=char",)),
        ("seed", ("training.seed=2",)),
    ):
        done = run_cli("train", *ARGS, *small, *extra, "--out", name, cwd=home)
        assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Path:
    tsv(tmp_path / "pairs.tsv")
    shutil.copytree(begun / "run", tmp_path / "run")
    return tmp_path / "run"


def edit(run: Path, key: str, value: object) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    *sections, last = key.split(".")
    inner = config
    for section in sections:
        inner = inner[section]
    inner[last] = value
    (run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


def steps(run: Path) -> int:
    return max(json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines())


def test_a_foreign_tokenizer(begun: Path, run: Path, here: Cli) -> None:
    shutil.rmtree(run / "tokenizer")
    shutil.copytree(begun / "other" / "tokenizer", run / "tokenizer")
    before = (run / "model.safetensors").read_bytes()
    refused(here("train", "run", "--resume"), "tokenizer is not the one this run was begun with")
    assert (run / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("key", "value"),
    [("model.dim", 32), ("model.dropout", 0.4), ("data.tokens", 300), ("training.precision", "bf16")],
)
def test_a_configuration_edited_by_hand(run: Path, here: Cli, key: str, value: object) -> None:
    edit(run, key, value)
    refused(here("train", "run", "--resume"), f"changed: {key}", "put it back in")


def test_what_may_be_edited_by_hand_is_shown(run: Path, here: Cli) -> None:
    edit(run, "training.steps", 35)
    done = here("train", "run", "--resume")
    assert done.returncode == 0 and "changed: training.steps: 30 → 35" in done.stderr
    assert steps(run) == 35


@pytest.mark.parametrize(("of", "word"), [("other", "another tokenizer"), ("seed", "other data")])
def test_a_foreign_checkpoint(begun: Path, run: Path, here: Cli, of: str, word: str) -> None:
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(begun / of / "checkpoints", run / "checkpoints")
    refused(here("train", "run", "--resume"), word)


def test_a_checkpoint_of_another_size(run: Path, here: Cli) -> None:
    found = list_checkpoints(run / "checkpoints")[-1]
    state = found.read()
    state["model"] = {name: value[:1] for name, value in state["model"].items()}
    save_checkpoint(run / "checkpoints", found.step, state, 1)
    refused(here("train", "run", "--resume"), "does not fit the run's model")
    del state["origin"]  # one that does not say what it is of
    save_checkpoint(run / "checkpoints", found.step, state, 1)
    refused(here("train", "run", "--resume"), "other data")


def test_a_run_of_steps_goes_on_by_time_and_back(run: Path, here: Cli) -> None:
    done = here("train", "run", "--resume", "--budget", "4s")
    assert done.returncode == 0, done.stderr
    assert "training.steps: 30 → None" in done.stderr and "training.budget: None → 4s" in done.stderr
    timed = steps(run)
    assert timed > 30
    again = here("train", "run", "--resume")
    assert again.returncode == 0 and "at its end" in again.stderr and steps(run) == timed
    longer = here("train", "run", "--resume", "--budget", "7s")
    assert longer.returncode == 0 and steps(run) > timed
    more = steps(run) + 12
    counted = here("train", "run", "--resume", f"training.steps={more}")
    assert counted.returncode == 0 and steps(run) == more
    assert "training.budget: 7s → None" in counted.stderr


def test_a_run_goes_on_by_epochs_and_back(run: Path, here: Cli) -> None:
    done = here("train", "run", "--resume", "training.epochs=12")
    assert done.returncode == 0, done.stderr
    assert "training.steps: 30 → None" in done.stderr and "training.epochs: None → 12.0" in done.stderr
    passed = steps(run)
    assert passed > 30 and passed % 12 == 0
    again = here("train", "run", "--resume", "--budget", "90s")  # more time, and as many epochs
    assert "more training.epochs" in again.stderr and steps(run) == passed
    refused(here("train", "run", "--resume", "training.epochs=1"), "training.epochs", str(passed))
    refused(here("train", "run", "--resume", "training.epochs=20", "training.steps=99"), "training.epochs")
    counted = here("train", "run", "--resume", f"training.steps={passed + 5}")
    assert counted.returncode == 0 and steps(run) == passed + 5
    assert "training.epochs: 12.0 → None" in counted.stderr


def test_fewer_steps_than_are_done(run: Path, here: Cli) -> None:
    refused(here("train", "run", "--resume", "training.steps=20"), "training.steps", "30")
    assert [c.step for c in list_checkpoints(run / "checkpoints")] == [10, 20, 30]
    refused(here("train", "run", "--resume", "training.steps=40", "--budget", "9s"), "training.budget")


@pytest.mark.parametrize("option", ["--from", "--to", "--preset", "--source", "--target", "--out"])
def test_options_that_do_not_go_with_resuming(run: Path, here: Cli, option: str) -> None:
    refused(here("train", "run", "--resume", option, "zzz"), option, "--resume")


def test_a_folder_left_before_training_began(run: Path, here: Cli) -> None:
    for path in (run / "config.yaml", run / "model.safetensors"):
        path.unlink()
    shutil.rmtree(run / "checkpoints")
    done = here("train", *ARGS, "training.steps=3", "--out", "run")
    refused(done, "holds no run that could go on", "choose another --out")
    assert "--resume" not in done.stderr
    done = here("demo", "--from", "en", "--to", "de", "--out", "run")
    refused(done, "holds no run that could go on", "choose another --out")
    assert "--resume" not in done.stderr
    refused(here("train", "run", "--resume"), "left before training began")


def test_a_run_that_has_lost_something(run: Path, here: Cli) -> None:
    """Nothing is trained anew that was there, and no score is left out without a word."""
    more = ("train", "run", "--resume", "training.steps=31")
    held = run / "data" / "test.source"
    whole = held.read_bytes()
    held.unlink()
    refused(here(*more), "test.source", "missing")
    held.write_bytes(b"\xff\n")
    refused(here(*more), "test.source:1", "UTF-8")
    held.write_bytes(whole)
    shutil.move(run / "checkpoints", run / "away")
    weights = (run / "model.safetensors").read_bytes()
    refused(here(*more), "checkpoints", "put them back")
    assert (run / "model.safetensors").read_bytes() == weights
    (run / "config.yaml").unlink()
    refused(here(*more), "config.yaml", "put it back")


def test_two_do_not_train_one_run(run: Path, here: Cli) -> None:
    with alone(run):
        refused(here("train", "run", "--resume", "training.steps=31"), "another process")
    assert here("train", "run", "--resume", "training.steps=31").returncode == 0


def test_a_folder_that_stood_there_stays(here: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    tsv(tmp_path / "pairs.tsv")
    done = here("train", *ARGS, "training.steps=3", "--out", "mine", "data.max_length=1")
    refused(done, "data.max_length")
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_name_that_is_no_text(here: Cli, tmp_path: Path) -> None:
    odd = os.fsdecode(b"bad\xff.tsv")
    tsv(tmp_path / odd)
    refused(here("train", odd, *ARGS[1:], "training.steps=3", "--out", "odd"), "not UTF-8", "another name")
    assert not (tmp_path / "odd").exists()


def test_the_place_is_looked_at_before_the_data_are(run: Path, here: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for out in ("run", "file", "file/run"):
        done = here("train", *ARGS, "training.steps=3", "--out", out)
        refused(done, out)
        assert "pairs" not in done.stderr.replace("pairs.tsv", "")


def test_a_refused_run_leaves_no_folder_and_says_no_more_than_why(here: Cli, tmp_path: Path) -> None:
    tsv(tmp_path / "pairs.tsv")
    refused(here("train", *ARGS, "training.steps=3", "data.tokens=2", "--out", "new"), "data.tokens")
    refused(here("train", *ARGS, "training.steps=3", "model.form=decoder", "--out", "new"), "model.form")
    assert not (tmp_path / "new").exists()
    for setting in ("model.layers=0", "model.form=decoder"):
        done = here("train", "pairs.tsv", setting)
        refused(done, setting.split("=")[0])
        assert "budget" not in done.stderr and "--to" not in done.stderr


def test_pairs_longer_than_the_positions(here: Cli, tmp_path: Path) -> None:
    """Held-out pairs that the model has no positions for are neither drawn nor counted."""
    tsv(tmp_path / "pairs.tsv")
    long = " ".join(["I see two cats and ten dogs."] * 9)
    tsv(tmp_path / "test.tsv", [(long, long), ("I see two cats.", "ich sehe zwei Katzen.")])
    learned = "model.position={kind: learned, max: 20}"
    done = here("train", *ARGS, "training.steps=3", learned, "data.test=test.tsv", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "report.html").exists()
    scored = here("evaluate", "run")
    assert scored.returncode == 0 and "note: 1 pairs are too long" in scored.stdout, scored.stderr
    record = json.loads(here("evaluate", "run", "--json").stdout)
    assert record["too_long"] == 1 and record["perplexity"] > 1
    (tmp_path / "long").write_text(f"{long}\n", encoding="utf-8")
    only = here("evaluate", "run", "--source", "long", "--reference", "long")
    assert only.returncode == 0 and "perplexity  " not in only.stdout and "too long" in only.stdout


def test_an_interrupted_demo_says_how_to_go_on(tmp_path: Path) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "triptych", "demo", "--minutes", "1", "--out", "d"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as work:
        deadline = time.monotonic() + 60
        while not (tmp_path / "d" / "metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        work.send_signal(signal.SIGINT)
        _, said = work.communicate(timeout=60)
    assert work.returncode == 130 and "go on with `triptych train d --resume`" in said, said
