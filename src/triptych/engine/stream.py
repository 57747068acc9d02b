"""Text as it is being written: tokens in, pieces of text out that no later token can change.

    token ─ Spoken: whole characters ─ Until: nothing of a stop text ─ piece

The pieces of an output, joined, are its whole text, however it is cut into tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from triptych.text import Tokenizer

# What the next token may still change: the bytes of a character that is not whole, each of which shows as
# U+FFFD (at most three are missing one), and the tokenizer's escape character, which may open a pair.
_OPEN = re.compile(r"(?:\ufffd{1,3}|\x1b)\Z")


class Spoken:
    """The text of tokens that follow others, in pieces of whole characters."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.ids = list(before)
        self.given = len(tokenizer.decode(before))  # characters of the text of ``ids``

    def add(self, token: int) -> str:
        """What can be given out after one more token."""
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        settled = _OPEN.sub("", text)
        piece = settled[self.given :]
        self.given += len(piece)
        if settled == text:
            # A border of characters: one token is enough to go on from, and long texts cost no more.
            self.ids = [token]
            self.given = len(self.tokenizer.decode(self.ids))
        return piece

    def end(self) -> str:
        """The rest: bytes that have become no character are U+FFFD after all."""
        return self.tokenizer.decode(self.ids)[self.given :]


class Until:
    """Text up to the first of some stop texts: the one that is complete first, and of several the longest.

    Attributes:
        found: a stop text was met; nothing follows.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops, self.held, self.found = stops, "", False

    def add(self, piece: str) -> str:
        """What can be given out after ``piece``: nothing that may be the start of a stop text."""
        text = self.held + piece
        met = [(at + len(stop), at) for stop in self.stops if (at := text.find(stop)) >= 0]
        if met:
            self.found, self.held = True, ""
            return text[: min(met)[1]]
        safe = next((at for at in range(len(text)) if self._begins(text[at:])), len(text))
        self.held = text[safe:]
        return text[:safe]

    def end(self) -> str:
        """The rest: what was held has become no stop text."""
        rest, self.held = self.held, ""
        return rest

    def _begins(self, text: str) -> bool:
        return any(stop.startswith(text) for stop in self.stops)


class Written:
    """One output while it is being written.

    Attributes:
        ids: produced tokens, those of a stop text included, an end not.
        text: what was given out so far.
        reason: why it ended: ``eos``, ``stop`` or ``length``; empty before.
    """

    def __init__(self, spoken: Spoken, until: Until, ends: Sequence[int], limit: int) -> None:
        self.spoken, self.until, self.ends, self.limit = spoken, until, ends, limit
        self.ids: list[int] = []
        self.text, self.reason = "", ""

    def take(self, token: int) -> str:
        """What can be given out after one more token."""
        piece = ""
        if token in self.ends:
            self.reason = "eos"
        else:
            self.ids.append(token)
            piece = self.until.add(self.spoken.add(token))
            self.reason = "length" if len(self.ids) == self.limit else ""
        if self.reason and not self.until.found:
            piece += self.until.add(self.spoken.end())
            piece += self.until.end()
        if self.until.found:
            self.reason = "stop"
        self.text += piece
        return piece
