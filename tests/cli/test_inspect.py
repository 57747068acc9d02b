"""``triptych inspect``: the account of a preset, a configuration or a run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import triptych
from cli.conftest import Cli
from cli.test_bad_input import refused
from triptych.config import load_config, preset

ROOT = Path(__file__).parents[2]


def test_a_preset(cli: Cli) -> None:
    done = cli("inspect", "transformer-base", "--generate", "16")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "63,082,496 parameters" in done.stdout
    assert "overtakes the feed-forward network at 2,048 tokens (by formula 2,048.0)" in done.stdout
    assert "cross-attention: keys and values" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 110


def test_json_has_the_same_figures(here: Cli) -> None:
    """With settings laid over a preset; parameters and operations are those of the library."""
    done = here(
        "inspect", "small", "model.form=decoder", "model.heads.kv=1", "--json", "--batch", "2",
        "--target", "12", "--generate", "5", "--dtype", "bf16",
    )  # fmt: skip
    data = json.loads(done.stdout)
    model = load_config(preset("small"), ["model.form=decoder", "model.heads.kv=1", "model.vocab=8000"]).model
    cost = triptych.cost(model, batch=2, length=12)
    assert (data["parameters"], data["forward"]) == (cost.parameters, cost.flops)
    assert data["backward"] == 2 * cost.flops
    assert (
        data["cache_bytes"] == 2 * 3 * 5 * 2 * 64 * 2
    )  # rows, layers, tokens, keys and values, width, bytes
    assert data["sizes"] == {"batch": 2, "target": 12, "source": 0, "generate": 5, "dtype": "bf16"}
    assert sum(part["activations_bytes"] for part in data["parts"].values()) == data["activations_bytes"]


def test_a_file(here: Cli, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("model: {form: encoder, dim: 64, heads: 4, layers: 1}\n")
    done = here("inspect", "own.yaml", "text.tokenizer.size=500", "--target", "7")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("encoder, 1 layers, dim 64, 500 words") and "Generating" not in done.stdout


def test_a_run(here: Cli, trained: Path, tmp_path: Path) -> None:
    """Its configuration and the size of its vocabulary; weights are not needed."""
    bundle = triptych.load(trained)
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    data = json.loads(here("inspect", "run", "--json").stdout)
    assert data["parameters"] == sum(p.numel() for p in bundle.model.parameters())
    wider = json.loads(here("inspect", "run", "model.ffn.dim=128", "--json").stdout)
    assert wider["parameters"] > data["parameters"]


def test_attention_out_of_reach_and_no_cache(here: Cli) -> None:
    window = here(
        "inspect", "small", "model.form=decoder", "model.attention.visible={kind: window, width: 4}",
        "--generate", "0",
    ).stdout  # fmt: skip
    assert "stays below" in window and "Generating" not in window
    recurrent = here(
        "inspect", "small", "model.form=decoder", "model.mixer=lstm", "model.position=none"
    ).stdout
    assert "meet in no products" in recurrent and "recurrent states" in recurrent


WRONG = {
    "transformer-bsae": ["did you mean 'transformer-base'"],
    "nothing.yaml": ["nothing.yaml"],
    ".": ["no run folder"],
    "small student": ["name one run", "presets"],
    "small --batch 0": ["--batch", "0 is no size"],
    "small --target -3": ["--target", "-3 is no size"],
    "small --generate -1": ["--generate"],
    "small --batch x": ["--batch"],
    "small --dtype int8": ["--dtype", "fp32, bf16, fp16"],
    "small model.form=encoder --generate 4": ["--generate", "encoder"],
    "small model.form=decoder --source 4": ["--source", "--target"],
    "small model.heads.count=5": ["model.heads.count", "not divisible"],
    "small model.position=rope model.attention.score=additive": ["model.attention.score"],
    "small model.dims=3": ["did you mean 'dim'"],
    "small model.position={kind:learned,max:9} --target 10": ["model.position"],
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_use(line: str, here: Cli) -> None:
    done = here("inspect", *line.split(" "))
    refused(done, *WRONG[line])
    assert done.stderr.count("error") + done.stderr.count("Error") == 1 and not done.stdout


def test_the_page_shows_what_is_printed(here: Cli) -> None:
    """Memory apart, which is as PyTorch's kernels have it."""
    page = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (first,) = re.findall(r"^triptych (inspect transformer-base .*)$", page, re.MULTILINE)

    def plain(text: str) -> str:
        return re.sub(r" +", " ", re.sub(r"[\d.,]+ (?:[KMGT]i)?B\b", "#", text))

    assert plain(here(*first.split()).stdout) == plain(shown)


def test_the_page_names_every_option() -> None:
    import typer

    from triptych.cli.main import app

    page = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
    command = typer.main.get_command(app).commands["inspect"]  # type: ignore[attr-defined]
    options = {o for p in command.params for o in p.opts if o.startswith("--")} - {"--help"}
    assert set(re.findall(r"^\| `(--\w+)`", page, re.MULTILINE)) == options
