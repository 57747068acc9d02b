"""Cut a text that is too long for a model into pieces that fit, and put the translated pieces together again.

    text ──split_long──▶ pieces ──translate each──▶ pieces ──join──▶ text

Pieces are lossless: white space stays at the end of the piece before the cut, so a piece may carry it, or in
rare texts be nothing else.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence

from triptych.errors import UserError
from triptych.text.graphemes import is_boundary

__all__ = ["join", "split_long"]

FIRST_GUESS = 256  # characters

# Ends of sentences. The first set needs white space behind it (3.14, e.g), the second does not.
_SPACED_END, _END = ".!?…։", "。！？｡．‼⁇⁈⁉؟۔।॥።፧።။៕༎෴᙮᠃᱿\n\u2028\u2029"
_SPACED_CLAUSE, _CLAUSE = ",;:–—", "，、；：､،؛፣፤፥၊៖\t"
_CLOSING = "\ufe0f\"'”’»›)\\]}）」』》〉】〕｣"


def _marks(spaced: str, free: str) -> re.Pattern[str]:
    """Any run of marks and closing quotes or brackets that starts with a mark, and the white space behind it.

    Possessive, and matching whenever it starts: a line of 100,000 full stops costs one pass.
    """
    return re.compile(f"[{spaced}{free}](?:[{spaced}{free}{_CLOSING}])*+\\s*+")


# The best place to cut first: a pattern, and its marks that need no white space behind them.
_LEVELS: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = (
    (_marks(_SPACED_END, _END), frozenset(_END)),
    (_marks(_SPACED_CLAUSE, _CLAUSE), frozenset(_CLAUSE)),
    (re.compile(r"\s++"), frozenset()),
)


def split_long(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Cut ``text`` into pieces of which each fits and which joined by nothing give ``text`` again.

    A piece is about as long as fits, and ends, in order of preference, after a sentence, after a clause, at
    white space, between two characters as a reader sees them; only a single such character that does not fit
    is cut inside. A text that fits is returned whole.

    Args:
        text: one line or many.
        fits: says whether a piece is short enough. Taken to hold for shorter pieces when it holds for a
            longer one; where it does not quite (merging tokenizers), pieces still fit. Called a few times a
            piece, with strings not much longer than a piece (and once with the whole text).

    Raises:
        UserError: not even one character fits.
    """
    if fits(text):
        return [text]
    levels = [_cuts(text, pattern, free) for pattern, free in _LEVELS]
    pieces: list[str] = []
    start, guess = 0, FIRST_GUESS
    while start < len(text):
        reach = _reach(text, start, guess, fits)
        cut = start + reach
        if cut < len(text):
            cut = _best_cut(text, start, cut, levels, fits)
        pieces.append(text[start:cut])
        start, guess = cut, reach
    return pieces


def join(pieces: Sequence[str], language: str) -> str:
    """Put translated pieces together as ``language`` writes sentences: with a space, or without.

    Args:
        pieces: translations in order; empty ones leave no trace.
        language: code of the target language (``zh``, ``zh-Hant``, ``zho_Hans``, …). Unknown or empty means
        spaces.
    """
    spaced = re.split(r"[-_]", language.strip().lower())[0] not in _UNSPACED
    text = ""
    parts: list[str] = []
    for piece in pieces:
        if not piece:
            continue
        # Without spaces, two Latin words or numbers that meet would still become one.
        meet = text[-1:].isascii() and text[-1:].isalnum() and piece[0].isascii() and piece[0].isalnum()
        if text and (spaced or meet) and not (text[-1].isspace() or piece[0].isspace()):
            parts.append(" ")
        parts.append(piece)
        text = piece
    return "".join(parts)


# Languages that put nothing between sentences: Chinese (and Cantonese, Wu, …), Japanese, Thai, Lao, Khmer,
# Burmese.
_UNSPACED = {
    *("zh", "zho", "chi", "cmn", "yue", "wuu", "nan", "hak", "gan", "hsn", "lzh"),
    *("ja", "jpn", "th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur"),
}


def _cuts(text: str, pattern: re.Pattern[str], free: frozenset[str]) -> list[int]:
    """Ascending positions at which a piece may end, for one level of preference."""
    cuts = []
    for match in pattern.finditer(text):
        marks = match.group()
        free_standing = marks[0].isspace() or not free.isdisjoint(marks)
        abbreviation = marks[0] == "." and _abbreviates(text, match.start(), match.end())
        if (free_standing or (marks[-1].isspace() and not abbreviation)) and is_boundary(text, match.end()):
            cuts.append(match.end())
    return cuts


def _abbreviates(text: str, stop: int, after: int) -> bool:
    """True when the full stop more likely shortens a word: "J. Smith", "U.S. Army", "approx. five"."""
    initial = text[stop - 1].isupper() and not text[stop - 2 : stop - 1].isalnum() if stop else False
    return initial or text[after : after + 1].islower()


def _reach(text: str, start: int, guess: int, fits: Callable[[str], bool]) -> int:
    """How many characters from ``start`` fit, to about a sixteenth: gallop from ``guess``, then bisect."""
    rest = len(text) - start
    low, high = 0, rest + 1  # low fits (nothing does), high does not (there is no more)
    size, step = min(guess, rest), max(guess // 4, 1)
    while low == 0 or high > rest or high - low > 1 + low // 16:
        if fits(text[start : start + size]):
            low = size
            if low == rest:
                break
        elif size == 1:
            raise UserError(
                f"not even the single character {text[start]!r} fits the length limit",
                mend="raise the limit on the length of an input",
            )
        else:
            high = size
        if low == 0:
            size //= 2
        elif high > rest:
            size, step = min(low + step, rest), 2 * step
        else:
            size = (low + high) // 2
    return low


def _best_cut(
    text: str, start: int, end: int, levels: Sequence[list[int]], fits: Callable[[str], bool]
) -> int:
    """The best place to end the piece that starts at ``start`` and fits when it ends at ``end``."""
    for cuts in levels:
        last = bisect_right(cuts, end) - 1
        if last >= 0 and cuts[last] > start and (cuts[last] == end or fits(text[start : cuts[last]])):
            return cuts[last]
    cut = end
    while cut > start and not is_boundary(text, cut, start):
        cut -= 1
    return cut if cut > start and (cut == end or fits(text[start:cut])) else end
