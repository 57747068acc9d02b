"""What a user can get wrong: one message with place and mend, exit code 2, nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import SMALL, Cli, pairs, tsv

TRAIN = ("--preset", "small", "--from", "en", "--to", "de", *SMALL, "training.steps=2", "--out", "run")


def refused(done: object, *words: str) -> None:
    """Exit code 2, every word in the message, no traceback."""
    assert done.returncode == 2, (done.returncode, done.stderr)  # type: ignore[attr-defined]
    text = done.stderr  # type: ignore[attr-defined]
    assert "Traceback" not in text
    for word in words:
        assert word in text, (word, text)


def good() -> bytes:
    return "".join(f"{s}\t{t}\n" for s, t in pairs()).encode()


FILES = {
    "empty file": (b"", ["x.tsv", "empty"]),
    "blanks": (b"\n\n  \n\t\n", ["x.tsv"]),
    "one column": (good() + b"no second column here\n", ["x.tsv:241"]),
    "invalid UTF-8": (good() + b"bad \xff byte\tx\n", ["x.tsv:241", "0xFF"]),
    "damaged gzip": (b"\x1f\x8b broken", ["x.tsv.gz"]),
    "one pair": (b"one\teins\n", ["at least 5"]),
}


@pytest.mark.parametrize("name", FILES)
def test_files(name: str, cli: Cli, tmp_path: Path) -> None:
    data, words = FILES[name]
    file = "x.tsv.gz" if "gz" in words[0] else "x.tsv"
    (tmp_path / file).write_bytes(data)
    refused(cli("train", file, *TRAIN), *words)
    assert not (tmp_path / "run").exists()


def test_unequal_files_show_where_they_diverge(cli: Cli, tmp_path: Path) -> None:
    source, target = zip(*pairs(), strict=True)
    (tmp_path / "a").write_text("".join(s + "\n" for s in source), encoding="utf-8")
    (tmp_path / "b").write_text("".join(t + "\n" for t in target[:-3]), encoding="utf-8")
    refused(cli("train", "--source", "a", "--target", "b", *TRAIN), "240", "237")
    assert not (tmp_path / "run").exists()


def test_missing_things(cli: Cli, tmp_path: Path, trained: Path) -> None:
    tsv(tmp_path / "pairs.tsv")
    refused(cli("train", "nothing.tsv", *TRAIN), "nothing.tsv")
    refused(cli("train", ".", *TRAIN), "folder")
    refused(cli("train", *TRAIN), "no training data")
    refused(cli("train", "--source", "pairs.tsv", *TRAIN), "--target")
    refused(cli("train", "run", "--resume"), "run")
    refused(cli("translate", "nowhere"), "nowhere", "run folder")
    refused(cli("translate", trained, "nothing.txt"), "nothing.txt")
    refused(cli("translate", trained, "."), "folder")
    refused(cli("evaluate", trained, "--source", "nothing", "--reference", "nothing"), "nothing")
    refused(cli("evaluate", trained, "--source", "nothing"), "--reference")
    refused(cli("verify", "no-such-preset"), "known", "transformer-base")
    refused(cli("verify", "nothing.yaml"), "nothing.yaml")
    refused(cli("verify", "transformer-bsae"), "did you mean 'transformer-base'")


SETTINGS = {
    "model.dims=3": ["model.dims", "did you mean 'dim' in section 'model'"],
    "model.beam=4": ["did you mean 'beam' in section 'decoding'"],
    "modle.dim=3": ["unknown section 'modle'", "model"],
    "model.heads.count=5": ["model.heads.count", "not divisible"],
    "model.heads.kv=3": ["model.heads.kv", "1, 2"],
    "model.dropout=1.5": ["model.dropout", "1.5"],
    "model.position.kind=rop": ["model.position.kind", "rope"],
    "model.dim=6": ["odd"],
    "model.layers=0": ["model.layers"],
    "model.form=decoder": ["model.form"],
    "text.tokenizer.size=90000": ["text.tokenizer.size"],
    "data.max_length=1": ["data.max_length"],
    "training.budget=soon": ["training.budget", "15m"],
    "decoding.n_best=9": ["decoding.n_best"],
    "decoding.top_p=0": ["decoding.top_p"],
    "=3": ["=3"],
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings(setting: str, cli: Cli, tmp_path: Path) -> None:
    tsv(tmp_path / "pairs.tsv")
    words = SETTINGS[setting]
    extra = ["model.dim=30", "model.heads.count=2"] if setting == "model.dim=6" else []
    shrink = ["text.tokenizer.shrink=false"] if "tokenizer" in setting else []
    refused(cli("train", "pairs.tsv", *TRAIN, *extra, *shrink, setting), *words)


def test_same_language_on_both_sides(cli: Cli, tmp_path: Path) -> None:
    tsv(tmp_path / "pairs.tsv")
    refused(cli("train", "pairs.tsv", "--from", "en", "--to", "en"), "--from, --to")
    refused(cli("demo", "--from", "de", "--to", "de"), "--from, --to")
    refused(cli("demo", "--from", "xx", "--to", "de"), "xx")


def test_a_broken_configuration_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("model:\n  dim: [3\n", encoding="utf-8")
    refused(cli("train", "c.yaml"), "c.yaml:")
    (tmp_path / "d.yaml").write_text("- a\n- b\n", encoding="utf-8")
    refused(cli("train", "d.yaml"), "d.yaml")
    (tmp_path / "e.yaml").write_text("training: {steps: 3, budget: 3m}\n", encoding="utf-8")
    refused(cli("train", "e.yaml"), "training.budget")


@pytest.mark.parametrize(
    "gone", ["config.yaml", "model.safetensors", "tokenizer", "tokenizer/tokenizer.json"]
)
def test_a_run_from_which_a_file_is_missing(gone: str, trained: Path, cli: Cli, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    path = tmp_path / "run" / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    refused(cli("translate", "run", stdin="I see two cats.\n"), gone.split("/")[-1])


def test_a_run_with_a_damaged_or_foreign_file(trained: Path, cli: Cli, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    weights = tmp_path / "run" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    refused(cli("translate", "run", stdin="x\n"), "model.safetensors")
    weights.write_bytes(whole)
    config = tmp_path / "run" / "config.yaml"
    config.write_text(
        config.read_text().replace("encoder_layers: null", "encoder_layers: 2"), encoding="utf-8"
    )
    refused(cli("translate", "run", stdin="x\n"), "not of one run")


def test_unwritable_places(cli: Cli, tmp_path: Path, trained: Path) -> None:
    tsv(tmp_path / "pairs.tsv")
    (tmp_path / "file").write_text("x")
    refused(cli("train", "pairs.tsv", *TRAIN[:-1], "file"), "file")
    refused(cli("train", "pairs.tsv", *TRAIN[:-1], "file/run"), "file")
    refused(cli("translate", trained, "--out", "no/such/folder/out.txt", stdin="x\n"), "out.txt")
    full = Path("/dev/full")
    if full.exists():
        refused(cli("translate", trained, "--out", full, stdin="I see two cats.\n"), "/dev/full")


def test_options_without_effect_are_refused(trained: Path, cli: Cli) -> None:
    refused(cli("translate", trained, "--temperature", "0.5", stdin="x\n"), "--sample")
    refused(cli("translate", trained, "--penalty", "none", stdin="x\n"), "decoding.penalty")
    refused(cli("translate", trained, "--beam", "0", stdin="x\n"), "decoding.beam")
    refused(cli("translate", trained, "--bogus", stdin="x\n"), "--bogus")


def test_invalid_utf8_on_standard_input_names_the_line(trained: Path, cli: Cli) -> None:
    done = cli("translate", trained, stdin=b"I see two cats.\nbad \xff\n")
    refused(done, "standard input:2")


def test_odd_text_is_only_text(cli: Cli, tmp_path: Path) -> None:
    """Specials as text, tabs, U+2028, CRLF, BOM, zero-width characters: a corpus of them trains, and each
    line of them is one line of output."""
    odd = [
        "<s> and </s>",
        "<unk> @@ ▁ ▁▁",
        "a\u2028b",
        "zero\u200bwidth",
        "tab here",
        "[MASK] <pad>",
        "\ufeffbom",
    ]
    rows = pairs() + [(f"{o} {i}", f"{o} {i}") for i in range(5) for o in odd]
    text = "".join(f"{s}\t{t}\tthird\tcolumns\r\n" for s, t in rows)
    (tmp_path / "pairs.tsv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    done = cli("train", "pairs.tsv", *TRAIN, "text.tokenizer.size=400")
    assert done.returncode == 0, done.stderr
    lines = [*odd, "tab\tinside", "👨‍👩‍👧", "\x00", "▁"]
    out = cli("translate", "run", "--beam", "1", "--json", stdin="".join(x + "\n" for x in lines))
    assert out.returncode == 0, out.stderr
    records = [json.loads(line) for line in out.stdout.split("\n")[:-1]]
    assert [r["source"] for r in records] == lines
    for record in records:  # user text never becomes a special
        assert not {"<s>", "</s>", "<pad>", "<unk>"} & set(record["source_tokens"])


def test_five_pairs_train(cli: Cli, tmp_path: Path) -> None:
    tsv(
        tmp_path / "pairs.tsv",
        [
            ("one", "eins"),
            ("two", "zwei"),
            ("three", "drei"),
            ("four", "vier"),
            ("five", "fünf"),
            ("six", "sechs"),
        ],
    )
    done = cli("train", "pairs.tsv", "--from", "en", "--to", "de", "--budget", "5s", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(cli: Cli, tmp_path: Path) -> None:
    tsv(tmp_path / "pairs.tsv")
    (tmp_path / "ro").mkdir(mode=0o500)
    refused(cli("train", "pairs.tsv", *TRAIN[:-1], "ro/run"), "ro")


def test_what_is_read_is_not_written_over(here: Cli, tmp_path: Path) -> None:
    """Under its own name or another."""
    (tmp_path / "in.txt").write_text("one\n", encoding="utf-8")
    (tmp_path / "same.txt").symlink_to("in.txt")
    for command in ("translate", "embed"):
        for out in ("in.txt", "same.txt"):
            done = here(command, "run", "in.txt", "--out", out)
            assert done.returncode == 2 and "it would be lost" in done.stderr
    command = [sys.executable, "-m", "triptych", "translate", "run", "--out", "in.txt"]
    with (tmp_path / "in.txt").open() as given:
        piped = subprocess.run(
            command, check=False, cwd=tmp_path, stdin=given, capture_output=True, text=True
        )
    assert piped.returncode == 2 and "it would be lost" in piped.stderr
    assert (tmp_path / "in.txt").read_text(encoding="utf-8") == "one\n"
