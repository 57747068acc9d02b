"""Every objective by the same command: trained, resumed to the same weights, scored; and what is refused."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import SMALL, Cli, pairs, tsv
from cli.test_bad_input import refused
from triptych.config.objectives import objectives
from triptych.data import TokenStore
from triptych.data.masking import MaskedData
from triptych.engine import load
from triptych.insight.laws import verify
from triptych.training.loop import Trainer
from triptych.training.monitor import Monitor
from triptych.training.tasks import task
from triptych.training.tasks.running import MaskedTask

STEPS = ("training.steps=6", "training.validate_every=3", "training.log_every=1", "data.length=32")
# Settings beside SMALL that an objective needs to be as small.
MORE = {"denoise": ("objective.sentinels=6",), "instruction": ("data.length=96",)}
FILES = {
    "translation": "pairs.tsv",
    "causal": "text",
    "instruction": "chat.jsonl",
    "masked": "text",
    "denoise": "text",
    "classify": "classes.tsv",
    "tag": "tags.conll",
    "embed": "pairs.tsv",
}
# What a trained run says of itself: a measure of its own.
MEASURES = {
    "translation": "bleu", "causal": "bits", "instruction": "bits", "masked": "perplexity",
    "denoise": "perplexity", "classify": "macro_f1", "tag": "spans", "embed": "mrr",
}  # fmt: skip


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """Examples for every objective."""
    rows = pairs()
    tsv(tmp_path / "pairs.tsv")
    (tmp_path / "text").mkdir()
    for n in range(24):
        lines = "".join(f"{s} {t}\n" for s, t in rows[n * 10 : n * 10 + 10])
        path = tmp_path / "text" / f"{n:02d}.txt"
        if n % 2:
            path.with_name(f"{n:02d}.txt.gz").write_bytes(gzip.compress(lines.encode()))
        else:
            path.write_text(lines, encoding="utf-8")
    write(tmp_path / "chat.jsonl", [json.dumps(chat(f"Say it: {s}", t)) for s, t in rows])
    write(tmp_path / "classes.tsv", [f"{s}\t{'cats' if 'cats' in s else 'other'}" for s, _ in rows])
    tags = ["O", "O", "B-SUM", "I-SUM"]
    sentences = [zip(s.rstrip(".").split(), tags, strict=True) for s, _ in rows]
    write(tmp_path / "tags.conll", [*(line for s in sentences for line in (*map("\t".join, s), ""))])


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def chat(asked: str, said: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]}


def train(here: Cli, kind: str, *args: str) -> None:
    done = here(
        "train", FILES[kind], "--objective", kind, "--out", "run", *SMALL, *STEPS, *MORE.get(kind, ()), *args
    )
    assert done.returncode == 0, done.stderr


def test_all_objectives_are_here() -> None:
    assert set(FILES) == set(objectives())


@pytest.mark.parametrize("kind", FILES)
def test_trained_resumed_and_scored(here: Cli, tmp_path: Path, kind: str) -> None:
    train(here, kind)
    run = tmp_path / "run"
    whole = (run / "model.safetensors").read_bytes()
    # As a kill after the first checkpoint leaves it.
    (run / "model.safetensors").unlink()
    (old,) = (run / "checkpoints").glob("step-000003-*")
    for later in set((run / "checkpoints").iterdir()) - {old}:
        later.unlink()
    assert here("train", "run", "--resume").returncode == 0
    assert (run / "model.safetensors").read_bytes() == whole
    scored = here("evaluate", "run", "--json")
    assert scored.returncode == 0, scored.stderr
    assert MEASURES[kind] in json.loads(scored.stdout)
    counted = {"classify": "texts", "tag": "words", "embed": "pairs"}.get(kind, "tokens")
    assert f"{counted}/s" in (run / "report.html").read_text(encoding="utf-8")
    assert "<svg" in (run / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [k for k in FILES if k != "translation"])
def test_the_laws_hold(here: Cli, tmp_path: Path, kind: str) -> None:
    train(here, kind)
    bundle = load(tmp_path / "run")
    broken = {v.name: v.seen for v in verify(bundle.config.model, model=bundle.model) if v.status == "broken"}
    assert not broken


@pytest.mark.parametrize("kind", FILES)
def test_a_batch_is_shown(here: Cli, tmp_path: Path, kind: str) -> None:
    args = ("--objective", kind, "--rows", "1", *SMALL, "data.length=32", *MORE.get(kind, ()))
    done = here("data", "show", FILES[kind], *args)
    assert done.returncode == 0, done.stderr
    assert "learned" in done.stdout or "label" in done.stdout
    assert {p.name for p in tmp_path.iterdir()} == {*FILES.values()}  # nothing is written


def test_one_bos_and_the_response_alone_are_learned(here: Cli) -> None:
    """As the page tells a user to check a template."""
    done = here("data", "show", "chat.jsonl", "--objective", "instruction", "--rows", "1", *SMALL,
                "data.length=96")  # fmt: skip
    rows = [line.split() for line in done.stdout.split("\n") if re.match(r"\s+\d+ ", line)]
    first = [row for row in rows if row[-3] == "0"]  # the first conversation of the row
    tokens = [row[1] for row in first]
    assert tokens.count("<s>") == 1 and tokens[0] == "<s>" and "</s>" not in tokens
    learned = [row[2] for row in first if row[-1] == "yes"]
    starts = [i for i, token in enumerate(tokens) if token == "<|im_start|>"]
    assert learned and learned[-1] == "<|im_end|>" and len(starts) == 2
    silent = first[: starts[1] + 1]
    assert all(row[-1] == "no" for row in silent)


@pytest.mark.parametrize(("kind", "known"), [("causal", 32), ("causal", 8), ("instruction", 64)])
def test_few_positions_are_enough_for_samples(here: Cli, tmp_path: Path, kind: str, known: int) -> None:
    """Prompts and outputs of the report are as long as the model's positions let them be."""
    length, position = f"data.length={known}", f"model.position={{kind: learned, max: {known}}}"
    train(here, kind, length, position, "decoding.min_length=40")
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert 'class="sample"' in report


