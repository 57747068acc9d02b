"""The cache of layers that see only near tokens drops what nothing can see again: results stay, memory ends.

Any chunks, padding anywhere in a row, packed segments, rows selected, tokens forgotten: always what one pass
over all tokens without a cache gives.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from triptych.config import ModelConfig
from triptych.layout import Layout
from triptych.model import DecoderOnly, State, build, cache_bytes
from triptych.model.state import CHUNK, Book, slots

V = 20
KINDS: dict[str, Any] = {
    "itself": {"kind": "window", "width": 1},
    "window": {"kind": "window", "width": 6},
    "wide": {"kind": "window", "width": 20},
    "dilated": {"kind": "dilated", "width": 4, "step": 3},
    "blocks": {"kind": "blocks", "size": 4, "neighbours": 1},
    "both": {
        "kind": "all",
        "of": [{"kind": "window", "width": 9}, {"kind": "random", "size": 2, "count": 2}],
    },
    "everything": {"kind": "everything"},
}
PATTERNS = [
    ("itself", "window"),
    ("wide", "dilated"),
    ("blocks", "everything"),
    ("both", "wide"),
]


@cache
def model_of(pattern: tuple[str, ...]) -> DecoderOnly:
    """A small decoder of these layers."""
    config = ModelConfig.parse(
        {
            "form": "decoder",
            "vocab": V,
            "dim": 8,
            "layers": len(pattern),
            "heads": {"count": 2, "kv": 1},
            "attention": {"visible": [KINDS[name] for name in pattern]},
            "position": "rope",
            "dropout": 0.0,
        }
    )
    model = build(config, seed=0)
    assert isinstance(model, DecoderOnly)
    return model.double().eval()


class Driven:
    """A state that is fed, and all tokens that it should know of."""

    def __init__(
        self, pattern: tuple[str, ...], rows: int, back: int, seed: int, ragged: bool = True
    ) -> None:
        self.model, self.back, self.ragged = model_of(pattern), back, ragged
        self.state: State = self.model.start(back=back)
        self.rng = torch.Generator().manual_seed(seed)
        empty = torch.zeros(rows, 0, dtype=torch.int64)
        self.ids, self.position, self.segment = empty, empty, empty
        self.furthest, self.chunks = 0, list[int]()

    def number(self, low: int, high: int) -> int:
        """From ``low`` to ``high`` - 1."""
        return int(torch.randint(low, high, (1,), generator=self.rng))

    def more(self, length: int) -> None:
        """Tokens that go on, begin a new segment, or are padding, row by row."""
        rows = []
        for position, segment in zip(self.position.tolist(), self.segment.tolist(), strict=True):
            real = [(p, s) for p, s in zip(position, segment, strict=True) if s >= 0]
            at, of = real[-1] if real else (-1, 0)
            new = []
            for _ in range(length):
                chance = self.number(0, 20) if self.ragged else 20
                if chance < 3:
                    new.append((self.number(0, 30), -1))
                    continue
                at, of = (0, of + 1) if chance == 3 and at >= 0 else (at + 1, of)
                new.append((at, of))
            rows.append(new)
        place = torch.tensor(rows)
        self.position = torch.cat((self.position, place[..., 0]), 1)
        self.segment = torch.cat((self.segment, place[..., 1]), 1)
        ids = torch.randint(0, V, place.shape[:2], generator=self.rng)
        self.ids = torch.cat((self.ids, ids), 1)

    def feed(self, length: int) -> None:
        """A pass: its outputs are those of a pass over everything without a cache, and slots stay few."""
        self.more(length)
        layout = Layout(self.position[:, -length:], self.segment[:, -length:])
        got = self.model.decode(self.ids[:, -length:], layout, state=self.state)
        want = self.model.decode(self.ids, Layout(self.position, self.segment))[:, -length:]
        torch.testing.assert_close(got[layout.real], want[layout.real], rtol=0, atol=1e-10)
        self.chunks.append(length)
        self.furthest = max(self.furthest, self.state.length)
        for layer, reach in zip(self.state.layers, self.model.decoder.sees, strict=True):
            used = layer.keys.length
            most = self.furthest if reach is None else reach + self.back + max(CHUNK, *self.chunks)
            assert used <= most and layer.kept[0].shape[2] < most + CHUNK

    def select(self) -> None:
        """Some rows, in any order."""
        count = len(self.ids)
        rows = torch.tensor([self.number(0, count) for _ in range(self.number(1, 4))])
        self.state.select(rows)
        self.ids, self.position, self.segment = (x[rows] for x in (self.ids, self.position, self.segment))

    def truncate(self, gone: int) -> None:
        """Forgetting no more than ``back`` tokens of all that were ever stored always goes; more is refused,
        or right."""
        length = max(0, self.state.length - gone)
        try:
            self.state.truncate(length)
        except ValueError as error:
            assert length < self.furthest - self.back and "cannot go back" in str(error)
            return
        self.ids, self.position, self.segment = (
            x[:, :length] for x in (self.ids, self.position, self.segment)
        )
        if not length:
            self.furthest = 0


FEWER = settings(max_examples=settings().max_examples // 2)
CHUNKS = st.one_of(st.integers(1, 3), st.integers(1, 3), st.integers(4, 45))


@pytest.mark.parametrize("pattern", PATTERNS, ids="-".join)
@FEWER
@given(chunks=st.lists(CHUNKS, min_size=1, max_size=14), rows=st.integers(1, 3), seed=st.integers(0, 999))
@torch.no_grad()
def test_any_chunks(pattern: tuple[str, ...], chunks: list[int], rows: int, seed: int) -> None:
    """Several windows long; slots are as many as the formula says, and so are bytes."""
    driven = Driven(pattern, rows, back=0, seed=seed)
    for length in chunks:
        driven.feed(length)
        for layer, reach in zip(driven.state.layers, driven.model.decoder.sees, strict=True):
            assert layer.keys.length == slots(reach, 0, driven.chunks)
    assert driven.state.bytes() == cache_bytes(driven.model.config, rows, driven.chunks, 0, 0, 8)


@pytest.mark.parametrize("pattern", PATTERNS, ids="-".join)
@FEWER
@given(
    back=st.integers(0, 5),
    steps=st.lists(
        st.one_of(
            CHUNKS.map(lambda n: ("feed", n)),
            CHUNKS.map(lambda n: ("feed", n)),
            st.just(("select", 0)),
            st.integers(0, 8).map(lambda n: ("truncate", n)),
        ),
        min_size=4,
        max_size=16,
    ),
    seed=st.integers(0, 999),
)
@torch.no_grad()
def test_any_course(pattern: tuple[str, ...], back: int, steps: list[tuple[str, int]], seed: int) -> None:
    """Passes, rows selected and tokens forgotten, in any order."""
    driven = Driven(pattern, 3, back, seed)
    driven.feed(2)
    for step, number in steps:
        if step == "feed":
            driven.feed(number)
        elif step == "select":
            driven.select()
        else:
            driven.truncate(number)
    driven.feed(1)


@torch.no_grad()
def test_a_long_way() -> None:
    """Ten windows, a token at a time, with four tokens taken back after every five: slots do not grow."""
    driven = Driven(("wide",), 2, back=4, seed=0)
    most = 0
    for _ in range(70):
        for length in (1, 1, 5):
            driven.feed(length)
        driven.truncate(4)
        most = max(most, driven.state.layers[0].keys.length)
    assert driven.state.length == 210 and most <= 19 + 4 + CHUNK


@torch.no_grad()
def test_too_far_back_is_refused_and_changes_nothing() -> None:
    """Also where only one of several layers has dropped what is missed; and going back twice is going back
    further."""
    driven = Driven(("window", "everything"), 2, back=3, seed=1)
    for _ in range(60):
        driven.feed(1)
    held = driven.state
    with pytest.raises(ValueError, match="made to go back 3 tokens cannot go back 4"):
        held.truncate(56)
    assert held.length == 60 and [layer.book.total for layer in held.layers] == [60, 60]
    driven.feed(1)
    driven.truncate(3)
    assert held.length == 58
    for _ in range(3):  # from there another 3 each: as far as slots are still there, and no further
        driven.truncate(3)
        driven.feed(1)
    assert held.length > 50


@torch.no_grad()
def test_what_was_dropped_is_not_there_again() -> None:
    """Forgotten tokens fill the room until slots are dropped a second time, at an earlier token than the
    first: that does not make older ones come back."""
    driven = Driven(("itself", "window"), 1, back=3, seed=1, ragged=False)
    for _ in range(25):  # the window's book drops before the last of these: 5 + 3 stay
        driven.feed(1)
    driven.truncate(3)
    for _ in range(6):
        driven.feed(3)
        driven.truncate(3)
    assert driven.state.length == 22
    with pytest.raises(ValueError, match="cannot go back"):
        driven.state.truncate(19)
    driven.truncate(1)
    driven.feed(4)


@torch.no_grad()
def test_a_truncated_state_knows_its_next_place() -> None:
    model = model_of(("window",))
    state = model.start(back=2)
    state.truncate(0)
    for at in range(40):
        layout = Layout(torch.tensor([[at]]), torch.tensor([[0]]))
        model.decode(torch.tensor([[1]]), layout, state=state)
    state.truncate(38)
    assert state.next().position.tolist() == [[38]]
    state.truncate(0)
    assert not hasattr(state.layers[0].book, "keys")


@given(
    reach=st.one_of(st.none(), st.integers(0, 40)),
    back=st.integers(0, 9),
    chunks=st.lists(st.integers(1, 60), max_size=30),
)
def test_slots_is_what_a_book_uses(reach: int | None, back: int, chunks: list[int]) -> None:
    book, at, stored = Book(reach, back), 0, Tensor()
    for length in chunks:
        position = torch.arange(at, at + length)[None]
        book.advance(Layout(position, torch.zeros_like(position)))
        at += length
        stored = book.keys.position[0][book.keys.real[0]]
        assert stored[-1] == at - 1 and torch.equal(stored, torch.arange(at - len(stored), at))
        assert reach is None or len(stored) >= min(at, reach + back + length)
    assert book.stop == slots(reach, back, chunks)
    assert reach is not None or book.stop == sum(chunks)
