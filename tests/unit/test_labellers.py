"""Texts in, classes, tags and vectors out: each by itself, N for N, nothing dropped and nothing unsaid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triptych.config import RunConfig
from triptych.engine import Bundle, Classifier, Embedder, Tagger, load, read_labels, write_labels
from triptych.engine import rows as rows_module
from triptych.engine.classifier import BLANK
from triptych.engine.tagger import windows
from triptych.engine.vectors import read_vectors, write_vectors
from triptych.errors import UserError
from triptych.model import build
from triptych.text import Tokenizer, train_tokenizer
from triptych.text.bio import repaired

TOKENIZER = train_tokenizer([""], kind="byte", size=300, symbols=("[CLS]", "[SEP]", "[MASK]"))
KINDS = {"classes": "classify", "tags": "tag", "vector": "embed", "vocabulary": "masked"}
MOST = 20
TEXTS = ["two cats", "a", "", "seven birds in a tree", "it \u4f60\u597d", "two cats", " \t", "x" * 50]
FORMS = pytest.mark.parametrize("form", ["encoder", "decoder"])


def bundle(kind: str, form: str = "encoder", count: int = 4, **settings: Any) -> Bundle:
    """A model that has learned nothing, over a tokenizer of bytes; a text has 20 at most."""
    output = {"kind": kind, **({"count": count} if kind in ("classes", "tags") else {})}
    model = {"form": form, "vocab": TOKENIZER.size, "dim": 16, "layers": 1, "heads": 2, "ffn": {"dim": 16}}
    data = {
        "model": {**model, "output": output, "types": 2, **settings},
        "data": {"max_length": MOST} if kind != "vocabulary" else {},
        "objective": {"kind": KINDS[kind] if form == "encoder" or kind != "vocabulary" else "causal"},
        "text": {"tokenizer": "byte"},
    }
    config = RunConfig.parse(data)
    return Bundle(config, TOKENIZER, build(config.model, seed=1).eval())


def saved(folder: Path, kind: str, form: str = "encoder", **settings: Any) -> Path:
    """A run of it on disk."""
    made = bundle(kind, form, **settings)
    made.save(folder)
    if kind in ("classes", "tags"):
        write_labels(folder, [f"{kind[0]}{k}" for k in range(4)])
    return folder


def classifier(form: str = "encoder", **settings: Any) -> Classifier:
    return Classifier(bundle("classes", form, **settings).model, TOKENIZER, "abcd", MOST)  # type: ignore[arg-type]


def tagger(form: str = "encoder", tags: Sequence[str] = "abcd", most: int = MOST) -> Tagger:
    return Tagger(bundle("tags", form).model, TOKENIZER, tags, most)  # type: ignore[arg-type]


def embedder(form: str = "encoder", **settings: Any) -> Embedder:
    return Embedder(bundle("vector", form, **settings).model, TOKENIZER, MOST)  # type: ignore[arg-type]


# -- classes -----------------------------------------------------------------------------------------------


@FORMS
def test_classes_are_the_models_own(form: str) -> None:
    """The ids are built here by hand: [CLS] a [SEP] b [SEP] with types 0 … 1, or bos a eos b eos."""
    own = classifier(form)
    begin, end = (2, 3) if form == "decoder" else map(TOKENIZER.symbol_id, ("[CLS]", "[SEP]"))
    first, second = TOKENIZER.encode("two"), TOKENIZER.encode("cats!")
    for text, ids, types in (
        ("two", [begin, *first, end], [0] * 5),
        (("two", "cats!"), [begin, *first, end, *second, end], [0] * 5 + [1] * 6),
    ):
        from triptych import Layout

        logits = own.reader.model(torch.tensor([ids]), Layout.full(1, len(ids)), torch.tensor([types]))[0]
        p = logits.softmax(-1).tolist()
        (found,) = own.classify([text])  # type: ignore[list-item]
        assert found.probabilities == pytest.approx(dict(zip("abcd", p, strict=True)), abs=1e-6)
        assert found.label == "abcd"[int(logits.argmax())] == next(iter(found.probabilities))
        assert found.probability == max(found.probabilities.values())
        assert list(found.probabilities.values()) == sorted(found.probabilities.values(), reverse=True)


@FORMS
def test_a_class_does_not_depend_on_its_neighbours(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = classifier(form)
    together = own.classify(TEXTS)
    alone = [own.classify([text])[0] for text in TEXTS]
    turned = own.classify(TEXTS[::-1])[::-1]
    monkeypatch.setattr(rows_module, "TOKENS", 1)
    single = own.classify(TEXTS)
    for n in range(len(TEXTS)):
        for other in (alone[n], turned[n], single[n]):
            assert (other.label, other.cut) == (together[n].label, together[n].cut)
            assert other.probabilities == pytest.approx(together[n].probabilities, abs=1e-5)
    assert together[0] == together[5]


def test_blank_texts_have_no_class_and_long_ones_are_known_to_be_cut() -> None:
    own = classifier()
    found = own.classify([*TEXTS, ("", " "), ("", "a"), ("ab" * 6, "cd" * 6)])
    assert len(found) == 11
    assert [n for n, c in enumerate(found) if c is BLANK] == [2, 6, 8]
    assert [n for n, c in enumerate(found) if c.cut] == [3, 7, 10]


def test_what_is_cut_is_the_end() -> None:
    """The same as without it; of two texts the end of the longer one."""
    own, letters = classifier(), "abcdefghijklmnopqrstuvwxyz"
    for long, short in (
        (letters, letters[:20]),
        ((letters, "xyz"), (letters[:17], "xyz")),
        (("xyz", letters), ("xyz", letters[:17])),
    ):
        (cut,), (whole,) = own.classify([long]), own.classify([short])  # type: ignore[list-item]
        assert (cut.cut, whole.cut) == (True, False)
        assert cut.probabilities == pytest.approx(whole.probabilities, abs=1e-6)


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_longer_of_two_texts_is_cut(a: int, b: int) -> None:
    reader = classifier().reader
    row = reader.row([[5] * a, [6] * b])
    x, y = map(len, row.texts)
    assert (x, y) == (a, b) if a + b <= MOST else x + y == MOST
    assert row.cut == (a + b > MOST)
    assert x == a or x >= y - 1, "a text is cut only where it is not the shorter one"
    assert y == b or y >= x - 1


@pytest.mark.parametrize("texts", [1, 2])
def test_positions_are_enough(texts: int) -> None:
    """A table of positions shorter than ``max_length`` bounds the row, its specials included."""
    own = classifier(position={"kind": "learned", "max": 12})
    text = ("x" * 40,) * texts
    (found,) = own.classify([text[0] if texts == 1 else text])  # type: ignore[list-item]
    assert found.cut and own.reader.frame.size(own.reader.row([[5] * 40] * texts).texts) == 12


@pytest.mark.parametrize(
    ("texts", "what", "where"),
    [
        ("two cats", "letter by letter", ""),
        (["fine", 3], "no text", "line 2"),
        (["fine", "a\ud83d"], "half of a pair", "line 2"),
        ([("a", "b"), ("c", 4)], "no text", "line 2"),
    ],
)
def test_what_is_no_text_is_refused(texts: Any, what: str, where: str) -> None:
    with pytest.raises(UserError, match=what) as caught:
        classifier().classify(texts)
    assert caught.value.where == where


def test_reading_leaves_the_model_as_it_was() -> None:
    own = classifier(dropout=0.5)
    own.reader.model.train()
    assert own.classify(["two"]) == own.classify(["two"]), "dropout is off while it reads"
    assert own.reader.model.training


def test_a_failed_reading_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    own = classifier(dropout=0.5)
    own.reader.model.train()

    def failed(*_: object) -> None:
        assert not own.reader.model.training
        raise RuntimeError

    monkeypatch.setattr(own.reader.model, "forward", failed)
    with pytest.raises(RuntimeError):
        own.classify(["two"])
    assert own.reader.model.training


def test_a_word_that_is_no_text_is_named_by_its_sentence() -> None:
    with pytest.raises(UserError, match="no text") as caught:
        tagger().tag([["a"], ["two", 3]], first=10)  # type: ignore[list-item]
    assert caught.value.where == "sentence 12, word 2"


# -- tags --------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 8), max_size=40), st.integers(8, 20))
def test_windows_tag_every_word_once(lengths: list[int], room: int) -> None:
    tagged = []
    for (start, stop), (first, last) in windows(lengths, room):
        assert sum(lengths[start:stop]) <= room, "it fits"
        assert start <= first <= last <= stop, "what it tags it reads"
        tagged += range(first, last)
    assert tagged == list(range(len(lengths)))


@given(st.integers(1, 60), st.integers(4, 20))
def test_windows_give_context(words: int, room: int) -> None:
    """Away from the ends of the sentence a word is read with an eighth of the room on each side, about."""
    for (start, stop), (first, last) in windows([1] * words, room):
        assert start == 0 or first - start >= room // 8 - 1
        assert stop == words or stop - last >= room // 8 - 1


@FORMS
def test_tags_are_those_at_first_pieces(form: str) -> None:
    from triptych import Layout

    own = tagger(form)
    begin, end = (2, 3) if form == "decoder" else map(TOKENIZER.symbol_id, ("[CLS]", "[SEP]"))
    words = ["the", "cats", "are", "up"]
    ids = [begin, *(i for w in words for i in TOKENIZER.encode(w)), end]
    logits = own.reader.model(torch.tensor([ids]), Layout.full(1, len(ids)))[0]
    wanted = ["abcd"[int(logits[slot].argmax())] for slot in (1, 4, 8, 11)]
    assert own.tag([words]) == [wanted]
    assert len({tags[0] for tags in own.tag([[w] for w in TEXTS if w.strip()])}) > 1, "not one tag for all"


@FORMS
def test_tags_do_not_depend_on_neighbours(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tagger(form)
    sentences = [
        ["two", "cats"],
        [],
        ["a"],
        ["word"] * 30,
        ["seven", "birds", "x" * 70, "fly"],
        ["two", "cats"],
    ]
    together = own.tag(sentences)
    assert [len(tags) for tags in together] == [len(words) for words in sentences]
    assert all(tag in "abcd" and tag for tags in together for tag in tags)
    assert together == [own.tag([words])[0] for words in sentences] == own.tag(sentences[::-1])[::-1]
    monkeypatch.setattr(rows_module, "TOKENS", 1)
    assert own.tag(sentences) == together


def test_a_sentence_that_fits_is_read_whole() -> None:
    assert list(windows([2, 1, 17], 20)) == [((0, 3), (0, 3))]
    assert len(list(windows([2, 1, 18], 20))) == 2
    assert list(windows([], 20)) == []


def test_a_word_is_tagged_in_the_window_that_is_its_own() -> None:
    """A sentence of two windows, each read here by itself."""
    own = tagger()
    words = [f"w{n % 7}" for n in range(15)]  # two bytes each: ten fit
    (whole,) = own.tag([words])
    found = [
        own.tag([words[start:stop]])[0][a - start : b - start]
        for (start, stop), (a, b) in windows([2] * 15, MOST)
    ]
    assert len(found) == 2 and whole == [*found[0], *found[1]]


def test_tags_that_mark_no_spans_are_not_mended() -> None:
    """A name of a part of speech may look like one of a span."""
    words = [[c, c * 2, c] for c in "abcdefghijkl"]
    own = tagger(tags=["NOUN", "I-X", "I-Y", "VERB"])
    said = own.tag(words)
    assert any(tags[0].startswith("I-") for tags in said), "or there would be nothing to mend"
    assert own.tag(words, repair=True) == said


def test_tags_are_repaired_on_request() -> None:
    own = tagger(tags=["O", "I-X", "I-Y", "B-X"])
    sentences = [[*"abcdefghijk"], ["zz", "yy", "xx", "cats"]]
    plain = own.tag(sentences)
    assert own.tag(sentences, repair=True) == [repaired(tags) for tags in plain] != plain


def test_an_empty_word_is_refused_by_place() -> None:
    with pytest.raises(UserError, match="empty") as caught:
        tagger().tag([["fine"], ["two", ""]], first=4)
    assert caught.value.where == "sentence 6, word 2"
    with pytest.raises(UserError, match="letter by letter"):
        tagger().tag(["two cats"])  # type: ignore[list-item]


# -- vectors -----------------------------------------------------------------------------------------------


@FORMS
def test_vectors_have_length_one(form: str) -> None:
    vectors, cut = embedder(form).embed_noting_cuts(TEXTS)
    assert vectors.dtype == np.float32 and vectors.shape == (8, 16) and cut == [3, 7]
    blank = [not text.strip() for text in TEXTS]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([0.0 if b else 1.0 for b in blank], abs=1e-6)


@FORMS
def test_a_vector_does_not_depend_on_its_neighbours(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = embedder(form)
    together = own.embed(TEXTS)
    np.testing.assert_allclose(together, np.concatenate([own.embed([t]) for t in TEXTS]), atol=1e-5)
    monkeypatch.setattr(rows_module, "TOKENS", 1)
    np.testing.assert_allclose(together, own.embed(TEXTS[::-1])[::-1], atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 1e-3, "texts differ"


def test_vectors_are_the_models_output_over_its_length() -> None:
    own = embedder()
    frame = own.reader.frame.read([[TOKENIZER.encode("two cats")]])
    raw = own.reader.model(*frame)[0].detach().numpy()
    np.testing.assert_allclose(own.embed(["two cats"])[0], raw / np.linalg.norm(raw), atol=1e-6)


def test_search_finds_the_nearest_in_order() -> None:
    own = embedder()
    vectors = own.embed(TEXTS)
    found = own.search("two cats", vectors, top=4)
    scores = vectors @ own.embed(["two cats"])[0]
    assert [f.number for f in found[:2]] == [0, 5], "itself twice, in order"
    assert found[0].score == pytest.approx(1, abs=1e-5)
    filled = [i for i, text in enumerate(TEXTS) if text.strip()]
    assert {f.number for f in found} == set(sorted(filled, key=lambda i: -scores[i])[:4])
    assert len(own.search("two cats", vectors, top=50)) == 6, "blank lines are never found"
    with pytest.raises(UserError, match="nothing to search for"):
        own.search(" ", vectors)


def test_nothing_in_nothing_out() -> None:
    assert classifier().classify([]) == [] and tagger().tag([]) == []
    assert embedder().embed([]).shape == (0, 16)


# -- files -------------------------------------------------------------------------------------------------


def test_a_run_goes_to_disk_and_back(tmp_path: Path) -> None:
    run = load(saved(tmp_path, "classes"))
    assert run.classifier.labels == ("c0", "c1", "c2", "c3")
    assert run.classifier.classify(["two"])[0].label in run.classifier.labels
    assert run.texts == 1
    (tmp_path / "data.json").write_text('{"texts_each": 2}')
    assert run.texts == 2


@pytest.mark.parametrize("labels", [["b", "a", "O"], ["é", "猫", 'a "b"\n'], []])
def test_labels_keep_their_order(labels: list[str], tmp_path: Path) -> None:
    write_labels(tmp_path, labels)
    assert read_labels(tmp_path, len(labels)) == tuple(labels)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "lacks labels.json"),
        ("[", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"a": 1}', "no list of names"),
        ('["a", 2]', "no list of names"),
        ('["a", "a"]', "twice"),
        ('["a", "b", "c"]', "3 names for the model's 2 outputs"),
    ],
)
def test_labels_that_do_not_fit_are_refused(content: str | None, what: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "labels.json").write_text(content)
    with pytest.raises(UserError, match=what) as caught:
        read_labels(tmp_path, 2)
    assert str(tmp_path) in caught.value.where and caught.value.mend


USES = {"classes": "classifier", "tags": "tagger", "vector": "embedder"}


@pytest.mark.parametrize("kind", [*USES, "vocabulary"])
@pytest.mark.parametrize("form", ["encoder", "decoder"])
def test_another_run_names_its_command(kind: str, form: str) -> None:
    command = {"classes": "classify", "tags": "tag", "vector": "embed"}.get(
        kind, "fill" if form == "encoder" else "generate"
    )
    made = bundle(kind, form)
    for wanted, use in USES.items():
        if wanted != kind:
            with pytest.raises(UserError, match=f"is {kind}, and {wanted} is needed") as caught:
                getattr(made, use)
            assert f"`triptych {command}`" in caught.value.mend


def npy(path: Path, array: Any) -> Path:
    with path.open("wb") as file:
        np.save(file, array)
    return path


GOOD = np.eye(3, 4, dtype=np.float32)


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.where(np.eye(3, 4, k=1) > 0, np.nan, GOOD), "vector 1 holds what is no number"),
        (np.where(np.eye(3, 4, k=-1) > 0, np.inf, GOOD), "vector 2 holds what is no number"),
        (GOOD * [[1], [1], [2]], "vector 3 has length 2"),
        (GOOD[:2], "2 vectors for 3 lines"),
        (GOOD[:, :3], "3 numbers a vector, and the model's have 4"),
        (GOOD[0], "no table"),
        (GOOD.astype(int), "no table"),
        (np.array([None]), "cannot be read"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(array: Any, what: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=what) as caught:
        read_vectors(npy(tmp_path / "v.npy", array), 3, 4)
    assert "triptych embed" in caught.value.mend


def test_files_that_are_no_vectors_are_refused(tmp_path: Path) -> None:
    for content in (b"", b"text", b"\x93NUMPY\x01\x00"):
        (tmp_path / "v.npy").write_bytes(content)
        with pytest.raises(UserError, match="cannot be read as an array"):
            read_vectors(tmp_path / "v.npy", 3, 4)
    np.savez(tmp_path / "v.npz", a=GOOD)
    with pytest.raises(UserError, match="no table"):
        read_vectors(tmp_path / "v.npz", 3, 4)


def test_vectors_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    vectors = np.concatenate([GOOD, np.zeros((1, 4), np.float32)])
    write_vectors(tmp_path / "v.npy", vectors)
    assert np.array_equal(read_vectors(tmp_path / "v.npy", 4, 4), vectors)
    assert [p.name for p in tmp_path.iterdir()] == ["v.npy"]
    with pytest.raises(UserError):
        write_vectors(tmp_path / "no" / "v.npy", vectors)


def test_labels_are_json(tmp_path: Path) -> None:
    write_labels(tmp_path, ["a", "猫"])
    assert json.loads((tmp_path / "labels.json").read_text(encoding="utf-8")) == ["a", "猫"]


def test_an_encoder_needs_its_symbols() -> None:
    plain: Tokenizer = train_tokenizer([""], kind="byte", size=300)
    with pytest.raises(UserError, match=r"\[CLS\]"):
        Embedder(bundle("vector").model, plain)  # type: ignore[arg-type]
