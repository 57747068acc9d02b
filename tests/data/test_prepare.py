"""What a run keeps of its texts, and what it says of those it leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from triptych.config import load_config
from triptych.errors import UserError
from triptych.text import Pairs, files, read_aligned, train_tokenizer
from triptych.training import prepare
from triptych.training.tasks import silent, task
from triptych.training.tasks.translation import (
    KEYS,
    TranslationTask,
    encode,
    keep_texts,
    seen_in_training,
)

WORDS = ("red", "green", "blue", "white", "black", "grey")


def rows() -> list[tuple[str, str]]:
    return [(f"the {a} and the {b} one", f"{a}\nund {b}") for a in WORDS for b in WORDS]


def json_lines(path: Path, pairs: list[tuple[str, str]]) -> Path:
    lines = (json.dumps({"source": s, "target": t}) for s, t in pairs)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_held_out_texts_with_line_ends_inside_are_kept_as_they_are_scored(tmp_path: Path) -> None:
    odd = [
        ("\ufeffone\r\ntwo", "eins\rzwei"),
        ("three", "drei\r"),
        ("four\n\nfive", "vier"),
        ("six", "sechs"),
    ]
    train, test = json_lines(tmp_path / "a.jsonl", rows()), json_lines(tmp_path / "b.jsonl", odd)
    config = load_config({"data": {"train": str(train), "test": str(test)}})
    corpus = task(config).load(config, silent)
    keep_texts(tmp_path, corpus)
    for name, part in (("valid", corpus.valid), ("test", corpus.test)):
        kept = read_aligned(tmp_path / "data" / f"{name}.source", tmp_path / "data" / f"{name}.target")
        assert (kept.source, kept.target) == (part.source, part.target)
    assert corpus.test.source == ["one two", "three", "four  five", "six"]
    assert corpus.test.target[0] == "eins\rzwei"
    valid = f"valid: line ends inside {len(corpus.valid)} pairs"
    assert [n for n in corpus.notes if n.startswith(valid)]
    assert [n for n in corpus.notes if n.startswith("test: line ends inside 3 pairs")]


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = json_lines(tmp_path / "a.jsonl", rows())
    config = load_config({"data": {"train": [str(train)]}})
    corpus = task(config).load(config, silent)
    keep_texts(tmp_path / "run", corpus)
    before = (tmp_path / "run" / KEYS).read_bytes()
    sync, calls = files.os.fsync, []

    def full(number: int) -> None:
        calls.append(number)
        if len(calls) > 4:  # the four texts still fit
            raise OSError(28, "No space left on device")
        sync(number)

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UserError, match="No space left"):
        keep_texts(tmp_path / "run", corpus)
    assert (tmp_path / "run" / KEYS).read_bytes() == before
    assert not list(tmp_path.rglob("*.tmp*"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"nonsense"])
def test_damaged_hashes_are_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / KEYS).write_bytes(content)
    with pytest.raises(UserError, match=KEYS):
        seen_in_training(tmp_path, ["a"], ["b"])


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("data.tokens=2", "data.tokens"),
        ("data.max_length=1", "data.max_length"),
        ("model.position={kind: learned, max: 2}", "model.position.max"),
    ],
)
def test_the_key_that_leaves_nothing_is_named(setting: str, key: str) -> None:
    source, target = map(list, zip(*rows(), strict=True))
    pairs = Pairs(source, target, [("x", i) for i in range(len(source))])
    config = load_config({"text": {"tokenizer": {"kind": "byte"}}}, [setting])
    tokenizer = train_tokenizer([*pairs.source, *pairs.target], kind="byte", size=300)
    with pytest.raises(UserError) as refusal:
        encode(pairs, tokenizer, config, silent, "training")
    assert refusal.value.where == key


@pytest.mark.parametrize(
    ("setting", "where"),
    [("data.valid=[valid.tsv]", "data.valid"), ("data.test=[test.tsv]", "data.test"),
     ("data.valid_size=9", "data.valid_size"), ("data.test_size=0", "data.test_size"),
     ("data.aligned=true", "data.aligned"), ("text.cleaning.trim=false", "text.cleaning"),
     ("data.train=['cldr:', more.tsv]", "data.train")],
)  # fmt: skip
def test_what_the_built_in_corpus_does_not_read_is_refused(setting: str, where: str) -> None:
    config = load_config({"data": {"train": ["cldr:"]}, "text": {"source": "en", "target": "de"}}, [setting])
    with pytest.raises(UserError, match="cldr:") as caught:
        task(config).load(config, silent)
    assert caught.value.where == where


def test_of_two_runs_begun_at_once_in_a_folder_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins while the first learns its tokenizer: it neither joins it nor takes its files."""
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{a} {b}\t{b} {a}\n" for a in WORDS for b in WORDS), encoding="utf-8")
    settings = {"tokenizer": {"size": 300, "shrink": True}}
    config = load_config({"data": {"train": [str(file)]}, "text": settings, "training": {"steps": 1}})
    corpus, run = task(config).load(config, silent), tmp_path / "run"
    learn = TranslationTask.tokenizer
    refused = []

    def meanwhile(*args: object) -> object:
        if not refused:
            refused.append(1)
            for check in (prepare.check_free, lambda _: None):  # before the first took the folder, or after
                monkeypatch.setattr(prepare, "check_free", check)
                with pytest.raises(UserError, match="other run") as caught:
                    prepare.prepare(config, corpus, run, silent)
                assert caught.value.where == str(run) and (run / "data").is_dir()
        return learn(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(TranslationTask, "tokenizer", meanwhile)
    prepare.prepare(config, corpus, run, silent)
    assert (run / "config.yaml").exists() and (run / "data" / "valid.source").exists()
