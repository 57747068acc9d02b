"""The whole road on tasks that are not translation: train within a budget, score, time the commands.

usage: objectives.py WHAT DATA [--budget 10m] [--out FOLDER] [key=value …]

sst2         DATA holds train.tsv and dev.tsv: a text and its class a line
tags         DATA holds *train*, *dev* and *test* in CoNLL-U, .gz too
pretraining  DATA holds text.txt, and files as of sst2 or tags: half of the budget for hidden tokens of the
             text, the other half for the classes or tags; and all of it for these alone, to compare
characters   DATA holds input.txt, in ASCII; its last tenth is foretold: by the preset nanogpt-char, and by
             what is chosen for the budget
instruction  DATA holds text.txt and instruction-data.json: half of the budget for the text, the other half
             for the responses; against the model of the text alone, and how much is copied from the prompts
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from triptych.config import load_config
from triptych.config.run import duration

SHARE = 0.5  # of its words, in one run of its prompt's: an output that says no more than it was given


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


def tagged(data: Path, run: Path, budget: str, settings: list[str]) -> float:
    """Accuracy on the test part; the weights are chosen by the dev part."""
    part = {
        name: next(p for p in sorted(data.iterdir()) if name in p.name) for name in ("train", "dev", "test")
    }
    files = held_out(part["dev"], part["test"])
    train(run, "tag", part["train"], "--budget", budget, *files, *settings)
    return float(scores(run)["accuracy"]["score"])


def tags(data: Path, out: Path, budget: str, settings: list[str]) -> None:
    """Tags of words, from nothing."""
    print(f"accuracy on the test part: {tagged(data, out / 'tags', budget, settings):.2f} %")


def pretraining(data: Path, out: Path, budget: str, settings: list[str]) -> None:
    """Hidden tokens of running text first, labels after it; against labels alone for as long."""
    half = f"{duration(budget, '--budget') / 2:.0f}s"
    train(out / "masked", "masked", data / "text.txt", "--budget", half, "data.documents=line")
    learn = classes if (data / "train.tsv").exists() else tagged
    after = learn(data, out / "after", half, ["--init", str(out / "masked"), *settings])
    alone = learn(data, out / "alone", budget, settings)
    print(f"accuracy: {after:.2f} % after hidden tokens, {alone:.2f} % from nothing")


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    """What a run wrote down while it was trained, of one kind."""
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def characters(data: Path, out: Path, budget: str, settings: list[str]) -> None:
    """Nats a character of what was held out, and how near the steps come to the machine's products."""
    text = (data / "input.txt").read_bytes()
    cut = len(text) * 9 // 10
    out.mkdir(parents=True, exist_ok=True)
    parts = {"train": text[:cut], "valid": text[cut:]}
    files = {name: out / f"{name}.txt" for name in parts}
    for name, part in parts.items():
        files[name].write_bytes(part)
    held = [f"data.valid={json.dumps([str(files['valid'])])}", "data.test_size=0"]
    for name, how in (("preset", ["--preset", "nanogpt-char"]), ("budget", ["--budget", budget])):
        run = out / name
        train(run, "causal", files["train"], *how, *held, *settings)
        (final,), tokens = records(run, "final"), records(run, "valid")[-1]["tokens"]
        nats = final["valid_nll"] * tokens / len(parts["valid"])
        print(f"{name}: {nats:.4f} nats a character, {final['seconds']} s in all")
        speed(run)