def test_texts_within_a_prefix_have_nothing_to_score(here: Cli, tmp_path: Path) -> None:
    train(here, "causal", "model.attention.visible={kind: prefix, length: 8}", "training.precision=fp32")
    write(tmp_path / "short.txt", ["a"])
    done = here("evaluate", "run", "short.txt")
    refused(done, "nothing to score")


def test_the_model_stays_on_its_device(here: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows training, scoring above all, runs where training ran."""
    monkeypatch.setattr(torch.nn.Module, "cpu", lambda _: pytest.fail("moved"))
    train(here, "causal")


def test_what_is_shown_is_written_out_whatever_happens(here: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def close(monitor: Monitor) -> None:
        closed.append(monitor)

    monkeypatch.setattr(Monitor, "close", close)
    train(here, "causal")
    assert len(closed) == 1

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "run", stopped)
    done = here("train", FILES["causal"], "--objective", "causal", "--out", "other", *SMALL, *STEPS)
    assert done.returncode == 130 and len(closed) == 2


# -- beginning with a run ----------------------------------------------------------------------------------


def test_begun_with_a_run(here: Cli, tmp_path: Path) -> None:
    """Tokenizer and weights are the old run's; frozen, only the head moves."""
    train(here, "masked")
    old = load(tmp_path / "run")
    begin = ("train", "classes.tsv", "--objective", "classify", "--init", "run", "training.steps=3")
    done = here(*begin, "--out", "tuned", "objective.frozen=true", "training.precision=fp32")
    assert done.returncode == 0, done.stderr
    assert "new: output.map.weight, output.map.bias" in done.stderr
    new = load(tmp_path / "tuned")
    assert new.tokenizer.fingerprint == old.tokenizer.fingerprint
    weights = dict(new.model.named_parameters())
    for name, p in old.model.named_parameters():
        assert torch.equal(p, weights[name]), name
    done = here(*begin, "--out", "free", "objective.head_rate=10", "training.precision=fp32")
    assert done.returncode == 0, done.stderr
    free = dict(load(tmp_path / "free").model.named_parameters())
    assert not torch.equal(free["embedding.weight"], weights["embedding.weight"])


def test_what_was_known_of_a_class_is_kept_by_its_name(here: Cli, tmp_path: Path) -> None:
    """Other classes, or as many of other names: rows of the head go by name, not by place."""
    train(here, "classify")
    old = dict(load(tmp_path / "run").model.named_parameters())["output.map.weight"]
    begin = (
        "train",
        "--objective",
        "classify",
        "--init",
        "run",
        "training.steps=1",
        "training.schedule.peak=1e-12",
    )
    for name, instead, known, new in (
        ("swapped.tsv", ("aardvark", "cats"), [(1, 0)], "aardvark"),  # of cats, other: cats comes last
        ("more.tsv", ("other", "cats", "a", "z"), [(1, 0), (2, 1)], "a, z"),
    ):
        rows = [s for s, _ in pairs()]
        write(tmp_path / name, [f"{s}\t{instead[i % len(instead)]}" for i, s in enumerate(rows)])
        done = here(*begin, name, "--out", name[:4], "training.precision=fp32")
        assert done.returncode == 0, done.stderr
        assert f"output.map.weight of {new}" in done.stderr
        weight = dict(load(tmp_path / name[:4]).model.named_parameters())["output.map.weight"]
        for row, was in known:
            torch.testing.assert_close(weight[row], old[was], rtol=0, atol=1e-6)
        others = set(range(len(weight))) - {row for row, _ in known}
        assert all(not torch.allclose(weight[r], o, atol=1e-3) for r in others for o in old)


def test_a_template_adds_its_symbols(here: Cli, tmp_path: Path) -> None:
    train(here, "causal")
    old = load(tmp_path / "run")
    done = here("train", "chat.jsonl", "--objective", "instruction", "--init", "run", "--out", "chat",
                "training.steps=2", "data.length=96", "training.precision=fp32")  # fmt: skip
    assert done.returncode == 0, done.stderr
    new = load(tmp_path / "chat")
    assert new.tokenizer.symbols == ("<|im_start|>", "<|im_end|>")
    assert new.config.model.vocab == old.config.model.vocab + 2
    assert f"from row {old.config.model.vocab} on" in done.stderr
    assert new.config.objective.template == "chatml"  # type: ignore[attr-defined]
    assert here("generate", "chat", "Say it: I see two cats.", "--max-tokens", "5").returncode == 0


def test_resumed_before_a_checkpoint_it_begins_with_the_run_again(here: Cli, tmp_path: Path) -> None:
    train(here, "masked")
    args = ("train", "classes.tsv", "--objective", "classify", "--init", "run", "--out", "tuned")
    assert here(*args, "training.steps=3", "training.precision=fp32").returncode == 0
    tuned = tmp_path / "tuned"
    whole = (tuned / "model.safetensors").read_bytes()
    (tuned / "model.safetensors").unlink()
    shutil.rmtree(tuned / "checkpoints")  # as a kill before the first one leaves it
    assert here("train", "tuned", "--resume").returncode == 0
    assert (tuned / "model.safetensors").read_bytes() == whole


def test_one_system_prompt_and_odd_turns(here: Cli, tmp_path: Path) -> None:
    rows = [chat(f"Say it: {s}", t) for s, t in pairs()]
    for i, row in enumerate(rows):
        row["messages"].insert(0, {"role": "system", "content": "You translate."})
        if i % 3 == 0:
            row["messages"].append({"role": "assistant", "content": "More?"})
    write(tmp_path / "chat.jsonl", [json.dumps(row) for row in rows])
    train(here, "instruction")


def test_bytes_are_of_what_is_scored(here: Cli, tmp_path: Path) -> None:
    train(here, "instruction")
    short = [json.dumps(chat(f"Say it: {s}", t)) for s, t in pairs()[:9]]
    write(tmp_path / "a.jsonl", short)
    write(tmp_path / "b.jsonl", [*short, json.dumps(chat("Say it", "x " * 3000))])
    one, other = (json.loads(here("evaluate", "run", f, "--json").stdout) for f in ("a.jsonl", "b.jsonl"))
    assert one["bytes"] == other["bytes"] and one["bits"] == other["bits"]


# -- what is refused ---------------------------------------------------------------------------------------


def test_bad_files(here: Cli, tmp_path: Path) -> None:
    def no(kind: str, *words: str, args: tuple[str, ...] = ()) -> None:
        refused(here("train", "bad", "--objective", kind, "--out", "run", *STEPS, *args), *words)
        assert not (tmp_path / "run").exists()

    bad = tmp_path / "bad"
    bad.write_text("")
    no("causal", "bad")
    no("masked", "bad")
    bad.write_bytes(b"\x00\x01\x02PK\xff" * 400)
    no("causal", "bad")
    no("classify", "bad")
    bad.write_text('{"prompt": "a", "reply": "b"}\n')
    no("instruction", "prompt", "reply")
    bad.write_text('{"instruction": "a", "input": ""}\n')
    no("instruction", "output")
    bad.write_text('{"messages": [{"role": "robot", "content": "a"}]}\n')
    no("instruction", "robot")
    bad.write_text("a\tB-X\nb\tI-Y\n\n" * 20)
    no("tag", "bad:2", "I-Y")
    bad.write_text("a\tO\nb\n\n" * 20)
    no("tag", "bad:2")
    bad.write_text("".join(f"text {chr(97 + i)}\tone\n" for i in range(26)))
    no("classify", "one")
    bad.write_text("only one column\n" * 30)
    no("classify", "bad")
    no("embed", "bad:1")
    bad.write_text("x\n")
    no("causal", "data.valid")


def test_one_token_documents_are_documents(here: Cli, tmp_path: Path) -> None:
    write(tmp_path / "tiny.txt", [chr(97 + i % 26) * (1 + i // 26) for i in range(120)])
    args = ("--objective", "causal", "--out", "run", *SMALL, *STEPS, "data.documents=line")
    done = here("train", "tiny.txt", *args)
    assert done.returncode == 0, done.stderr


def test_a_label_that_only_the_test_has(here: Cli, tmp_path: Path) -> None:
    write(tmp_path / "test.tsv", ["I see two cats.\tcats", "we have a house\thouses"])
    done = here(
        "train",
        "classes.tsv",
        "--objective",
        "classify",
        "--out",
        "run",
        "data.test=test.tsv",
        *SMALL,
        *STEPS,
    )
    assert done.returncode == 0, done.stderr
    assert "never seen in training" in done.stderr and "houses" in done.stderr
    record = json.loads(here("evaluate", "run", "--json").stdout)
    assert any("not trained" in note for note in record["notes"])
    assert here("evaluate", "run", "--picture", "c.svg").returncode == 0
    assert (tmp_path / "c.svg").read_text(encoding="utf-8").startswith("<svg")


def test_rows_that_are_no_words_are_counted(here: Cli, tmp_path: Path) -> None:
    rows = (tmp_path / "tags.conll").read_text()
    (tmp_path / "tags.conll").write_text(f"-DOCSTART-\tO\n\n{rows}")
    done = here("train", "tags.conll", "--objective", "tag", "--out", "run", *SMALL, *STEPS)
    assert done.returncode == 0 and "left out: document marks 1" in done.stderr


def test_unbalanced_tags_are_mended_on_request(here: Cli, tmp_path: Path) -> None:
    text = (tmp_path / "tags.conll").read_text().replace("B-SUM", "I-SUM")
    (tmp_path / "tags.conll").write_text(text)
    args = ("train", "tags.conll", "--objective", "tag", "--out", "run", *SMALL, *STEPS)
    refused(here(*args), "tags.conll:3", "data.repair")
    assert here(*args, "data.repair=true").returncode == 0
    assert json.loads((tmp_path / "run" / "labels.json").read_text()) == ["B-SUM", "I-SUM", "O"]


def test_pairs_in_aligned_files_make_vectors(here: Cli, tmp_path: Path) -> None:
    for name, side in (("a", 0), ("b", 1)):
        write(tmp_path / name, [pair[side] for pair in pairs()])
    args = ("--source", "a", "--target", "b", "--objective", "embed", "--out", "run", *SMALL, *STEPS)
    assert here("train", *args).returncode == 0
    apart = here("evaluate", "run", "--source", "a", "--reference", "b", "--json")
    assert apart.returncode == 0, apart.stderr
    assert apart.stdout == here("evaluate", "run", "pairs.tsv", "--json").stdout
    assert here("evaluate", "run").returncode == 0


def test_next_sentences_are_scored(here: Cli, tmp_path: Path) -> None:
    train(here, "masked", "objective.next_sentence=true", "data.documents=line")
    found = json.loads(here("evaluate", "run", "--json").stdout)["next_sentence"]
    right = by_hand(tmp_path / "run")
    assert 0 < sum(right) < len(right), "or the count would not show much"
    assert found["score"] == pytest.approx(100 * sum(right) / len(right))
    assert found["low"] <= found["score"] <= found["high"]
    shutil.rmtree(tmp_path / "run")
    train(here, "masked")
    assert json.loads(here("evaluate", "run", "--json").stdout)["next_sentence"] is None


def by_hand(run: Path) -> list[bool]:
    """Of each row that has two texts, by itself: whether the model tells if the second is of its document."""
    bundle = load(run)
    lines = [json.loads(line)["text"] for line in (run / "data" / "test.jsonl").read_text().splitlines()]
    ids = bundle.tokenizer.encode_batch(lines)
    store = TokenStore.write(run / "by_hand.ids", [(row, True) for row in ids])
    road = task(bundle.config)
    assert isinstance(road, MaskedTask)
    data = road.rows(bundle.config, store, bundle.tokenizer)
    assert isinstance(data, MaskedData)
    cls, sep = map(bundle.tokenizer.symbol_id, ("[CLS]", "[SEP]"))
    right = []
    for i in range(len(data)):
        batch = data.batch([i])
        shown = torch.where(batch.targets < 0, batch.ids, batch.targets)[0].tolist()
        first = shown.index(sep)
        assert shown[0] == cls and shown[-1] == sep
        follows = shown[1:first] + shown[first + 1 : -1] == list(store.ids[data.begin[i] : data.stop[i]])
        with torch.inference_mode():
            hidden = bundle.model.encode(batch.ids, batch.layout, batch.types)  # type: ignore[arg-type]
            weights = bundle.model.output.pair
            logits = weights.map(weights.pooler(hidden[0, 0]).tanh())
        right.append(bool(logits[1] > logits[0]) == follows)
    return right


def test_empty_texts_are_said(here: Cli, tmp_path: Path) -> None:
    lines = (tmp_path / "classes.tsv").read_text().splitlines()
    write(tmp_path / "classes.tsv", [lines[0], "\tcats", *lines[1:]])
    done = here("train", "classes.tsv", "--objective", "classify", "--out", "run", *SMALL, *STEPS)
    assert done.returncode == 0
    assert re.search(r"empty texts, learned from as they are: 1 \(.*classes.tsv:2\)", done.stderr)


def test_one_batch_has_intervals(here: Cli, tmp_path: Path) -> None:
    """What is drawn for an interval are documents and dialogues, however they share batches."""
    for kind in ("causal", "instruction", "masked"):
        train(here, kind, "data.test_size=6")
        found = json.loads(here("evaluate", "run", "--json").stdout)["perplexity"]
        assert found["low"] < found["score"] < found["high"], kind
        shutil.rmtree(tmp_path / "run")


def test_odd_requests(here: Cli, tmp_path: Path) -> None:
    refused(here("train", "text", "--objective", "casual"), "casual", "causal")
    refused(here("train", "text"), "text")
    refused(here("train", "text", "--objective", "causal", "model.form=encoder"), "model.form", "decoder")
    refused(here("train", "classes.tsv", "--objective", "classify", "objective.frozen=true"), "init")
    refused(here("train", "classes.tsv", "--objective", "classify", "--init", "nowhere"), "nowhere")
    refused(here("train", "--objective", "causal"), "--objective causal")
    aligned = ("train", "--objective", "causal", "--source", "text/00.txt", "--target", "text/02.txt")
    refused(here(*aligned), "causal", "data.aligned")
    refused(here("train", "text", "--objective", "denoise", "objective.sentinels=1000000"), "10,000")
    refused(here("train", "classes.tsv", "--objective", "classify", "objective.head_rate=1e9"), "1,000")
    valid = "data.valid=other.tsv"
    write(tmp_path / "other.tsv", ["I see two cats.\tdogs"] * 3)
    refused(here("train", "classes.tsv", "--objective", "classify", valid), "dogs", "data.valid")
    write(tmp_path / "silent.jsonl", [json.dumps(chat(f"Say {i}", "")) for i in range(30)])
    refused(here("train", "silent.jsonl", "--objective", "instruction"), "every answer is empty")
    write(tmp_path / "five.tsv", [f"a {i}\tb {i}" for i in range(5)])
    refused(here("train", "five.tsv", "--objective", "embed", "--out", "run", *SMALL, *STEPS), "two pairs")
    refused(here("data", "show", "text", "--objective", "causal", "--rows", "0"), "--rows")
    long = ("train", "chat.jsonl", "--objective", "instruction", "--out", "run", "data.length=8", *SMALL)
    refused(here(*long, "training.steps=2"), "data.length")
    assert not (tmp_path / "run").exists()


def test_a_run_cannot_do_what_it_was_not_trained_for(here: Cli, tmp_path: Path) -> None:
    train(here, "causal")
    shutil.copytree(tmp_path / "run", tmp_path / "causal")
    refused(here("evaluate", "causal", "--source", "a", "--reference", "b"), "causal", "--source")
    begin = ("train", "text", "--objective", "causal", "--init", "causal")
    refused(here(*begin, "text.tokenizer.size=77"), "text.tokenizer.size")
    refused(here("generate", "causal", "I see", "--max-tokens", "0"), "max_length")
    refused(here("evaluate", "causal", "--picture", "c.svg"), "--picture")
    for command in ("translate", "fill", "classify", "tag"):
        refused(here(command, "causal", "text/00.txt"), "generate")
