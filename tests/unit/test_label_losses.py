"""Losses of classes, tags, pairs of texts and next sentences, against torch.nn.functional and numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from triptych.config import RunConfig
from triptych.config.objectives import (
    CausalObjective,
    ClassifyObjective,
    EmbedObjective,
    MaskedObjective,
    TagObjective,
)
from triptych.data import IGNORE, Batch, pad
from triptych.model import Model, build
from triptych.objectives import (
    ClassLoss,
    EmbedLoss,
    Loss,
    NextSentenceLoss,
    TagLoss,
    TokenLoss,
    objective,
    run,
)
from triptych.objectives.labels import chosen

ROWS = [[5, 6, 7, 8], [9, 4], [7, 7, 7], [10, 11, 12, 4, 5]]


def model(output: dict[str, Any], form: str = "encoder", **settings: Any) -> Model:
    """A small one, in training but without dropout."""
    data = {"form": form, "vocab": 13, "dim": 16, "layers": 1, "heads": 2, "ffn": {"dim": 16}, "dropout": 0.0}
    config = RunConfig.parse({"model": {**data, **settings, "output": output}}).model
    return build(config, seed=1).train()


def batch(rows: list[list[int]], labels: list[int] | None = None, targets: Any = None) -> Batch:
    """Rows as they are, padded."""
    ids, layout = pad(rows)
    said = torch.full_like(ids, IGNORE) if targets is None else pad(targets, fill=IGNORE)[0]
    row_labels = None if labels is None else torch.tensor(labels)
    number = torch.tensor([rows.index(row) for row in rows])
    return Batch(ids, layout, said, tuple(range(len(rows))), labels=row_labels, text=number)


def gradients(of: Model, loss: Tensor) -> dict[str, Tensor]:
    """Of every parameter that has one."""
    of.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in of.named_parameters() if p.grad is not None}


def same(of: Model, a: Tensor, b: Tensor) -> None:
    """Equal values and equal gradients."""
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    mine, other = gradients(of, a), gradients(of, b)
    assert mine.keys() == other.keys() and any(g.abs().max() > 1e-4 for g in mine.values())
    for name in mine:
        torch.testing.assert_close(mine[name], other[name], rtol=1e-4, atol=1e-5, msg=name)


def total(losses: list[Loss]) -> Loss:
    """All together."""
    return sum(losses[1:], losses[0])


# -- classes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["encoder", "decoder"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_classes_are_torchs(form: str, smoothing: float) -> None:
    """Value and gradients; rows without a label do not count."""
    own = model({"kind": "classes", "count": 3}, form)
    some = batch(ROWS, [2, IGNORE, 0, 1])
    got = ClassLoss(ClassifyObjective(label_smoothing=smoothing)).loss(own, some)
    logits = own.output(run(own, some), some.layout)[[0, 2, 3]]
    right = torch.tensor([2, 0, 1])
    want = F.cross_entropy(logits, right, label_smoothing=smoothing, reduction="sum")
    assert got.count == 3
    assert got.nll == pytest.approx(float(F.cross_entropy(logits, right, reduction="sum").detach()), rel=1e-5)
    same(own, got.sum, want)


def test_classes_by_hand() -> None:
    """-Σ q·log p with q = (1 - ε)·onehot + ε/K, in numpy."""
    own = model({"kind": "classes", "count": 3})
    some = batch(ROWS, [2, 1, 0, 1])
    got = ClassLoss(ClassifyObjective(label_smoothing=0.3)).loss(own, some)
    x = own(some.ids, some.layout).detach().double().numpy()
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    q = np.full_like(p, 0.1)
    q[np.arange(4), [2, 1, 0, 1]] += 0.7
    assert float(got.sum.detach()) == pytest.approx(-(q * np.log(p)).sum(), rel=1e-5)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_micro_batches_of_classes_add(cut: int) -> None:
    own = model({"kind": "classes", "count": 3})
    loss, labels = ClassLoss(ClassifyObjective(label_smoothing=0.1)), [2, IGNORE, 0, 1]
    whole = loss.loss(own, batch(ROWS, labels))
    parts = [loss.loss(own, batch(ROWS[at], labels[at])) for at in (slice(0, cut), slice(cut, 4))]
    assert (total(parts).count, total(parts).nll) == (3, pytest.approx(whole.nll, rel=1e-5))
    same(own, total(parts).sum, whole.sum)


def test_evaluation_is_not_smoothed() -> None:
    own = model({"kind": "classes", "count": 3})
    loss, some = ClassLoss(ClassifyObjective(label_smoothing=0.5)), batch(ROWS, [2, 1, 0, 1])
    smoothed, plain = loss.loss(own.train(), some), loss.loss(own.eval(), some)
    assert plain.mean * plain.count == pytest.approx(plain.nll, rel=1e-6)
    assert abs(smoothed.mean - plain.mean) > 1e-3 and smoothed.nll == pytest.approx(plain.nll, rel=1e-6)


def test_what_cannot_be_chosen_has_no_part() -> None:
    """Logits of -∞ are as if they were not there: in the value, the gradient and the smoothing."""
    logits = torch.randn(5, 7, requires_grad=True)
    kept, right = torch.tensor([0, 2, 3, 6]), torch.tensor([1, 3, 0, 0, 2])
    out = torch.ones(7, dtype=torch.bool).index_fill_(0, kept, False)
    got = chosen(logits.masked_fill(out, -torch.inf), kept[right], 0.2)
    want = F.cross_entropy(logits[:, kept], right, label_smoothing=0.2, reduction="sum")
    torch.testing.assert_close(got.sum, want)
    mine, other = (torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (got.sum, want))
    torch.testing.assert_close(mine, other)


# -- tags --------------------------------------------------------------------------------------------------

TARGETS = [
    [IGNORE, 2, IGNORE, 0],
    [1, IGNORE],
    [IGNORE, IGNORE, IGNORE],
    [3, 0, IGNORE, 1, IGNORE],
]


@pytest.mark.parametrize("form", ["encoder", "decoder"])
def test_tags_are_torchs(form: str) -> None:
    own = model({"kind": "tags", "count": 4}, form)
    some = batch(ROWS, targets=TARGETS)
    got = TagLoss(TagObjective(label_smoothing=0.1)).loss(own, some)
    logits = own.output(run(own, some)).flatten(0, 1)
    want = F.cross_entropy(
        logits, some.targets.flatten(), ignore_index=IGNORE, label_smoothing=0.1, reduction="sum"
    )
    assert got.count == 6
    same(own, got.sum, want)


def test_micro_batches_of_tags_add() -> None:
    own, loss = model({"kind": "tags", "count": 4}), TagLoss(TagObjective(label_smoothing=0.1))
    whole = loss.loss(own, batch(ROWS, targets=TARGETS))
    parts = [loss.loss(own, batch([r], targets=[t])) for r, t in zip(ROWS, TARGETS, strict=True)]
    assert [p.count for p in parts] == [2, 1, 0, 3]
    same(own, total(parts).sum, whole.sum)


# -- pairs -------------------------------------------------------------------------------------------------


def info_nce(vectors: np.ndarray[Any, Any], temperature: float, apart: np.ndarray[Any, Any]) -> float:
    """The formula in numpy, pair by pair and candidate by candidate."""
    P = len(vectors) // 2
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    a, b = unit[:P], unit[P:]
    out = 0.0
    for i in range(P):
        own = np.exp(a[i] @ b[i] / temperature)
        across = sum(np.exp(a[i] @ b[j] / temperature) for j in range(P) if i == j or apart[i, j])
        down = sum(np.exp(a[j] @ b[i] / temperature) for j in range(P) if i == j or apart[i, j])
        out -= (np.log(own / across) + np.log(own / down)) / 2
    return float(out)


def pairs(first: list[list[int]], second: list[list[int]]) -> Batch:
    """As the data give them: first texts with the number of their partner, then second ones."""
    return batch([*first, *second], [*range(len(first)), *[IGNORE] * len(first)])


@pytest.mark.parametrize("form", ["encoder", "decoder"])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_pairs_are_the_formula(form: str, temperature: float) -> None:
    own = model({"kind": "vector"}, form)
    some = pairs(ROWS, [[4, 4], [8, 9, 10], [6], [12, 12, 12]])
    got = EmbedLoss(EmbedObjective(temperature=temperature)).loss(own, some)
    vectors = own(some.ids, some.layout).detach().double().numpy()
    assert got.count == 4
    assert got.nll == pytest.approx(info_nce(vectors, temperature, np.ones((4, 4), bool)), rel=1e-4)
    assert float(got.sum.detach()) == pytest.approx(got.nll, rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_gradients_of_pairs_are_torchs(smoothing: float) -> None:
    own = model({"kind": "vector"})
    some = pairs(ROWS, [[4, 4], [8, 9, 10], [6], [12, 12, 12]])
    got = EmbedLoss(EmbedObjective(temperature=0.2, label_smoothing=smoothing)).loss(own, some)
    unit = F.normalize(own(some.ids, some.layout), dim=1)
    logits = F.cosine_similarity(unit[:4, None], unit[None, 4:], dim=2) / 0.2
    both = [
        F.cross_entropy(x, torch.arange(4), reduction="sum", label_smoothing=smoothing)
        for x in (logits, logits.t())
    ]
    same(own, got.sum, (both[0] + both[1]) / 2)


def test_a_text_is_not_pushed_from_itself() -> None:
    """Pairs that share their first or their second text leave each other out, with smoothing too; texts that
    differ in padding alone are the same, and texts that differ in length are not."""
    own = model({"kind": "vector"})
    some = pairs([[5, 6], [5, 6], [7], [8, 9]], [[4, 4, 4], [8], [8], [10, 0]])
    apart = np.ones((4, 4), bool)
    apart[[0, 1, 1, 2], [1, 0, 2, 1]] = False
    got = EmbedLoss(EmbedObjective(temperature=0.1, label_smoothing=0.1)).loss(own, some)
    vectors = own(some.ids, some.layout).detach().double().numpy()
    assert got.nll == pytest.approx(info_nce(vectors, 0.1, apart), rel=1e-4)
    assert got.sum.isfinite() and all(g.isfinite().all() for g in gradients(own, got.sum).values())
    twice = EmbedLoss(EmbedObjective()).loss(own, pairs([[5], [5]], [[6], [6]]))
    assert twice.nll == pytest.approx(0, abs=1e-6), "two times one pair: there is nothing to tell apart"


def test_partners_may_stand_anywhere() -> None:
    """The label says which of the second texts is meant."""
    own, loss = model({"kind": "vector"}), EmbedLoss(EmbedObjective())
    second = [[4, 4], [8, 9, 10], [6], [12, 12, 12]]
    straight = loss.loss(own, pairs(ROWS, second))
    moved = batch([*ROWS, *second[::-1]], [3, 2, 1, 0, *[IGNORE] * 4])
    assert loss.loss(own, moved).nll == pytest.approx(straight.nll, rel=1e-5)


def test_pairs_depend_on_the_batch_by_definition() -> None:
    """Fewer to be told from is easier: this loss is not one that micro-batches add up to."""
    own, loss = model({"kind": "vector"}), EmbedLoss(EmbedObjective())
    second = [[4, 4], [8, 9, 10], [6], [12, 12, 12]]
    whole = loss.loss(own, pairs(ROWS, second))
    parts = [loss.loss(own, pairs(ROWS[at], second[at])) for at in (slice(0, 2), slice(2, 4))]
    assert total(parts).count == whole.count and total(parts).nll < whole.nll
    assert loss.loss(own, pairs(ROWS[:1], second[:1])).nll == pytest.approx(0, abs=1e-6)


# -- next sentences ----------------------------------------------------------------------------------------


def masked(labels: list[int], keep: slice = slice(None)) -> Batch:
    """Hidden tokens, and whether the second half of a row follows the first."""
    some = batch(ROWS[keep], labels[keep], TARGETS[keep])
    types = torch.arange(some.ids.shape[1]).expand_as(some.ids) // 2
    return replace(some, types=types.clamp(max=1))


BERT = {
    "output": {"kind": "vocabulary", "next_sentence": True, "transform": "gelu", "bias": True},
    "types": 2,
}


def test_next_sentences_join_the_tokens() -> None:
    """Σ tokens + w·Σ rows, and what is reported is of the tokens alone."""
    own = model(**BERT)
    settings = MaskedObjective(rate=0.25, next_sentence=True, label_smoothing=0.1)
    some = masked([1, IGNORE, 0, 1])
    got = objective(settings, length=40).loss(own, some)
    alone = TokenLoss(settings).loss(own, some)
    pair = own.output.pair(run(own, some), some.layout)[[0, 2, 3]]
    want = alone.sum + 0.25 * 40 * F.cross_entropy(pair, torch.tensor([1, 0, 1]), reduction="sum")
    assert (got.count, got.nll) == (alone.count, pytest.approx(alone.nll, rel=1e-6)) == (6, got.nll)
    same(own, got.sum, want)


def test_micro_batches_with_next_sentences_add() -> None:
    own, labels = model(**BERT), [1, IGNORE, 0, 1]
    loss = NextSentenceLoss(MaskedObjective(next_sentence=True), 32)
    whole = loss.loss(own, masked(labels))
    parts = [loss.loss(own, masked(labels, slice(i, i + 1))) for i in range(4)]
    assert total(parts).count == whole.count and total(parts).nll == pytest.approx(whole.nll, rel=1e-5)
    same(own, total(parts).sum, whole.sum)


# -- all of them -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (ClassifyObjective(), ClassLoss),
        (TagObjective(), TagLoss),
        (EmbedObjective(), EmbedLoss),
        (MaskedObjective(), TokenLoss),
        (MaskedObjective(next_sentence=True), NextSentenceLoss),
        (CausalObjective(), TokenLoss),
    ],
)
def test_settings_give_their_loss(settings: Any, kind: type) -> None:
    assert type(objective(settings, length=16)) is kind


def test_next_sentences_need_a_length() -> None:
    with pytest.raises(AssertionError, match="length"):
        objective(MaskedObjective(next_sentence=True))


@given(st.integers(0, 3), st.sampled_from(["classes", "tags", "vector"]))
def test_padding_is_nothing(more: int, kind: str) -> None:
    """Wider rows give the same loss."""
    own = model({"kind": kind, **({} if kind == "vector" else {"count": 4})})
    settings: Any = {"classes": ClassifyObjective(), "tags": TagObjective(), "vector": EmbedObjective()}[kind]
    labels = [1, 0, IGNORE, IGNORE] if kind == "vector" else [0, 3, 1, 2]
    some = batch(ROWS, labels, TARGETS)
    wide = batch([*ROWS, [4] * (5 + more)], [*labels, IGNORE], [*TARGETS, [IGNORE] * (5 + more)])
    wide = replace(
        wide,
        ids=wide.ids[:4],
        layout=wide.layout.select(torch.arange(4)),
        targets=wide.targets[:4],
        labels=torch.tensor(labels),
    )
    narrow = objective(settings).loss(own, some)
    assert objective(settings).loss(own, wide).nll == pytest.approx(narrow.nll, rel=1e-5)


def test_what_the_parts_add_counts_once_a_row() -> None:
    """The balance of experts is a mean: times the count, once."""
    own = model({"kind": "classes", "count": 3}, experts={"count": 4, "top_k": 2})
    some = batch(ROWS, [2, 1, 0, 1])
    loss = ClassLoss(ClassifyObjective())
    aux: list[Tensor] = []
    run(own, some, aux)
    assert aux and float(aux[0].detach()) > 0
    added = loss.loss(own, some)
    assert float(added.sum.detach()) == pytest.approx(added.nll + 4 * float(sum(aux).detach()), rel=1e-4)
