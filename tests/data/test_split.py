"""Parts that share no sentence, drawn from content and seed alone."""

from __future__ import annotations

import random
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import triptych.text.split as split_module
from triptych.errors import UserError
from triptych.text.pairs import read_aligned, read_pairs
from triptych.text.split import group_split, overlap, text_key

WORDS = st.sampled_from(
    ["Hi.", "hi", " HI!", "你好。", "你好", "Run", "run?", "Ｒｕｎ", "...", "…", "", " ", "a b", "ab"]
)
PAIRS = st.lists(st.tuples(WORDS | st.text(max_size=4), WORDS), min_size=1, max_size=40)


def texts_of(pairs: list[tuple[str, str]], part: list[int]) -> set[str]:
    return {text_key(text) for index in part for text in pairs[index]} - {""}


@given(PAIRS, st.integers(0, 6), st.integers(0, 6), st.integers(-5, 5))
def test_parts_cover_everything_and_share_nothing(pairs, valid, test, seed):
    try:
        split = group_split(*zip(*pairs, strict=True), valid, test, seed)
    except UserError:
        assume(False)
    assert sorted(split.train + split.valid + split.test) == list(range(len(pairs)))
    assert len(split.valid) <= valid and len(split.test) <= test and split.train
    assert all(part == sorted(part) for part in (split.train, split.valid, split.test))
    parts = [texts_of(pairs, part) for part in (split.train, split.valid, split.test)]
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])


@given(PAIRS, st.integers(0, 5), st.randoms(use_true_random=False))
def test_order_of_the_pairs_does_not_matter(pairs, seed, draw):
    order = list(range(len(pairs)))
    draw.shuffle(order)
    moved = [pairs[i] for i in order]
    try:
        one, two = (group_split(*zip(*p, strict=True), 2, 2, seed) for p in (pairs, moved))
    except UserError:
        assume(False)
    for name in ("train", "valid", "test"):
        mine, theirs = getattr(one, name), getattr(two, name)
        assert Counter(pairs[i] for i in mine) == Counter(moved[i] for i in theirs)


def test_order_does_not_matter_within_chains_either():
    # Groups of three whose pairs share now a source, now a target; read backwards they join the other way.
    pairs = [
        (f"s {i // 3}" if i % 3 else f"a {i}", f"b {i // 3}" if i % 3 < 2 else f"t {i}") for i in range(300)
    ]
    forth = group_split(*zip(*pairs, strict=True), 30, 30, 1)
    back = group_split(*zip(*pairs[::-1], strict=True), 30, 30, 1)
    assert len(forth.test) == 30
    assert forth.test == sorted(299 - i for i in back.test)
    assert forth.valid == sorted(299 - i for i in back.valid)


def test_a_part_is_not_made_of_a_few_large_groups():
    source = [f"s {i // 15}" if i < 450 else f"s {i}" for i in range(900)]
    split = group_split(source, [f"t {i}" for i in range(900)], 100, 100, 0)
    assert len(split.valid) == len(split.test) == 100
    assert min(split.valid + split.test) >= 450
    # Where nothing else is left, they have to.
    assert 90 <= len(group_split(source[:450], [f"t {i}" for i in range(450)], 100, 0, 0).valid) <= 100


def test_singles_fill_the_parts_exactly_and_seeds_differ():
    source = [f"sentence {i}" for i in range(1000)]
    target = [f"satz {i}" for i in range(1000)]
    one, two = group_split(source, target, 100, 50, 1), group_split(source, target, 100, 50, 2)
    assert (len(one.train), len(one.valid), len(one.test)) == (850, 100, 50)
    assert one == group_split(source, target, 100, 50, 1)
    assert one.test != two.test
    assert group_split(source, target, 0, 0, 1).train == list(range(1000))


def test_chains_and_giants_stay_together_in_train():
    # 0-1 share a source, 1-2 a target, 2-3 a text on opposite sides; 300 pairs hang on one greeting.
    source = ["Hi.", "hi", "Hello", "a", *["Good day"] * 300, *[f"single {i}" for i in range(60)]]
    target = [
        "嗨",
        "你好",
        "你好！",
        "hello",
        *[f"{i} 日" for i in range(300)],
        *[f"einzeln {i}" for i in range(60)],
    ]
    for seed in range(20):
        split = group_split(source, target, 20, 20, seed)
        assert set(range(4)) <= set(split.train) or set(range(4)) <= set(split.valid) | set(split.test)
        assert len({0, 1, 2, 3} & set(split.train)) in (0, 4)
        assert set(range(4, 304)) <= set(split.train)
        assert len(split.valid) == len(split.test) == 20


def test_groups_have_an_equal_chance():
    """A pair of a pair-group is held out about as often as a single one."""
    source = [f"s {i // 2}" if i < 400 else f"s {i}" for i in range(800)]
    target = [f"t {i}" for i in range(800)]
    held = Counter()
    for seed in range(60):
        for index in group_split(source, target, 80, 80, seed).test:
            held[index < 400] += 1
    assert 0.85 < held[True] / held[False] < 1.15


