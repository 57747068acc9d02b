"""Laws of what may not matter: later tokens, padding, neighbours, packing, absolute positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from triptych.config import parts
from triptych.insight.laws.decoded import outputs
from triptych.insight.laws.packing import pack, unpack
from triptych.insight.laws.registry import DECODERS, ENCODERS, law
from triptych.insight.laws.routing import undealt
from triptych.insight.laws.subject import Pads, Placed, Rows, Subject, take
from triptych.insight.laws.verdict import ANGLE, SINGLE, Compared, Skip, close, differ, true
from triptych.layout import Layout
from triptych.model.visible import is_relative, sight

VISIBLE = "src/triptych/model/visible.py"


@law(
    1,
    "causality",
    "the mask lets a query see a later token, or something mixes along the whole sequence",
    VISIBLE,
    DECODERS,
    "an encoder sees both directions",
)
def causality(s: Subject) -> Iterator[Compared | str]:
    """A later token never moves an earlier logit, whether all are fed at once or in chunks."""
    rows = s.rows(4)
    want, source = s.logits(rows), s.source(rows)
    if s.ahead:
        yield f"from token {s.ahead} on: those before see each other"
    for _ in range(3):
        cut = [s.integers(max(1, s.ahead), len(row), 1)[0] for row in rows.main]
        main = [row[:c] + s.words(len(row) - c) for row, c in zip(rows.main, cut, strict=True)]
        got = s.logits(Rows(main, rows.source))
        yield close("logits before a changed token", head(got, cut), head(want, cut))
        cuts = s.cuts(s.lay(main)[1])
        one, other = (s.chunked(s.lay(x), s.start(source), cuts) for x in (main, rows.main))
        yield close("logits before a changed token, fed in chunks", head(one, cut), head(other, cut))
    shorter = s.logits(Rows([row[:-1] for row in rows.main], rows.source))
    yield close("logits of a prefix", shorter, [w[:-1] for w in want])
    main = [[*row[:-1], row[-1] - 1 if row[-1] > 0 else 1] for row in rows.main]
    cause = "the model does not read its input: a token's own logits stay when it is changed"
    yield differ("logits at a changed token", s.logits(Rows(main, rows.source)), want, cause)


def head(logits: Sequence[Tensor] | Tensor, cut: Sequence[int]) -> list[Tensor]:
    """The first logits of each row."""
    return [x[:c] for x, c in zip(logits, cut, strict=True)]


@law(
    2,
    "padding invariance",
    "padding is seen: a mask goes by slot or position and not by segment",
    VISIBLE,
)
def padding(s: Subject) -> Iterator[Compared | str]:
    """Neither the content of padding, nor its amount, nor its side moves a logit."""
    rows = s.rows(4)
    want = s.answers(rows)
    cases = {
        "content": Pads("right", noise=True),
        "amount": Pads("right", extra=3),
        "side": Pads("left"),
        "content, amount and side": Pads("left", extra=2, noise=True),
    }
    for name, pads in cases.items():
        yield close(f"{name} of padding", s.answers(rows, main=pads), want)
        if rows.source:
            yield close(f"{name} of the source's padding", s.answers(rows, source=pads), want)
    both = s.answers(rows, Pads("left", 1, True), Pads("left", 2, True))
    yield close("padding on the left everywhere", both, want)
    if s.config.experts is not None:
        yield from undealt(s, rows, cases)


@law(
    3,
    "row independence",
    "rows of a batch share something: a mask, a state's rows, random numbers or a stop rule",
    "src/triptych/decoding/search.py",
)
def alone(s: Subject) -> Iterator[Compared | str]:
    """A row gives the same alone, in any ragged batch and in any order; so does its decoded output."""
    rows = s.rows(4)
    want = s.answers(rows)
    single = [s.answers(rows.pick([i]))[0] for i in range(4)]
    yield close("logits alone and in a batch", want, single, place="src/triptych/model/attention.py")
    order = [2, 0, 3, 1]
    yield close("logits in another order", s.answers(rows.pick(order)), [want[i] for i in order])
    if s.config.form == "encoder" or not s.config.says_words:
        return
    for strategy in ("greedy", "beam", "sample"):
        batch = outputs(s, rows, strategy, index=range(4))
        for i in range(4):
            own = outputs(s, rows.pick([i]), strategy, index=[i])[0]
            same = [h.ids for h in batch[i]] == [h.ids for h in own]
            figure = f"row {i}: {[h.ids for h in batch[i]]}, alone {[h.ids for h in own]}"
            yield true(f"{strategy} output alone and in a batch", same, "" if same else figure)
            ones, others = (torch.tensor([h.logprob for h in found]) for found in (batch[i], own))
            yield close(f"log-probability of {strategy} output", ones, others, SINGLE)


@law(
    5,
    "packed equals separate",
    "sequences packed in a row see each other, or their positions do not start anew",
    VISIBLE,
)
def packed(s: Subject) -> Iterator[Compared | str]:
    """Sequences that share a row, as segments, give what they give in rows of their own."""
    rows = s.rows(5)
    groups = [[0, 1, 2], [3, 4]]
    main, source = pack(s, rows, groups)
    yield close(
        "logits of packed sequences", unpack(s.forward(main, source), main[1], groups), s.logits(rows)
    )


@law(
    14,
    "order needs positions",
    "something goes by slots or positions that should not: a mask, or an encoder that sees one direction",
    VISIBLE,
    ENCODERS,
    "a decoder goes forwards",
)
def order(s: Subject) -> Iterator[Compared | str]:
    """Without positions an encoder reads a set: tokens in another order give the same in that order, and a
    decoder says the same of them."""
    if not isinstance(s.config.position, parts.NoPosition):
        raise Skip(f"{s.config.position.kind} positions tell the order")
    for mixer, seen in zip(s.config.mixers("encoder"), s.config.sights("encoder"), strict=True):
        if not mixer.orderless:
            raise Skip(f"{mixer.kind} goes by the order of tokens")
        if mixer.attends and not isinstance(seen, parts.SeeEverything):
            raise Skip(f"{seen.kind}: what is seen goes by positions")
    for _ in range(3):
        rows = s.rows(4)
        given = rows.source or rows.main
        turned = [torch.randperm(len(row), generator=s.rng).tolist() for row in given]
        other = [[row[i] for i in places] for row, places in zip(given, turned, strict=True)]
        want = s.logits(rows)
        if rows.source:
            yield close("logits over a source in another order", s.logits(Rows(rows.main, other)), want)
        else:
            want = [said[places] for said, places in zip(want, turned, strict=True)]
            yield close("outputs of tokens in another order", s.logits(Rows(other, [])), want)


@law(
    15,
    "shift invariance",
    "something else than the difference of two positions counts: an absolute position, or slots",
    "src/triptych/model/positions/rotary.py",
)
def shift(s: Subject) -> Iterator[Compared | str]:
    """With relative positions, or none, only differences of positions matter."""
    if not s.config.position.relative:
        raise Skip(f"{s.config.position.kind} positions are absolute")
    for side in s.config.stacks:
        for part in (*s.config.mixers(side), *s.config.sights(side)):
            if isinstance(part, parts.Grid):
                raise Skip(f"{part.kind}: rows and columns of a grid are absolute")
            if isinstance(part, parts.LinformerMixer):
                raise Skip(f"{part.kind}: what a token adds to a summary goes by its absolute position")
        for seen in s.config.sights(side):
            if not is_relative(sight(seen, side == "decoder")):
                raise Skip(f"{seen.kind}: what is seen goes by the place in the sequence")
    rows = s.rows(3)
    want = s.logits(rows)
    for by in (1, 17, 100):
        main, source = moved(s.lay(rows.main), by), s.source(rows)
        got = take(s.forward(main, source), main[1])
        yield close(f"positions shifted by {by}", got, want, ANGLE)
        if source is not None:
            main = s.lay(rows.main)
            got = take(s.forward(main, moved(source, by)), main[1])
            yield close(f"the source's positions shifted by {by}", got, want, ANGLE)


def moved(placed: Placed, by: int) -> Placed:
    """The same tokens at positions ``by`` higher."""
    ids, layout = placed
    return ids, Layout(layout.position + by, layout.segment)


@law(
    16,
    "rotary positions keep norms",
    "the rotation is no rotation: sine and cosine of different angles, or a wrong sign",
    "src/triptych/model/positions/rotary.py",
)
def norms(s: Subject) -> Iterator[Compared | str]:
    """A rotated pair of values keeps its length, and what meets depends on the difference of positions."""
    if not isinstance(s.config.position, parts.Rope):
        raise Skip(f"{s.config.position.kind} positions rotate nothing")
    stack = getattr(s.model, "decoder", None) or getattr(s.model, "encoder")  # noqa: B009
    H, D, generator = s.config.heads.count, s.config.rotary_dim, s.rng
    layout = Layout(torch.tensor([[0, 1, 2, 50, 999]]), torch.zeros(1, 5, dtype=torch.int64))
    q, k = (
        torch.randn(1, H, 1, D, generator=generator, dtype=torch.float64).expand(-1, -1, 5, -1) for _ in "qk"
    )
    turned_q, turned_k = stack.position.rotate(q, k, layout)
    stretch = torch.ones(D, dtype=torch.float64)
    stretch[: s.config.position.turning(D)] = s.config.position.scaling.stretch
    for name, before, after in (("queries", q, turned_q), ("keys", k, turned_k)):
        before = before * stretch
        yield close(f"norms of {name}", after.norm(dim=-1), before.norm(dim=-1), ANGLE)
        yield close(f"{name} at position 0", after[:, :, 0], before[:, :, 0], ANGLE)
        yield differ(f"{name} at positions 1 and 2", after[:, :, 1], after[:, :, 2], "nothing is turned")
    meet = turned_q @ turned_k.transpose(-1, -2)
    # With one query and one key everywhere, products depend on the difference of positions alone.
    yield close("products one position apart", meet[:, :, 1, 0], meet[:, :, 2, 1], ANGLE)