def speed(run: Path) -> None:
    """Milliseconds a step and operations a second, of the median and the quickest span between two records;
    beside those of a matrix product of the same tokens, into the feed-forward network."""
    import torch

    from triptych.engine import autocast
    from triptych.model import cost
    from triptych.training.machine import measure, prefer_fast_fp32

    config = load_config(run / "config.yaml")
    tokens, length, dim = config.data.tokens, config.data.length, config.model.dim
    work = 3 * cost(config.model, batch=tokens // length, length=length).flops  # backward costs twice forward
    pace = sorted(tokens / record["tokens_per_second"] for record in records(run, "train"))
    for name, seconds in (("median", pace[len(pace) // 2]), ("quickest", pace[0])):
        print(f"  {name}: {1e3 * seconds:.1f} ms a step, {work / seconds / 1e9:.0f} GFLOP/s")
    prefer_fast_fp32()
    x, w = torch.randn(tokens, dim), torch.randn(dim, 4 * dim)
    with autocast(config.training.precision, x.device):
        low = x @ w  # in the precision of the run
        x, w = x.to(low.dtype), w.to(low.dtype)
    product = 2 * tokens * dim * 4 * dim / measure(lambda: x @ w, 200)
    print(f"  a product of {tokens} × {dim} × {4 * dim} in {low.dtype}: {product / 1e9:.0f} GFLOP/s")


def instruction(data: Path, out: Path, budget: str, settings: list[str]) -> None:
    """Perplexity of held-out responses before and after they were learned, and how much of what is answered
    is copied."""
    half = f"{duration(budget, '--budget') / 2:.0f}s"
    train(out / "text", "causal", data / "text.txt", "--budget", half, *settings)
    init = ["--init", str(out / "text")]
    # One step that moves nothing: the model of the text, asked for responses.
    still = ["training.steps=1", "training.schedule.peak=1e-12"]
    file = data / "instruction-data.json"
    train(out / "before", "instruction", file, *init, *still)
    train(out / "after", "instruction", file, *init, "--budget", half)
    for name in ("before", "after"):
        found = scores(out / name)
        print(
            f"{name}: perplexity of held-out responses {found['perplexity']['score']:.2f} a token, "
            f"{math.log(found['byte_perplexity']['score']):.3f} nats a byte"
        )
    print(f"copied (half of the words or more in one run of the prompt's words): {parrots(out / 'after')}")


def parrots(run: Path) -> str:
    """The share of answers to the held-out prompts that are copied; the same of the right answers, many of
    which are to say the prompt again."""
    from triptych.engine import load
    from triptych.engine.generator import Prompt
    from triptych.text.templates import encode_runs, prompt
    from triptych.training.tasks import task

    bundle = load(run)
    part: Any = task(bundle.config).held_out(bundle.config, run)
    asked = [encode_runs(prompt(d, part.template), bundle.tokenizer)[0] for d in part.dialogues]
    greedy = bundle.config.decoding.model_copy(update={"strategy": "greedy", "max_length": 80, "n_best": 1})
    said = bundle.generator.generate([Prompt(tuple(ids)) for ids in asked], greedy)
    given = [f"{d.turns[-2][1]}\n{d.input}".split() for d in part.dialogues]
    right = [d.turns[-1][1] for d in part.dialogues]
    ours = [first.text for first, *_ in said]

    def copied(answers: list[str]) -> float:
        pairs = [(answer.split(), words) for answer, words in zip(answers, given, strict=True)]
        return sum(longest(a, b) >= max(1, SHARE * len(a)) for a, b in pairs) / len(pairs)

    same = sum(a == b for a, b in itertools.pairwise(sorted(ours))) / len(ours)
    return (
        f"{copied(ours):.1%} of {len(ours)} answers, {copied(right):.1%} of the right ones; "
        f"{same:.1%} of the answers are another's"
    )


def longest(a: list[str], b: list[str]) -> int:
    """Words of the longest run that stands in both."""
    best, before = 0, [0] * (len(b) + 1)
    for word in a:
        here = [0, *(1 + before[j] if word == other else 0 for j, other in enumerate(b))]
        best, before = max(best, *here), here
    return best


WHAT: dict[str, Callable[[Path, Path, str, list[str]], None]] = {
    "sst2": sst2,
    "tags": tags,
    "pretraining": pretraining,
    "characters": characters,
    "instruction": instruction,
}


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("what", choices=WHAT)
    parse.add_argument("data", type=Path)
    parse.add_argument("--budget", default="10m")
    parse.add_argument("--out", type=Path)
    parse.add_argument("settings", nargs="*", help="key=value, as of triptych train")
    given = parse.parse_intermixed_args()
    WHAT[given.what](given.data, given.out or Path(tempfile.mkdtemp()), given.budget, given.settings)


if __name__ == "__main__":
    main()
