"""What is learned of rows and of words: classes, tags, vectors; and whether one text follows another.

    hidden_BTC ─ output ─┬─ logits_RK ─ cross-entropy with the label of each row              classes
                         ├─ logits_NK ─ cross-entropy at the places with a target             tags
                         ├─ vectors_BC ─ cosines_PP ÷ τ ─ cross-entropy over rows, columns    pairs
                         └─ logits_R2 · w ─ beside the cross-entropy of hidden tokens         next sentence

B rows, T tokens, R rows with a label, N places with a target, K classes or tags, P pairs, C width.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from triptych.config.objectives import EmbedObjective, MaskedObjective
from triptych.config.objectives import Objective as Settings
from triptych.data import IGNORE, Batch
from triptych.model import Model
from triptych.objectives.loss import Loss
from triptych.objectives.tokens import TokenLoss, run


def chosen(logits_NK: Tensor, target_N: Tensor, smoothing: float = 0.0) -> Loss:
    """Cross-entropy in nats, summed, in fp32; ε is spread over all that can be chosen (Szegedy et al. 2016,
    section 7), which is all but logits of -∞."""
    logits_NK = logits_NK.float()
    logp_NK = F.log_softmax(logits_NK, -1)
    nll = -logp_NK.gather(1, target_N[:, None]).sum()
    possible_NK = logits_NK > -torch.inf
    spread_N = logp_NK.where(possible_NK, 0.0).sum(-1) / possible_NK.sum(-1)
    return Loss((1 - smoothing) * nll - smoothing * spread_N.sum(), target_N.numel(), float(nll.detach()))


class ClassLoss:
    """Cross-entropy of a class for each row (Devlin et al. 2019, section 4.1). Counts rows with a label."""

    def __init__(self, settings: Settings) -> None:
        self.smoothing = settings.label_smoothing

    def count(self, model: Model, batch: Batch) -> int:
        """Rows with a label."""
        return batch.count

    def loss(self, model: Model, batch: Batch, progress: float = 1.0) -> Loss:
        """The batch's loss; in training smoothed, and with what the parts of the model add to it."""
        assert batch.labels is not None
        aux: list[Tensor] | None = [] if model.training else None
        logits_BK = model.output(run(model, batch, aux), batch.layout)
        row = (batch.labels != IGNORE).nonzero()[:, 0]
        smoothing = self.smoothing if model.training else 0.0
        return chosen(logits_BK[row], batch.labels[row], smoothing).plus(aux or ())


class TagLoss:
    """Cross-entropy of a tag for each word, at its first piece (Devlin et al. 2019, section 5.3). Counts
    words."""

    def __init__(self, settings: Settings) -> None:
        self.smoothing = settings.label_smoothing

    def count(self, model: Model, batch: Batch) -> int:
        """Words."""
        return batch.count

    def loss(self, model: Model, batch: Batch, progress: float = 1.0) -> Loss:
        """The batch's loss. Places without a target do not reach the tags' map."""
        aux: list[Tensor] | None = [] if model.training else None
        hidden_BTC = run(model, batch, aux)
        place = (batch.targets != IGNORE).flatten().nonzero()[:, 0]
        logits_NK = model.output(hidden_BTC.flatten(0, 1).index_select(0, place))
        smoothing = self.smoothing if model.training else 0.0
        return chosen(logits_NK, batch.targets.flatten()[place], smoothing).plus(aux or ())


class EmbedLoss:
    """Each text picks its partner among the batch's, by cosine ÷ τ, and its partner picks it: half of each.

        ℓ_i = -½ log softmax_j(cos(a_i, b_j) / τ)[i] - ½ log softmax_j(cos(a_j, b_i) / τ)[i]

    van den Oord et al. 2018, section 2.3; Gao et al. 2021, section 2; in both directions Radford et al.
    2021, figure 3. Rows of the batch: P first texts, whose labels say which of the P second texts, in the
    rows after them, is theirs. Counts pairs.

    What is picked from is the batch: this loss, by its definition, is not that of its parts, and two batches
    of P pairs are not one of 2P. Pairs that share a text do not count against each other: a text is not to be
    pushed from itself.
    """

    def __init__(self, settings: EmbedObjective) -> None:
        self.temperature, self.smoothing = settings.temperature, settings.label_smoothing

    def count(self, model: Model, batch: Batch) -> int:
        """Pairs."""
        return batch.count

    def loss(self, model: Model, batch: Batch, progress: float = 1.0) -> Loss:
        """The batch's loss; cosines are in fp32 whatever the precision of the model."""
        assert batch.labels is not None and batch.text is not None
        aux: list[Tensor] | None = [] if model.training else None
        vectors_BC = model.output(run(model, batch, aux), batch.layout)
        first = (batch.labels != IGNORE).nonzero()[:, 0]
        second = len(first) + batch.labels[first]
        with torch.autocast(vectors_BC.device.type, enabled=False):
            unit_BC = F.normalize(vectors_BC.float(), dim=-1)
            cosines_PP = unit_BC[first] @ unit_BC[second].t()
        a, b = batch.text[first], batch.text[second]
        apart_PP = ((a[:, None] != a) & (b[:, None] != b)).fill_diagonal_(True)
        logits_PP = (cosines_PP / self.temperature).where(apart_PP, -torch.inf)
        own = torch.arange(len(first), device=first.device)
        smoothing = self.smoothing if model.training else 0.0
        there, back = chosen(logits_PP, own, smoothing), chosen(logits_PP.t(), own, smoothing)
        loss = Loss((there.sum + back.sum) / 2, len(first), (there.nll + back.nll) / 2)
        return loss.plus(aux or ())


class NextSentenceLoss(TokenLoss):
    """Hidden tokens, and whether the second text of a row follows the first (Devlin et al. 2019, section
    3.1).

    There the two losses are means, over tokens and over rows, that are added. A sum over micro-batches and
    one division by the tokens can give that only with a constant: each row's loss counts ``w`` times, as
    many tokens as are hidden in a full row on average. What is counted and reported are the tokens alone.
    """

    def __init__(self, settings: MaskedObjective, length: int) -> None:
        super().__init__(settings)
        self.weight = settings.rate * length

    def read(self, model: Model, batch: Batch, hidden_BTC: Tensor) -> Loss:
        """The loss of these hidden states; a row without a label is no pair."""
        loss = super().read(model, batch, hidden_BTC)
        assert batch.labels is not None
        row = (batch.labels != IGNORE).nonzero()[:, 0]
        logits_R2 = model.output.pair(hidden_BTC, batch.layout)[row]
        return replace(loss, sum=loss.sum + self.weight * chosen(logits_R2, batch.labels[row]).sum)
