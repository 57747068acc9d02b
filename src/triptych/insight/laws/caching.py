"""Laws of the state: what is cached, chunked, selected or forgotten never changes a result."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from triptych.data import BOS
from triptych.insight.laws.decoded import PROMPT, steps_of
from triptych.insight.laws.packing import pack, unpack
from triptych.insight.laws.registry import DECODERS, law
from triptych.insight.laws.subject import SIDES, Pads, Rows, Side, Subject, take
from triptych.insight.laws.verdict import SINGLE, Compared, close
from triptych.model.state import CHUNK

STATE = "src/triptych/model/state.py"
REASON = "an encoder keeps no state"


@law(
    4,
    "cache equals no cache",
    "positions or masks count slots of the chunk, not of the sequence: an offset is lost in the cache",
    STATE,
    DECODERS,
    REASON,
)
def cache(s: Subject) -> Iterator[Compared | str]:
    """Any chunking of prefill and steps gives the logits of one pass without a cache."""
    rows = s.rows(3)
    want, source = s.logits(rows), s.source(rows, Pads("left", noise=True))
    if s.ahead:
        yield f"cut nowhere among the first {s.ahead} tokens, which see each other"
    for side in SIDES:
        placed = s.lay(rows.main, Pads(side, extra=1, noise=True))
        for cuts in (s.cuts(placed[1]), s.cuts(placed[1]), s.places(placed[1])):
            got = take(s.chunked(placed, s.start(source), cuts), placed[1])
            yield close(f"padded on the {side}, cut at {cuts}", got, want)
    even = s.rows(2, [s.longest] * 2)
    placed = s.lay(even.main)
    got = list(s.chunked(placed, s.start(s.source(even)), s.cuts(placed[1])))
    yield close("without padding", got, s.logits(even))
    five, groups = s.rows(5), [[0, 1, 2], [3, 4]]
    main, packed = pack(s, five, groups)
    fed = unpack(s.chunked(main, s.start(packed), s.cuts(main[1])), main[1], groups)
    yield close("packed sequences", fed, unpack(s.forward(main, packed), main[1], groups))
    yield from growth(s)
    if source is not None:
        yield beams(s)
    for side in SIDES if s.config.says_words else ():
        yield stepped(s, side)


def growth(s: Subject) -> Iterator[Compared | str]:
    """Past the slots that a state has at first, and past those that near sights keep."""
    length = CHUNK + 6
    if (s.config.max_positions("decoder") or length) < length:
        yield f"no sequence of {length} tokens: positions end before"
        return
    rows = s.rows(1, [length])
    placed = s.lay(rows.main)
    cuts = [CHUNK - 4, CHUNK - 3, CHUNK + 4]
    got = list(s.chunked(placed, s.start(s.source(rows)), cuts))
    yield close(f"{length} tokens, more than a state's first slots", got, s.logits(rows))


def beams(s: Subject) -> Compared:
    """Several rows a source, whose keys are held once."""
    sources, each = s.rows(2), 3
    rows = Rows(s.rows(2 * each).main, [row for row in sources.source for _ in range(each)])
    placed = s.lay(rows.main, Pads("left"))
    state = s.start(s.source(sources), each)
    got = take(s.chunked(placed, state, s.cuts(placed[1])), placed[1])
    cause = "rows of a source are folded into the wrong source, or read another source's mask"
    return close(
        f"{each} rows a source", got, s.logits(rows), cause=cause, place="src/triptych/model/attention.py"
    )


def stepped(s: Subject, side: Side) -> Compared:
    """One token after another through the interface that search uses."""
    rows = s.rows(3)
    rows = Rows([row[:PROMPT] for row in rows.main], rows.source)
    said = [s.words(4) for _ in rows.main]
    steps = steps_of(s, rows, 1, side)
    got = [steps.step(torch.full((3,), BOS))]
    got += [steps.step(torch.tensor([row[t] for row in said])) for t in range(4)]
    before = [[BOS]] * 3 if rows.source else rows.main
    whole = Rows([a + b for a, b in zip(before, said, strict=True)], rows.source)
    full = s.logits(whole, typed=False)
    want = [x[-5:] for x in full]
    place = "src/triptych/decoding/steps.py"
    what = "step by step" if rows.source else f"step by step after prompts padded on the {side}"
    return close(what, list(torch.stack(got, 1)), want, SINGLE, place=place)


@law(
    6,
    "state select and truncate",
    "rows, sources or slots of the state do not move together: keys, their layout, or the source's keys",
    STATE,
    DECODERS,
    REASON,
)
def state(s: Subject) -> Iterator[Compared | str]:
    """A state after select or truncate is the state that the remaining tokens would have made."""
    for side in SIDES:
        yield from selected(s, side)
        yield from truncated(s, side)


def selected(s: Subject, side: Side) -> Iterator[Compared]:
    """Rows reordered, doubled and dropped; sources dropped."""
    each = 2
    sources = s.rows(3)
    rows = Rows(s.rows(3 * each).main, [row for row in sources.source for _ in range(each)])
    cases: dict[str, tuple[list[int], list[int] | None]] = {
        "rows reordered within their sources": ([1, 0, 3, 3, 5, 4], None),
        "sources dropped and reordered": ([5, 4, 0, 0], [2, 0]),
    }
    if not rows.source:
        cases["any rows, some twice"] = ([4, 4, 0, 2, 5], None)
    ids, layout = s.lay(rows.main, Pads(side, noise=True))
    half = s.middle(layout)
    for name, (order, kept) in cases.items():
        held = s.start(s.source(sources), each)
        s.step(held, ids[:, :half], layout.narrow(0, half))
        held.select(torch.tensor(order), torch.tensor(kept) if kept is not None and rows.source else None)
        # The next tokens are those of the rows that now stand there.
        later = layout.select(torch.tensor(order)).narrow(half, ids.shape[1])
        got = take(s.step(held, ids[order][:, half:], later), later)
        want = s.logits(rows.pick(order))
        yield close(f"{name}, padded on the {side}", got, tail(want, got))


def truncated(s: Subject, side: Side) -> Iterator[Compared]:
    """Slots forgotten, then other tokens in their place."""
    rows = s.rows(3)
    source, want = s.source(rows), s.logits(rows)
    ids, layout = s.lay(rows.main, Pads(side))
    half, length = s.middle(layout), ids.shape[1]
    wrong = (ids + 1) % s.V
    for name, keep in (("half of the slots", half), ("none of the slots", 0)):
        held = s.start(source, back=length)
        s.step(held, ids[:, :half], layout.narrow(0, half))
        s.step(held, wrong[:, half:], layout.narrow(half, length))
        held.truncate(keep)
        later = layout.narrow(keep, length)
        got = take(s.step(held, ids[:, keep:], later), later)
        yield close(f"{name} kept, padded on the {side}", got, tail(want, got))


def tail(want: list[torch.Tensor], got: list[torch.Tensor]) -> list[torch.Tensor]:
    """The last logits of each row, as many as were computed."""
    return [w[len(w) - len(g) :] for w, g in zip(want, got, strict=True)]
