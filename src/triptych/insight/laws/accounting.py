"""The law of costs: what the formulas say is what is measured."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.flop_counter import FlopCounterMode

from triptych.insight.laws.registry import law
from triptych.insight.laws.subject import LONG, Placed, Subject
from triptych.insight.laws.verdict import Compared, true
from triptych.layout import Layout
from triptych.model import build, cache_bytes, cost
from triptych.model.state import State

COST = "src/triptych/model/transformer.py"


@law(17, "accounted equals measured", "a formula beside a part does not follow the part", COST)
def accounting(s: Subject) -> Iterator[Compared | str]:
    """Parameters, operations of matrix products and bytes of the cache, exactly."""
    counted, said = sum(p.numel() for p in s.model.parameters()), cost(s.config).parameters
    yield true("parameters", counted == said, f"counted {counted:,}, formula {said:,}")
    if s.reduced:
        with torch.device("meta"):
            counted = sum(p.numel() for p in build(s.asked).parameters())
        said = cost(s.asked).parameters
        yield true("parameters of the whole model", counted == said, f"counted {counted:,}, formula {said:,}")
    shapes = [(1, 5, 3), (3, 1, 7), (2, s.longest, s.longest)] + [(1, LONG, LONG)] * s.in_blocks
    for batch, length, source in shapes:
        counted, said = products(s, batch, length, source), cost(s.config, batch, length, source).flops
        shape = f"{batch} rows of {length} tokens" + (f", {source} in the source" if with_source(s) else "")
        yield true(f"operations of {shape}", counted == said, f"counted {counted:,}, formula {said:,}")
    if s.config.form != "encoder":
        yield from cached(s)


def with_source(s: Subject) -> bool:
    """Whether the form has one."""
    return s.config.form == "encoder_decoder"


def full(s: Subject, batch: int, length: int) -> Placed:
    """Rows without padding."""
    return s.lay([s.words(length) for _ in range(batch)])[0], Layout.full(batch, length)


def products(s: Subject, batch: int, length: int, source: int) -> int:
    """Operations of all matrix products in a forward pass, counted as they are carried out. The counter
    sees what autograd functions do inside, and counts masked scores like all others."""
    main, other = full(s, batch, length), full(s, batch, source) if with_source(s) else None
    with FlopCounterMode(display=False) as counter:
        s.model(*(other or ()), s.shown(main[0]), main[1])
    return int(counter.get_total_flops())


def cached(s: Subject) -> Iterator[Compared]:
    """Bytes of a state, from formula, from the state, and from its tensors."""
    width = next(s.model.parameters()).element_size()
    for sources, source, beams, length in ((1, 3, 1, 4), (2, 7, 3, s.longest)):
        rows = sources * beams if with_source(s) else sources
        held = s.start(full(s, sources, source) if with_source(s) else None, beams)
        ids, layout = full(s, rows, length)
        cut = max(2, s.ahead)
        s.step(held, ids[:, :cut], layout.narrow(0, cut))
        s.step(held, ids[:, cut:], layout.narrow(cut, length))
        said = cache_bytes(s.config, rows, (cut, length - cut), sources, source, width)
        figures = {"formula": said, "State.bytes": held.bytes(), "tensors": measured(held)}
        figure = ", ".join(f"{name} {n:,}" for name, n in figures.items())
        yield true(
            f"bytes of {rows} rows of {length} tokens",
            len(set(figures.values())) == 1,
            figure,
            "bytes are not those held: heads expanded, the source held once a beam, or slots",
            "src/triptych/model/state.py",
        )


def measured(held: State) -> int:
    """Bytes of the tensors in a state, slots not yet in use left out."""
    total = 0
    for layer in held.layers:
        slots = layer.book.keys.length
        total += sum(x[:, :, :slots].clone().untyped_storage().nbytes() for x in layer.kept)
        total += sum(x.contiguous().untyped_storage().nbytes() for x in layer.cross or ())
        total += sum(x.contiguous().untyped_storage().nbytes() for x in layer.carry or ())
    return total
