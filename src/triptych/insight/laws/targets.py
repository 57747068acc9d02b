"""The law of targets: shifted once, specials once, loss only where it should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from triptych.config import TranslationObjective
from triptych.data import BOS, EOS, IGNORE, Batch, translation_batch
from triptych.insight.laws.documents import documents
from triptych.insight.laws.registry import law
from triptych.insight.laws.subject import SIDES, Subject
from triptych.insight.laws.verdict import SINGLE, Compared, Skip, close, true
from triptych.layout import Layout
from triptych.model import Memory
from triptych.objectives import TokenLoss

BATCHES = "src/triptych/data/batches.py"
OBJECTIVE = "src/triptych/objectives/tokens.py"


@law(
    19,
    "targets are inputs shifted once",
    "targets are not shifted, shifted twice, or specials are missing or doubled",
    BATCHES,
)
def targets(s: Subject) -> Iterator[Compared | str]:
    """Inputs begin with one bos, targets end with one eos, and the loss is that of real targets alone."""
    if not s.config.says_words:
        raise Skip(f"a model whose output is {s.config.output.kind} says no words: nothing is shifted")
    if s.config.form != "encoder_decoder":
        batch, count, seen = documents(s)
        yield from seen
        yield from losses(s, batch, count, "documents" if s.config.form == "decoder" else "hidden tokens")
        return
    rows = s.rows(4)
    rows.main[2] = []  # an empty sentence is a sentence: its target is the end
    for side in SIDES:
        batch = translation_batch(rows.source, rows.main, range(4), side)
        yield from shifted(batch, rows.source, rows.main, side)
        yield from losses(s, batch, sum(len(row) + 1 for row in rows.main), f"padded on the {side}")
    yield from oracle(rows.source)


def shifted(batch: Batch, source: list[list[int]], main: list[list[int]], side: str) -> Iterator[Compared]:
    """What stands in a batch."""
    for i in range(4):
        (given_ids, layout), real = batch.given, batch.layout.real[i]
        read, said = batch.ids[i][real].tolist(), batch.targets[i][real].tolist()
        text = f"row {i}, padded on the {side}: source {main[i]}, read {read}, to be said {said}"
        yield true("what is read: bos and the tokens", read == [BOS, *main[i]], text)
        yield true("what is said: the tokens and eos", said == [*main[i], EOS], text)
        given = given_ids[i][layout.real[i]].tolist()
        yield true(
            "the source: its tokens and eos",
            given == [*source[i], EOS],
            f"row {i}: {source[i]}, given {given}",
        )
        where = batch.layout.position[i][real].tolist()
        yield true("positions of targets", where == list(range(len(said))), f"row {i}: {where}")


def losses(s: Subject, batch: Batch, count: int, name: str) -> Iterator[Compared]:
    """How much is counted, and what."""
    model = s.model
    learned = TokenLoss(TranslationObjective(label_smoothing=0.1))
    loss = learned.loss(model, batch)
    place = OBJECTIVE
    yield true(
        "tokens in the loss",
        loss.count == count,
        f"{loss.count} of {name}, and there are {count} targets",
        "padding is counted, or the end is not, or tokens of a prefix that were seen",
        place,
    )
    junk = replace(
        batch,
        source=noisy(s, *batch.given) if batch.source is not None else None,
        ids=noisy(s, batch.ids, batch.layout),
    )
    other = learned.loss(model, junk)
    cause = "padding reaches the loss"
    yield close("loss with other ids in padding", tensor(other.nll), tensor(loss.nll), SINGLE, cause, place)
    logits = s.forward((batch.ids, batch.layout), batch.given if batch.source is not None else None)
    real = (batch.targets != IGNORE) & (batch.layout.position >= s.ahead - 1)
    for smoothing in (0.0, 0.1):
        want = F.cross_entropy(logits[real], batch.targets[real], reduction="sum", label_smoothing=smoothing)
        got = TokenLoss(TranslationObjective(label_smoothing=smoothing)).loss(s.learner(), batch)
        cause = "the loss is not the sum of cross-entropies with ε/V on every word"
        what = f"loss of {name}, smoothing {smoothing}, and from the definition"
        yield close(what, got.sum, want, SINGLE, cause, "src/triptych/objectives/loss.py")
    yield close(
        "no smoothing in evaluation",
        tensor(loss.mean),
        tensor(loss.nll / loss.count),
        SINGLE,
        "smoothing is applied outside training",
        place,
    )


def tensor(value: float) -> Tensor:
    """A number as a tensor."""
    return torch.tensor(value, dtype=torch.float64)


def noisy(s: Subject, ids: Tensor, layout: Layout) -> Tensor:
    """Other ids in the padding."""
    junk = torch.randint(0, s.V, ids.shape, generator=s.rng)
    return torch.where(layout.real, ids, junk)


class Said:
    """An output whose hidden states are the logits."""

    bias = None

    def __init__(self, vocab: int) -> None:
        self.weight = torch.eye(vocab)

    def inner(self, hidden: Tensor) -> Tensor:
        """As they are."""
        return hidden


class Copyist:
    """A model that is sure of the next token of its source: it knows its place from the layout alone."""

    training = False

    def __init__(self, vocab: int) -> None:
        self.output, self.vocab = Said(vocab), vocab

    def encode(self, ids: Tensor, layout: Layout, aux: list[Tensor] | None = None) -> Memory:
        """Ids as they are; padding as a word that is never said."""
        return Memory(ids.masked_fill(~layout.real, 0), layout)

    def decode(self, ids: Tensor, layout: Layout, memory: Memory, aux: list[Tensor] | None = None) -> Tensor:
        """Certainty of the source token at each target token's position."""
        hidden = torch.zeros(*ids.shape, self.vocab)
        for row in range(len(ids)):
            said = memory.hidden[row][memory.layout.real[row]]
            for slot in layout.real[row].nonzero()[:, 0].tolist():
                place = int(layout.position[row, slot])
                # What was read must be what a copy says before this place.
                right = place == 0 or int(ids[row, slot]) == int(said[place - 1])
                hidden[row, slot, int(said[place]) if right else 0] = 1e4
        return hidden


def oracle(source: list[list[int]]) -> Iterator[Compared]:
    """A perfect copyist has no loss on a copying task."""
    small = [[4 + i % 8 for i in row] for row in source]
    batch = translation_batch(small, small, range(len(small)))
    loss = TokenLoss(TranslationObjective(label_smoothing=0.1)).loss(Copyist(12), batch)  # type: ignore[arg-type]
    yield true("loss of a perfect copyist", loss.nll == 0, f"{loss.nll:.3g} nats in all", place=OBJECTIVE)