def test_what_cannot_be_held_out_is_refused():
    same = ["same"] * 50
    with pytest.raises(UserError, match=r"largest group .* 50 of 50"):
        group_split(same, [str(i) for i in range(50)], 10, 10, 0)
    with pytest.raises(UserError, match="still train"):
        group_split(["a", "b"], ["c", "d"], 1, 1, 0)
    with pytest.raises(UserError):
        group_split(["a", "b"], ["c", "d"], -1, 0, 0)
    # Only groups of two: three cannot be reached, two is near enough.
    assert (
        len(group_split([str(i // 2) for i in range(40)], [f"x {i}" for i in range(40)], 0, 3, 0).test) == 2
    )


def test_empty_sides_do_not_tie_pairs_together():
    source = ["" if i % 2 else f"s {i}" for i in range(100)]
    target = [f"t {i}" for i in range(100)]
    assert len(group_split(source, target, 20, 20, 0).test) == 20


@given(st.text())
def test_key_ignores_case_space_and_punctuation(text):
    key = text_key(text)
    assert text_key(key) == key
    assert text_key(f"  {text} ") == key
    if any(character.isalnum() for character in text):
        assert text_key(f"“{text}!”\u200b") == key
        assert text_key(unicodedata.normalize("NFD", text)) == text_key(unicodedata.normalize("NFC", text))


def test_key_keeps_what_is_spelling():
    assert text_key("Ọ̀nà") != text_key("Ona")
    assert text_key("कि") != text_key("क")
    assert text_key("C++") != text_key("C")
    assert text_key("?!") == "?!"


def test_same_split_in_another_process_with_another_hash_seed():
    code = (
        "from triptych.text.split import group_split;"
        "s=[f's {i%70}' for i in range(90)]; t=[f't {i}' for i in range(90)];"
        "print(group_split(s,t,10,10,7))"
    )
    source, target = [f"s {i % 70}" for i in range(90)], [f"t {i}" for i in range(90)]
    root = str(Path(split_module.__file__).parents[2])
    for hash_seed in ("1", "2"):
        shown = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": root, "PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert shown.stdout.strip() == str(group_split(source, target, 10, 10, 7))


def test_the_order_is_pinned():
    """Guards users' splits against a change of the draw: these indices may never differ between releases."""
    source, target = [f"s {i}" for i in range(30)], [f"t {i}" for i in range(30)]
    split = group_split(source, target, 3, 3, 42)
    assert (split.valid, split.test) == ([4, 6, 28], [2, 17, 19])


def test_overlap_counts_what_a_naive_check_counts():
    draw = random.Random(5)
    texts = [f"Text {i}" for i in range(40)]
    train = [(draw.choice(texts), draw.choice(texts).upper()) for _ in range(30)]
    test = [(draw.choice(texts) + "!", draw.choice(texts)) for _ in range(30)]
    found = overlap(*zip(*train, strict=True), *zip(*test, strict=True))

    def plain(text: str) -> str:
        return text.lower().strip("!")

    seen = [(plain(s), plain(t)) for s, t in train]
    assert found.source == [i for i, (s, _) in enumerate(test) if plain(s) in [a for a, _ in seen]]
    assert found.target == [i for i, (_, t) in enumerate(test) if plain(t) in [b for _, b in seen]]
    assert found.both == [i for i, (s, t) in enumerate(test) if (plain(s), plain(t)) in seen]
    assert found.source and found.target and found.size == 30
    assert f"{len(found.source)} sources" in found.describe()
    assert overlap(["a"], ["b"], ["c"], ["d"]).describe() == ""


def test_real_corpora_split_without_leak(data_folder):
    for pairs in (
        read_pairs([data_folder / "tatoeba_eng_cmn" / "cmn.txt"]),
        read_aligned(
            data_folder / "floresv1_si_en" / "dev.si-en.si", data_folder / "floresv1_si_en" / "dev.si-en.en"
        ),
    ):
        split = group_split(pairs.source, pairs.target, 250, 250, 3)
        assert len(split.valid) == len(split.test) == 250
        train, held = pairs.select(split.train), pairs.select(split.valid + split.test)
        assert overlap(train.source, train.target, held.source, held.target).describe() == ""
    # A split by line of the first corpus leaks, and the check says so.
    pairs = read_pairs([data_folder / "tatoeba_eng_cmn" / "cmn.txt"])
    order = list(range(len(pairs)))
    random.Random(0).shuffle(order)
    test, train = pairs.select(order[:2844]), pairs.select(order[2844:])
    found = overlap(train.source, train.target, test.source, test.target)
    assert 0.07 < len(found.source) / found.size < 0.13
    assert 0.16 < len(found.target) / found.size < 0.23


def test_known_leak_of_a_published_test_set(data_folder):
    folder = data_folder / "lowres_eng_yor"
    train = read_aligned(folder / "train.en", folder / "train.yor")
    test = read_aligned(folder / "test.en", folder / "test.yor")
    assert overlap(train.source, train.target, test.source, test.target).both
