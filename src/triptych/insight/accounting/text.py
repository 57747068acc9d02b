"""An account as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triptych.config import ModelConfig
from triptych.config.parts import PatchEmbedding
from triptych.insight.accounting.account import Account
from triptych.insight.accounting.generation import Work
from triptych.insight.accounting.passes import FARTHEST, backward
from triptych.model.registry import Cost

UNITS = ("", " K", " M", " G", " T", " P", " E")
KINDS = {
    "tokens": "keys and values of all tokens",
    "windows": "of the newest tokens, where layers look back no further",
    "rows": "recurrent states",
    "source": "made of the source",
}


def short(number: float) -> str:
    """Four digits and a unit of thousands."""
    unit = 0
    while number >= 9999.5 and unit < len(UNITS) - 1:
        number, unit = number / 1000, unit + 1
    return f"{number:,.0f}" if not unit else f"{number:,.1f}{UNITS[unit]}"


def size(count: float) -> str:
    """Bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            break
        count /= 1024
    return f"{count:,.0f} {unit}" if count == int(count) else f"{count:,.1f} {unit}"


def share(part: int, whole: int) -> str:
    """A percentage."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield f"  {first.ljust(widths[0])}  {'  '.join(cells)}".rstrip()


def table(a: Account) -> str:
    """All figures, in sections with headings."""
    m, s = a.model, a.sizes
    layers = " + ".join(str(m.depth(side)) for side in m.stacks)
    rows = f"{s.batch:,} row{'s' if s.batch > 1 else ''} of"
    source = f" and {s.source:,} in the source" if s.source else ""
    lines = [
        f"{m.form.replace('_', '–')}, {layers} layers, dim {m.dim:,}, {_read(m)}: "
        f"{a.total.parameters:,} parameters, {size(a.total.parameters * s.width)} in {s.dtype}",
        "",
        f"Training: a pass over {rows} {s.target:,} tokens{source}; operations of matrix products",
        *columns(_parts(a)),
        *([f"  kept for backward: {a.note}"] if a.note else []),
        "",
        "Where the forward pass goes",
        *columns([[name, short(n), share(n, a.total.flops)] for name, n in a.shares.items()]),
        *_crossings(a),
    ]
    if s.generate:
        lines += [
            "",
            f"Generating {rows} {s.generate:,} tokens, one at a time: operations of matrix products",
        ]
        lines += [*_generation(a), "", *_cache(a)]
    return "\n".join(lines)


def _read(m: ModelConfig) -> str:
    if isinstance(m.embedding, PatchEmbedding):
        return f"patches of {m.embedding.size} × {m.embedding.size} pixels"
    return f"{m.vocab:,} words"


def _parts(a: Account) -> list[list[str]]:
    whole = a.total
    known = a.activations if isinstance(a.activations, dict) else None
    rows = [["", "parameters", "", "forward", "backward", "kept for backward"]]
    for name, cost in a.parts.items():
        if cost == Cost() and not (known or {}).get(name):
            continue
        kept = size(known.get(name, 0)) if known is not None else "?"
        part = share(cost.parameters, whole.parameters)
        rows.append([name, f"{cost.parameters:,}", part, short(cost.flops), short(backward(cost)), kept])
    kept = size(sum(known.values())) if known is not None else "?"
    rows.append(["in all", f"{whole.parameters:,}", "", short(whole.flops), short(backward(whole)), kept])
    return rows


def _crossings(a: Account) -> Iterator[str]:
    for side, found in a.crossovers.items():
        if found is None:
            yield f"  {side}: tokens meet in no products"
        elif found.found is None:
            yield f"  {side}: attention stays below the feed-forward network up to {FARTHEST:,} tokens"
        else:
            formula = f" (by formula {found.formula:,.1f})" if found.formula is not None else ""
            yield f"  {side}: attention overtakes the feed-forward network at {found.found:,} tokens{formula}"
        if a.written_out[side]:
            yield f"  {side}: attention weights of a layer, if written out: {size(a.written_out[side])}"


def _generation(a: Account) -> Iterator[str]:
    total = Work("in all")
    rows = [["", "last step", "with a cache", "all steps", "with a cache", "less by"]]
    for work in a.generation:
        total += work
    for work in (*a.generation, total):
        numbers = (work.step, work.step_cached, work.total, work.total_cached)
        less = f"{work.total / work.total_cached:,.1f}" if work.total_cached else "-"
        rows.append([work.part, *map(short, numbers), less])
    yield from columns(rows)
    if a.encoding:
        yield f"  beside this the encoder, once: {short(a.encoding)}"


def _cache(a: Account) -> Iterator[str]:
    whole = sum(a.cache.values())
    yield f"What a state then holds, in {a.sizes.dtype}: {size(whole)} ({whole:,} bytes)"
    yield from columns([[KINDS[kind], size(n)] for kind, n in a.cache.items() if n] or [["nothing", ""]])
    if a.grows:
        yield f"  the last token of each row added {size(a.grows)}"
