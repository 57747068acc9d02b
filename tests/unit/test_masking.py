"""Hidden tokens: the stated shares by χ², whole words, fresh draws each epoch, next sentences."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading import chance, check_reading, documents, stored
from triptych.config.objectives import MaskedObjective
from triptych.data import BOS, EOS, IGNORE, PAD, Batch, Facts, Frame, MaskedData, TokenStore
from triptych.data.masking import FOLLOWS, OTHER, borders
from triptych.errors import UserError
from triptych.text import train_tokenizer

WORDS = range(4, 60_000)
CLS, SEP, MASK = 60_000, 60_001, 60_002
SPECIALS = {PAD, 1, BOS, EOS, CLS, SEP, MASK}
BEGINS = np.arange(MASK + 1) % 3 == 0
FACTS = Facts(Frame(CLS, SEP), MASK, WORDS, BEGINS, np.zeros_like(BEGINS))
NEXT = pytest.mark.parametrize("following", [False, True])


def _data(store: TokenStore, length: int = 64, seed: int = 1, **kwargs: Any) -> MaskedData:
    return MaskedData(store, length, 8 * length, seed, MaskedObjective(**kwargs), FACTS)


def _rows(data: MaskedData, epoch: int = 0) -> list[tuple[list[int], list[int], list[int]]]:
    """What is read, said, and was there, of every row, in the order of rows, padding left out."""
    found = {}
    for index in data.plan(epoch):
        batch = data.batch(index, epoch)
        real = batch.layout.real
        assert (batch.ids[~real] == PAD).all() and (batch.targets[~real] == IGNORE).all()
        for i, ids, said, keep in zip(index, batch.ids, batch.targets, real, strict=True):
            read, targets = ids[keep].tolist(), said[keep].tolist()
            found[i] = (read, targets, [r if t == IGNORE else t for r, t in zip(read, targets, strict=True)])
    return [found[i] for i in sorted(found)]


# -- what may be chosen


@NEXT
@given(documents.filter(lambda sizes: sum(size > 0 for size in sizes) > 1), st.integers(5, 20), st.booleans())
def test_nothing_but_text_is_hidden_and_something_always(
    following: bool, sizes: list[int], length: int, whole: bool
) -> None:
    """Targets are what was there; specials are never hidden and never put in; one token at least is."""
    data = _data(stored(sizes), length, next_sentence=following, whole_words=whole, rate=0.05)
    for read, said, there in _rows(data):
        assert any(target != IGNORE for target in said)
        for now, target, before in zip(read, said, there, strict=True):
            assert target == IGNORE or target in WORDS
            assert (before in SPECIALS) <= (target == IGNORE and now == before)
            assert now in (before, MASK) or now in WORDS
        assert there.count(CLS) == 1 and there[0] == CLS and there[-1] == SEP
        assert there.count(SEP) == 1 + following and len(there) <= length


@given(documents, st.integers(3, 20))
def test_every_token_of_every_document_is_read_once(sizes: list[int], length: int) -> None:
    store = stored(sizes)
    rows = [there[1:-1] for _, _, there in _rows(_data(store, length), epoch=1)]
    assert [i for row in rows for i in row] == [i for n in range(len(sizes)) for i in store.document(n)]


def test_unknown_tokens_are_no_text() -> None:
    """A row that holds nothing to learn teaches nothing, and nothing goes wrong."""
    store = TokenStore(np.array([EOS, 1, 1, 1, EOS, 1, 9, 1, EOS], np.uint16), np.array([0, 4, 8]), 0)
    first, second = _rows(_data(store))
    assert first[1] == [IGNORE] * 5 and second[1] == [IGNORE, IGNORE, 9, IGNORE, IGNORE]


# -- the shares


@pytest.mark.parametrize(
    ("rate", "mask", "other"), [(0.15, 0.8, 0.1), (0.4, 0.5, 0.5), (0.3, 0.0, 0.0), (0.15, 1.0, 0.0)]
)
def test_shares(rate: float, mask: float, other: float) -> None:
    """χ² of chosen, masked, changed and kept against the settings; places are chosen alike."""
    data = _data(stored([60] * 400), 64, rate=rate, mask=mask, random=other)
    fates: Counter[str] = Counter()
    places: Counter[int] = Counter()
    for epoch in range(3):
        for read, said, there in _rows(data, epoch):
            for place, (now, target, before) in enumerate(zip(read, said, there, strict=True)):
                if target == IGNORE:
                    continue
                places[place] += 1
                fates["masked" if now == MASK else "kept" if now == before else "changed"] += 1
    n = 3 * 400 * 60
    chosen = sum(fates.values())
    # The number of a row is rounded at random, so its variance is below a coin's: the mean is sharper.
    assert abs(chosen - rate * n) < 4 * np.sqrt(1200 * 0.25)
    wanted = {"masked": mask, "changed": other, "kept": 1 - mask - other}
    assert set(fates) == {fate for fate, share in wanted.items() if share > 1e-9}
    shares = [(fates[fate], share * chosen) for fate, share in wanted.items() if share > 1e-9]
    assert len(shares) == 1 or chance(*zip(*shares, strict=True)) > 1e-3
    assert sorted(places) == list(range(1, 61))
    assert chance(list(places.values()), [chosen / 60] * 60) > 1e-3


def test_shares_test_can_fail() -> None:
    """What is 2 % off is seen with so many draws."""
    n = 0.15 * 3 * 400 * 60
    seen, wanted = [0.78 * n, 0.11 * n, 0.11 * n], [0.8 * n, 0.1 * n, 0.1 * n]
    assert chance(seen, wanted) < 1e-3


def test_another_token_is_any_other() -> None:
    """Every ordinary token but the one that was there, all alike."""
    facts = Facts(Frame(CLS, SEP), MASK, range(4, 10), BEGINS, np.zeros_like(BEGINS))
    store = TokenStore(np.array([EOS, *[6] * 30_000, EOS], np.uint16), np.array([0, 30_001]), 0)
    data = MaskedData(store, 102, 1020, 1, MaskedObjective(rate=0.5, mask=0.0, random=1.0), facts)
    seen = Counter(now for read, said, _ in _rows(data) for now, t in zip(read, said, strict=True) if t >= 0)
    assert sorted(seen) == [4, 5, 7, 8, 9]
    assert chance(list(seen.values()), [seen.total() / 5] * 5) > 1e-3


def test_short_rows_have_one_hidden_and_no_more() -> None:
    data = _data(stored([3] * 200), rate=0.15)
    assert {sum(target != IGNORE for target in said) for _, said, _ in _rows(data)} == {1}


# -- whole words


def _words(there: list[int]) -> list[list[int]]:
    """Places of each word, by the facts."""
    words: list[list[int]] = []
    for place, token in enumerate(there):
        if token in SPECIALS:
            continue
        if BEGINS[token] or there[place - 1] in SPECIALS:
            words.append([])
        words[-1].append(place)
    return words


@NEXT
def test_whole_words_are_hidden_whole(following: bool) -> None:
    rng = np.random.default_rng(0)
    store = stored([60] * 300)
    ids = np.where(store.ids > EOS, rng.integers(4, 2000, len(store.ids)), EOS)
    store = TokenStore(ids, store.borders, 0)
    hidden = total = 0
    for _, said, there in _rows(_data(store, whole_words=True, next_sentence=following)):
        for word in _words(there):
            assert len({said[place] == IGNORE for place in word}) == 1
        hidden, total = hidden + sum(t != IGNORE for t in said), total + sum(t in WORDS for t in there)
    assert abs(hidden / total - 0.15) < 0.004
    parts = _rows(_data(store, next_sentence=following))
    assert any(
        len({said[place] == IGNORE for place in word}) == 2
        for _, said, there in parts
        for word in _words(there)
    ), "without whole_words words are hidden in part: the test can tell"


@pytest.mark.parametrize("long", [1, 4])
def test_words_of_any_length_are_chosen_alike(long: int) -> None:
    """A rule that skips what does not fit would leave out long words. One word in ten has 7 pieces."""
    rng = np.random.default_rng(1)
    words = [[3 * int(n) + 3] + [3 * int(n) + 4] * (6 if rng.random() < 0.1 else 0) for n in range(1, 600)]
    flat = [token for word in words for token in word]
    store = TokenStore(np.array([EOS, *flat, EOS]), np.array([0, len(flat) + 1]), 0)
    seen: Counter[bool] = Counter()
    for epoch in range(60):
        for _, said, there in _rows(_data(store, 34, whole_words=True, rate=0.2), epoch):
            for word in _words(there):
                if len(word) in (1, 7):
                    seen[len(word) == 7] += (said[word[0]] != IGNORE) * (1 if len(word) == 1 else long)
    singles = sum(len(word) == 1 for word in words)
    share = seen[True] / (len(words) - singles) / (seen[False] / singles)
    assert (0.7 < share < 1.3) == (long == 1), "and a bias of four times would be seen"


@pytest.mark.parametrize(
    ("piece", "begins", "ends"),
    [
        ("▁the", True, False),
        ("the", False, False),
        ("▁", True, False),
        (".", True, True),
        ("▁(", True, True),
        ("中", True, True),
        ("中国", True, True),
        ("の", True, True),
        ("ไ", True, True),
        ("한", False, False),
        ("é", False, False),
        ("\u0301", False, False),
        ("9", False, False),
        ("<0x0A>", True, True),
        ("<0x0A><0x0A>", True, True),
        ("<0x20>", True, False),
        ("<0x41>", False, False),
        ("<0xE4>", False, False),
        ("<0xE4><0xBD>", False, False),
        ("[CLS]", True, True),
    ],
)
def test_where_words_begin_and_end(piece: str, begins: bool, ends: bool) -> None:
    assert borders(piece) == (begins, ends)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "byte", "bytebpe"])
def test_words_of_a_row(kind: Any) -> None:
    """A line end is a word, and so is what follows it."""
    lines = ["the cats sat (on) the mat. they sat.", "hope: the cat's 山猫 ran"] * 20
    tokenizer = train_tokenizer(lines, kind=kind, size=330, symbols=("[CLS]", "[SEP]", "[MASK]"), shrink=True)
    facts = Facts.of(tokenizer)
    data = MaskedData(stored([9]), 20, 40, 1, MaskedObjective(whole_words=True), facts)
    ids = np.array([facts.frame.first, *tokenizer.encode("the cats\nhope (on) it!so."), facts.frame.last])
    plain = (ids >= facts.words.start) & (ids < facts.words.stop)
    number = data.words(ids, plain)[plain]
    words = [tokenizer.decode(ids[plain][number == n].tolist()) for n in np.unique(number)]
    want = ["the", "cats", "\n", "hope", "(", "on", ")", "it", "!", "so", "."]
    assert [w.strip(" ") for w in words if w.strip(" ")] == want


@pytest.mark.parametrize("kind", ["bpe", "char", "byte"])
def test_facts_of_a_tokenizer(kind: Any) -> None:
    lines = ["the cats sat on the mat. they sat.", "unhappily, the cat ran"] * 20
    tokenizer = train_tokenizer(lines, kind=kind, size=320, symbols=("[CLS]", "[SEP]", "[MASK]"), shrink=True)
    facts = Facts.of(tokenizer)
    ids = tokenizer.encode("the cats sat unhappily.")
    number = facts.begins[ids].cumsum()
    words = [[i for i, n in zip(ids, number, strict=True) if n == w] for w in range(number[-1] + 1)]
    assert [tokenizer.decode(word).strip() for word in words if word] == [
        "the",
        "cats",
        "sat",
        "unhappily",
        ".",
    ]
    assert facts.words == range(4, tokenizer.size - 3)
    assert [facts.frame.first, facts.frame.last, facts.mask] == list(
        range(tokenizer.size - 3, tokenizer.size)
    )


# -- epochs


@NEXT
@settings(max_examples=20)
@given(
    documents.filter(lambda sizes: sum(size > 0 for size in sizes) > 1),
    st.integers(5, 20),
    st.integers(-3, 3),
)
def test_reading(following: bool, sizes: list[int], length: int, seed: int) -> None:
    store = stored(sizes)
    one, other = (_data(store, length, seed, next_sentence=following) for _ in range(2))
    check_reading(one, other, exact=not following)


def test_draws_are_fresh_each_epoch_and_fixed_for_evaluation() -> None:
    store = stored([60] * 50)
    data, other = _data(store), _data(store, seed=2)
    said = [[s for _, s, _ in _rows(data, epoch)] for epoch in (0, 1)]
    assert said[0] != said[1] and said[0] != [s for _, s, _ in _rows(other)]
    differ = np.mean([a != b for a, b in zip(*said, strict=True)])
    assert differ > 0.95
    batches = [list(data.once()) for _ in range(2)]
    assert all((a.targets == b.targets).all() for a, b in zip(*batches, strict=True))


def test_a_row_is_the_same_in_any_batch() -> None:
    data = _data(stored([30] * 9), next_sentence=True)
    alone, among = data.batch([4], 3), data.batch([2, 4, 7], 3)
    assert (among.ids[1] == alone.ids[0]).all() and (among.targets[1] == alone.targets[0]).all()


# -- next sentences


def _pairs(batch: Batch) -> list[tuple[list[int], list[int], int]]:
    """The two texts as they were, and the label; types and separators must agree."""
    found = []
    there = batch.ids.where(batch.targets == IGNORE, batch.targets)
    assert batch.types is not None and batch.labels is not None
    for ids, types, real, label in zip(there, batch.types, batch.layout.real, batch.labels, strict=True):
        row, kinds = ids[real].tolist(), types[real].tolist()
        middle = row.index(SEP)
        assert kinds == [0] * (middle + 1) + [1] * (len(row) - middle - 1)
        assert (types[~real] == 0).all()
        found.append((row[1:middle], row[middle + 1 : -1], int(label)))
    return found


def test_second_texts_follow_or_are_of_another_document() -> None:
    sizes = [5, 90, 200, 3, 61, 61, 12] * 20
    store = stored(sizes)
    of = {int(i): n for n in range(len(sizes)) for i in store.document(n)}
    data = _data(store, next_sentence=True)
    labels: Counter[int] = Counter()
    for epoch in range(8):
        for index in data.plan(epoch):
            for first, second, label in _pairs(data.batch(index, epoch)):
                labels[label] += 1
                assert first and second
                assert all(b == a + 1 for part in (first, second) for a, b in itertools.pairwise(part))
                if label == FOLLOWS:
                    assert second[0] == first[-1] + 1 and of[second[-1]] == of[first[0]]
                else:
                    assert label == OTHER and of[second[0]] == of[second[-1]] != of[first[0]]
    assert (FOLLOWS, OTHER) == (1, 0)
    assert chance([labels[0], labels[1]], [labels.total() / 2] * 2) > 1e-3


def test_lengths_do_not_tell_what_follows() -> None:
    """The two texts of a row have the same lengths, whatever the label."""
    data = _data(stored([8, 20, 40, 60] * 150), next_sentence=True)
    sums: dict[int, list[int]] = {0: [], 1: []}
    for index in data.plan(0):
        for first, second, label in _pairs(data.batch(index)):
            sums[label].append(len(first) + len(second))
    assert abs(np.mean(sums[0]) - np.mean(sums[1])) < 4
    assert max(sums[0]) <= max(sums[1]) == 60
    # Every second text of another document could be one that follows: it ends where a row ends.
    ends = set(data.stop.tolist())
    last = {int(data.store.ids[stop - 1]) for stop in ends}
    assert all(b[-1] in last for index in data.plan(1) for _, b, _ in _pairs(data.batch(index, 1)))


def test_two_documents_of_which_one_is_rare() -> None:
    """The other document is found where chance hardly meets it, and the text is cut to what it has."""
    data = _data(stored([6, 9000]), next_sentence=True)
    labels = Counter(label for index in data.plan(0) for _, _, label in _pairs(data.batch(index)))
    assert min(labels[0], labels[1]) > 40


def test_a_text_of_one_token_has_nothing_to_follow() -> None:
    data = _data(stored([1, 1, 9]), next_sentence=True)
    assert [label for _, _, label in _pairs(data.batch([0, 1]))] == [IGNORE, IGNORE]


# -- refusals


@pytest.mark.parametrize("sizes", [[500], [500, 0, 0]])
def test_next_sentences_of_one_document_are_refused(sizes: list[int]) -> None:
    with pytest.raises(UserError, match="another document, and there is only one") as caught:
        _data(stored(sizes), next_sentence=True)
    assert caught.value.where == "objective.next_sentence" and "data.documents" in caught.value.mend


@pytest.mark.parametrize(
    ("length", "kwargs", "where"),
    [
        (2, {}, "data.length"),
        (4, {"next_sentence": True}, "data.length"),
        (8, {"mask": 0.8, "random": 0.3}, "objective.random"),
    ],
)
def test_refusals(length: int, kwargs: dict[str, Any], where: str) -> None:
    with pytest.raises(UserError) as caught:
        _data(stored([9, 9]), length, **kwargs)
    assert caught.value.where == where and caught.value.mend


def test_a_budget_below_a_row_is_refused() -> None:
    with pytest.raises(UserError, match="more than a batch of 63"):
        MaskedData(stored([9]), 64, 63, 1, MaskedObjective(), FACTS)
