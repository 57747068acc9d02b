"""``classify``, ``tag``, ``embed`` and ``search``: N lines in, N out, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.conftest import Cli, run_cli
from cli.test_bad_input import refused
from triptych.config import RunConfig
from triptych.engine import Bundle, load, write_labels
from triptych.model import build
from triptych.text import train_tokenizer

LINES = ["two cats", "", "a bird\u2028in a tree", "two cats", "x" * 70]
LABELS = ["B-X", "I-X", "O"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that have learned nothing: classes, pairs, tags, vector, decoder, translator."""
    home = tmp_path_factory.mktemp("runs")
    tokenizer = train_tokenizer([""], kind="byte", size=300, symbols=("[CLS]", "[SEP]", "[MASK]"))
    three = {"count": len(LABELS)}
    kinds: dict[str, tuple[str, str, dict[str, Any]]] = {
        "classes": ("classify", "encoder", {"kind": "classes", **three}),
        "pairs": ("classify", "encoder", {"kind": "classes", **three}),
        "tags": ("tag", "encoder", {"kind": "tags", **three}),
        "vector": ("embed", "encoder", {"kind": "vector"}),
        "decoder": ("causal", "decoder", {"kind": "vocabulary"}),
        "translator": ("translation", "encoder_decoder", {"kind": "vocabulary"}),
    }
    for name, (objective, form, output) in kinds.items():
        model = {"form": form, "vocab": tokenizer.size, "dim": 16, "layers": 1, "heads": 2, "output": output}
        sizes = {"length": 40} if objective == "causal" else {"max_length": 40}
        data = {"model": model, "data": sizes, "objective": {"kind": objective}}
        config = RunConfig.parse({**data, "text": {"tokenizer": "byte"}})
        Bundle(config, tokenizer, build(config.model, seed=1)).save(home / name)
        if "count" in output:
            write_labels(home / name, LABELS)
    (home / "pairs" / "data.json").write_text('{"texts_each": 2}')
    return home


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "in.txt").write_text("".join(line + "\n" for line in LINES), encoding="utf-8")
    return tmp_path / "in.txt"


# -- classify ----------------------------------------------------------------------------------------------


def test_classify_gives_line_for_line(here: Cli, runs: Path, file: Path) -> None:
    done = here("classify", runs / "classes", file)
    said = done.stdout.split("\n")
    assert (done.returncode, len(said)) == (0, 6) and said[1] == said[5] == ""
    assert said[0] == said[3] and {said[0], said[2], said[4]} <= set(LABELS)
    assert done.stderr == "warning: lines longer than 40 tokens, whose ends were not read: 1 (line 5)\n"


