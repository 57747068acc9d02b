"""Holes in texts: what is read, what is guessed, and that neighbours change nothing."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych.config import ModelConfig, RunConfig
from triptych.engine import Bundle, Filler
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import EncoderOnly, build
from triptych.text import Tokenizer, train_tokenizer

SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
TEXT = ["the cat sat on the mat", "the dog sat on the cat", "a cat and a dog"]
KINDS = ("bpe", "unigram", "char", "byte", "bytebpe")


@cache
def tokenizer(kind: str = "bpe") -> Tokenizer:
    return train_tokenizer(TEXT, kind=kind, size=340, shrink=True, symbols=SYMBOLS)  # type: ignore[arg-type]


@cache
def filler(kind: str = "bpe", position: str = "rope", **more: Any) -> Filler:
    data: dict[str, Any] = {"form": "encoder", "dim": 16, "layers": 2, "heads": 2, "ffn": {"dim": 16}}
    made = build(
        ModelConfig.parse({**data, "position": position, "vocab": tokenizer(kind).size, **more}), seed=3
    )
    assert isinstance(made, EncoderOnly)
    return Filler(made.double().eval(), tokenizer(kind))


WORDS = st.sampled_from(["the", "cat", "[MASK]", " ", "[CLS]", "é", "[SEP]", "[MASK] "])
texts = st.lists(WORDS, max_size=6).map(lambda words: " ".join(["[MASK]", *words]))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(st.lists(texts, max_size=4))
def test_each_hole_of_each_text_and_no_neighbour_counts(kind: str, asked: list[str]) -> None:
    found = filler(kind).fill(asked, top=3)
    assert len(found) == len(asked)
    for text, holes in zip(asked, found, strict=True):
        assert [len(guesses) for guesses in holes] == [3] * text.count("[MASK]")
        ((alone),) = filler(kind).fill([text], top=3)
        for one, other in zip(holes, alone, strict=True):
            assert [g.piece for g in one] == [g.piece for g in other]
            assert [g.text for g in one] == [g.text for g in other]
            assert [g.probability for g in one] == pytest.approx([g.probability for g in other], abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_guesses_are_the_models(kind: str) -> None:
    """All of them: the probabilities of one pass, but for specials and symbols, in falling order."""
    made, one = tokenizer(kind), filler(kind)
    (holes,) = one.fill(["the [MASK] sat"], top=10**6)
    before = made.encode("the" if kind not in ("char", "byte") else "the ")
    ids = [made.symbol_id("[CLS]"), *before, made.symbol_id("[MASK]"), *made.encode(" sat", begins=False)]
    ids.append(made.symbol_id("[SEP]"))
    with torch.inference_mode():
        p = one.model(torch.tensor([ids]), Layout.full(1, len(ids)))[0, 1 + len(before)].softmax(-1)
    words = range(4, made.size - len(SYMBOLS))
    assert len(holes[0]) == len(words)
    want = sorted(((float(p[i]), made.pieces([i])[0]) for i in words), reverse=True)
    assert [g.probability for g in holes[0]] == pytest.approx([value for value, _ in want], abs=1e-6)
    assert {g.piece for g in holes[0]} == {piece for _, piece in want}


def test_the_blank_before_a_hole_belongs_to_what_is_missing() -> None:
    """As the tokens of a text are cut, so that a guess of a whole word makes the whole text."""
    one, made = filler(), tokenizer()
    whole = [made.symbol_id("[CLS]"), *made.encode("the cat sat"), made.symbol_id("[SEP]")]
    assert len(made.encode("the cat sat")) == 3
    for at, text in ((1, "[MASK] cat sat"), (2, "the [MASK] sat"), (3, "the cat [MASK]")):
        want = [made.symbol_id("[MASK]") if n == at else i for n, i in enumerate(whole)]
        assert one._encode(text, "") == want
        (holes,) = one.fill([text], top=10**6)
        assert "the cat sat" in {g.text for g in holes[0]}


def test_other_holes_stay_in_the_text() -> None:
    (holes,) = filler().fill(["the [MASK] sat on[MASK]"], top=1)
    first, second = (guesses[0].text for guesses in holes)
    assert first.endswith(" sat on[MASK]") and second.startswith("the[MASK] sat on")


def test_only_mask_is_a_symbol() -> None:
    made = tokenizer()
    ids = filler()._encode("[CLS] [MASK] [SEP]", "")
    assert [ids.count(made.symbol_id(name)) for name in SYMBOLS] == [1, 1, 1]


def test_refused() -> None:
    for texts, what, where in (
        (["[MASK]", "none"], r"no \[MASK\] in this text", "line 2"),
        (["[MASK]", ""], r"no \[MASK\] in this text", "line 2"),
        (["[mask]"], r"no \[MASK\] in this text", "line 1"),
        ("[MASK]", "letter by letter", ""),
        (["[MASK]", None], "no text", "line 2"),
        (["[MASK]\ud83d"], "character 7", "line 1"),
    ):
        with pytest.raises(UserError, match=what) as caught:
            filler().fill(texts)  # type: ignore[arg-type]
        assert caught.value.where == where
    with pytest.raises(UserError, match="0 guesses"):
        filler().fill(["[MASK]"], top=0)
    assert filler().fill([]) == []


@pytest.mark.parametrize(
    "parts", [{"position": {"kind": "learned", "max": 8}}, {"mixer": {"kind": "linformer", "max": 8}}]
)
def test_positions_are_a_limit(parts: dict[str, Any]) -> None:
    data = {
        "form": "encoder",
        "dim": 16,
        "layers": 2,
        "heads": 2,
        "ffn": {"dim": 16},
        "vocab": tokenizer().size,
    }
    one = Filler(build(ModelConfig.parse({**data, **parts}), seed=3).eval(), tokenizer())  # type: ignore[arg-type]
    assert one.fill(["[MASK] the the the the the"])
    with pytest.raises(UserError, match=r"9 tokens with .* knows 8 positions") as caught:
        one.fill(["[MASK]", "[MASK] the the the the the the"])
    assert caught.value.where == "line 2"


def test_dropout_is_off_and_comes_back() -> None:
    one = filler(dropout=0.5)
    want = one.fill(["the [MASK]"])
    one.model.train()
    assert one.fill(["the [MASK]"]) == want and one.model.training


def test_decoders_name_their_command() -> None:
    data = {"form": "decoder", "dim": 8, "heads": 2, "layers": 1, "vocab": tokenizer().size}
    config = RunConfig.parse({"model": data, "objective": "causal"})
    with pytest.raises(UserError, match="only an encoder fills holes") as caught:
        Bundle(config, tokenizer(), build(config.model)).filler  # noqa: B018
    assert "triptych generate" in caught.value.mend
