"""``triptych generate`` and ``triptych fill`` as a user runs them, on small runs made by the library."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from triptych.config import RunConfig
from triptych.engine import Bundle, load
from triptych.model import build
from triptych.text import train_tokenizer

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
TEXT = ["the cat sat on the mat", "a dog and\nthe cat"]


def make(folder: Path, form: str, objective: Any, symbols: tuple[str, ...] = (), **more: Any) -> Path:
    """A run that has learned nothing, of bytes."""
    tokenizer = train_tokenizer(TEXT, kind="byte", size=300, symbols=symbols)
    model = {"form": form, "dim": 16, "layers": 1, "heads": 2, "ffn": {"dim": 16}, "vocab": tokenizer.size}
    data = {"model": {**model, "position": "rope", **more.pop("model", {})}, "objective": objective, **more}
    config = RunConfig.parse(data)
    Bundle(config, tokenizer, build(config.model, seed=1)).save(folder)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs, one an objective."""
    home = tmp_path_factory.mktemp("runs")
    make(home / "lm", "decoder", "causal", data={"length": 64})
    make(home / "stream", "decoder", "causal", data={"packing": "stream"})
    make(home / "short", "decoder", "causal", model={"position": {"kind": "learned", "max": 16}})
    make(home / "greedy", "decoder", "causal", decoding={"strategy": "greedy", "max_length": 3})
    make(home / "chat", "decoder", "instruction", ("<|im_start|>", "<|im_end|>"))
    make(home / "bert", "encoder", "masked", ("[CLS]", "[SEP]", "[MASK]"))
    make(home / "mt", "encoder_decoder", "translation", model={"position": "sinusoidal"})
    return home


