"""Running text: stores, packing, pieces and windows in which every token is learned exactly once."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reading import check_reading, documents, stored
from triptych.config import ModelConfig
from triptych.config.objectives import CausalObjective
from triptych.data import (
    BOS,
    EOS,
    IGNORE,
    PAD,
    Batch,
    Cursor,
    Encoded,
    PackedData,
    StreamData,
    TokenStore,
    packing,
)
from triptych.data import store as store_module
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import DecoderOnly, build
from triptych.objectives import TokenLoss

lengths = st.integers(1, 12)
seeds = st.integers(-3, 3)
BOTH = pytest.mark.parametrize("kind", [PackedData, StreamData])


# -- the store


@given(
    st.lists(st.lists(st.lists(st.integers(0, 70_000), max_size=6), min_size=1, max_size=3), max_size=8),
    st.integers(1, 5),
)
def test_store_gives_what_was_written(parts: list[list[list[int]]], block: int) -> None:
    """Documents in any number of parts, ids of two bytes or four, widened at any place."""
    encoded = [
        Encoded(part, ends=n == len(document) - 1, bytes=3)
        for document in parts
        for n, part in enumerate(document)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "BLOCK", block)
        with TemporaryDirectory() as folder:
            store = TokenStore.write(Path(folder) / "ids", encoded)
            assert os.listdir(folder) == ["ids"]
    whole = [[i for part in document for i in part] for document in parts]
    assert [store.document(n).tolist() for n in range(store.documents)] == whole
    assert store.tokens == sum(map(len, whole)) and store.bytes == 3 * len(encoded)
    assert store.places == store.tokens + len(whole)
    assert store.ids[0] == EOS and all(store.ids[b] == EOS for b in store.borders)
    wide = any(i > 0xFFFF for document in whole for i in document)
    assert store.ids.dtype == (np.uint32 if wide else np.uint16)


def test_store_is_written_as_it_comes_and_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    TokenStore.write(path, [([7], True)])

    def broken() -> Iterator[tuple[list[int], bool]]:
        yield [5] * 1000, True
        raise RuntimeError("the reader failed")

    with pytest.raises(RuntimeError):
        TokenStore.write(path, broken())
    assert TokenStore.open(path).tokens == 1 and list(tmp_path.iterdir()) == [path]


def test_store_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    TokenStore.write(path, [([7] * 50, True)])
    whole = path.read_bytes()
    for content in (b"", b"tokens", whole[:-1], whole + b"x", b"X" + whole[1:], whole[:20]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not a whole file of tokens") as caught:
            TokenStore.open(path)
        assert caught.value.where == str(path)


@given(documents, lengths)
def test_cut_holds_every_token_once_in_rows_of_one_size(sizes: list[int], limit: int) -> None:
    store = stored(sizes)
    begin, stop, document = store.cut(limit)
    text = [store.ids[a:b].tolist() for a, b in zip(begin, stop, strict=True)]
    for number, size in enumerate(sizes):
        rows = [t for t, d in zip(text, document, strict=True) if d == number]
        assert [i for row in rows for i in row] == store.document(number).tolist()
        assert len(rows) == math.ceil(size / limit)
        assert not rows or max(map(len, rows)) - min(map(len, rows)) <= 1


# -- packing


@given(st.lists(st.integers(1, 16), max_size=60), st.sampled_from([1, 2, 7, 59, 60, 61, 1024]), seeds)
def test_pack_takes_every_sequence_once_and_no_row_overflows(
    sizes: list[int], waiting: int, seed: int
) -> None:
    size = np.array(sizes, np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "WAITING", waiting)
        order, border = packing.pack(size, 16, np.random.default_rng(seed + 3))
    assert sorted(order.tolist()) == list(range(len(sizes)))
    rows = [size[order[a:b]] for a, b in itertools.pairwise(border)]
    assert all(0 < row.sum() <= 16 for row in rows) and sum(map(len, rows)) == len(sizes)
    # Best fit among all: no two rows would fit in one.
    filled = sorted(int(row.sum()) for row in rows)
    assert waiting < 60 or len(filled) < 2 or filled[0] + filled[1] > 16


@pytest.mark.parametrize("length", [128, 256, 1024])
@pytest.mark.parametrize("mean", [20, 90, 400])
def test_packing_of_natural_lengths_wastes_little(mean: int, length: int) -> None:
    """Log-normal lengths, as those of sentences, paragraphs, articles: 97 % of all positions are tokens."""
    rng = np.random.default_rng(mean)
    sizes = np.maximum(1, rng.lognormal(np.log(mean), 0.8, 4000)).astype(int).tolist()
    data = PackedData(stored(sizes), length, 8 * length)
    assert data.padding(0) < 0.03 and data.padding(1) < 0.03


def test_packing_of_real_paragraphs_wastes_little(data_folder: Path) -> None:
    text = (data_folder / "wikitext2_valid_test" / "wiki.valid.txt").read_text("utf-8")
    sizes = [len(line.split()) for line in text.split("\n") if line.strip()]
    for length in (128, 256):
        assert PackedData(stored(sizes), length, 8 * length).padding(1) < 0.03


def test_packing_changes_its_neighbours_from_epoch_to_epoch() -> None:
    sizes = np.random.default_rng(0).integers(1, 60, 3000).tolist()
    data = PackedData(stored(sizes), 64, 640)
    met = [{frozenset(row) for row in _rows(data, epoch) if len(row) > 1} for epoch in (0, 1)]
    assert len(met[0] & met[1]) < 0.05 * len(met[0])


def _rows(data: PackedData, epoch: int) -> list[list[int]]:
    order, border = data.packing(epoch)
    return [order[a:b].tolist() for a, b in itertools.pairwise(border)]


# -- what is learned


def _sequences(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """What is read and said in each segment, checking that positions begin anew in each."""
    found = []
    for row in range(len(batch.ids)):
        segment = batch.layout.segment[row]
        for number in range(int(segment.max()) + 1):
            place = segment == number
            assert batch.layout.position[row][place].tolist() == list(range(int(place.sum())))
            found.append((batch.ids[row][place].tolist(), batch.targets[row][place].tolist()))
        assert (batch.ids[row][segment < 0] == PAD).all() and (
            batch.targets[row][segment < 0] == IGNORE
        ).all()
    assert batch.layout.contiguous
    return found


@given(documents, lengths, st.integers(1, 4), seeds)
def test_packed_learns_every_token_once_from_the_one_before(
    sizes: list[int], length: int, rows: int, seed: int
) -> None:
    store = stored(sizes)
    data = PackedData(store, length, length * rows + rows // 2, seed)
    pairs = [
        pair
        for size, document in zip(sizes, map(store.document, range(len(sizes))), strict=True)
        for pair in zip([BOS, *document.tolist()], [*document.tolist(), EOS], strict=True)
    ]
    for epoch in (0, 1):
        batches = [data.batch(index, epoch) for index in data.plan(epoch)]
        sequences = [s for batch in batches for s in _sequences(batch)]
        assert Counter(p for s in sequences for p in zip(*s, strict=True)) == Counter(pairs)
        assert all(read[1:] == said[:-1] for read, said in sequences)
        # Pieces but the last are whole.
        assert all(len(read) == length or said[-1] == EOS for read, said in sequences)
        assert all(BOS not in read[1:] and EOS not in read for read, _ in sequences)
        assert sum(b.count for b in batches) == store.places


@given(documents, lengths, st.integers(1, 4), seeds)
def test_stream_learns_every_token_once_from_the_one_before(
    sizes: list[int], length: int, rows: int, seed: int
) -> None:
    store = stored(sizes)
    data = StreamData(store, length, length * rows, seed)
    for epoch in range(4):
        batches = [data.batch(index, epoch) for index in data.plan(epoch)]
        found = {i: s for b in batches for i, s in zip(b.index, _sequences(b), strict=True)}
        windows = [found[i] for i in sorted(found)]
        assert [i for read, _ in windows for i in read] == store.ids[:-1].tolist()
        assert [i for _, said in windows for i in said] == store.ids[1:].tolist()
        assert all(len(read) == length for read, _ in windows[1:-1])
        assert all(0 < len(read) <= length for read, _ in windows)


def test_stream_borders_fall_elsewhere_each_epoch() -> None:
    data = StreamData(stored([5000]), 64, 640)
    firsts = [data.filled(epoch)[0] for epoch in range(1000)]
    assert firsts[0] == 64, "evaluation begins at the beginning"
    assert set(firsts) == set(range(1, 65))


@BOTH
@settings(max_examples=20)
@given(documents, lengths, st.integers(1, 4), seeds)
def test_reading(kind: Any, sizes: list[int], length: int, rows: int, seed: int) -> None:
    store = stored(sizes)
    check_reading(*(kind(store, length, length * rows, seed) for _ in range(2)))


@BOTH
def test_rows_fill_the_budget(kind: Any) -> None:
    data = kind(stored([37] * 300), 64, 700)
    assert {len(index) for index in list(data.plan(3))[:-1]} == {10} and len(data.plan(3)[-1]) <= 10


@BOTH
def test_full_rows_are_known_to_be_plain(kind: Any) -> None:
    """What lets attention take its fast path is said exactly where it is true."""
    batch = kind(stored([7999]), 64, 640).batch([0, 3, 5])
    assert batch.layout.plain and batch.ids.shape == (3, 64)
    short = PackedData(stored([20, 9, 33]), 64, 640).batch([0])
    assert not short.layout.plain and short.layout.segment.max() == 1 + (short.ids.shape[1] > 63)


@BOTH
def test_nothing_to_read_is_refused(kind: Any) -> None:
    with pytest.raises(UserError, match="an epoch of 0"):
        next(kind(stored([]), 8, 64).read(Cursor()))


@BOTH
def test_a_budget_below_a_row_is_refused(kind: Any) -> None:
    with pytest.raises(UserError, match=r"a row of 64 tokens .* more than a batch of 63") as caught:
        kind(stored([5]), 64, 63)
    assert caught.value.where == "data.tokens"


# -- packed = separate


@pytest.mark.parametrize("position", ["sinusoidal", "rope", "alibi"])
def test_packed_is_separate(position: str) -> None:
    """The loss of packed rows is that of their pieces alone, to the last digits of float64."""
    data = {"form": "decoder", "vocab": 40, "dim": 16, "layers": 2, "heads": 2, "ffn": {"dim": 32}}
    model = build(ModelConfig.parse({**data, "position": position}), seed=3).double().eval()
    assert isinstance(model, DecoderOnly)
    rng = np.random.default_rng(1)
    sizes = [0, 50, *rng.integers(1, 20, 25).tolist()]
    distinct = stored(sizes)
    ids = np.where(distinct.ids > EOS, distinct.ids % 36 + 4, EOS)
    store = TokenStore(ids, distinct.borders, 0)
    packed = PackedData(store, 24, 96)
    together = apart = 0.0
    with torch.no_grad():
        for index in packed.plan(2):
            batch = packed.batch(index, 2)
            together += _loss(model, batch.ids, batch.layout, batch.targets)
            for read, said in _sequences(batch):
                apart += _loss(model, torch.tensor([read]), Layout.full(1, len(read)), torch.tensor([said]))
    assert together == pytest.approx(apart, rel=1e-12)
    # And it is not the loss of rows that see across: the test can tell.
    crossed = sum(
        _loss(model, b.ids, Layout(b.layout.position, b.layout.segment.clamp(max=0)), b.targets)
        for b in (packed.batch(index, 2) for index in packed.plan(2))
    )
    assert abs(crossed - apart) > 1e-3


def _loss(model: DecoderOnly, ids: torch.Tensor, layout: Layout, targets: torch.Tensor) -> float:
    logits = model(ids, layout).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE, reduction="sum")
    return float(loss.detach())


# -- likelihood by piece


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.sampled_from([PackedData, StreamData]), seeds)
@settings(max_examples=25)
def test_pieces_are_each_sequence_alone(sizes: list[int], kind: Any, seed: int) -> None:
    """Summed they are the loss; each is what its tokens have when they are read alone."""
    model = build(ModelConfig.parse({"form": "decoder", "vocab": 200, "dim": 8, "layers": 1, "heads": 2}), 1)
    model = model.double().eval()
    objective = TokenLoss(CausalObjective())
    for batch in kind(stored(sizes), 12, 24, seed).once():
        found = objective.pieces(model, batch)
        whole = objective.loss(model, batch)
        assert sum(count for _, _, count in found) == whole.count
        assert math.isclose(sum(nll for _, nll, _ in found), whole.nll, rel_tol=1e-6)
        alone = []
        for example, row, segments in zip(batch.index, itertools.count(), batch.layout.segment):
            for segment in sorted(set(segments.tolist()) - {-1}):
                own = segments == segment
                ids, said = batch.ids[row, own][None], batch.targets[row, own]
                logits = model(ids, Layout.full(1, ids.shape[1]))[0]
                kept = said != IGNORE
                nll = torch.nn.functional.cross_entropy(logits[kept], said[kept], reduction="sum")
                alone += [(example, float(nll.detach()), int(kept.sum()))] if kept.any() else []
        assert [(i, count) for i, _, count in found] == [(i, count) for i, _, count in alone]
        assert np.allclose([nll for _, nll, _ in found], [nll for _, nll, _ in alone], rtol=1e-5)
