"""Tokens to be said at places: translation, causal, instruction, masked and denoising objectives.

What is learned where is in the batch: its targets. One loss serves all of them.

B rows, T tokens, N places at which something is learned, C model width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from triptych.config import Objective as Settings
from triptych.data import IGNORE, Batch
from triptych.model import DecoderOnly, EncoderDecoder, EncoderOnly, Model
from triptych.objectives.loss import CHUNK, Loss, cross_entropy


def run(model: Model, batch: Batch, aux: list[Tensor] | None = None) -> Tensor:
    """Hidden states ``[B, T, C]`` at the places of ``batch.ids``, whatever the form."""
    if batch.source is not None:
        assert not isinstance(model, DecoderOnly | EncoderOnly)
        memory = model.encode(*batch.given, aux)
        return model.decode(batch.ids, batch.layout, memory, aux=aux)
    if isinstance(model, DecoderOnly):
        return model.decode(batch.ids, batch.layout, types=batch.types, aux=aux)
    assert isinstance(model, EncoderOnly)
    return model.encode(batch.ids, batch.layout, batch.types, aux)


class TokenLoss:
    """Cross-entropy at every place that has a target (Vaswani et al. 2017, section 5.4).

    Teacher forcing: a decoder reads what it should have said. With scheduled sampling it reads, at a share
    of the places, what it would have said itself, from a first pass without gradient (Mihaylova and Martins
    2019, section 3). In segments, what a decoder has before a segment is a memory, which gradients do not
    reach (Dai et al. 2019, section 3.2; of keys and values here): the loss is the same, its gradient is cut.
    """

    def __init__(self, settings: Settings) -> None:
        self.smoothing = settings.label_smoothing
        self.sampling: float = getattr(settings, "scheduled_sampling", 0.0)
        self.segment: int | None = getattr(settings, "segment", None)

    def count(self, model: Model, batch: Batch) -> int:
        """Places with a target."""
        return int(learned(model, batch).sum())

    def loss(self, model: Model, batch: Batch, progress: float = 1.0) -> Loss:
        """The batch's loss; in training with what the parts of the model add to it.

        Args:
            progress: the share of training that is done, from 0 to 1.
        """
        aux: list[Tensor] | None = [] if model.training else None
        if self.sampling and model.training:
            batch = self.mixed(model, batch, self.sampling * progress)
        cut = model.training and self.segment is not None
        hidden_BTC = self.in_segments(model, batch, aux) if cut else run(model, batch, aux)
        return self.read(model, batch, hidden_BTC).plus(aux or ())

    def in_segments(self, model: Model, batch: Batch, aux: list[Tensor] | None) -> Tensor:
        """Hidden states ``[B, T, C]``, segment by segment."""
        assert isinstance(model, DecoderOnly) and self.segment is not None
        state, T, out = model.start(), batch.layout.length, list[Tensor]()
        for start in range(0, T, self.segment):
            stop, own = min(start + self.segment, T), list[Tensor]()
            layout = batch.layout.narrow(start, stop)
            out.append(model.decode(batch.ids[:, start:stop], layout, state, aux=own))
            state.detach()
            if aux is not None:  # each is a mean over the tokens of its segment
                aux.extend(x * layout.real.sum() / batch.layout.real.sum() for x in own)
        return torch.cat(out, 1)

    def read(self, model: Model, batch: Batch, hidden_BTC: Tensor) -> Loss:
        """The loss of these hidden states. Nothing but places with a target reaches the vocabulary's
        product."""
        place = learned(model, batch).flatten().nonzero()[:, 0]
        hidden_NC = hidden_BTC.flatten(0, 1).index_select(0, place)
        smoothing = self.smoothing if model.training else 0.0
        target_N = batch.targets.flatten()[place]
        output = model.output
        return cross_entropy(output.inner(hidden_NC), output.weight, target_N, smoothing, output.bias)

    @torch.no_grad()
    def pieces(self, model: Model, batch: Batch) -> list[tuple[int, float, int]]:
        """Of each sequence of each row, in order: the row's number among the examples, its negative
        log-likelihood in nats, and its places with a target; those without one are left out."""
        at_BT = learned(model, batch)
        hidden_NC, target_N = run(model, batch)[at_BT], batch.targets[at_BT, None]
        rows = max(1, CHUNK // model.output.weight.shape[0])
        pairs = zip(torch.split(hidden_NC, rows), torch.split(target_N, rows), strict=True)
        logp_NV = ((torch.log_softmax(model.output(h).float(), -1), target) for h, target in pairs)
        nll_N = torch.cat([-logp.gather(1, target)[:, 0].double() for logp, target in logp_NV])
        row = torch.arange(len(batch.ids), device=nll_N.device)[:, None]
        sequence_BT = row * (1 + batch.layout.segment.max()) + batch.layout.segment
        found, piece_N, counts = torch.unique(sequence_BT[at_BT], return_inverse=True, return_counts=True)
        sums = nll_N.new_zeros(len(counts)).index_add(0, piece_N, nll_N)
        rows_P = (found // (1 + batch.layout.segment.max())).tolist()
        examples = [batch.index[row] for row in rows_P]
        return list(zip(examples, sums.tolist(), counts.tolist(), strict=True))

    @torch.no_grad()
    def mixed(self, model: Model, batch: Batch, share: float) -> Batch:
        """The batch, a ``share`` of what the decoder reads replaced by what the model says there itself."""
        said = model.output(run(model, batch)).argmax(-1)
        # What is said at a place is read at the next one of its sequence.
        read = torch.where(batch.layout.position > 0, said.roll(1, 1), batch.ids)
        drawn = torch.rand(batch.ids.shape, device=batch.ids.device) < share
        return replace(batch, ids=torch.where(drawn & batch.layout.real, read, batch.ids))


def learned(model: Model, batch: Batch) -> Tensor:
    """``[B, T]``: the places with a target. Within a prefix that a decoder sees whole nothing is learned:
    each token there sees the next."""
    has = batch.targets != IGNORE
    ahead = model.config.lookahead if isinstance(model, DecoderOnly | EncoderDecoder) else 0
    return has & (batch.layout.position + 1 >= ahead) if ahead else has
