"""One interface for every strategy: give each row a token, get logits for its next.

R rows, V vocabulary. Rows of a source stand together, ``beams`` of them.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from triptych.layout import Layout
from triptych.model import DecoderOnly, EncoderDecoder, Memory


class Steps(Protocol):
    """What a search needs of a model.

    Attributes:
        device: where tokens and logits are.
    """

    @property
    def device(self) -> torch.device: ...

    def step(self, tokens_R: Tensor) -> Tensor:
        """Append one token to every row; logits ``[R, V]`` for the next."""
        ...

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Keep these rows (in this order) and, when given, only these sources."""
        ...


class TranslationSteps:
    """A decoder over an encoded source."""

    def __init__(self, model: EncoderDecoder, memory: Memory, beams: int = 1) -> None:
        self.model, self.state = model, model.start(memory, beams)
        self.device = memory.hidden.device

    def step(self, tokens_R: Tensor) -> Tensor:
        place = torch.full((len(tokens_R), 1), self.state.length, device=self.device)
        layout = Layout(place, torch.zeros_like(place), plain=self.state.length == 0)
        hidden = self.model.decode(tokens_R[:, None], layout, state=self.state)
        logits: Tensor = self.model.output(hidden[:, 0])
        return logits.float()

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.state.select(rows, sources)


class PromptSteps:
    """A decoder-only model after a prompt, padded on either side; each source has ``beams`` rows."""

    def __init__(self, model: DecoderOnly, ids_NT: Tensor, layout: Layout, beams: int = 1) -> None:
        self.model, self.state, self.device = model, model.start(), ids_NT.device
        hidden = model.decode(ids_NT, layout, state=self.state)
        last = layout.position.masked_fill(~layout.real, -1).argmax(1)
        rows = torch.arange(len(last), device=self.device)
        self.first: Tensor | None = model.output(hidden[rows, last]).float()
        if beams > 1:
            self.select(rows.repeat_interleave(beams))

    def step(self, tokens_R: Tensor) -> Tensor:
        """The first step's tokens are ignored: the prompt stands in their place."""
        if self.first is not None:
            logits, self.first = self.first, None
            return logits
        hidden = self.model.decode(tokens_R[:, None], self.state.next(), state=self.state)
        return self.model.output(hidden[:, 0]).float()  # type: ignore[no-any-return]

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.state.select(rows)
        if self.first is not None:
            self.first = self.first[rows]
