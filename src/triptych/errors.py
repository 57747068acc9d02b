"""The one error a user may see: what happened, where, and what to do about it."""

from __future__ import annotations


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
