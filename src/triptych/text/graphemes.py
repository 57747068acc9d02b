"""Where a text may be cut without breaking what a reader sees as one character."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["is_boundary"]

ZWJ = "\u200d"
# Continue the character before them: emoji skin tones, flag tags, joiners, Thai and Lao vowels written after.
_EXTENDING = re.compile("[\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\u200c\u200d\u0e33\u0eb3\uff9e\uff9f]")
# Vowels written before their consonant in Thai and Lao: not extended grapheme clusters, yet never cut off.
_LEADING_VOWEL = re.compile("[\u0e40-\u0e44\u0ec0-\u0ec4]")
_FLAG_HALF = re.compile("[\U0001f1e6-\U0001f1ff]")
_JAMO_LEAD = re.compile("[\u1100-\u115f\ua960-\ua97c]")
_JAMO_VOWEL_OR_TAIL = re.compile("[\u1160-\u11ff\ud7b0-\ud7c6\ud7cb-\ud7fb]")
_JAMO_OR_SYLLABLE = re.compile("[\u1100-\u11ff\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb]")
_PREPENDED = re.compile(
    "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd"
    "\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a\U00011a84-\U00011a89\U00011d46\U00011f02]"
)
VIRAMA = 9  # its canonical combining class


def is_boundary(text: str, index: int, start: int = 0) -> bool:
    """True when a cut before ``text[index]`` splits no grapheme cluster.

    Follows Unicode Standard Annex 29, section 3.1.1, on the careful side: it may forbid a cut there that the
    annex allows (after any joiner or virama, after a Thai leading vowel), not the other way round.

    Args:
        text: any text.
        index: the cut, 0 to ``len(text)``.
        start: a place before it where a piece starts; nothing before it is looked at.
    """
    if index <= start or index >= len(text):
        return True
    before, after = text[index - 1], text[index]
    if before == "\r" and after == "\n":
        return False
    if before in "\r\n" or after in "\r\n":
        return True
    if unicodedata.category(after).startswith("M") or _EXTENDING.match(after) or before == ZWJ:
        return False
    if _PREPENDED.match(before) or _LEADING_VOWEL.match(before) or _after_virama(text, index, start):
        return False
    if _JAMO_LEAD.match(before) and _JAMO_OR_SYLLABLE.match(after):
        return False
    if _JAMO_VOWEL_OR_TAIL.match(after) and _JAMO_OR_SYLLABLE.match(before):
        return False
    return not (_FLAG_HALF.match(after) and _flag_halves_before(text, index, start) % 2)


def _after_virama(text: str, index: int, start: int) -> bool:
    """True when the marks before ``index`` hold a virama, which ties the next consonant to the last one."""
    while index > start and unicodedata.category(text[index - 1]).startswith("M"):
        index -= 1
        if unicodedata.combining(text[index]) == VIRAMA:
            return True
    return False


def _flag_halves_before(text: str, index: int, start: int) -> int:
    first = index
    while first > start and _FLAG_HALF.match(text[first - 1]):
        first -= 1
    return index - first
