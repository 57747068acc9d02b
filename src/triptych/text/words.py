"""Where words begin among the pieces of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from triptych.text.characters import script_pattern

__all__ = ["word_starts"]

_UNSPACED = script_pattern(("Han", "Kana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan", "Yi")).pattern
"""Scripts that put no blanks between words. A character stands for a word."""

# The first of some blanks; other white space; an unspaced character; what follows one of the last two.
_START = re.compile(rf"(?<! ) |[^\S ]|(?<! ){_UNSPACED}|(?<=[^\S ])\S|(?<={_UNSPACED})\S")


def word_starts(pieces: Sequence[bytes], every: bool = False) -> list[bool]:
    """For each piece of a text, as UTF-8, whether a word begins where it does. The first always does.

    Args:
        every: each character is a word.
    """
    text = b"".join(pieces).decode("utf-8", errors="surrogateescape")
    sizes = [1] * len(text) if text.isascii() else [len(c.encode("utf-8", "surrogateescape")) for c in text]
    place = [0, *accumulate(sizes)]  # of each character in bytes
    starts = set(place) if every else {0, *(place[match.start()] for match in _START.finditer(text))}
    return [start in starts for start in accumulate(map(len, pieces[:-1]), initial=0)] if pieces else []
