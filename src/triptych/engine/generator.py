"""Prompts in, texts out: a decoder-only model goes on with any number of texts.

prompts ─ encode, begin ─ sort by length ─ batches ─ Chain: tokens ─ Written: text ─ outputs
"""

from __future__ import annotations

from collections.abc import Generator as Pieces
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch

from triptych.config import DecodingConfig, RunConfig
from triptych.config.parts.positions import Extended
from triptych.data import BOS, EOS, PAD, pad
from triptych.data.batches import Side
from triptych.decoding import Chain, PromptSteps, Special, rows
from triptych.decoding.search import MOST
from triptych.engine.lines import are_text
from triptych.engine.precision import evaluating
from triptych.engine.stream import Spoken, Until, Written
from triptych.errors import UserError
from triptych.model import DecoderOnly
from triptych.text import Tokenizer
from triptych.text.dialogues import Dialogue
from triptych.text.templates import IM_END, Template, encode_runs, prompt

Turns = Sequence[tuple[str, str]]  # (role, text)

TOKENS = 256  # most tokens of an output when nothing is set
SLOTS = 8192  # most tokens a batch may come to: what its state must hold
# Beam search is for translation: what is likeliest in an open text is dull and goes round in circles
# (Holtzman et al. 2020, section 1).
USUAL = {"strategy": "sample", "temperature": 0.8, "top_p": 0.95}


@dataclass(frozen=True)
class Prompt:
    """A prompt as the model reads it, its start included."""

    ids: tuple[int, ...]


@dataclass(frozen=True)
class Generation:
    """One output.

    Attributes:
        text: what follows the prompt, up to a stop text.
        ids: the tokens it was made of, those of a stop text included, the end not.
        reason: it ended by itself (``eos``), a stop text came (``stop``) or a limit was met (``length``).
        logprob: of these tokens, and of the end if it came, in nats.
    """

    text: str
    ids: tuple[int, ...]
    reason: str
    logprob: float


