"""Text that is safe and readable in HTML: escaped, nothing a parser may not see, short numbers."""

from __future__ import annotations

import html
import math
import re

__all__ = ["clean", "escape", "number", "span_of_time", "visible"]

# Characters HTML forbids even as references: controls, and halves of surrogate pairs, which UTF-8 lacks too.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def clean(text: str) -> str:
    """``text`` with U+FFFD for what may not stand in an HTML file."""
    return _FORBIDDEN.sub("\ufffd", text)


def escape(text: object) -> str:
    """``text`` for use inside an element or a quoted attribute."""
    return html.escape(clean(str(text)))


def visible(token: str) -> str:
    """A token with pictures for what leaves no ink: space, line end, other controls, nothing at all."""
    if not token:
        return "∅"
    shown = "".join(chr(0x2400 + ord(c)) if ord(c) < 0x20 else c for c in token)
    return re.sub(r"\s", "␣", shown)


def number(value: float, digits: int = 4) -> str:
    """``value`` with about ``digits`` digits: ``12,345``, ``0.001234``, ``5·10⁻⁷``; ``–`` when not finite."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    power = math.floor(math.log10(abs(value)))
    if -5 < power < 15:
        text = f"{value:,.{max(0, digits - 1 - power)}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    factor, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    factor = factor.rstrip("0").rstrip(".") if "." in factor else factor
    power_text = str(int(exponent)).translate(_SUPERSCRIPT)
    return f"10{power_text}" if factor == "1" else f"{factor}·10{power_text}"


def span_of_time(seconds: float) -> str:
    """``42 s``, ``14 min``, ``2 h 5 min``; ``–`` when not finite."""
    if not math.isfinite(seconds):
        return "–"
    s = max(0, round(seconds))
    if s < 60:
        return f"{s} s"
    large, small, names = (s // 60, s % 60, "min s") if s < 3600 else (s // 3600, s % 3600 // 60, "h min")
    first, second = names.split()
    return f"{large} {first} {small} {second}" if small else f"{large} {first}"
