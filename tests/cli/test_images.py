"""Images from folders to classes by the commands: trained, resumed, scored, told; and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.conftest import Cli
from cli.test_bad_input import refused
from triptych.engine import load
from triptych.errors import UserError
from triptych.insight.laws import verify

SMALL = (
    "model.dim=16", "model.layers=1", "model.heads.count=2", "training.steps=30", "training.precision=fp32",
    "training.validate_every=15", "training.log_every=10", "training.schedule.peak=0.01",
)  # fmt: skip


@pytest.fixture(autouse=True)
def images(tmp_path: Path) -> Path:
    """Bright and dark ones, of 8 × 12 pixels."""
    rng = np.random.default_rng(1)
    for label, low in (("bright", 140), ("dark", 0)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(30):
            values = rng.integers(low, low + 110, (8, 12, 3)).astype(np.uint8)
            Image.fromarray(values).save(tmp_path / "photos" / label / f"{i:02d}.png")
    return tmp_path / "photos"


def train(here: Cli, *args: str) -> str:
    done = here("train", "photos", "--objective", "classify", "--out", "run", *SMALL, *args)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_trained_scored_and_told(here: Cli, tmp_path: Path, images: Path) -> None:
    said = train(here)
    assert "54 images to train on, 3 to validate, 3 to test" in said
    assert "images of 8 × 12 in patches of 2 × 2" in said and "2 names: bright, dark" in said
    assert not (tmp_path / "run" / "tokenizer").exists()
    scores = json.loads(here("evaluate", "run", "--json").stdout)
    assert scores["accuracy"]["score"] == 100
    assert json.loads(here("evaluate", "run", "photos", "--json").stdout)["accuracy"]["score"] == 100
    files = [str(p) for p in sorted(images.rglob("*.png"))]
    (tmp_path / "names").write_text("\n".join([files[40], "", files[2], files[3]]) + "\n")
    assert here("classify", "run", "names").stdout.splitlines() == ["dark", "", "bright", "bright"]
    assert here("classify", "run", files[40]).stdout == "dark\n"
    lines = here("classify", "run", "photos/dark").stdout.splitlines()
    assert lines == [f"photos/dark/{i:02d}.png\tdark" for i in range(30)]
    record = json.loads(here("classify", "run", files[0], "--json", "--top", "1").stdout)
    assert record["label"] == "bright" and list(record["probabilities"]) == ["bright"]
    assert record["text"] == files[0] and 0.5 < record["probability"] <= 1
    assert here("evaluate", "run", "--picture", "confusion.svg").returncode == 0
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "images of 8 × 12 pixels, in patches of 2 × 2" in report
    assert all(verdict.status != "broken" for verdict in verify(load(tmp_path / "run").config.model))


def test_its_configuration_trains_the_same(here: Cli, tmp_path: Path) -> None:
    train(here)
    done = here("train", "run/config.yaml", "--out", "again")
    assert done.returncode == 0, done.stderr
    one, two = ((tmp_path / run / "model.safetensors").read_bytes() for run in ("run", "again"))
    assert one == two
    assert (tmp_path / "run" / "config.yaml").read_text() == (tmp_path / "again" / "config.yaml").read_text()


def test_resumed_it_is_the_same(here: Cli, tmp_path: Path) -> None:
    """Bit for bit, what is drawn for each image too."""
    train(here, "objective.word_dropout=0.2", "data.flip=true")
    run = tmp_path / "run"
    whole = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").unlink()
    (old,) = (run / "checkpoints").glob("step-000015-*")
    for later in set((run / "checkpoints").iterdir()) - {old}:
        later.unlink()
    assert here("train", "run", "--resume").returncode == 0
    assert (run / "model.safetensors").read_bytes() == whole
    (tmp_path / "photos" / "dark" / "00.png").unlink()
    refused(here("train", "run", "--resume", "training.steps=40"), "data are not those")


def test_begun_with_a_run(here: Cli, tmp_path: Path, images: Path) -> None:
    train(here)
    shutil.copytree(images, tmp_path / "more")
    shutil.copytree(images / "dark", tmp_path / "more" / "night")
    done = here("train", "more", "--objective", "classify", "--init", "run", "--out", "next", *SMALL[3:])
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "next").config.model.embedding == load(tmp_path / "run").config.model.embedding
    assert "night" in json.loads((tmp_path / "next" / "labels.json").read_text())
    (tmp_path / "texts.tsv").write_text("".join(f"word {i}\t{i % 2}\n" for i in range(40)))
    args = ("train", "texts.tsv", "--objective", "classify", "--out", "words", *SMALL)
    assert here(*args).returncode == 0
    refused(
        here("train", "photos", "--objective", "classify", "--init", "words", "--out", "x"), "reads texts"
    )
    refused(here(*args[: -len(SMALL)], "--init", "run", "--out", "y"), "texts.tsv", "folder")


def test_what_is_not_of_images(here: Cli, tmp_path: Path, images: Path) -> None:
    train(here)
    (tmp_path / "names").write_text("gone.png\n")
    for command in ("translate", "generate", "tag"):
        refused(here(command, "run", "names"), "run", "triptych classify")
    refused(here("classify", "run", "names"), "names:1: gone.png", "no such file")
    (tmp_path / "names").write_text("photos/dark/01.png\n\ngone.png\nphotos/dark/02.png\n")
    done = here("classify", "run", "names")
    assert done.stdout == "dark\n\n" and done.returncode == 2 and "names:3: gone.png" in done.stderr
    (tmp_path / "names").write_text("names\n")
    refused(here("classify", "run", "names"), "names", "cannot be read as an image")
    (tmp_path / "odd\tname").mkdir()
    shutil.copy(images / "dark" / "01.png", tmp_path / "odd\tname")
    refused(here("classify", "run", "odd\tname"), "--json")
    assert json.loads(here("classify", "run", "odd\tname", "--json").stdout)["label"] == "dark"
    whole = (tmp_path / "run" / "data" / "test.npz").read_bytes()
    for damaged in (b"", whole[:100], whole[:300] + b"!" + whole[301:]):
        (tmp_path / "run" / "data" / "test.npz").write_bytes(damaged)
        refused(here("evaluate", "run"), "test.npz", "cannot be read")
    with pytest.raises(UserError, match="the model reads"):
        load(tmp_path / "run").viewer.classify(np.zeros((2, 6, 6, 3), np.uint8))
    (tmp_path / "empty").mkdir()
    refused(here("classify", "run", "empty"), "no images in this folder")
    refused(here("data", "show", "photos", "--objective", "classify"), "not read as tokens")
    refused(here("evaluate", "run", "names"), "names", "this is no folder")


def test_bad_folders(here: Cli, tmp_path: Path, images: Path) -> None:
    def said(*args: str) -> None:
        refused(here("train", "photos", "--out", "x", *args[1:]), args[0])
        assert not (tmp_path / "x").exists()

    said("this is a folder", "--objective", "tag")
    said("images are moved", "--objective", "causal", "data.shift=0.1")
    for key in ("data.fields=[a]", "data.column=1", "data.max_length=3", "text.source=en", "model.vocab=9",
                "text.tokenizer.kind=char"):  # fmt: skip
        said("images are no texts", "--objective", "classify", key)
    said("leave it out: the data decide", "--objective", "classify", "model.output.count=7")
    said("set it to", "--objective", "classify", "data.tokens=3")
    said("an image is one", "--objective", "classify", "model.types=2")
    said("no whole patches", "--objective", "classify", "model.embedding.size=4", "model.embedding.height=10")
    said("3 or 1", "--objective", "classify", "model.embedding.channels=2")
    said("set it to 24", "--objective", "classify", "model.position={kind: learned, max: 9}")
    said("set it to 6", "--objective", "classify", "model.mixer={kind: spatial, width: 4}")
    for kind in ("classify", "causal"):
        refused(here("train", "photos/dark/01.png", "--objective", kind, "--out", "x"), "this is an image")
    refused(here("train", "photos", "names.tsv", "--objective", "classify", "--out", "x"), "this is a folder")
    whole = (images / "dark" / "07.png").read_bytes()
    (images / "dark" / "07.png").write_bytes(whole[:60])
    said("dark/07.png", "--objective", "classify")
    shutil.rmtree(images / "dark")
    said("one name alone", "--objective", "classify")


def test_coattention_of_one_text_is_refused(here: Cli, tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text("".join(f"word {i}\t{i % 2}\n" for i in range(40)))
    (tmp_path / "two.tsv").write_text("".join(f"word {i}\ttext {i}\t{i % 2}\n" for i in range(40)))
    (tmp_path / "plain.txt").write_text("".join(f"word {i} and {i}\n\n" for i in range(99)))
    more = ("model.types=2", "model.mixer=[coattention, attention]", "--out", "x", *SMALL)
    refused(here("train", "one.tsv", "--objective", "classify", *more), "between two texts")
    masked = (
        "train",
        "plain.txt",
        "--objective",
        "masked",
        "data.documents=paragraph",
        "data.length=32",
        *more,
    )
    refused(here(*masked), "between two texts")
    assert not (tmp_path / "x").exists()
    assert here(*masked, "objective.next_sentence=true", "training.steps=3").returncode == 0
    shutil.rmtree(tmp_path / "x")
    assert here("train", "two.tsv", "--objective", "classify", *more).returncode == 0


def test_a_class_that_only_the_test_has(here: Cli, tmp_path: Path, images: Path) -> None:
    shutil.copytree(images, tmp_path / "test")
    shutil.copytree(images / "dark", tmp_path / "test" / "night")
    Image.fromarray(np.zeros((20, 20, 3), np.uint8)).save(tmp_path / "test" / "night" / "00.png")
    said = train(here, "data.test=[test]")
    assert "test: never seen in training, so never said: 'night'" in said
    assert "test: 1 of 90 images are of another size" in said
    assert "1 of 90 images are of another size" in here("evaluate", "run", "test").stderr
    assert json.loads(here("evaluate", "run", "--json").stdout)["accuracy"]["score"] == pytest.approx(
        66.67, abs=1
    )


def test_what_is_asked_for_is_inspected(here: Cli) -> None:
    """What is left open is what training would choose."""
    args = ("model.form=encoder", "model.output=classes", "model.embedding.kind=patches")
    said = here("inspect", "small", *args, "model.embedding.height=32", "model.embedding.width=32").stdout
    assert "patches of 8 × 8 pixels" in said and "1 row of 16 tokens" in said
    assert "1 row of 197 tokens" in here("inspect", "vit-base").stdout
