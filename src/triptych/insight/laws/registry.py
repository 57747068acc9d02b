"""The table of laws: a law is one function that compares things about a subject."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from triptych.config.model import Form
from triptych.insight.laws.subject import Subject
from triptych.insight.laws.verdict import Compared

# Yields comparisons, and notes (text) on what was left out.
Check = Callable[[Subject], Iterator[Compared | str]]

ALL: tuple[Form, ...] = ("encoder_decoder", "decoder", "encoder")
ENCODERS: tuple[Form, ...] = ("encoder_decoder", "encoder")
DECODERS: tuple[Form, ...] = ("encoder_decoder", "decoder")


@dataclass(frozen=True)
class Law:
    """A law.

    Attributes:
        forms: the forms it applies to.
        cause, place: the usual reason when it is broken, and the file to look at.
        reason: why it does not apply to the other forms.
        whole: it looks at the whole model, also where the others look at a smaller one.
    """

    number: int
    name: str
    forms: Sequence[Form]
    check: Check
    cause: str
    place: str
    reason: str
    whole: bool


LAWS: dict[int, Law] = {}


def law(
    number: int,
    name: str,
    cause: str,
    place: str,
    forms: Sequence[Form] = ALL,
    reason: str = "",
    whole: bool = False,
) -> Callable[[Check], Check]:
    """Decorator: this function checks law ``number``."""

    def register(check: Check) -> Check:
        assert number not in LAWS
        LAWS[number] = Law(number, name, forms, check, cause, place, reason, whole)
        return check

    return register
