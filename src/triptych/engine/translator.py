"""Lines in, lines out: a translator over any number of lines.

lines ─ split what is too long ─ encode ─ sort by length ─ batches ─ search ─ decode ─ join ─ lines
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from triptych.config import DecodingConfig
from triptych.data import BOS, EOS, pad
from triptych.decoding import Hypothesis, TranslationSteps, rows, search
from triptych.engine.lines import are_text
from triptych.engine.precision import evaluating
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import EncoderDecoder
from triptych.model.attention import watch
from triptych.text import Tokenizer, join, split_long
from triptych.text.characters import is_blank

# Padded source tokens × hypotheses of a batch: large enough to fill the processor, small enough to stay in
# its caches (benchmarks/translation.py times it).
TOKENS = 6144
# From a part of a line to the next in the number that random draws depend on. A generator takes 32 bits of
# it: multiples of the golden ratio of 2^32 stay farthest from each other, and so from other lines.
PART = 2654435761


@dataclass(frozen=True)
class Alternative:
    """One of the n best outputs of a line.

    Attributes:
        score: mean over the line's pieces of the search's score.
        logprob: log-probability in nats, summed over pieces.
        pieces: the produced tokens as text.
        reason: ``eos``, ``length`` (a limit was met), or ``blank`` (nothing to translate).
        alignment: for each produced token, the source token it attends to most; when asked for.
    """

    text: str
    score: float
    logprob: float
    pieces: tuple[str, ...]
    reason: str
    alignment: tuple[int, ...] = ()


@dataclass(frozen=True)
class Translation:
    """A line's outputs, best first, and the source tokens they came from."""

    alternatives: tuple[Alternative, ...]
    source_pieces: tuple[str, ...] = ()
    split: int = 1

    @property
    def text(self) -> str:
        """The best output."""
        return self.alternatives[0].text