class Generator:
    """Goes on with prompts. Output n is of prompt n, whatever stands around it.

    Attributes:
        settings: what holds where a call gives no settings.
        notes: what whoever reads the outputs should know; each is said once.
    """

    def __init__(
        self,
        model: DecoderOnly,
        tokenizer: Tokenizer,
        packing: Literal["packed", "stream"] = "packed",
        settings: DecodingConfig | None = None,
        trained: int | None = None,
        template: str = "",
        side: Side = "left",
    ) -> None:
        """
        Args:
            packing: how text was laid out in training: packed documents begin with bos, a stream does not.
            trained: tokens of the longest text it has seen.
            template: how conversations were written, if it was trained on them.
            side: where shorter prompts of a batch are padded; the outputs are the same.
        """
        self.model, self.tokenizer, self.packing = model, tokenizer, packing
        self.settings = settings or usual(DecodingConfig())
        self.trained, self.template, self.side = trained, template, side
        self.known = model.config.max_positions()
        ends = [tokenizer.symbol_id(IM_END)] if IM_END in tokenizer.symbols else []
        self.special = Special(BOS, EOS, (PAD, BOS), tuple(ends))
        self.notes: list[str] = []

    def generate(
        self,
        prompts: Sequence[str | Prompt],
        settings: DecodingConfig | None = None,
        n: int = 1,
        first: int = 0,
    ) -> list[list[Generation]]:
        """``n`` outputs of each prompt, in the order they were drawn.

        Args:
            first: number of the first prompt in the whole input: random draws depend on it.

        Raises:
            UserError: settings that cannot be, a prompt that is no text or leaves no position to go on at.
        """
        chosen = self._chosen(settings, n)
        asked = self._asked(prompts, first)
        limits = [self._limit(len(ids), chosen, first + i) for i, ids in enumerate(asked)]
        out: list[list[Generation]] = [[] for _ in asked]
        order = sorted(range(len(asked)), key=lambda i: (-len(asked[i]) - limits[i], i))
        while order:
            slots = len(asked[order[0]]) + limits[order[0]]
            count = max(1, SLOTS // (slots * n))
            chunk, order = order[:count], order[count:]
            batch = _Batch(self, [asked[i] for i in chunk], [limits[i] for i in chunk], chosen,
                           [first + i for i in chunk])  # fmt: skip
            while batch.going:
                batch.step()
            for i, found in zip(chunk, batch.found(), strict=True):
                out[i] = found
        return out

    def stream(
        self, prompt: str | Prompt, settings: DecodingConfig | None = None, number: int = 0
    ) -> Pieces[str, None, Generation]:
        """The output of a prompt in pieces, as it is written: joined, they are the text of ``generate``.

        A piece never ends within a character, nor within what may become a stop text. The generator's own
        value is the whole output. ``number``: the prompt's place in the whole input. Raises UserError as
        ``generate`` does, before the first piece.
        """
        chosen = self._chosen(settings, 1)
        asked = self._asked([prompt], number)
        limits = [self._limit(len(asked[0]), chosen, number)]
        return self._pieces(_Batch(self, asked, limits, chosen, [number]))

    def _pieces(self, batch: _Batch) -> Pieces[str, None, Generation]:
        while batch.going:
            yield from (piece for piece in batch.step() if piece)
        return batch.found()[0][0]

    def chat(
        self, turns: Turns, template: str = "", settings: DecodingConfig | None = None
    ) -> Pieces[str, None, Generation]:
        """The assistant's answer to a conversation, in pieces (see ``stream``)."""
        return self.stream(self.dialogue(turns, template), settings)

    def dialogue(self, turns: Turns, template: str = "") -> Prompt:
        """A conversation that waits for the assistant, as a prompt.

        Raises:
            UserError: no template, a role it does not know, or nothing that waits for an answer.
        """
        template = template or self.template
        if not template:
            raise UserError(
                "this run was not trained on conversations", "objective.kind", "give a text to go on with"
            )
        runs = prompt(Dialogue(tuple(turns)), cast(Template, template))
        return Prompt(tuple(encode_runs(runs, self.tokenizer)[0]))

    def note(self, text: str) -> None:
        """Say something to whoever reads the outputs, once."""
        if text not in self.notes:
            self.notes.append(text)

    def _chosen(self, settings: DecodingConfig | None, n: int) -> DecodingConfig:
        """The settings with ``n`` outputs a prompt, checked."""
        settings = settings or self.settings
        if settings.strategy == "beam":
            raise UserError(
                "beam search is for translation",
                "decoding.strategy",
                "use sample, or greedy for the likeliest",
            )
        if n < 1 or (n > 1 and settings.strategy == "greedy"):
            why = "greedy search has one output" if n > 1 else "nothing would be generated"
            raise UserError(f"{n} outputs of a prompt: {why}", "n", "use n 1, or more with strategy sample")
        if self.known and settings.max_length and settings.max_length >= self.known:
            raise UserError(
                f"the model knows {self.known} positions",
                "decoding.max_length",
                f"use at most {self.known - 1}",
            )
        return settings.model_copy(update={"n_best": n})

    def _asked(self, prompts: Sequence[str | Prompt], first: int) -> list[tuple[int, ...]]:
        """The ids of each prompt."""
        are_text(prompts if isinstance(prompts, str) else (), first)
        for number, one in enumerate(prompts, first):
            are_text([] if isinstance(one, Prompt) else [one], number)
        return [p.ids if isinstance(p, Prompt) else self.begun(p) for p in prompts]

    def begun(self, text: str) -> tuple[int, ...]:
        """A text as training began one. A stream has no start: there an empty prompt is a line end."""
        if self.packing == "packed":
            return (BOS, *self.tokenizer.encode(text))
        return tuple(self.tokenizer.encode(text or "\n"))

    def _limit(self, length: int, settings: DecodingConfig, number: int) -> int:
        """Most tokens to be said after a prompt of so many."""
        # Where nothing is said: not beyond what was trained, unless the prompt leaves next to nothing of it.
        usual = max(32, min(TOKENS, self.trained - length)) if self.trained else TOKENS
        wanted = max(settings.max_length or usual, settings.min_length)
        if self.known is None:
            return wanted
        room = self.known - length
        if room < 1:
            raise UserError(
                f"this prompt has {length} tokens, and the model knows {self.known} positions",
                f"line {number + 1}",
                "shorten it, or train with more positions or with rope",
            )
        if room < settings.min_length:
            raise UserError(
                f"{settings.min_length} tokens after the {length} of line {number + 1} pass the {self.known} "
                "positions that the model knows",
                "decoding.min_length",
                f"use at most {room}",
            )
        return min(wanted, room)


class _Batch:
    """Outputs of some prompts while they are being written; row r is of prompt r // n."""

    @torch.inference_mode()
    def __init__(
        self,
        generator: Generator,
        prompts: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingConfig,
        index: Sequence[int],
    ) -> None:
        self.generator, self.each = generator, rows(settings)
        self.lengths, self.wanted = [len(ids) for ids in prompts], settings.max_length
        special, tokenizer = generator.special, generator.tokenizer
        device = next(generator.model.parameters()).device
        ids, layout = pad(prompts, generator.side)
        with evaluating(generator.model):
            steps = PromptSteps(generator.model, ids.to(device), layout.to(device), self.each)
        # Limits are kept here: a search would ask for the end beyond them.
        self.chain = Chain(steps, [MOST] * len(prompts), settings, special, index, prompts)
        self.texts = [
            Written(Spoken(tokenizer, ids), Until(settings.stop), (special.eos, *special.ends), limit)
            for ids, limit in zip(prompts, limits, strict=True)
            for _ in range(self.each)
        ]

    @property
    def going(self) -> bool:
        """Some output is not whole."""
        return self.chain.going

    @torch.inference_mode()
    def step(self) -> list[str]:
        """One more token of each row that goes on: what can be given out of them."""
        pieces = []
        with evaluating(self.generator.model):
            said = self.chain.step()
        for row, token in said:
            pieces.append(self.texts[row].take(token))
            if self.texts[row].reason:
                self.chain.end(row)
        return pieces

    def found(self) -> list[list[Generation]]:
        """The outputs of each prompt."""
        out = []
        for row, text in enumerate(self.texts):
            self._note(self.lengths[row // self.each], text)
            logprob = self.chain.logprob[row]
            out.append(Generation(text.text, tuple(text.ids), text.reason, logprob))
        return [out[n : n + self.each] for n in range(0, len(out), self.each)]

    def _note(self, length: int, text: Written) -> None:
        known, trained, total = self.generator.known, self.generator.trained, length + len(text.ids)
        if known and text.reason == "length" and total == known and len(text.ids) != self.wanted:
            self.generator.note(f"an output ended at the last of the {known} positions that the model knows")
        if trained and total > trained:
            self.generator.note(
                f"a text went beyond {trained} tokens, the longest the model was trained on: what follows "
                "there may be poor"
            )


def usual(decoding: DecodingConfig) -> DecodingConfig:
    """A run's settings as they hold for open text: where they say nothing else, it is drawn by ``USUAL``."""
    if decoding.strategy != "beam":
        return decoding
    plain = DecodingConfig()
    unsaid = {key: value for key, value in USUAL.items() if getattr(decoding, key) == getattr(plain, key)}
    return DecodingConfig.parse({**decoding.dump(), "n_best": 1, **unsaid})


def longest(config: RunConfig) -> int:
    """Tokens of the longest text that a run was trained on, or that its positions were stretched to."""
    scaling = getattr(config.model.position, "scaling", None)
    if isinstance(scaling, Extended):
        return max(config.data.length, int(scaling.original * scaling.factor))
    return config.data.length
