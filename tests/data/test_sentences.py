"""Long texts in pieces: lossless, each fits, cut where a reader would, with few calls."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text.files import read_lines
from triptych.text.graphemes import is_boundary
from triptych.text.sentences import join, split_long

TRICKY = "ab. !?。！…，, \n\t\"”)'\u0301\u200d\u200c\ufe0f👨👩🏽🇫🇷क्षि가각ᄀᄀ\u1161\u11a8เก็\u0e33\r؟।字A1"
TEXT = st.text(st.sampled_from(TRICKY) | st.characters(exclude_categories=["Cs"]), max_size=200)


def at_most(characters: int) -> Callable[[str], bool]:
    return lambda piece: len(piece) <= characters


def bytes_at_most(size: int) -> Callable[[str], bool]:
    return lambda piece: len(piece.encode()) <= size


class Counted:
    """A limit that counts how often, and on how much text, it is asked."""

    def __init__(self, fits: Callable[[str], bool]) -> None:
        self.fits, self.calls, self.characters = fits, 0, 0

    def __call__(self, piece: str) -> bool:
        self.calls += 1
        self.characters += len(piece)
        return self.fits(piece)


@given(TEXT, st.integers(4, 60))
def test_pieces_are_lossless_and_fit(text, limit):
    fits = bytes_at_most(limit)
    pieces = split_long(text, fits)
    assert "".join(pieces) == text
    assert all(map(fits, pieces))
    assert all(pieces) or text == ""
    assert (len(pieces) == 1) == fits(text)


@given(TEXT, st.integers(1, 30), st.integers(2, 7))
def test_a_limit_that_is_not_monotone_is_kept_too(text, limit, odd):
    def fits(piece: str) -> bool:  # as a tokenizer for which a longer piece may be cheaper
        return len(piece) + (3 if len(piece) % odd == 0 and len(piece) > 1 else 0) <= limit

    pieces = split_long(text, fits)
    assert "".join(pieces) == text
    assert all(map(fits, pieces))


def test_a_better_place_that_does_not_fit_is_passed_over():
    def no_space(piece: str) -> bool:
        return len(piece) <= 12 and not piece.endswith(" ")

    assert split_long("aaaa bbbb cccc dddd", no_space) == ["aaaa bbbb cc", "cc dddd"]

    def not_six(piece: str) -> bool:
        return len(piece) <= 7 and len(piece) != 6

    pieces = split_long("e\u0301" * 5, not_six)
    assert all(map(not_six, pieces)) and len(pieces[0]) == 7


@given(TEXT, st.integers(1, 30))
def test_clusters_are_cut_only_where_they_do_not_fit(text, limit):
    """Judged by an independent reading of the Unicode annex, the ``regex`` package."""
    regex = pytest.importorskip("regex")
    pieces = split_long(text, at_most(limit))
    ends = {match.end() for match in regex.finditer(r"\X", text)}
    position = 0
    for piece in pieces[:-1]:
        start, position = position, position + len(piece)
        if position not in ends:
            first = min((end for end in ends if end > start), default=0)
            assert first - start > limit or not any(
                is_boundary(text, i, start) for i in range(start + 1, position)
            )


@given(st.text(st.sampled_from(TRICKY) | st.characters(exclude_categories=["Cs", "Cn"])))
def test_every_boundary_is_one_of_the_annex(text):
    regex = pytest.importorskip("regex")
    ends = {0, *(match.end() for match in regex.finditer(r"\X", text))}
    assert {i for i in range(len(text) + 1) if is_boundary(text, i)} <= ends


@pytest.mark.parametrize(
    "whole",
    [
        "e\u0301",
        "👨‍👩‍👧‍👦",
        "👍🏽",
        "🇫🇷",
        "한",
        "각",
        "\r\n",
        "क्षि",
        "เก็",
        "ทำ",
        "ශ්‍රී",
        "க்ஷ",
        "🏴\U000e0067\U000e007f",
        "。\u0301",
        "‼\ufe0f",
        " \u0301",
    ],
)
def test_one_character_for_a_reader_is_not_cut(whole):
    for limit in range(len(whole), 4 * len(whole) + 3):
        pieces = split_long(whole * 40, at_most(limit))
        assert all(piece == whole * (len(piece) // len(whole)) for piece in pieces)
    assert not any(is_boundary("a" + whole + "b", i) for i in range(2, len(whole) + 1))


@pytest.mark.parametrize(
    ("text", "limit", "pieces"),
    [
        ("One. Two, three four. Five", 20, ["One. ", "Two, three four. ", "Five"]),
        ("He said “no.” Then, he left.", 22, ["He said “no.” ", "Then, he left."]),
        ("Pi is 3.14 and e is 2.718, more or less", 30, ["Pi is 3.14 and e is 2.718, ", "more or less"]),
        ("See J. Smith now. Or later on", 25, ["See J. Smith now. ", "Or later on"]),
        ("We saw J. Smithson-Miller", 20, ["We saw J. ", "Smithson-Miller"]),
        ("Costs approx. five euros, not ten", 28, ["Costs approx. five euros, ", "not ten"]),
        ("你好。我来了！“真的吗？”他说，是的", 10, ["你好。我来了！", "“真的吗？”", "他说，是的"]),
        ("هل أنت هنا؟ نعم، أنا هنا", 15, ["هل أنت هنا؟ ", "نعم، أنا هنا"]),
        ("वह आया। वह गया। फिर", 17, ["वह आया। वह गया। ", "फिर"]),
        ("first line\nsecond line", 15, ["first line\n", "second line"]),
        ("aaaa bbbb cccc", 11, ["aaaa bbbb ", "cccc"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("What?! No... Yes", 12, ["What?! ", "No... Yes"]),
        ("Stop. Now", 100, ["Stop. Now"]),
        ("", 0, [""]),
    ],
)
def test_where_it_cuts(text, limit, pieces):
    assert split_long(text, at_most(limit)) == pieces


def test_sentence_ends_are_preferred_to_longer_pieces():
    text = "A short one. " + "Word " * 30 + "end, and more. " + "x" * 30
    assert split_long(text, at_most(60))[0] == "A short one. "


@pytest.mark.parametrize(
    "text",
    [
        "A sentence of some words, as they come. " * 2500,
        "这是一个句子，有一些字。" * 8500,
        "x" * 100_000,
        "." * 100_000,
        ".)" * 50_000,
        " " * 100_000,
        ", " * 50_000,
        "a\u0301" * 50_000,
        "\u0301" * 100_000,
        "🇫🇷" * 50_000,
        "क्" * 50_000,
        "。\u0301" * 50_000,
        "\r\n" * 50_000,
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_long_lines_take_few_calls(text):
    fits = Counted(bytes_at_most(1000))
    pieces = split_long(text, fits)
    assert "".join(pieces) == text
    assert all(len(piece.encode()) <= 1000 for piece in pieces)
    assert fits.calls <= 6 * len(pieces) + 20
    assert fits.characters <= 8 * len(text)
    # Not many more pieces than needed.
    assert len(pieces) <= 1.5 * len(text.encode()) / 1000 + 1


def test_a_limit_below_one_character_is_refused():
    with pytest.raises(UserError, match="single character '好'"):
        split_long("a 好", bytes_at_most(2))
    with pytest.raises(UserError):
        split_long("abc", lambda piece: False)


@given(
    st.lists(st.text(st.sampled_from("ab 。你.\n"), max_size=4)), st.sampled_from(["en", "zh", "", "th-TH"])
)
def test_join_adds_only_single_spaces_between_pieces(pieces, language):
    joined = join(pieces, language)
    solid = re.sub(r"\s", "", "".join(pieces))
    assert re.sub(r"\s", "", joined) == solid
    filled = [piece for piece in pieces if piece]
    assert len("".join(filled)) <= len(joined) <= len("".join(filled)) + max(len(filled) - 1, 0)
    if not any(" " in piece for piece in pieces):
        assert "  " not in joined


@pytest.mark.parametrize(
    ("pieces", "language", "joined"),
    [
        (["One.", "Two."], "en", "One. Two."),
        (["One. ", "Two."], "en", "One. Two."),
        (["One.", "", "\nTwo."], "de", "One.\nTwo."),
        (["你好。", "再见。"], "zh", "你好。再见。"),
        (["你好。", "再见。"], "zh-Hant-TW", "你好。再见。"),
        (["你好。", "再见。"], "zho_Hans", "你好。再见。"),
        (["はい。", "いいえ。"], "JA", "はい。いいえ。"),
        (["买 iPhone", "Pro 15", "吗"], "zh", "买 iPhone Pro 15吗"),
        (["한국.", "어."], "ko", "한국. 어."),
        (["x", "y"], "", "x y"),
        ([], "en", ""),
    ],
)
def test_join(pieces, language, joined):
    assert join(pieces, language) == joined


@pytest.mark.parametrize(
    "name", ["floresv1_si_en/dev.si-en.si", "tatoeba_eng_cmn/cmn.txt", "lowres_eng_yor/dev.yor"]
)
def test_real_text_in_one_long_line(data_folder, name):
    text = " ".join(read_lines(data_folder / name)[:800])
    fits = Counted(bytes_at_most(500))
    pieces = split_long(text, fits)
    assert "".join(pieces) == text
    assert all(len(piece.encode()) <= 500 for piece in pieces)
    assert fits.calls <= 10 * len(pieces) + 20
    assert not any(unicodedata.category(piece[0]).startswith("M") for piece in pieces)