class Translator:
    """Translates with a model and its tokenizer. Line n of the output is line n of the input."""

    def __init__(self, model: EncoderDecoder, tokenizer: Tokenizer, language: str, max_length: int) -> None:
        self.model, self.tokenizer, self.language = model, tokenizer, language
        known = model.config.max_positions("encoder")
        self.max_length = max_length if known is None else min(max_length, known - 1)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @torch.inference_mode()
    def translate(
        self,
        lines: Sequence[str],
        settings: DecodingConfig,
        strict: bool = False,
        align: bool = False,
        first: int = 0,
    ) -> list[Translation]:
        """Translate lines; blank lines give blank lines.

        A line of more than ``max_length`` tokens is split at sentence ends, and its translations joined;
        with ``strict`` it is refused.

        Args:
            first: number of the first line in the whole input: random draws depend on it.
        """
        are_text(lines, first)
        parts: list[list[str]] = []
        for i, line in enumerate(lines):
            whole = [] if is_blank(line) else [line]
            if whole and not self._fits(line):
                if strict:
                    count = len(self.tokenizer.encode(line))
                    what = f"{count} tokens, and the model takes {self.max_length}"
                    raise UserError(what, f"line {first + i + 1}", "shorten it, or leave --strict out")
                whole = [piece for piece in split_long(line, self._fits) if not is_blank(piece)]
            parts.append(whole)
        flat = [piece for whole in parts for piece in whole]
        numbers = [first + i + k * PART for i, whole in enumerate(parts) for k in range(len(whole))]
        ids = self.tokenizer.encode_batch(flat)
        with evaluating(self.model):
            found = self._search(ids, numbers, settings)
            aligned = self._align(ids, found) if align else None
        out, at = [], 0
        for whole in parts:
            span = slice(at, at + len(whole))
            at += len(whole)
            out.append(self._gather(ids[span], found[span], aligned[span] if aligned else None))
        return out

    def check(self, settings: DecodingConfig) -> None:
        """Refuse what the model cannot do. Raises UserError."""
        known = self.model.config.max_positions("decoder")
        if known and settings.max_length and settings.max_length >= known:
            raise UserError(
                f"the model knows {known} positions", "decoding.max_length", f"use at most {known - 1}"
            )
        if settings.stop:
            raise UserError("a translation has no stop texts", "decoding.stop", "leave it empty")

    def _fits(self, text: str) -> bool:
        # A token is at most a character or a byte of it: most lines need no counting.
        return len(text.encode()) < self.max_length or len(self.tokenizer.encode(text)) <= self.max_length

    def _search(
        self, ids: Sequence[Sequence[int]], numbers: Sequence[int], settings: DecodingConfig
    ) -> list[list[Hypothesis]]:
        out: list[list[Hypothesis]] = [[] for _ in ids]
        each = rows(settings)
        order = sorted(range(len(ids)), key=lambda i: (-len(ids[i]), i))
        while order:
            width = len(ids[order[0]]) + 1
            chunk, order = _take(order, max(1, TOKENS // (width * each)))
            source, layout = pad([[*ids[i], EOS] for i in chunk])
            memory = self.model.encode(source.to(self.device), layout.to(self.device))
            limits = [settings.max_length or self._limit(len(ids[i])) for i in chunk]
            steps = TranslationSteps(self.model, memory, each)
            for i, found in zip(
                chunk, search(steps, limits, settings, index=[numbers[i] for i in chunk]), strict=True
            ):
                out[i] = found
        return out

    def _limit(self, length: int) -> int:
        """Most tokens said for a source of ``length`` tokens when nothing is set."""
        limit = 3 * length + 20
        known = self.model.config.max_positions("decoder")
        return min(limit, known - 1) if known else limit

    def _gather(
        self,
        ids: Sequence[Sequence[int]],
        found: Sequence[list[Hypothesis]],
        aligned: Sequence[list[tuple[int, ...]]] | None,
    ) -> Translation:
        source = tuple(p for row in ids for p in self.tokenizer.pieces(row))
        if not found:
            return Translation((Alternative("", 0.0, 0.0, (), "blank"),), source, 0)
        alternatives = []
        for n in range(min(len(f) for f in found)):
            best = [f[n] for f in found]
            said = [self.tokenizer.decode(h.ids).replace("\n", " ") for h in best]
            text = said[0] if len(said) == 1 else join(said, self.language)
            alignment: list[int] = []
            shift = 0
            for k, row in enumerate(ids):
                alignment += [shift + j for j in aligned[k][n]] if aligned else []
                shift += len(row)
            alternatives.append(
                Alternative(
                    text,
                    sum(h.score for h in best) / len(best),
                    sum(h.logprob for h in best),
                    tuple(p for h in best for p in self.tokenizer.pieces(h.ids)),
                    "length" if any(h.reason == "length" for h in best) else "eos",
                    tuple(alignment),
                )
            )
        return Translation(tuple(alternatives), source, len(found))

    def _align(
        self, ids: Sequence[Sequence[int]], found: Sequence[list[Hypothesis]]
    ) -> list[list[tuple[int, ...]]]:
        """For each hypothesis, the source token that each produced token attends to most."""
        return [
            [
                tuple(self.attention(row, h.ids)[: len(h.ids), : len(row)].argmax(1).tolist()) if row else ()
                for h in best
            ]
            for row, best in zip(ids, found, strict=True)
        ]

    @torch.inference_mode()
    def attention(self, source: Sequence[int], target: Sequence[int]) -> torch.Tensor:
        """Cross-attention weights ``[T + 1, S + 1]`` (the ends included), mean over heads and layers."""
        ids, layout = pad([[*source, EOS]])
        memory = self.model.encode(ids.to(self.device), layout.to(self.device))
        said = torch.tensor([[BOS, *target]], device=self.device)
        cross = torch.nn.ModuleList(block.reader for block in self.model.decoder.blocks)  # type: ignore[misc]
        kept = watch(cross)
        try:
            self.model.decode(said, Layout.full(1, len(target) + 1, self.device), memory)
        finally:
            watch(cross, on=False)
        return torch.stack([w.mean(1) for weights in kept for w in weights]).mean(0)[0].cpu()


def _take(order: list[int], count: int) -> tuple[list[int], list[int]]:
    return order[:count], order[count:]
