"""What laws say of experts: whom padding goes to, and what gates are."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from triptych.insight.laws.subject import Pads, Placed, Rows, Subject
from triptych.insight.laws.verdict import Compared, close, true
from triptych.model import DecoderOnly, EncoderDecoder
from triptych.model.experts import Routed, counting, routers

EXPERTS = "src/triptych/model/experts.py"


def undealt(s: Subject, rows: Rows, cases: dict[str, Pads]) -> Iterator[Compared]:
    """Padding goes to no expert, and moves no loss of their loads."""
    want = dealt(s, s.lay(rows.main), s.source(rows))
    for name, pads in cases.items():
        got = dealt(s, s.lay(rows.main, pads), s.source(rows, pads))
        cause = "padding is routed, or counted as if it were"
        what = f"{name} of padding, loads of experts and their loss"
        yield close(what, got, want, cause=cause, place=EXPERTS)


def dealt(s: Subject, main: Placed, source: Placed | None) -> list[Tensor]:
    """How many tokens went to each expert of each layer, and what was added to the loss."""
    model, aux, load = s.model, list[Tensor](), dict[str, Tensor]()
    with counting(routers(model), load):
        if isinstance(model, EncoderDecoder):
            assert source is not None
            model.decode(*main, model.encode(*source, aux), aux=aux)
        elif isinstance(model, DecoderOnly):
            model.decode(s.shown(main[0]), main[1], aux=aux)
        else:
            model.encode(s.shown(main[0]), main[1], aux=aux)
    return [*(n.double() for n in load.values()), *aux]


def gates(s: Subject) -> Iterator[Compared]:
    """Gates of a token are in the proportions of its logits alone, and sum to what the settings say. Biases
    that only choose are moved, so that it would be seen if they did more."""
    model, found = copy.deepcopy(s.model), dict[str, Routed]()
    for name, router in routers(model).items():
        for buffer in router.buffers():
            buffer.copy_(torch.rand(buffer.shape, generator=s.rng))
        router.register_forward_hook(lambda module, args, routed, name=name: found.update({name: routed}))
    rows = s.rows(4)
    s.forward(s.lay(rows.main), s.source(rows), model)
    assert s.config.experts is not None
    settings: Any = s.config.experts.router
    for name, (chosen, weights, logits, shares) in found.items():
        own = shares.gather(1, chosen)
        got, want = (x / x.sum(-1, keepdim=True) for x in (weights, own))
        cause = "gates are made of something else than the logits, such as a bias that only chooses"
        yield close(f"{name}: shares of all experts", shares.sum(-1), torch.ones(len(logits)))
        yield close(f"{name}: gates in proportion", got, want, cause=cause, place=EXPERTS)
        different = chosen.sort(-1).values.diff(dim=-1).all()
        yield true(f"{name}: a token's experts are different ones", bool(different))
        if getattr(settings, "renormalise", True):
            total = torch.full((len(logits),), getattr(settings, "scale", 1.0))
            cause = "gates are not divided by their sum"
            yield close(f"{name}: sums of gates", weights.sum(-1), total, cause=cause, place=EXPERTS)
