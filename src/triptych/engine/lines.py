"""What a list of lines may hold."""

from __future__ import annotations

from collections.abc import Sequence

from triptych.errors import UserError


def are_text(lines: Sequence[str], first: int, each: str = "line") -> None:
    """Refuse what is not a sequence of texts, each a line or whatever it is called. Raises UserError."""
    if isinstance(lines, str):
        mend = "give a list of lines: [text]"
        raise UserError("one text stands where lines should, and would be taken letter by letter", "", mend)
    for number, line in enumerate(lines, first + 1):
        if not isinstance(line, str):
            raise UserError(f"{line!r} is no text", f"{each} {number}", "give each line as a str")
        try:
            line.encode()
        except UnicodeEncodeError as error:
            what = f"character {error.start + 1} is {line[error.start]!r}, half of a pair and no text"
            raise UserError(what, f"{each} {number}", "decode the text as UTF-8 or UTF-16, whole") from None
