"""Training a vocabulary: its size, what it looks at, and that it says what it cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from triptych.errors import UserError
from triptych.text import vocabulary
from triptych.text.tokenizer import Tokenizer, train_tokenizer

KINDS = ("bpe", "unigram", "char", "byte", "bytebpe")
SYMBOLS = ("<|user|>", "[MASK]")
PLACES = (
    "harbour",
    "forest",
    "école",
    "вокзал",
    "市场",
    "office",
    "lighthouse",
    "Brücke",
    "terrace",
    "museum",
)
ACTIONS = (
    "we walked slowly past",
    "nobody has ever painted",
    "she sold",
    "on vend",
    "wir bauen",
    "他们离开了",
)
PROSE = [f"{n}: {action} the {place}, twice" for n, action in enumerate(ACTIONS * 9) for place in PLACES]

every_kind = pytest.mark.parametrize("kind", KINDS)


def train(lines: Sequence[str] = PROSE, kind: Any = "bpe", size: int = 400, **settings: Any) -> Tokenizer:
    return train_tokenizer(lines, kind=kind, size=size, shrink=True, **settings)


def test_digits_stand_alone() -> None:
    numbers = [f"{n} {n}" for n in range(100, 400)]
    for kind in ("bpe", "unigram"):
        apart, joined = train(numbers, kind, split_digits=True), train(numbers, kind, split_digits=False)
        longest = [
            max(sum(map(str.isdigit, piece)) for piece in tokenizer.pieces(range(260, tokenizer.size)))
            for tokenizer in (apart, joined)
        ]
        assert longest[0] == 1 < longest[1]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("symbols", [(), SYMBOLS])
def test_the_size_is_exact_and_the_bounds_are_named(kind: Any, symbols: Sequence[str]) -> None:
    def exactly(size: int) -> Tokenizer:
        return train_tokenizer(PROSE, kind=kind, size=size, symbols=symbols)

    assert exactly(325).size == 325
    for wrong, expected in ((10**6, "largest it gives is"), (270, "too small")):
        with pytest.raises(UserError, match=expected) as caught:
            exactly(wrong)
        bound = int("".join(filter(str.isdigit, caught.value.what.replace(str(wrong), ""))))
        assert str(bound) in caught.value.mend
        assert exactly(bound).size == bound
        with pytest.raises(UserError):
            exactly(bound + (1 if wrong > bound else -1))
    assert train_tokenizer(PROSE, kind=kind, size=10**6, symbols=symbols, shrink=True).size == (
        train(kind=kind, size=10**5, symbols=symbols).size
    )


@every_kind
@pytest.mark.parametrize("size", [-5, 0, 1, 4, 200, 259])
def test_a_vocabulary_without_room_is_refused(kind: Any, size: int) -> None:
    with pytest.raises(UserError, match=f"a vocabulary of {size} is too small"):
        train(kind=kind, size=size)


def test_for_characters_and_bytes_the_size_is_an_upper_bound() -> None:
    assert train_tokenizer([], kind="byte", size=8000).size == 260
    assert train_tokenizer(["abba"], kind="char", size=8000).size == 4 + 256 + 3


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char"])
@pytest.mark.parametrize(
    "lines",
    [["a"], ["one line of text"], ["The cat."] * 5, ["一", "二", "三", "四", "五"], [" "], ["\0", "\t"]],
)
def test_tiny_corpora_shrink(kind: str, lines: list[str]) -> None:
    tokenizer = train(lines, kind, 8000)
    assert 260 < tokenizer.size < 400
    for text in lines:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("lines", [[], [""], ["", ""]])
def test_no_text_is_an_error(lines: list[str]) -> None:
    with pytest.raises(UserError, match="no text to learn"):
        train(lines)


@pytest.mark.parametrize(
    ("setting", "place"),
    [({"kind": "bpa"}, "kind"), ({"coverage": 0.5}, "coverage"), ({"coverage": 1.5}, "coverage")],
)
def test_impossible_settings_are_named(setting: dict[str, Any], place: str) -> None:
    with pytest.raises(UserError) as caught:
        train(**setting)
    assert caught.value.where == f"text.tokenizer.{place}"


@pytest.mark.parametrize(
    "line", ["zebra " * 20_000, "zebra" * 20_000, "▅ zebra zebra zebra ▅", "zebra\nzebra\nzebra"]
)
def test_no_line_is_left_out_of_training(line: str) -> None:
    tokenizer = train([line], size=300)
    assert any("zebra" in piece for piece in tokenizer.pieces(range(260, tokenizer.size)))


def test_one_endless_line_trains() -> None:
    # Uncut, its probability underflows in SentencePiece's Unigram training.
    rng = Random(0)
    line = "".join(rng.choices("一丁七万丈三上下不与丐丑专且世", k=200_000))
    assert train([line], "unigram").size >= 4 + 256 + 16


def test_a_huge_corpus_is_sampled_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [chr(0x4E00 + n) * 2 for n in range(2_000)]
    monkeypatch.setattr(vocabulary, "SAMPLE", 400)
    tokenizer = train(iter(words), "char", 5_000, coverage=1.0)
    again = train(iter(words), "char", 5_000, coverage=1.0)
    kept = [n for n, word in enumerate(words) if len(tokenizer.encode(word)) == 3]
    assert len(kept) == 400
    for quarter in range(4):
        assert 60 < sum(quarter * 500 <= n < (quarter + 1) * 500 for n in kept) < 140
    assert again.fingerprint == tokenizer.fingerprint


@every_kind
def test_training_is_deterministic_and_the_fingerprint_tells_settings_apart(kind: str) -> None:
    one, again = train(kind=kind), train(kind=kind)
    assert one.fingerprint == again.fingerprint
    assert one.encode_batch(PROSE) == again.encode_batch(PROSE)
    others = [
        train(kind=kind, **settings).fingerprint
        for settings in ({"symbols": SYMBOLS}, {"split_digits": True})
    ]
    assert len({one.fingerprint, *others}) == 3
    if kind != "byte":
        assert train(PROSE[:-20], kind).fingerprint != one.fingerprint


def test_training_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    for kind in KINDS:
        train(kind=kind)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
