"""Pieces of text: joined they are the whole, and none of them is taken back."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.engine.stream import Spoken, Until, Written
from triptych.text import Tokenizer, train_tokenizer
from triptych.text.vocabulary import EOS, UNK

TEXT = ["the cat sat on the mat", "日本語 ▁ und Öl", "a\nb  c", "emoji 😀 \x1b_ and \x1b\x1b", "\ufffd odd"]
SYMBOLS = ("<|im_start|>", "<|im_end|>")
KINDS = ("byte", "bpe", "unigram", "char", "bytebpe")


@cache
def tokenizer(kind: str) -> Tokenizer:
    return train_tokenizer(TEXT, kind=kind, size=400, shrink=True, symbols=SYMBOLS)  # type: ignore[arg-type]


@st.composite
def spoken(draw: st.DrawFn) -> tuple[Tokenizer, list[int], list[int]]:
    """A tokenizer, what stands before, and what is said: any ids, with many bytes of broken characters."""
    made = tokenizer(draw(st.sampled_from(KINDS)))
    parts = ["日本", "😀", "\x1b_", "▁", " ", "a\n", "\x1b", "\ufffd", "é"]
    whole = st.sampled_from(parts).flatmap(
        lambda part: st.integers(0, 8).map(lambda cut: made.encode(part)[: cut + 1])
    )
    some = st.lists(st.integers(4, made.size - 1), min_size=1, max_size=3) | whole | st.just([UNK])
    ids = [i for run in draw(st.lists(some, max_size=8)) for i in run]
    before = made.encode(draw(st.sampled_from(["", "the", "the ", "日", "\x1b", "\ufffd", "▁"])))
    start = draw(st.sampled_from([[], [2], [made.size - 1]]))
    return made, [*start, *before], ids


@given(spoken())
def test_pieces_are_the_text(case: tuple[Tokenizer, list[int], list[int]]) -> None:
    made, before, ids = case
    whole = made.decode([*before, *ids])[len(made.decode(before)) :]
    speaker, said = Spoken(made, before), ""
    for i in ids:
        said += speaker.add(i)
        assert whole.startswith(said), "a piece was taken back"
    assert said + speaker.end() == whole


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_character_waits(kind: str) -> None:
    made = tokenizer(kind)
    speaker = Spoken(made, made.encode("the"))
    said = [speaker.add(i) for i in made.encode("the🦊a")[len(made.encode("the")) :]]
    assert said == ["", "", "", "🦊", "a"]


def test_bytes_that_are_no_character_come_in_the_end() -> None:
    made = tokenizer("byte")
    broken = [4 + b for b in "é😀".encode()[:-1]]
    speaker = Spoken(made, [])
    assert [speaker.add(i) for i in broken] == ["", "é", "", "", ""]
    assert speaker.add(4 + ord("a")) == "\ufffda"
    assert speaker.add(4 + 0xFF) == "" and speaker.end() == "\ufffd"


@pytest.mark.parametrize("kind", KINDS)
def test_long_texts_cost_no_more(kind: str) -> None:
    """What is decoded anew is what may still change, not all that was said."""
    made = tokenizer(kind)
    speaker = Spoken(made, made.encode("the cat"))
    for i in made.encode(" sat on the mat") * 20:
        speaker.add(i)
        assert speaker.ids == [i]


# -- stop texts

LETTERS = st.text("ab\n", max_size=12)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3)


def until_by_letter(text: str, stops: list[str]) -> tuple[str, bool]:
    """Letter by letter: what is before the first stop text that is complete, the longest of those."""
    for end in range(1, len(text) + 1):
        if met := [stop for stop in stops if text[:end].endswith(stop)]:
            return text[: end - max(map(len, met))], True
    return text, False


@given(st.lists(LETTERS, max_size=6), STOPS)
def test_until_is_its_definition(pieces: list[str], stops: list[str]) -> None:
    want, found = until_by_letter("".join(pieces), stops)
    until, said = Until(stops), ""
    for piece in pieces:
        said += until.add(piece)
        assert want.startswith(said), "part of a stop text was given out"
        if until.found:
            break
    assert (said + until.end(), until.found) == (want, found)


@given(LETTERS, STOPS)
def test_nothing_waits_that_can_be_no_stop(text: str, stops: list[str]) -> None:
    until = Until(stops)
    given_out = until.add(text)
    if not until.found:
        held = text[len(given_out) :]
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)


def written(text: str, stops: tuple[str, ...] = (), limit: int = 99) -> Written:
    made = tokenizer("byte")
    out = Written(Spoken(made, []), Until(stops), (EOS,), limit)
    for i in [4 + b for b in text.encode()]:
        out.take(i)
        if out.reason:
            return out
    out.take(EOS)
    return out


def test_reasons() -> None:
    for out, text, reason, ids in (
        (written("abc"), "abc", "eos", 3),
        (written("abcabc", limit=4), "abca", "length", 4),
        (written("abcabc", ("ca",)), "ab", "stop", 4),
        (written("abcab", ("abx",)), "abcab", "eos", 5),  # what waited comes in the end
        (written("abca", ("ca",), limit=4), "ab", "stop", 4),  # a stop text goes before the limit
        (written("é", limit=1), "\ufffd", "length", 1),
        (written("é", ("\ufffd",), limit=1), "", "stop", 1),
    ):
        assert (out.text, out.reason, len(out.ids)) == (text, reason, ids)
