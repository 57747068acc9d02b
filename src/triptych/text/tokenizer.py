"""Text to ids and back, losslessly: BPE, Unigram and character models over SentencePiece, BPE over bytes, and
plain bytes.

    text ──▶ runs between symbols ──▶ prefix, escape ──▶ vocabulary ──▶ ids
    ids  ──▶ runs between symbols ──▶ vocabulary ──▶ unescape, prefix off ──▶ text

    ids:  0 … 3 specials │ 4 … vocabulary (with byte fallback 4 … 259 are the bytes) │ … symbols

What holds for every kind:

- ``decode(encode(x)) == x`` for every string, white space and control characters included: always with byte
  fallback and for bytes, else for text whose characters the vocabulary covers. Nothing is normalised.
- Encoding never gives pad, bos or eos, and with byte fallback never unk. ``<s>`` inside a text is text, and
  so is the name of a symbol unless ``allow_symbols=True``: symbols have ids that no merge can reach.
- ``decode`` of the first ids of a text is a beginning of it, but for U+FFFD at its end where a character is
  only half there: what shows text while it grows waits with these.

SentencePiece: Kudo and Richardson 2018. BPE: Sennrich et al. 2016. Unigram and its sampling: Kudo 2018.
BPE over bytes: Radford et al. 2019. BPE-dropout: Provilkov et al. 2020.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from triptych.errors import UserError
from triptych.text.bytelevel import ByteLevel, train_merges
from triptych.text.files import write_bytes_atomic, write_text_atomic
from triptych.text.vocabulary import (
    BOS,
    EOS,
    PAD,
    SECTION,
    SPECIALS,
    UNK,
    Bytes,
    Kind,
    Pieces,
    Settings,
    Vocabulary,
    too_small,
    train_pieces,
)

__all__ = ["BOS", "EOS", "PAD", "UNK", "Kind", "Settings", "Tokenizer", "train_tokenizer"]

UNKNOWN = "\ufffd"
"""What unk, a broken byte sequence and an id outside the vocabulary decode to."""
MIN_COVERAGE = 0.98
"""SentencePiece takes no less."""

SETTINGS_FILE, FORMAT = "tokenizer.json", 1
MEND = "copy the tokenizer folder again, or train the tokenizer anew"


class Tokenizer:
    """A trained tokenizer. Made by ``train_tokenizer`` or ``Tokenizer.load``; never changes afterwards.

    Attributes:
        size: number of ids: specials, vocabulary, symbols.
        symbols: user-defined symbols; the first has id ``size - len(symbols)``.
        fingerprint: sha256 over settings, symbols and model: equal when and only when the ids mean the same.
    """

    def __init__(self, settings: Settings, symbols: Sequence[str] = (), model: bytes = b"") -> None:
        self.settings = settings
        self.symbols = tuple(symbols)
        self.model = model
        self._vocabulary = _vocabulary(settings, model)
        self._prefix = " " if settings.dummy_prefix else ""
        self._ids = {symbol: self._vocabulary.size + n for n, symbol in enumerate(self.symbols)}
        longest_first = sorted(map(re.escape, self.symbols), key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(longest_first)})") if self.symbols else None
        self.size = self._vocabulary.size + len(self.symbols)
        self.fingerprint = hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[Settings, tuple[str, ...], bytes]]:
        return Tokenizer, (self.settings, self.symbols, self.model)

    def __repr__(self) -> str:
        return f"Tokenizer({self.settings.kind}, size={self.size}, {self.fingerprint[:12]})"

    @property
    def kind(self) -> Kind:
        return self.settings.kind

    def with_symbols(self, symbols: Sequence[str]) -> Tokenizer:
        """The same with these symbols, too: new ones get the next ids, all other ids stay what they are.

        Raises:
            UserError: what cannot be a symbol.
        """
        new = [symbol for symbol in dict.fromkeys(symbols) if symbol not in self._ids]
        _check(self.settings, (*self.symbols, *new))
        return Tokenizer(self.settings, (*self.symbols, *new), self.model)

    def symbol_id(self, symbol: str) -> int:
        """The id of a user-defined symbol.

        Raises:
            UserError: there is no such symbol.
        """
        if symbol not in self._ids:
            known = ", ".join(self.symbols) or "none"
            raise UserError(f"no symbol {symbol!r} in this tokenizer", mend=f"its symbols: {known}")
        return self._ids[symbol]

    def encode(self, text: str, *, allow_symbols: bool = False, begins: bool = True) -> list[int]:
        """Ids of a text, without bos and eos.

        Args:
            allow_symbols: read the names of user-defined symbols as these symbols; for text from a template.
            begins: False for text that goes on from other text: it gets no prefix.

        Raises:
            UserError: a lone surrogate, which UTF-8 cannot write.
        """
        if not (allow_symbols and self._split):
            return self._vocabulary.encode(self._prepared(text, first=begins))
        ids: list[int] = []
        for n, run in enumerate(self._split.split(text)):  # text, symbol, text, …, text
            first = begins and n == 0
            ids += [self._ids[run]] if n % 2 else self._vocabulary.encode(self._prepared(run, first=first))
        return ids

    def encode_batch(self, texts: Sequence[str], *, allow_symbols: bool = False) -> list[list[int]]:
        """``encode`` of each text; faster than one by one."""
        if allow_symbols and self._split:
            return [self.encode(text, allow_symbols=True) for text in texts]
        return self._vocabulary.encode_batch([self._prepared(text) for text in texts])

    def sample(self, text: str, alpha: float, seed: int) -> list[int]:
        """One random segmentation of a text, the same for the same seed.

        For BPE ``alpha`` is the share of merges left out (0: none, as ``encode``; 1: all, characters). For
        Unigram segmentations are drawn from p^alpha: the smaller, the wilder. Characters and bytes have one.
        """
        return self._vocabulary.sample(self._prepared(text), alpha, seed)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of any ids whatever: pad, bos and eos are dropped, and what has no text is U+FFFD."""
        numbers = [number for number in map(int, ids) if number not in (PAD, BOS, EOS)]
        parts: list[str] = []
        for inside, run in itertools.groupby(numbers, self._in_vocabulary):
            if inside:
                parts.append(self._vocabulary.decode(list(run)))
            else:
                parts += [self._symbol(number) or UNKNOWN for number in run]
        # Only a text that starts outside a symbol was given the prefix.
        if self._prefix and numbers and self._in_vocabulary(numbers[0]):
            parts[0] = parts[0].removeprefix(self._prefix)
        return "".join(parts)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """A name to show for each id: ``<s>``, ``▁the``, ``<0xE4>``, a symbol, ``<?9999>`` outside."""
        return [self._piece(number) for number in map(int, ids)]

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and, where there is one, the model into a folder:
        ``sentencepiece.model``, or ``merges.txt`` for BPE over bytes.

        Raises:
            UserError: the folder cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make this folder: {error.strerror}", str(folder)) from None
        if self.model:
            write_bytes_atomic(folder / _model_file(self.kind), self.model)
        content = {**self._content(), "size": self.size, "fingerprint": self.fingerprint}
        write_text_atomic(folder / SETTINGS_FILE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """The tokenizer that ``save`` wrote.

        Raises:
            UserError: a missing, damaged or altered file, by name.
        """
        path = folder / SETTINGS_FILE
        try:
            content = json.loads(_read(path))
            settings, symbols = Settings(**content["settings"]), tuple(content["symbols"])
            wanted = content["model"], content["fingerprint"]
            known = content["format"] == FORMAT and settings.kind in get_args(Kind)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UserError("this is not a tokenizer.json of Triptych", str(path), MEND) from None
        if not known:
            raise UserError("this tokenizer was written by another version of Triptych", str(path), MEND)
        model_file = folder / _model_file(settings.kind)
        model = b"" if settings.kind == "byte" else _read(model_file)
        if _digest(model) != wanted[0]:
            raise UserError("this is not the model that tokenizer.json describes", str(model_file), MEND)
        try:
            tokenizer = cls(settings, symbols, model)
        except (RuntimeError, TypeError, ValueError):
            raise UserError("this tokenizer is damaged", str(path), MEND) from None
        if tokenizer.fingerprint != wanted[1]:
            raise UserError("its content does not match its fingerprint", str(path), MEND)
        return tokenizer

    def _content(self) -> dict[str, Any]:
        """Everything that decides what an id means."""
        return {
            "format": FORMAT,
            "settings": asdict(self.settings),
            "symbols": list(self.symbols),
            "model": _digest(self.model),
        }

    def _prepared(self, text: str, *, first: bool = True) -> str:
        """A run of text, checked and with the prefix that the first one gets."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            raise UserError(
                f"character {error.start + 1} of the text is a lone surrogate, U+{code:04X}",
                mend="read the text as UTF-8; half a character cannot be kept",
            ) from None
        return self._prefix + text if first and text else text

    def _in_vocabulary(self, number: int) -> bool:
        return len(SPECIALS) <= number < self._vocabulary.size

    def _symbol(self, number: int) -> str | None:
        place = number - self._vocabulary.size
        return self.symbols[place] if 0 <= place < len(self.symbols) else None

    def _piece(self, number: int) -> str:
        if 0 <= number < len(SPECIALS):
            return SPECIALS[number]
        if self._in_vocabulary(number):
            return self._vocabulary.piece(number)
        return self._symbol(number) or f"<?{number}>"


def train_tokenizer(
    lines: Iterable[str],
    *,
    kind: Kind,
    size: int,
    coverage: float = 0.9995,
    byte_fallback: bool = True,
    dummy_prefix: bool = True,
    split_digits: bool = False,
    symbols: Sequence[str] = (),
    threads: int = 2,
    shrink: bool = False,
) -> Tokenizer:
    """Learn a vocabulary from lines of text. The same arguments give the same tokenizer.

    Args:
        lines: any number of lines; training looks at an even sample of ``SAMPLE`` of them.
        kind: ``bpe``, ``unigram``, ``char`` (every character of the text), ``byte`` (learns nothing) or
            ``bytebpe`` (BPE over bytes; coverage, byte_fallback and threads say nothing to it).
        size: number of ids in all, specials and symbols included. For ``char`` and ``byte`` an upper bound.
        coverage: share of the characters of the text, the most frequent first, with a piece of their own.
        byte_fallback: write all others as bytes; without it they become unk.
        dummy_prefix: a blank before the text, so that a word is the same piece at the start and inside.
        split_digits: a piece holds one digit at most, for arithmetic; numbers take more pieces.
        symbols: entries of their own at the end of the vocabulary, outside the reach of ordinary text.
        threads: part of the outcome for Unigram, whose sums depend on their order.
        shrink: take the largest vocabulary that the text gives if ``size`` is more than that.

    Raises:
        UserError: nothing to learn from, a size too small or too large (it names the bound), wrong symbols.
    """
    settings = Settings(kind, coverage, byte_fallback, dummy_prefix and kind != "byte", split_digits)
    _check(settings, symbols)
    tokenizer = Tokenizer(settings, symbols, _learn(settings, lines, size, len(symbols), threads))
    if tokenizer.size > size:
        raise too_small(size, tokenizer.size)
    if tokenizer.size < size and kind in ("bpe", "unigram", "bytebpe") and not shrink:
        raise UserError(
            f"this text is too small for a vocabulary of {size}: the largest it gives is {tokenizer.size}",
            f"{SECTION}.size",
            f"set {SECTION}.size to {tokenizer.size} or less, or {SECTION}.shrink to true",
        )
    return tokenizer


def _learn(settings: Settings, lines: Iterable[str], size: int, symbols: int, threads: int) -> bytes:
    if settings.kind == "byte":
        return b""
    if settings.kind == "bytebpe":
        return train_merges(settings, lines, size - symbols, symbols)
    return train_pieces(settings, lines, size - symbols, symbols, threads)


def _vocabulary(settings: Settings, model: bytes) -> Vocabulary:
    if settings.kind == "byte":
        return Bytes()
    return ByteLevel(model, settings) if settings.kind == "bytebpe" else Pieces(model, settings.kind)


def _model_file(kind: Kind) -> str:
    return "merges.txt" if kind == "bytebpe" else "sentencepiece.model"


def _check(settings: Settings, symbols: Sequence[str]) -> None:
    if settings.kind not in get_args(Kind):
        near = ", ".join(get_args(Kind))
        raise UserError(f"no tokenizer of kind {settings.kind!r}", f"{SECTION}.kind", f"choose one of {near}")
    if not MIN_COVERAGE <= settings.coverage <= 1:
        raise UserError(
            f"{settings.coverage} is no share of characters",
            f"{SECTION}.coverage",
            f"from {MIN_COVERAGE} to 1",
        )
    for n, symbol in enumerate(symbols):
        plain = symbol.isprintable() and symbol not in SPECIALS
        if not symbol or not plain or symbol in symbols[:n]:
            raise UserError(
                f"{symbol!r} cannot be a symbol",
                f"{SECTION}.symbols",
                f"symbols are printable, not empty, different from each other and from {' '.join(SPECIALS)}",
            )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read this file of a tokenizer: {error.strerror}", str(path), MEND) from None
