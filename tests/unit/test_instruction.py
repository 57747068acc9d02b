"""Conversations: only what is marked is learned, from what stands before it, and no example is cut."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading import check_reading
from triptych.data import BOS, EOS, IGNORE, InstructionData
from triptych.errors import UserError

LENGTH = 20
Example = tuple[list[int], list[bool]]


@st.composite
def examples(draw: st.DrawFn) -> list[Example]:
    """Examples of up to ``LENGTH`` + 1 ids, each with at least one to learn; all their ids differ."""
    found: list[Example] = []
    for n in range(draw(st.integers(1, 20))):
        size = draw(st.integers(2, LENGTH + 1))
        learned = draw(st.lists(st.booleans(), min_size=size, max_size=size))
        learned[draw(st.integers(1, size - 1))] = True
        found.append((list(range(100 * n + 10, 100 * n + 10 + size)), learned))
    return found


def _data(rows: list[Example], seed: int = 1) -> InstructionData:
    return InstructionData(rows, LENGTH, 3 * LENGTH, seed)


@given(examples(), st.integers(-3, 3))
def test_what_is_marked_is_learned_once_and_nothing_else(rows: list[Example], seed: int) -> None:
    data = _data(rows, seed)
    for epoch in (0, 1):
        found: list[tuple[list[int], list[int]]] = []
        for index in data.plan(epoch):
            batch = data.batch(index, epoch)
            for ids, said, segment, position in zip(
                batch.ids, batch.targets, batch.layout.segment, batch.layout.position, strict=True
            ):
                for number in range(int(segment.max()) + 1):
                    place = segment == number
                    assert position[place].tolist() == list(range(int(place.sum())))
                    found.append((ids[place].tolist(), said[place].tolist()))
        want = [
            (ids[:-1], [i if flag else IGNORE for i, flag in zip(ids[1:], learned[1:], strict=True)])
            for ids, learned in rows
        ]
        assert sorted(found) == sorted(want)


def test_a_rendered_example() -> None:
    """The prompt teaches nothing; the response and its end are said from what stands before them."""
    ids, learned = [BOS, 11, 12, 13, 21, 22, EOS], [False] * 4 + [True] * 3
    batch = _data([(ids, learned)]).batch([0])
    assert batch.ids.tolist() == [[BOS, 11, 12, 13, 21, 22]]
    assert batch.targets.tolist() == [[IGNORE, IGNORE, IGNORE, 21, 22, EOS]]
    assert batch.count == 3


@settings(max_examples=20)
@given(examples(), st.integers(-3, 3))
def test_reading(rows: list[Example], seed: int) -> None:
    check_reading(_data(rows, seed), _data(rows, seed))


def test_packing_of_natural_lengths_wastes_little() -> None:
    sizes = np.clip(np.random.default_rng(0).lognormal(4.2, 0.6, 3000), 8, 256).astype(int)
    data = InstructionData([([5] * n, [True] * n) for n in sizes.tolist()], 256, 2048)
    assert data.padding(0) < 0.03 and data.padding(1) < 0.03
    order, _ = data.packing(1)
    assert Counter(order.tolist()) == dict.fromkeys(range(3000), 1)


@pytest.mark.parametrize(
    "example",
    [
        ([5] * (LENGTH + 2), [True] * (LENGTH + 2)),  # too long
        ([5, 6, 7], [True, False, False]),  # the first id is never said: nothing to learn
        ([5, 6, 7], [True, True]),
        ([5], [True]),
    ],
)
def test_what_the_caller_must_not_give(example: Example) -> None:
    with pytest.raises(AssertionError):
        _data([([5, 6], [False, True]), example])


def test_a_budget_below_a_row_is_refused() -> None:
    with pytest.raises(UserError, match="more than a batch of 19"):
        InstructionData([([5, 6], [True, True])], 20, 19)
