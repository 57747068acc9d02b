"""Sentences in, a tag for each word out.

words ─ windows that fit, at borders of words ─ pieces ─ output at each word's first piece ─ tags
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triptych.data.labelled import flat
from triptych.engine.lines import are_text
from triptych.engine.rows import Reader
from triptych.errors import UserError
from triptych.model import DecoderOnly, EncoderOnly
from triptych.text import Tokenizer
from triptych.text.bio import is_bio, repaired

Span = tuple[int, int]


class Tagger:
    """Tags words with a model and its tokenizer. Every word has one tag.

    Args:
        tags: names of the tags, in the order of the model's outputs.
        max_length: tokens that the model takes at once. A longer sentence is read in windows, which share
            words as context where they meet; each word is tagged where it stands farthest from an edge.
    """

    def __init__(
        self,
        model: EncoderOnly | DecoderOnly,
        tokenizer: Tokenizer,
        tags: Sequence[str],
        max_length: int = 256,
    ) -> None:
        self.reader, self.tags = Reader(model, tokenizer, max_length), tuple(tags)

    def tag(
        self, sentences: Sequence[Sequence[str]], repair: bool = False, first: int = 0
    ) -> list[list[str]]:
        """The tags of each sentence's words; a sentence without words has none.

        Args:
            repair: make what is said well-formed BIO with the same spans, as ``text/bio.py`` reads them; tags
                that mark no spans stay as they are.
            first: number of the first sentence in the whole input, for messages.

        Raises:
            UserError: an empty word, or one that is no text.
        """
        room = self.reader.room(1)
        rows, places = [], []
        for number, words in enumerate(sentences):
            sentence = f"sentence {first + number + 1}"
            are_text(words, 0, f"{sentence}, word")
            pieces = self.reader.tokenizer.encode_batch(words)
            for place, ids in enumerate(pieces, 1):
                if not ids:
                    raise UserError("this word is empty", f"{sentence}, word {place}", "leave it out")
            # Of a word that alone is too long the beginning is read: its tag is at its first piece.
            pieces = [ids[:room] for ids in pieces]
            for (start, stop), own in windows([len(ids) for ids in pieces], room):
                rows.append(self.reader.row([flat(pieces[start:stop])]))
                places.append((number, start, own, pieces))
        out = [[""] * len(words) for words in sentences]
        for n, logits_TK in self.reader.read(rows):
            number, start, own, pieces = places[n]
            said = logits_TK.argmax(-1).tolist()
            slot = 1  # after the special that begins the row
            for word in range(start, own[1]):
                if word >= own[0]:
                    out[number][word] = self.tags[said[slot]]
                slot += len(pieces[word])
        return [repaired(tags) for tags in out] if repair and is_bio(set(self.tags)) else out


def windows(lengths: Sequence[int], room: int) -> Iterator[tuple[Span, Span]]:
    """Windows of whole words that fit, each with those of its words that are tagged there.

    Words that two windows share, about a quarter of the room, are tagged half in the one, half in the other:

        words    0 1 2 3 4 5 6 7 8 9
        windows  ───────────
                         ─────────────
        tagged   ─────────   ─────────    together each once

    Args:
        lengths: pieces of each word, at most ``room`` each.
    """
    start = own = 0
    while own < len(lengths):
        stop = _reach(lengths, start, room)
        if stop == len(lengths):
            yield (start, stop), (own, stop)
            return
        # The next one begins a quarter of the room before this one ends, and after the last word it had.
        after = stop
        while after - 1 > own and sum(lengths[after - 1 : stop]) <= room // 4:
            after -= 1
        middle = (after + stop + 1) // 2
        yield (start, stop), (own, middle)
        start, own = after, middle


def _reach(lengths: Sequence[int], start: int, room: int) -> int:
    """The end of the words from ``start`` on that fit."""
    stop, left = start, room
    while stop < len(lengths) and lengths[stop] <= left:
        left -= lengths[stop]
        stop += 1
    return stop
