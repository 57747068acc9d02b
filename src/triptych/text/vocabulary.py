"""What turns a run of text into ids: SentencePiece models (BPE, Unigram, characters) and plain bytes.

    0 … 3 specials │ 4 … size - 1 pieces; with byte fallback 4 … 259 are the bytes

``triptych.text.bytelevel`` is one more; ``triptych.text.tokenizer`` is what the rest of Triptych uses: it
adds symbols, the prefix and the files.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol

import sentencepiece

from triptych.errors import UserError

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "SECTION",
    "SPECIALS",
    "UNK",
    "Bytes",
    "Kind",
    "Pieces",
    "Settings",
    "Vocabulary",
    "sample_lines",
    "too_small",
    "train_pieces",
]

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")

SAMPLE = 500_000
"""Training looks at this many lines at most: an even sample, always the same one."""
LINE_LIMIT = 4_000
"""Characters. For training, longer lines are cut at a blank: SentencePiece would leave them out unseen."""

SECTION = "text.tokenizer"
"""Where these settings stand in a config."""

Kind = Literal["bpe", "unigram", "char", "byte", "bytebpe"]


@dataclass(frozen=True)
class Settings:
    """What a tokenizer is, apart from its vocabulary; see ``train_tokenizer``."""

    kind: Kind
    coverage: float = 0.9995
    byte_fallback: bool = True
    dummy_prefix: bool = True
    split_digits: bool = False


class Vocabulary(Protocol):
    """Ids from ``len(SPECIALS)`` to ``size - 1``. Another kind of model is another class of this shape."""

    size: int

    def encode(self, text: str) -> list[int]: ...
    def encode_batch(self, texts: list[str]) -> list[list[int]]: ...
    def sample(self, text: str, alpha: float, seed: int) -> list[int]: ...
    def decode(self, ids: list[int]) -> str: ...
    def piece(self, number: int) -> str: ...


class Bytes:
    """The 256 values of a byte of UTF-8."""

    size = len(SPECIALS) + 256

    def encode(self, text: str) -> list[int]:
        return [len(SPECIALS) + byte for byte in text.encode("utf-8")]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def sample(self, text: str, alpha: float, seed: int) -> list[int]:
        return self.encode(text)

    def decode(self, ids: list[int]) -> str:
        return bytes(number - len(SPECIALS) for number in ids).decode("utf-8", errors="replace")

    def piece(self, number: int) -> str:
        return f"<0x{number - len(SPECIALS):02X}>"


# SentencePiece writes a blank as U+2581, so a U+2581 of the text has to look different: ESC "_"; and ESC is
# doubled. Both are single bytes for the byte fallback, and text without them stays as it is.
_BLANK, _ESCAPE = "\u2581", "\x1b"
_ESCAPED = re.compile("\x1b([\x1b_]|\\Z)")

# Two ModelProtos in a row are one message with merged fields (Protocol Buffers, Encoding, "Last One Wins").
# This one sets only normalizer_spec.add_dummy_prefix = false: the prefix is ours to add, once a text, while
# the saved file keeps the setting for other readers.
_NO_PREFIX = b"\x1a\x02\x18\x00"

_RANDOM = threading.Lock()  # SentencePiece has one seed for the whole process


def _escape(text: str) -> str:
    return text.replace(_ESCAPE, _ESCAPE * 2).replace(_BLANK, _ESCAPE + "_")


def _unescape(text: str) -> str:
    if _ESCAPE not in text:
        return text
    meant = {"_": _BLANK, _ESCAPE: _ESCAPE, "": "\ufffd"}  # at the end the half of one
    return _ESCAPED.sub(lambda match: meant[match[1]], text)


def _blanks(text: str) -> str:
    return text.replace(_BLANK, " ")


class Pieces:
    """A SentencePiece model of any type."""

    def __init__(self, model: bytes, kind: Kind) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model + _NO_PREFIX)
        self._can_sample = kind != "char"
        self.size = self._processor.get_piece_size()

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._processor.encode(_escape(text))
        return ids

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self._processor.encode([_escape(text) for text in texts])
        return ids

    def sample(self, text: str, alpha: float, seed: int) -> list[int]:
        if not self._can_sample:
            return self.encode(text)
        with _RANDOM:
            sentencepiece.SetRandomGeneratorSeed(seed % 2**32)
            ids: list[int] = self._processor.encode(
                _escape(text), enable_sampling=True, alpha=alpha, nbest_size=-1
            )
        return ids

    def decode(self, ids: list[int]) -> str:
        # A blank that the vocabulary lacks comes back as the three bytes of U+2581.
        text: str = self._processor.decode(ids)
        return _unescape(_blanks(text))

    def piece(self, number: int) -> str:
        return self._processor.id_to_piece(number)


def train_pieces(settings: Settings, lines: Iterable[str], size: int, extra: int, threads: int) -> bytes:
    """A SentencePiece model of ``size`` pieces or, when the text gives no more, fewer.

    Args:
        extra: ids that stand beside it; only errors speak of them.
    """
    least = len(SPECIALS) + 256 * settings.byte_fallback
    if size <= least:
        raise too_small(size + extra, least + 1 + extra)
    ends: set[str] = set()
    text = sample_lines(_noting_ends(lines, ends))
    if not text:
        raise UserError(
            "there is no text to learn a vocabulary from", mend="give at least one line that is not empty"
        )
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_writer=model,
            model_type=settings.kind,
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=settings.coverage,
            byte_fallback=settings.byte_fallback,
            add_dummy_prefix=settings.dummy_prefix,
            split_digits=settings.split_digits,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            max_sentence_length=2**30,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            num_threads=threads,
            minloglevel=3,
            # SentencePiece learns from lines, and so never of their ends; as a byte they are at hand anyway.
            user_defined_symbols=[] if settings.byte_fallback else sorted(ends),
        )
    except RuntimeError as error:
        if needed := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            raise too_small(size + extra, int(needed[1]) + extra) from None
        raise
    return model.getvalue()


def _noting_ends(lines: Iterable[str], ends: set[str]) -> Iterator[str]:
    """The lines; ``ends`` holds LF afterwards if it is in one."""
    for line in lines:
        if not ends and "\n" in line:
            ends.add("\n")
        yield line


def sample_lines(lines: Iterable[str], keep_ends: bool = False) -> list[str]:
    """What is learned from: at most ``SAMPLE`` of the lines, each as likely as any other (reservoir sampling;
    Vitter 1985).

    Args:
        keep_ends: with their LF and unchanged, else as SentencePiece takes them.
    """
    rng = Random(0)
    kept: list[str] = []
    for number, line in enumerate(_training_lines(lines, keep_ends)):
        if number < SAMPLE:
            kept.append(line)
        elif (place := rng.randrange(number + 1)) < SAMPLE:
            kept[place] = line
    return kept


def _training_lines(lines: Iterable[str], keep_ends: bool) -> Iterator[str]:
    """Short lines; for SentencePiece escaped, without the character that it keeps for itself."""
    for number, line in enumerate(lines, start=1):
        try:
            line.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                "this training line holds a lone surrogate", f"line {number}", "read it as UTF-8"
            ) from None
        for text in re.findall("[^\n]*\n|[^\n]+", line) if keep_ends else line.split("\n"):
            if not keep_ends:  # it leaves out every line with U+2585, its mark for unknown characters
                text = _escape(text).replace("\u2585", " ")
            while len(text) > LINE_LIMIT:
                cut = text.rfind(" ", 1, LINE_LIMIT)
                cut = cut if cut > 0 else LINE_LIMIT
                yield text[:cut]
                text = text[cut:] if keep_ends else text[cut:].removeprefix(" ")
            if text:
                yield text


def too_small(size: int, least: int) -> UserError:
    return UserError(
        f"a vocabulary of {size} is too small: specials, bytes and the characters of this text need {least}",
        f"{SECTION}.size",
        f"set {SECTION}.size to {least} or more, lower {SECTION}.coverage or choose kind byte",
    )
