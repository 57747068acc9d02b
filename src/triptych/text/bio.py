"""BIO tags: ``B-PER I-PER O B-LOC`` marks two spans, a person of two words and a place of one.

The spans of tags that are not well formed are those of the CoNLL shared tasks' scorer (Tjong Kim Sang and
De Meulder 2003, conlleval): ``I-X`` begins a span where no span of X goes on. So IOB1, in which ``B`` stands
only between neighbours of one type, is read aright too, and so are the ends and singles of IOBES.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

OUTSIDE = ("O", "")
BEGIN, END = ("B", "S"), ("E", "S")


def parts(tag: str) -> tuple[str, str]:
    """``B-PER`` is ``B`` and ``PER``: apart at the first hyphen."""
    prefix, _, kind = tag.partition("-")
    return (prefix, kind) if prefix != "O" else OUTSIDE


def is_bio(tags: Iterable[str]) -> bool:
    """Whether these tags mark spans: each is ``O``, or a letter of BIOES, a hyphen and a type; not all O."""
    marks = {parts(tag) for tag in tags} - {OUTSIDE}
    return bool(marks) and all(prefix in ("B", "I", "E", "S") and kind for prefix, kind in marks)


def spans(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """(type, first word, word past the last) of each span of a sentence, in order."""
    found: list[tuple[str, int, int]] = []
    start, before = 0, OUTSIDE
    for place, now in enumerate([*map(parts, tags), OUTSIDE]):
        begins = _begins(before, now)
        if before != OUTSIDE and (begins or now == OUTSIDE):
            found.append((before[1], start, place))
        start, before = (place if begins else start), now
    return found


def _begins(before: tuple[str, str], now: tuple[str, str]) -> bool:
    """Whether a span begins at a tag."""
    if now == OUTSIDE:
        return False
    return now[0] in BEGIN or before == OUTSIDE or before[1] != now[1] or before[0] in END


def repaired(tags: Sequence[str]) -> list[str]:
    """The well-formed BIO tags with the same spans."""
    out = ["O"] * len(tags)
    for kind, start, stop in spans(tags):
        out[start:stop] = [f"B-{kind}", *[f"I-{kind}"] * (stop - start - 1)]
    return out
