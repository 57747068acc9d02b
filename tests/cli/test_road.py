"""The whole road: train, translate, evaluate, verify, the library."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

import triptych
from cli.conftest import NOUNS, NUMBERS, SMALL, VERBS, Cli, pairs, run_cli, tsv
from triptych.config import load_config


def test_a_run_folder_is_complete(trained: Path) -> None:
    found = {p.name for p in trained.iterdir()}
    assert {
        "config.yaml",
        "tokenizer",
        "model.safetensors",
        "checkpoints",
        "metrics.jsonl",
        "report.html",
    } <= found
    config = load_config(trained / "config.yaml")
    assert config.model.vocab > 0 and config.training.precision == "fp32" and config.text.target == "de"
    assert not list(trained.rglob("*.tmp*"))
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    steps = [r["step"] for r in records if r["kind"] == "train"]
    assert steps == sorted(set(steps))
    train = next(r for r in records if r["kind"] == "train")
    assert {"loss", "gradient_norm", "learning_rate", "tokens_per_second", "memory_mb"} <= set(train)


def test_translates_what_it_has_never_seen(trained: Path) -> None:
    """The held-out pairs are unseen combinations: a model that learned the grammar knows them."""
    bundle = triptych.load(trained)
    source = (trained / "data" / "test.source").read_text(encoding="utf-8").splitlines()
    target = (trained / "data" / "test.target").read_text(encoding="utf-8").splitlines()
    said = bundle.translate(source)
    assert sum(a == b for a, b in zip(said, target, strict=True)) >= 0.7 * len(target)


def test_n_lines_in_n_lines_out(trained: Path, cli: Cli) -> None:
    lines = ["I see two cats.", "", "we have ten dogs.", "   ", "\t", "they want six trees.\u2028", ""]
    done = cli("translate", trained, stdin="".join(line + "\n" for line in lines))
    assert done.returncode == 0, done.stderr
    out = done.stdout.split("\n")
    assert out.pop() == "" and len(out) == len(lines)
    assert [bool(o.strip()) for o in out] == [bool(line.strip()) for line in lines]


def test_order_and_neighbours_do_not_matter(trained: Path) -> None:
    bundle = triptych.load(trained)
    lines = [*[s for s, _ in pairs()][::7], "birds", "I I I I I I I see", "x"]
    whole = bundle.translate(lines)
    assert bundle.translate(lines[::-1])[::-1] == whole
    assert [bundle.translate([line])[0] for line in lines] == whole
    sampled = [
        t.text
        for t in bundle.translate_full(
            lines, bundle.config.decoding.model_copy(update={"strategy": "sample"})
        )
    ]
    again = [
        t.text
        for t in bundle.translate_full(
            lines, bundle.config.decoding.model_copy(update={"strategy": "sample"})
        )
    ]
    assert sampled == again


def test_file_equals_standard_input_and_out(trained: Path, cli: Cli, tmp_path: Path) -> None:
    text = "".join(s + "\n" for s, _ in pairs()[:9])
    (tmp_path / "in.txt").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    by_file = cli("translate", trained, "in.txt")
    by_stdin = cli("translate", trained, "-", stdin=text)
    to_file = cli("translate", trained, "in.txt", "--out", "out.txt")
    assert by_file.stdout == by_stdin.stdout == (tmp_path / "out.txt").read_text(encoding="utf-8")
    assert to_file.stdout == "" and by_file.returncode == by_stdin.returncode == to_file.returncode == 0


def test_json_has_scores_tokens_alignment_and_reason(trained: Path, cli: Cli) -> None:
    done = cli("translate", trained, "--json", "--n-best", "3", "--beam", "4", stdin="I see two cats.\n\n")
    first, blank = (json.loads(line) for line in done.stdout.splitlines())
    assert len(first["alternatives"]) == 3
    scores = [a["score"] for a in first["alternatives"]]
    assert scores == sorted(scores, reverse=True)
    best = first["alternatives"][0]
    assert best["reason"] == "eos" and len(best["alignment"]) == len(best["pieces"])
    assert all(0 <= j < len(first["source_tokens"]) for j in best["alignment"])
    assert blank["alternatives"][0] == {
        "text": "", "score": 0.0, "logprob": 0.0, "pieces": [], "reason": "blank", "alignment": []
    }  # fmt: skip


def test_n_best_lines_are_numbered(trained: Path, cli: Cli) -> None:
    done = cli("translate", trained, "--n-best", "2", stdin="I see two cats.\nwe have ten dogs.\n")
    assert [line.split(" ||| ")[0] for line in done.stdout.splitlines()] == ["0", "0", "1", "1"]


def test_long_lines_are_split_or_refused(trained: Path, cli: Cli) -> None:
    line = " ".join(s for s, _ in pairs()[:100])
    done = cli("translate", trained, stdin=line + "\n")
    assert done.returncode == 0 and done.stdout.count("\n") == 1 and done.stdout.count(".") >= 80
    strict = cli("translate", trained, "--strict", stdin=f"I see two cats.\n{line}\n")
    assert strict.returncode == 2 and "line 2" in strict.stderr and "tokens" in strict.stderr
    enormous = cli("translate", trained, "--beam", "1", stdin="x" * 100_000 + "\n")
    assert enormous.returncode == 0 and enormous.stdout.count("\n") == 1


def test_evaluate(trained: Path, cli: Cli, tmp_path: Path) -> None:
    done = cli("evaluate", trained, "--json")
    assert done.returncode == 0, done.stderr
    own = json.loads(done.stdout)
    assert own["exact"]["score"] >= 70 and "tok:13a" in own["bleu"]["signature"] and own["perplexity"] < 3
    assert own["trained_on"] == [0, 0] and own["warning"] == ""
    trained_on = [
        p for p in pairs() if p[0] not in (trained / "data/test.source").read_text(encoding="utf-8")
    ][:40]
    (tmp_path / "s").write_text("".join(s + "\n" for s, _ in trained_on), encoding="utf-8")
    (tmp_path / "r").write_text("".join(t + "\n" for _, t in trained_on), encoding="utf-8")
    leaked = cli("evaluate", trained, "--source", "s", "--reference", "r")
    assert leaked.returncode == 0 and "were trained on" in leaked.stderr
    assert "chrF2++" in leaked.stdout or "chrF++" in leaked.stdout


def test_verify_a_run(trained: Path, cli: Cli) -> None:
    done = cli("verify", trained)
    assert done.returncode == 0, done.stdout + done.stderr


def test_config_free_training(cli: Cli, tmp_path: Path) -> None:
    tsv(tmp_path / "pairs.tsv", [(f"{s}", f"{t}") for s, t in pairs()])
    done = cli("train", "pairs.tsv", "--from", "en", "--to", "de", "--budget", "12s", "--out", "run")
    assert done.returncode == 0, done.stderr
    config = load_config(tmp_path / "run" / "config.yaml")
    assert config.model.vocab and config.training.budget == "12s"
    assert (tmp_path / "run" / "report.html").stat().st_size > 2000


def test_the_three_kinds_of_files_are_one_corpus(cli: Cli, tmp_path: Path) -> None:
    """TSV with extra columns, aligned files and gzipped JSON lines give the same weights."""
    import gzip

    rows = pairs()
    (tmp_path / "a.tsv").write_text("".join(f"{s}\t{t}\tby someone\n" for s, t in rows), encoding="utf-8")
    (tmp_path / "b.en").write_text("".join(s + "\n" for s, _ in rows), encoding="utf-8")
    (tmp_path / "b.de").write_text("".join(t + "\n" for _, t in rows), encoding="utf-8")
    lines = "".join(json.dumps({"en": s, "de": t}) + "\n" for s, t in rows)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    common = ["--preset", "small", "--from", "en", "--to", "de", *SMALL, "training.steps=3"]
    made = [
        cli("train", "a.tsv", *common, "--out", "a"),
        cli("train", "--source", "b.en", "--target", "b.de", *common, "--out", "b"),
        cli("train", "c.jsonl.gz", *common, "--out", "c", 'data.fields=["en","de"]'),
    ]
    assert [m.returncode for m in made] == [0, 0, 0], "".join(m.stderr for m in made)
    weights = {(tmp_path / n / "model.safetensors").read_bytes() for n in "abc"}
    assert len(weights) == 1


def test_config_command_round_trips(cli: Cli, tmp_path: Path) -> None:
    done = cli("config", "transformer-base", "model.dropout=0.2")
    data = yaml.safe_load(done.stdout)
    assert data["model"]["dropout"] == 0.2 and data["model"]["dim"] == 512
    (tmp_path / "c.yaml").write_text(done.stdout, encoding="utf-8")
    assert cli("config", "c.yaml").stdout == done.stdout
    assert json.loads(cli("config", "--schema").stdout)["properties"]["model"]


def test_the_library_builds_a_model_in_three_lines() -> None:
    config = triptych.ModelConfig.parse({"vocab": 50, "dim": 32, "layers": 1, "heads": 4})
    model = triptych.build(config, seed=1)
    assert sum(p.numel() for p in model.parameters()) == triptych.cost(config).parameters


def test_logits_are_those_of_teacher_forcing(trained: Path) -> None:
    bundle = triptych.load(trained)
    source, target = (
        bundle.tokenizer.encode("I see two cats."),
        bundle.tokenizer.encode("ich sehe zwei Katzen."),
    )
    logits = bundle.logits(source, target)
    assert logits.shape == (len(target) + 1, bundle.tokenizer.size)
    assert logits.argmax(-1).tolist() == [*target, 3]


def test_help_names_every_command(tmp_path: Path) -> None:
    done = run_cli("--help", cwd=tmp_path)
    assert all(c in done.stdout for c in ("demo", "train", "translate", "evaluate", "verify", "config"))
    assert len(VERBS) * len(NUMBERS) * len(NOUNS) == len(pairs())
