"""The one error a user may see: what happened, where, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Wrong use: bad input, an impossible setting, a file that is not what it should be.

    The command line prints it as one message and exits with code 2; the library raises it.

    Args:
        what: what happened, in words.
        where: ``file:line`` or ``section.key``; empty when there is no place.
        mend: what to do about it.
    """

    def __init__(self, what: str, where: str = "", mend: str = "") -> None:
        super().__init__(what, where, mend)
        self.what, self.where, self.mend = what, where, mend

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what}" + (f"\n  → {self.mend}" if self.mend else "")


def nearest(word: str, known: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """Those of the ``known`` words that are most like a word, in whatever case; the likest first."""
    spelt = {one.lower(): one for one in known}
    return [spelt[close] for close in difflib.get_close_matches(word.lower(), spelt, n, cutoff)]