def test_classify_says_how_sure_it_is(here: Cli, runs: Path, file: Path) -> None:
    rows = [
        line.split("\t") for line in here("classify", runs / "classes", file, "--top", "2").stdout.split("\n")
    ]
    assert [len(row) for row in rows[:5]] == [4, 1, 4, 4, 4]
    assert float(rows[0][1]) >= float(rows[0][3]) and rows[0][0] != rows[0][2]
    found = [
        json.loads(x) for x in here("classify", runs / "classes", file, "--json").stdout.split("\n") if x
    ]
    assert [r["line"] for r in found] == [1, 2, 3, 4, 5] and [r["text"] for r in found] == LINES
    assert (found[1]["label"], found[1]["probabilities"]) == (None, {})
    assert sum(found[0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert set(found[0]["probabilities"]) == set(LABELS) and found[0]["label"] == rows[0][0]
    assert [r["cut"] for r in found] == [False] * 4 + [True]
    few = json.loads(here("classify", runs / "classes", file, "--json", "--top", "1").stdout.split("\n")[0])
    assert list(few["probabilities"]) == [rows[0][0]]


def test_classify_reads_pairs(here: Cli, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("two\tcats\n\n\tcats\ntwo\tcats\tsame\n", encoding="utf-8")
    done = here("classify", runs / "pairs", "p.tsv", "--json")
    found = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert [r["text"] for r in found] == [["two", "cats"], ["", ""], ["", "cats"], ["two", "cats"]]
    assert found[1]["label"] is None and found[2]["label"] and found[0]["label"] == found[3]["label"]
    assert done.stderr == "note: lines of more than two columns, of which the first two were read: 1\n"
    (bundle,) = [load(runs / "pairs")]
    assert found[0]["probability"] == pytest.approx(
        bundle.classifier.classify([("two", "cats")])[0].probability, abs=1e-3
    )
    (tmp_path / "p.tsv").write_text("two\tcats\nalone\n", encoding="utf-8")
    refused(here("classify", runs / "pairs", "p.tsv"), "p.tsv:2", "pairs", "tab")
    # In a run of single texts a tab is text.
    assert (
        json.loads(here("classify", runs / "classes", "p.tsv", "--json").stdout.split("\n")[0])["text"]
        == "two\tcats"
    )


def test_classify_reads_standard_input(runs: Path, tmp_path: Path) -> None:
    done = run_cli("classify", runs / "classes", cwd=tmp_path, stdin="two cats\n\nlast line without an end")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 3 and done.stdout.split("\n")[1] == ""


@pytest.mark.parametrize(("run", "command"), [("classes", "classify"), ("tags", "tag")])
def test_blocks_of_lines_do_not_show(
    run: str, command: str, here: Cli, runs: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = here(command, runs / run, file, "--json")
    monkeypatch.setattr("triptych.cli.lines.BLOCK", 2)
    parts = here(command, runs / run, file, "--json")
    assert parts.stderr == whole.stderr
    for a, b in zip(whole.stdout.split("\n"), parts.stdout.split("\n"), strict=True):
        assert not a or {k: v for k, v in json.loads(a).items() if "prob" not in k} == {
            k: v for k, v in json.loads(b).items() if "prob" not in k
        }


# -- tag ---------------------------------------------------------------------------------------------------


def test_tag_gives_a_tag_a_word(here: Cli, runs: Path, file: Path) -> None:
    rows = [line.split("\t") for line in here("tag", runs / "tags", file).stdout.split("\n")]
    assert [row[::2] for row in rows[:5]] == [
        ["two", "cats"],
        [""],
        ["a", "bird", "in", "a", "tree"],
        ["two", "cats"],
        ["x" * 70],
    ]
    assert {tag for row in rows for tag in row[1::2]} <= set(LABELS) and rows[0] == rows[3]
    found = [json.loads(x) for x in here("tag", runs / "tags", file, "--json").stdout.split("\n") if x]
    assert [r["line"] for r in found] == [1, 2, 3, 4, 5] and found[1] == {"line": 2, "words": [], "tags": []}
    assert [r["tags"] for r in found] == [row[1::2] for row in rows[:5]]


def test_tag_keeps_the_lines_of_conll(here: Cli, runs: Path, tmp_path: Path) -> None:
    """The first column, whatever stands after it; blank lines where they were."""
    (tmp_path / "in.conll").write_text(
        "two NN O\ncats NN B-X\n\n\n# hash\n#\nNew York\tO\n", encoding="utf-8"
    )
    plain = here("tag", runs / "tags", "in.conll", "--conll").stdout
    assert [line.split("\t")[0] for line in plain.split("\n")] == [
        "two",
        "cats",
        "",
        "",
        "#",
        "#",
        "New York",
        "",
    ]
    (tmp_path / "in.txt").write_text("two cats\n", encoding="utf-8")
    assert plain.split("\n")[0].split("\t")[1] == here("tag", runs / "tags", "in.txt").stdout.split("\t")[1]
    found = [
        json.loads(x)
        for x in here("tag", runs / "tags", "in.conll", "--conll", "--json").stdout.split("\n")
        if x
    ]
    assert [(r["line"], r["words"]) for r in found] == [(1, ["two", "cats"]), (5, ["#", "#", "New York"])]


def test_tag_reads_conll_u(here: Cli, runs: Path, tmp_path: Path) -> None:
    def row(number: str, word: str) -> str:
        return "\t".join([number, word, *"________"]) + "\n"

    text = (
        "# text = du\n"
        + row("1-2", "du")
        + row("1", "de")
        + row("2", "le")
        + row("2.1", "x")
        + "\n"
        + row("1", "#")
    )
    (tmp_path / "in.conllu").write_text(text, encoding="utf-8")
    done = here("tag", runs / "tags", "in.conllu", "--conll")
    assert [line.split("\t")[0] for line in done.stdout.split("\n")] == ["de", "le", "", "#", ""]
    assert "rows such as 1-2 and 1.1 of CoNLL-U, left out: 3\n" in done.stderr


def test_tags_are_repaired_on_request(here: Cli, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("".join(f"{c} {c}{c} {c}\n" for c in "abcdefghijkl"), encoding="utf-8")
    rows = [
        line.split("\t")[1::2] for line in here("tag", runs / "tags", "in.txt", "--repair").stdout.split("\n")
    ]
    plain = [line.split("\t")[1::2] for line in here("tag", runs / "tags", "in.txt").stdout.split("\n")]
    assert all(row[:1] != ["I-X"] for row in rows) and any(row[:1] == ["I-X"] for row in plain)


# -- embed and search --------------------------------------------------------------------------------------


def test_embed_then_search(here: Cli, runs: Path, file: Path, tmp_path: Path) -> None:
    done = here("embed", runs / "vector", file, "--out", "v.npy")
    vectors = np.load(tmp_path / "v.npy")
    assert (done.returncode, vectors.shape, vectors.dtype) == (0, (5, 16), np.float32)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 0, 1, 1, 1], abs=1e-5)
    assert "ends were not read: 1 (line 5)\n" in done.stderr
    first = here("search", runs / "vector", file, "two cats", "--top", "3")
    again = here("search", runs / "vector", file, "two cats", "--top", "3", "--vectors", "v.npy")
    assert first.stdout == again.stdout
    rows = [line.split("\t") for line in first.stdout.split("\n")[:-1]]
    assert [row[0] for row in rows[:2]] == ["1", "4"] and rows[0][2] == "two cats" and len(rows) == 3
    assert float(rows[0][1]) == pytest.approx(1, abs=1e-3)
    assert float(rows[2][1]) <= float(rows[1][1])
    (found, *_) = here("search", runs / "vector", file, "two cats", "--json").stdout.split("\n")
    assert json.loads(found) == {"line": 1, "score": pytest.approx(1, abs=1e-3), "text": "two cats"}
    assert "the query is longer" in here("search", runs / "vector", file, "q" * 41).stderr


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["classes", "tags", "vector", "decoder", "translator"])
def test_another_run_names_the_command_that_fits(run: str, here: Cli, runs: Path, file: Path) -> None:
    fits = {
        "classes": "classify",
        "tags": "tag",
        "vector": "embed",
        "decoder": "generate",
        "translator": "translate",
    }
    commands: dict[str, tuple[str | Path, ...]] = {
        "classes": ("classify", runs / run, file),
        "tags": ("tag", runs / run, file),
        "vector": ("embed", runs / run, file, "--out", "v.npy"),
    }
    for kind, command in commands.items():
        if kind != run:
            refused(here(*command), run, f"`triptych {fits[run]}`", f"{kind} is needed")
    if run != "translator":
        refused(here("translate", runs / run, file), "only an encoder–decoder", f"`triptych {fits[run]}`")
    if run != "vector":
        refused(here("search", runs / run, file, "cats"), f"`triptych {fits[run]}`")
    assert not Path("v.npy").exists()


def test_missing_labels_are_named(here: Cli, runs: Path, file: Path, tmp_path: Path) -> None:
    for run, command in (("classes", "classify"), ("tags", "tag")):
        bundle = load(runs / run)
        bundle.save(tmp_path / run)
        refused(here(command, run, file), "labels.json", run)
        write_labels(tmp_path / run, LABELS[:2])
        refused(here(command, run, file), "labels.json", "2 names for the model's 3 outputs")


def test_files_that_cannot_be_read(here: Cli, runs: Path, file: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "blank").write_bytes(b"\n \n")
    (tmp_path / "latin").write_bytes(b"fine\ncaf\xe9\n")
    for run, command in (("classes", "classify"), ("tags", "tag")):
        nothing = here(command, runs / run, "empty")
        assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", ""), "no line in, no line out"
        refused(here(command, runs / run, "latin"), "latin:2", "0xE9")
        refused(here(command, runs / run, "nothing"), "nothing")
        refused(here(command, runs / run, tmp_path), "folder")
        refused(here(command, "nowhere", file), "nowhere", "run folder")
    refused(here("tag", runs / "tags", "empty.conll", "--conll"), "empty.conll")
    (tmp_path / "in.conll").write_bytes(b"two\tO\n\tO\n")
    refused(here("tag", runs / "tags", "in.conll", "--conll"), "in.conll:2", "no word")
    refused(here("embed", runs / "vector", "empty", "--out", "v.npy"), "empty", "nothing to make vectors of")
    refused(here("embed", runs / "vector", "latin", "--out", "v.npy"), "latin:2")
    refused(here("embed", runs / "vector", file, "--out", "no/v.npy"), "no folder")
    refused(here("embed", runs / "vector", file), "--out")
    refused(here("search", runs / "vector", "empty", "cats"), "empty", "nothing to search")
    refused(here("search", runs / "vector", "blank", "cats"), "blank", "nothing to search")
    refused(here("search", runs / "vector", file, " "), "nothing to search for")
    refused(here("search", runs / "vector", file, "cats", "--top", "0"), "--top")
    assert not (tmp_path / "v.npy").exists()


def test_vectors_that_do_not_fit(here: Cli, runs: Path, file: Path, tmp_path: Path) -> None:
    good = load(runs / "vector").embedder.embed(LINES)
    broken = good.copy()
    broken[2, 3] = np.nan
    for array, words in (
        (broken, ("vector 3", "no number")),
        (good[:, :8], ("8 numbers", "16")),
        (good[:4], ("4 vectors for 5 lines",)),
        (good * 2, ("vector 1", "length 2")),
    ):
        np.save(tmp_path / "v.npy", array)
        refused(
            here("search", runs / "vector", file, "cats", "--vectors", "v.npy"),
            "v.npy",
            *words,
            "triptych embed",
        )
    refused(here("search", runs / "vector", file, "cats", "--vectors", "in.txt"), "in.txt", "NumPy")
    refused(here("search", runs / "vector", file, "cats", "--vectors", "none.npy"), "none.npy")
