"""The command line as a user meets it: a subprocess in an empty folder, and one small trained run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from triptych.cli.main import main

NUMBERS = {
    "one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs",
    "seven": "sieben", "eight": "acht", "nine": "neun", "ten": "zehn",
}  # fmt: skip
NOUNS = {
    "cats": "Katzen",
    "dogs": "Hunde",
    "birds": "Vögel",
    "houses": "Häuser",
    "trees": "Bäume",
    "books": "Bücher",
}
VERBS = {"I see": "ich sehe", "we have": "wir haben", "they want": "sie wollen", "you know": "du kennst"}

SMALL = (
    "model.dim=32", "model.layers=1", "model.heads.count=2", "model.ffn.dim=64", "text.tokenizer.size=300",
    "text.tokenizer.shrink=true", "data.tokens=512", "training.precision=fp32",
    "training.schedule.peak=1e-2", "training.schedule.warmup=10",
)  # fmt: skip

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def pairs() -> list[tuple[str, str]]:
    """240 sentence pairs of a small grammar."""
    return [
        (f"{v} {n} {o}.", f"{v2} {n2} {o2}.")
        for v, v2 in VERBS.items()
        for n, n2 in NUMBERS.items()
        for o, o2 in NOUNS.items()
    ]


def tsv(path: Path, rows: list[tuple[str, str]] | None = None) -> Path:
    """Write pairs as TSV."""
    path.write_text("".join(f"{s}\t{t}\n" for s, t in rows or pairs()), encoding="utf-8")
    return path


def run_cli(
    *args: str | Path, cwd: Path, stdin: str | bytes | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run ``triptych``; output as text."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", "COLUMNS": "120"}
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [sys.executable, "-m", "triptych", *map(str, args)],
        check=False,
        cwd=cwd, env=env, input=data if data is not None else b"", capture_output=True, timeout=timeout,
    )  # fmt: skip
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")
    )


@pytest.fixture(autouse=True)
def _precision() -> Iterator[None]:
    """The commands choose the fastest products for their process, which is that of all tests here."""
    was = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(was)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """``cli("train", …)`` in the test's own folder."""

    def run(*args: str | Path, **kwargs: object) -> subprocess.CompletedProcess[str]:
        return run_cli(*args, cwd=tmp_path, **kwargs)  # type: ignore[arg-type]

    return run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """``here("inspect", …)`` in the test's own folder, in this process: the program is loaded once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
        code = main(list(map(str, args)))
        said = capsys.readouterr()
        return subprocess.CompletedProcess(args, code, said.out, said.err)

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run trained on the small grammar, well enough to translate it."""
    home = tmp_path_factory.mktemp("trained")
    config = home / "config.yaml"
    config.write_text("data: {train: [pairs.tsv]}\ntext: {source: en, target: de}\n", encoding="utf-8")
    tsv(home / "pairs.tsv")
    done = run_cli(
        "train", config.name, "--out", "run", *SMALL, "training.steps=500", "model.dim=64", cwd=home
    )
    assert done.returncode == 0, done.stderr
    return home / "run"
