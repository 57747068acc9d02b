"""Classes, tags and pairs: frames, types, what is said where; and a batch as a table."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reading import check_reading
from triptych.data import (
    BOS,
    EOS,
    IGNORE,
    PAD,
    Batch,
    ClassData,
    Frame,
    PairData,
    TagData,
    show,
    translation_batch,
)
from triptych.data.labelled import Hiding
from triptych.data.packing import laid
from triptych.errors import UserError
from triptych.text import Tokenizer, train_tokenizer

CLS, SEP = 90, 91
FRAME = Frame(CLS, SEP)
ids = st.lists(st.integers(4, 60), max_size=8)
budgets = st.integers(1, 60)
texts = st.lists(st.lists(ids, min_size=1, max_size=2), min_size=1, max_size=20)
sentences = st.lists(
    st.lists(st.lists(st.integers(4, 60), min_size=1, max_size=4), min_size=1, max_size=6),
    min_size=1,
    max_size=12,
)


def _real(batch: Batch, values: torch.Tensor) -> list[list[int]]:
    return [row[keep].tolist() for row, keep in zip(values, batch.layout.real, strict=True)]


# -- frames


def test_frames() -> None:
    one, two = [[5, 6, 7]], [[5, 6, 7], [8, 9]]
    assert FRAME.ids(one) == [CLS, 5, 6, 7, SEP] and FRAME.types(one) == [0, 0, 0, 0, 0]
    assert FRAME.ids(two) == [CLS, 5, 6, 7, SEP, 8, 9, SEP] and FRAME.types(two) == [0, 0, 0, 0, 0, 1, 1, 1]
    assert FRAME.size(one) == 5 and FRAME.size(two) == 8
    assert FRAME.ids([[], []]) == [CLS, SEP, SEP] and FRAME.types([[], []]) == [0, 0, 1]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    lines = ["我 爱 机器 学习", "the cat sat\tdown"] * 5
    return train_tokenizer(lines, kind="char", size=300, symbols=("[CLS]", "[SEP]", "[MASK]"))


def test_frames_of_a_form(tokenizer: Tokenizer) -> None:
    assert Frame.of(tokenizer, "decoder") == Frame(BOS, EOS)
    assert tokenizer.pieces(Frame.of(tokenizer, "encoder").ids([[], []])) == ["[CLS]", "[SEP]", "[SEP]"]
    plain = train_tokenizer(["a"], kind="byte", size=260)
    with pytest.raises(UserError, match=r"no symbol '\[CLS\]'"):
        Frame.of(plain, "encoder")


# -- classes


@given(texts, budgets, st.integers(-3, 3))
def test_class_rows_are_framed_texts_with_their_label(rows: list[Any], tokens: int, seed: int) -> None:
    labels = [i % 3 for i in range(len(rows))]
    data = ClassData(rows, labels, FRAME, tokens, seed)
    for batch in data.once():
        assert _real(batch, batch.ids) == [FRAME.ids(rows[i]) for i in batch.index]
        assert batch.types is not None and batch.labels is not None
        assert _real(batch, batch.types) == [FRAME.types(rows[i]) for i in batch.index]
        assert batch.labels.tolist() == [labels[i] for i in batch.index]
        assert (batch.targets == IGNORE).all() and batch.count == len(batch.index)
        assert (batch.ids[~batch.layout.real] == PAD).all() and (batch.types[~batch.layout.real] == 0).all()


@settings(max_examples=20)
@given(texts, budgets)
def test_classes_reading(rows: list[Any], tokens: int) -> None:
    check_reading(*(ClassData(rows, [1] * len(rows), FRAME, tokens) for _ in range(2)))


@pytest.mark.parametrize(("rows", "labels"), [([[[5]]], []), ([[]], [0]), ([[[5]] * 3], [0])])
def test_class_rows_are_of_one_text_or_two(rows: Any, labels: list[int]) -> None:
    with pytest.raises(AssertionError):
        ClassData(rows, labels, FRAME, 10)


# -- tags


@given(sentences, budgets, st.integers(-3, 3))
def test_tags_stand_at_first_pieces(rows: list[list[list[int]]], tokens: int, seed: int) -> None:
    tags = [[(i + n) % 5 for n in range(len(sentence))] for i, sentence in enumerate(rows)]
    data = TagData(rows, tags, FRAME, tokens, seed)
    for batch in data.once():
        for i, read, said in zip(
            batch.index, _real(batch, batch.ids), _real(batch, batch.targets), strict=True
        ):
            assert read == [CLS, *(piece for word in rows[i] for piece in word), SEP]
            # Walk over the words: the tag at the first piece, nothing at the others.
            place = 1
            for word, tag in zip(rows[i], tags[i], strict=True):
                assert said[place : place + len(word)] == [tag] + [IGNORE] * (len(word) - 1)
                place += len(word)
            assert said[0] == said[-1] == IGNORE and place == len(said) - 1
        assert batch.count == sum(len(rows[i]) for i in batch.index)
        assert (batch.targets[~batch.layout.real] == IGNORE).all() and batch.labels is None


@settings(max_examples=20)
@given(sentences, budgets)
def test_tags_reading(rows: list[list[list[int]]], tokens: int) -> None:
    tags = [[0] * len(sentence) for sentence in rows]
    check_reading(*(TagData(rows, tags, FRAME, tokens) for _ in range(2)))


def test_unknown_tags_are_not_learned() -> None:
    batch = TagData([[[5], [6, 7]]], [[IGNORE, 3]], FRAME, 10).batch([0])
    assert batch.targets.tolist() == [[IGNORE, IGNORE, 3, IGNORE, IGNORE]]


@pytest.mark.parametrize(("words", "tags"), [([[5], []], [0, 1]), ([[5]], [0, 1]), ([], [])])
def test_words_have_pieces_and_tags(words: Any, tags: list[int]) -> None:
    with pytest.raises(AssertionError):
        TagData([words], [tags], FRAME, 10)


# -- pairs


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=20), budgets, st.integers(-3, 3))
def test_pairs_are_first_texts_then_second(rows: list[Any], tokens: int, seed: int) -> None:
    data = PairData(rows, FRAME, tokens, seed)
    for batch in data.once():
        count = len(batch.index)
        want = [FRAME.ids([rows[i][side]]) for side in (0, 1) for i in batch.index]
        assert _real(batch, batch.ids) == want
        assert batch.labels is not None
        assert batch.labels.tolist() == [*range(count), *[IGNORE] * count] and batch.count == count
        assert count == 1 or batch.ids.numel() <= tokens


def test_texts_are_told_apart_by_what_they_were() -> None:
    """Before tokens are hidden: else a text would be pushed from itself, and two others would be one."""
    rows = [([5, 6, 7], [8]), ([5, 6, 7], [9]), ([10], [8]), ([11], [12])]
    data = PairData(rows, FRAME, 100, hiding=Hiding(0.5, 4))
    for epoch in range(20):
        text = data.batch([0, 1, 2, 3], epoch).text
        assert text is not None
        same = text[:, None] == text
        whole = [row[side] for side in (0, 1) for row in rows]
        assert same.tolist() == [[a == b for b in whole] for a in whole]


@settings(max_examples=20)
@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=20), budgets)
def test_pairs_reading(rows: list[Any], tokens: int) -> None:
    one, other = (PairData(rows, FRAME, tokens) for _ in range(2))
    check_reading(one, other, scale=2)


# -- a batch as a table


def test_show_a_translation(tokenizer: Tokenizer) -> None:
    """Source first, wide characters in line, padding said to be padding."""
    source, target = tokenizer.encode("我爱"), tokenizer.encode("cat")
    table = show(translation_batch([source, []], [target[:2], target], [7, 4]), tokenizer)
    assert table.startswith("rows: 2 · slots: 5 · to be said: 8\n\nrow 1 of 2 · example 7\n  source\n")
    lines = table.split("\n")
    assert lines[4:9] == [
        "  slot  token  segment  position",
        "  0     ▁      0        0",
        "  1     我     0        1",
        "  2     爱     0        2",
        "  3     </s>   0        3",
    ]
    assert lines[9:16] == [
        "  target",
        "  slot  token  target  segment  position  learned",
        "  0     <s>    ▁       0        0         yes",
        "  1     ▁      c       0        1         yes",
        "  2     c      </s>    0        2         yes",
        "  3     <pad>  ·       pad                no",
        "  4     <pad>  ·       pad                no",
    ]
    assert "row 2 of 2 · example 4" in table and table.endswith("yes\n")


def test_show_packed_rows(tokenizer: Tokenizer) -> None:
    a, b = (torch.tensor(tokenizer.encode(text)).numpy() for text in ("cat", "a"))
    size = torch.tensor([len(a), len(b)]).numpy()
    read = torch.tensor([*a, *b]).numpy()
    batch = laid(read, read, size, size * 0, [3])
    rows = [line.split() for line in show(batch, tokenizer).split("\n")[4:-1]]
    assert [row[3] for row in rows] == ["0"] * len(a) + ["1"] * len(b)
    assert [row[4] for row in rows] == [str(n) for n in (*range(len(a)), *range(len(b)))]


def test_show_names_classes_and_tags(tokenizer: Tokenizer) -> None:
    frame = Frame.of(tokenizer, "encoder")
    pieces = tokenizer.encode("a\tt")
    classes = ClassData([[pieces, pieces]], [1], frame, 60).batch([0])
    table = show(classes, tokenizer, ["good", "bad"])
    assert "row 1 of 1 · example 0 · label bad\n" in table and "type" in table
    assert "\\t" in table and "\t" not in table, "what cannot be seen is written out"
    assert [line.split()[-2] for line in table.split("\n")[4:-1]] == [
        str(t) for t in classes.types[0].tolist()
    ]  # type: ignore[index]
    tagged = TagData([[pieces[:2], pieces[2:]]], [[1, 0]], frame, 60).batch([0])
    said = [line.split()[2] for line in show(tagged, tokenizer, ["O", "B-LOC"]).split("\n")[4:-1]]
    assert said == ["·", "B-LOC", "·", "O", *["·"] * (len(pieces) - 3), "·"]


def test_show_pairs(tokenizer: Tokenizer) -> None:
    """Two rows an example: the second has no label of its own."""
    pairs = [(tokenizer.encode("a"), tokenizer.encode("t"))] * 2
    table = show(PairData(pairs, Frame.of(tokenizer, "encoder"), 60).batch([1, 0]), tokenizer)
    titles = [line for line in table.split("\n") if line.startswith("row ")]
    assert titles == [
        "row 1 of 4 · example 1 · label 0",
        "row 2 of 4 · example 0 · label 1",
        "row 3 of 4 · example 1 · label ·",
        "row 4 of 4 · example 0 · label ·",
    ]
