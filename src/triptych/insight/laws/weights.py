"""The law of attention weights, and of the ways of computing attention."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from triptych.insight.laws.registry import law
from triptych.insight.laws.routing import gates
from triptych.insight.laws.sights import SEEN
from triptych.insight.laws.subject import LONG, Pads, Placed, Rows, Subject
from triptych.insight.laws.verdict import ANGLE, EXACT, SINGLE, Compared, Skip, close, true
from triptych.layout import Layout
from triptych.model.attend import Way, attend, reference
from triptych.model.attention import Attention, CrossAttention, SelfAttention, Watched, watch
from triptych.model.mixers.attentive import SourceAttention
from triptych.model.stack import sights

ATTEND = "src/triptych/model/attend.py"
VISIBLE = "src/triptych/model/visible.py"


@law(
    13,
    "weights are distributions",
    "the softmax is over the wrong axis or unmasked, or the mask is not what the settings say",
    ATTEND,
)
def weights(s: Subject) -> Iterator[Compared | str]:
    """Weights are distributions over what may be seen, and exactly 0 elsewhere; all ways agree."""
    rows = s.rows(4)
    for pads in (Pads("right", 1), Pads("left", 2, True)):
        main, source = s.lay(rows.main, pads), s.source(rows, pads)
        want = s.forward(main, source)
        watch(s.model)
        try:
            got = s.forward(main, source)
            found = {n: m.watch or [] for n, m in s.model.named_modules() if plain(n, m)}
        finally:
            watch(s.model, False)
        real = main[1].real
        yield close("logits with weights kept and not kept", got[real], want[real])
        for name, (w_BHTS,) in found.items():
            sink = getattr(s.model.get_submodule(name), "sink", None) is not None
            yield from distribution(name, w_BHTS, truth(s, name, main, source), sink)
    if s.in_blocks:
        yield from cut(s)
    if s.config.experts is not None:
        yield from gates(s)
    yield from ways(s)


def cut(s: Subject) -> Iterator[Compared]:
    """Long rows, whose queries are met in blocks, and with all weights at once."""
    cause = "a block of queries is given too few keys, or another block's mask"
    for name, less, pads in (("full", 0, Pads()), ("padded", 20, Pads("left", 1, True))):
        rows = s.rows(2, [LONG, LONG - less])
        rows = Rows(rows.main, [s.words(LONG) for _ in rows.source])
        main, source = s.lay(rows.main, pads), s.source(rows)
        got = s.forward(main, source)
        watch(s.model)
        try:
            want = s.forward(main, source)
        finally:
            watch(s.model, False)
        real, what = main[1].real, f"logits of {LONG} tokens, {name} rows, in blocks and at once"
        # Blocks that share a mask share angles, which are in fp32.
        yield close(what, got[real], want[real], ANGLE, cause, "src/triptych/model/blocks.py")


def plain(name: str, module: nn.Module) -> bool:
    """An attention whose keys are all tokens of its stack, or all of its source."""
    return isinstance(module, SelfAttention | SourceAttention) or (
        isinstance(module, CrossAttention) and name.endswith(".cross")
    )


def truth(s: Subject, name: str, main: Placed, source: Placed | None) -> Tensor:
    """``bool[B, T, S]``, what the attention ``name`` may see, from the settings and not from the masks."""
    module = s.model.get_submodule(name)
    encoder = name.startswith("encoder.")
    query = source[1] if encoder and source is not None else main[1]
    key = source[1] if not isinstance(module, SelfAttention) and source is not None else query
    q, k = query.segment[:, :, None], key.segment[:, None]
    seen = (q == k) & (k != -1)
    if isinstance(module, SelfAttention):
        settings = s.config.sights("encoder" if encoder else "decoder")[int(name.split(".")[2])]
        for b, i, j in seen.nonzero().tolist():
            at, to = int(query.position[b, i]), int(key.position[b, j])
            seen[b, i, j] = SEEN[type(settings)](settings, at, to, encoder)
    return seen


def distribution(name: str, w_BHTS: Tensor, seen_BTS: Tensor, sink: bool) -> Iterator[Compared]:
    """One module's weights."""
    seen = seen_BTS[:, None].expand_as(w_BHTS)
    total = w_BHTS.sum(-1)
    yield true(
        f"{name}: weights are not negative", bool((w_BHTS >= 0).all()), f"least {float(w_BHTS.min()):.1e}"
    )
    leak = float(w_BHTS.masked_fill(seen, 0).abs().max())
    cause = "the mask is not what the settings say: causality, the window's width, or padding"
    yield true(f"{name}: masked weights are exactly 0", leak == 0, f"largest {leak:.1e}", cause, VISIBLE)
    if sink:
        some = bool(((total > 0) == seen.any(-1)).all() and (total < 1).all())
        yield true(f"{name}: sums of weights beside a sink", some, f"largest {float(total.max()):.3f}")
    else:
        yield close(f"{name}: sums of weights", total, seen.any(-1).to(total))
    shy = (w_BHTS == 0) & seen
    yield true(
        f"{name}: all that may be seen has weight",
        not bool(shy.any()),
        f"{int(shy.sum())} have none",
        cause,
        VISIBLE,
    )


def ways(s: Subject) -> Iterator[Compared]:
    """Attention computed in three ways, and its edges, in the model's own shape and masks."""
    module = next((m for m in s.model.modules() if isinstance(m, Attention)), None)
    if not any(isinstance(m, Watched) for m in s.model.modules()) and s.config.experts is None:
        raise Skip("nothing here is softmax attention")
    if module is None:
        return
    heads = module.heads
    H, G, D = s.config.heads.count, getattr(heads, "G", s.config.heads.count), heads.dotted
    seen = sights(s.config, s.config.form != "encoder")[0]
    for layout in (Layout.full(3, s.longest), Layout.padded([s.longest, 1, 4], "left", s.longest + 1)):
        T = layout.length
        q, k, v = (torch.randn(3, n, T, D, generator=s.rng, dtype=torch.float64) for n in (H, G, G))
        bias = torch.randn(1, H, T, T, generator=s.rng, dtype=torch.float64)
        mask, scale = seen.lower(layout, layout), D**-0.5
        kinds: tuple[Way, ...] = ("sdpa", "short")
        for name, add in (("with a bias", bias), ("", None)):
            want = reference(q, k, v, mask, scale, bias=add)[0]
            for way in kinds:
                got = attend(q, k, v, mask, scale, way=way, bias=add)
                yield close(f"{way} and reference {name}", got, want)
                single = None if add is None else add.float()
                got = attend(q.float(), k.float(), v.float(), mask, scale, way=way, bias=single)
                yield close(f"{way} in fp32 and reference {name}", got, want, SINGLE)
    blind = want.transpose(1, 2)[~layout.real]
    yield true(
        "a query that sees nothing gets zeros",
        not bool(blind.any()),
        f"largest {float(blind.abs().max()):.1e}",
    )
    bad = v.masked_fill(~layout.real[:, None, :, None], float("nan"))
    clean = reference(q, k, bad, mask, scale)[0]
    yield close(
        "NaN in a masked value", clean, want, EXACT, "0 · NaN is NaN: masked values must be taken out"
    )
