"""Decoded output as the laws need it: short, of ragged lengths, from the user's own model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from triptych.config import DecodingConfig
from triptych.data import BOS, EOS, PAD
from triptych.decoding import Hypothesis, PromptSteps, Special, Steps, TranslationSteps, search
from triptych.decoding import rows as rows_of
from triptych.insight.laws.subject import Pads, Rows, Side, Subject
from triptych.model import DecoderOnly, EncoderDecoder

SPECIAL = Special(BOS, EOS, (PAD, BOS))
PROMPT = 4  # tokens of a decoder's prompt, at most
NUDGE = 1.0  # nats that are added to the end: some hypotheses end, and most go on
LIMITS = (7, 2, 5, 3)  # tokens rows may get: they end at different times
SETTINGS = {
    "greedy": DecodingConfig(strategy="greedy"),
    "beam": DecodingConfig(strategy="beam", beam=4, n_best=4),
    "sample": DecodingConfig(strategy="sample", n_best=2, seed=7),
}


class Ending:
    """Steps whose end is likelier, so that rows also end before their limit."""

    device = torch.device("cpu")

    def __init__(self, steps: Steps) -> None:
        self.steps = steps

    def step(self, tokens_R: Tensor) -> Tensor:
        """Logits of the next token."""
        return nudged(self.steps.step(tokens_R))

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Keep these rows and sources."""
        self.steps.select(rows, sources)


def nudged(logits: Tensor) -> Tensor:
    """``logits`` with the end's raised."""
    logits = logits.clone()
    logits[..., EOS] += NUDGE
    return logits


def prompts(rows: Rows) -> list[list[int]]:
    """A decoder's prompts: the first tokens of each row."""
    return [row[:PROMPT] for row in rows.main]


def steps_of(s: Subject, rows: Rows, beams: int, side: Side = "left") -> Steps:
    """The model's steps after these rows' sources or prompts."""
    if isinstance(s.model, EncoderDecoder):
        source = s.source(rows)
        assert source is not None
        return TranslationSteps(s.model, s.model.encode(*source), beams)
    assert isinstance(s.model, DecoderOnly)
    ids, layout = s.lay(prompts(rows), Pads(side))
    return PromptSteps(s.model, ids, layout, beams)


def outputs(
    s: Subject, rows: Rows, strategy: str, index: Sequence[int], settings: DecodingConfig | None = None
) -> list[list[Hypothesis]]:
    """Hypotheses of each row. ``index`` tells rows apart: it sets their limits and random numbers."""
    settings = settings or SETTINGS[strategy]
    steps = Ending(steps_of(s, rows, rows_of(settings)))
    return search(steps, [LIMITS[i] for i in index], settings, SPECIAL, list(index))


def rescored(s: Subject, rows: Rows, row: int, found: Hypothesis) -> float:
    """What the model without a cache says of a hypothesis: its log-probability, in nats."""
    before = [BOS] if rows.source else prompts(rows)[row]
    alone = Rows([before + list(found.ids)], [rows.source[row]] if rows.source else [])
    logits = nudged(s.logits(alone, typed=False)[0][len(before) - 1 :])
    logits[:, list(SPECIAL.banned)] = float("-inf")
    said = torch.tensor([*found.ids, EOS])
    return float(logits.log_softmax(-1).gather(1, said[:, None]).sum())