@pytest.fixture
def fed(here: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """``here`` with text or bytes on standard input."""

    def run(*args: str | Path, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        return here(*args)

    return run


def out(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    assert done.stdout == ""


def library(run: Path, prompts: list[str], n: int = 1, **given: Any) -> list[list[str]]:
    generator = load(run).generator
    settings = generator.settings.model_copy(update=given)
    return [[g.text for g in group] for group in generator.generate(prompts, settings, n)]


# -- generate


def test_a_prompt(home: Path, fed: Cli) -> None:
    """The text alone, the same each time; of several, a line between them."""
    one = out(fed("generate", home / "lm", "the cat", "--max-tokens", "12"))
    assert one == library(home / "lm", ["the cat"], max_length=12)[0][0] + "\n"
    three = library(home / "lm", ["the cat"], 3, max_length=12)[0]
    assert out(fed("generate", home / "lm", "the cat", "--max-tokens", "12", "--n", "3")) == "\n---\n".join(
        [*three[:2], three[2] + "\n"]
    )


def test_options_are_settings(home: Path, fed: Cli) -> None:
    options = {
        "temperature": 1.5,
        "top_k": 9,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.3,
        "seed": 5,
    }
    args = [x for k, v in options.items() for x in (f"--{k.replace('_', '-')}", str(v))]
    got = out(fed("generate", home / "lm", "a", *args, "--max-tokens", "9"))
    assert got == library(home / "lm", ["a"], max_length=9, **options)[0][0] + "\n"
    assert got != out(fed("generate", home / "lm", "a", "--max-tokens", "9"))
    greedy = out(fed("generate", home / "lm", "a", "--greedy", "--max-tokens", "9"))
    assert greedy == library(home / "lm", ["a"], strategy="greedy", max_length=9)[0][0] + "\n"


def test_the_runs_own_settings_hold(home: Path, here: Cli) -> None:
    assert out(here("generate", home / "greedy", "a")) == out(here("generate", home / "greedy", "a"))
    found = json.loads(out(here("generate", home / "greedy", "a", "--json")))
    assert found["outputs"][0]["tokens"] == 3
    plain = library(home / "greedy", ["a"])[0][0]
    assert found["outputs"][0]["text"] == plain
    warm = library(home / "greedy", ["a"], strategy="sample", temperature=2.0)[0][0]
    assert out(here("generate", home / "greedy", "a", "--temperature", "2")) == warm + "\n" != plain + "\n"


def test_n_lines_in_n_records_out(home: Path, fed: Cli) -> None:
    """Blank lines, odd characters and a last line without an end are prompts like others."""
    prompts = ["the", "", "  ", "a\u2028b\fc", "é\r\\"]
    want = library(home / "lm", prompts, 2, max_length=20)
    got = out(fed("generate", home / "lm", "-", "--max-tokens", "20", "--n", "2", stdin="\n".join(prompts)))
    lines = got.split("\n")
    assert len(lines) == 11 and lines.pop() == ""
    escaped = [x.replace("\\", r"\\").replace("\n", r"\n").replace("\r", r"\r") for g in want for x in g]
    assert lines == escaped
    done = fed("generate", home / "lm", "--max-tokens", "20", "--n", "2", "--json", stdin="\n".join(prompts))
    records = [json.loads(line) for line in out(done).split("\n")[:-1]]
    assert [r["line"] for r in records] == [1, 2, 3, 4, 5]
    assert [r["prompt"] for r in records] == prompts
    assert [[o["text"] for o in r["outputs"]] for r in records] == want
    assert all(o["reason"] in ("eos", "length") and o["logprob"] < 0 for r in records for o in r["outputs"])
    assert out(fed("generate", home / "lm", "-", stdin="")) == ""


def test_outputs_that_are_one_line_each(tmp_path: Path, fed: Cli) -> None:
    """A model that says line ends: each is written as two characters, and so is told from a line's end."""
    run = make(tmp_path / "run", "decoder", "causal", model={"norm": {"placement": "pre"}})
    bundle = load(run)
    with torch.no_grad():
        for p in bundle.model.parameters():
            p.zero_()
        bundle.model.output.weight[4 + 10] = 1
        bundle.model.decoder.norm.bias.fill_(1)
    bundle.save(run)
    got = out(fed("generate", run, "-", "--greedy", "--max-tokens", "2", stdin="a\nb\n"))
    assert got == "\\n\\n\n\\n\\n\n"
    assert out(fed("generate", run, "a", "--greedy", "--max-tokens", "2")) == "\n\n\n"
    assert (
        out(fed("generate", run, "a", "--greedy", "--max-tokens", "9", "--stop", "x", "--stop", "\n")) == "\n"
    )


@pytest.mark.parametrize("run", ["lm", "stream", "chat"])
def test_a_stream_writes_the_same(run: str, home: Path, fed: Cli) -> None:
    for prompt in ("the cat", ""):
        whole = out(fed("generate", home / run, prompt, "--max-tokens", "30"))
        assert out(fed("generate", home / run, prompt, "--max-tokens", "30", "--stream")) == whole


def test_an_instruction_run_is_asked_in_its_template(home: Path, fed: Cli) -> None:
    generator = load(home / "chat").generator
    asked = generator.dialogue([("user", "Hi")])
    ((want,),) = generator.generate([asked], generator.settings.model_copy(update={"max_length": 9}))
    assert out(fed("generate", home / "chat", "Hi", "--max-tokens", "9")) == want.text + "\n"
    assert out(fed("generate", home / "chat", "-", "--max-tokens", "9", stdin="Hi")).count("\n") == 1


def test_a_limit_is_said_once_and_beside_the_output(home: Path, fed: Cli) -> None:
    done = fed("generate", home / "lm", "-", "--max-tokens", "70", stdin="a\nb\nc\n")
    assert out(done).count("\n") == 3
    assert done.stderr.count("beyond 64 tokens") == 1
    done = fed("generate", home / "short", "a" * 9, "--greedy")
    assert "last of the 16 positions" in done.stderr and done.returncode == 0


def test_generate_refuses(home: Path, here: Cli) -> None:
    lm = home / "lm"
    refused(here("generate", home / "mt", "a"), "only a decoder", "triptych translate")
    refused(here("generate", home / "bert", "a"), "only a decoder", "triptych fill")
    refused(here("generate", home / "nothing", "a"), "no run folder")
    refused(here("generate", home / "short", "a" * 16), "line 1", "17 tokens", "16 positions")
    refused(here("generate", home / "short", "a", "--max-tokens", "16"), "decoding.max_length", "at most 15")
    refused(here("generate", lm, "a", "--greedy", "--top-p", "0.5"), "--top-p has no effect with --greedy")
    refused(here("generate", lm, "a", "--greedy", "--n", "2"), "greedy search has one output")
    refused(here("generate", lm, "a", "--n", "0"), "nothing would be generated")
    refused(here("generate", lm, "a", "--stream", "--json"), "--stream shows one output")
    refused(here("generate", lm, "a", "--stream", "--n", "2"), "--stream shows one output")
    refused(here("generate", lm, "-", "--stream"), "--stream shows one output")
    refused(here("generate", lm, "a", "--stop", ""), "decoding.stop", "empty")
    for option, value in (
        ("temperature", "-1"), ("top-p", "0"), ("top-p", "1.1"), ("min-p", "2"), ("top-k", "-1"),
        ("repetition-penalty", "0"), ("max-tokens", "0"),
    ):  # fmt: skip
        refused(here("generate", lm, "a", f"--{option}", value), "decoding.")


def test_lines_that_are_no_text(home: Path, fed: Cli) -> None:
    refused(fed("generate", home / "lm", "-", stdin=b"caf\xe9\n"), "not UTF-8", "standard input:1")
    refused(fed("generate", home / "short", "-", stdin="a\n" + "b" * 16 + "\n"), "line 2", "16 positions")


def test_closed_input(home: Path, tmp_path: Path) -> None:
    for command in ("generate", "fill"):
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m triptych {command} {home / 'lm'} - <&-"],
            check=False, cwd=tmp_path, capture_output=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 2 and b"standard input is closed" in done.stderr


# -- at a terminal


class Terminal:
    """A command with a terminal on standard input."""

    def __init__(self, *args: str | Path) -> None:
        self.master, slave = pty.openpty()
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8", "TERM": "dumb"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "triptych", *map(str, args)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
        )
        os.close(slave)
        self.seen = ""

    def wait_for(self, text: str, seconds: float = 60) -> str:
        """Output up to ``text``; what follows is kept."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            try:
                self.seen += os.read(self.master, 4096).decode("utf-8", "replace").replace("\r\n", "\n")
            except OSError:
                raise AssertionError(f"ended without {text!r}: {self.seen!r}") from None
        found, _, self.seen = self.seen.partition(text)
        return found

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())


def test_a_conversation(home: Path, tmp_path: Path) -> None:
    """Turns add up, /reset begins anew, an empty line ends."""
    run = make(
        tmp_path / "run",
        "decoder",
        "instruction",
        ("<|im_start|>", "<|im_end|>"),
        model={"position": {"kind": "learned", "max": 110}},
        decoding={"strategy": "greedy", "max_length": 9},
    )
    terminal = Terminal("generate", run)
    try:
        terminal.wait_for("/reset begins anew")
        terminal.wait_for("> ")
        terminal.type("Hello\n")
        first = terminal.wait_for("\n> ")
        terminal.type("and a question that makes the conversation so long that it does not fit\n")
        assert "the model knows 110 positions" in terminal.wait_for("\n> ")
        terminal.type("/reset\n")
        terminal.wait_for("> ")
        terminal.type("Hello\n")
        assert terminal.wait_for("\n> ") == first, "what was said before is forgotten"
        terminal.type("\n")
        assert terminal.process.wait(30) == 0
    finally:
        terminal.process.kill()
        os.close(terminal.master)


def test_nothing_is_asked_of_a_run_that_goes_on_with_texts(home: Path) -> None:
    terminal = Terminal("generate", home / "greedy")
    want = library(home / "greedy", [""])[0][0]
    assert terminal.process.wait(60) == 0
    assert terminal.wait_for(want[:1]) == ""
    os.close(terminal.master)


# -- fill


def test_fill(home: Path, fed: Cli, tmp_path: Path) -> None:
    text = "the [MASK]at sa[MASK]"
    (holes,) = load(home / "bert").filler.fill([text], top=2)
    shown = out(fed("fill", home / "bert", text, "--top", "2")).split("\n")
    assert shown[0] == text and len(shown) == 8
    for line, guess in zip(shown[1:3] + shown[4:6], [g for guesses in holes for g in guesses], strict=True):
        assert line.split()[:2] == [f"{guess.probability:.1%}", guess.piece]
    (tmp_path / "lines.txt").write_text(f"{text}\n[MASK]\n", encoding="utf-8")
    by_file = out(fed("fill", home / "bert", "lines.txt", "--json"))
    assert out(fed("fill", home / "bert", "--json", stdin=f"{text}\n[MASK]\n")) == by_file
    records = [json.loads(line) for line in by_file.split("\n")[:-1]]
    assert [(r["line"], r["text"], len(r["masks"])) for r in records] == [(1, text, 2), (2, "[MASK]", 1)]
    assert all(len(guesses) == 5 for r in records for guesses in r["masks"])
    assert records[0]["masks"][0][0].keys() == {"piece", "probability", "text"}


def test_fill_refuses(home: Path, fed: Cli) -> None:
    refused(fed("fill", home / "bert", "the cat"), "no [MASK]", "no file of this name")
    refused(fed("fill", home / "bert", "[mask]"), "no [MASK]")
    refused(fed("fill", home / "bert", "[MASK]", "--top", "0"), "0 guesses")
    refused(fed("fill", home / "lm", "[MASK]"), "only an encoder", "triptych generate")
    refused(fed("fill", home / "mt", "[MASK]"), "only an encoder", "triptych translate")
    refused(fed("fill", home / "bert", "-", stdin="[MASK]\nnothing\n"), "line 2", "no [MASK]")
    refused(fed("fill", home / "bert", "-", stdin="[MASK]\n\n"), "line 2", "no [MASK]")
