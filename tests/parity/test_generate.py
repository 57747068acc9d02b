"""Greedy and beam search against ``generate`` of ``transformers``, where both mean the same.

Theirs keeps B live hypotheses beside the finished ones; ours keeps B in all. With a beam that holds every
hypothesis there is, both must find the same best ones; with a narrow one, what either finds must be worth
what the other's model says.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from parity.hf_seq2seq import marian, mbart
from parity.weights import ragged_ids
from triptych.config import DecodingConfig
from triptych.decoding import Hypothesis, TranslationSteps, length_penalty, rows, search

LENGTHS = [5, 1, 7, 3]
PAIRS = [pytest.param(marian, id="marian"), pytest.param(mbart, id="mbart")]


def _ours(model: Any, source: Tensor, layout: Any, limit: int, **settings: Any) -> list[list[Hypothesis]]:
    decoding = DecodingConfig(**settings)
    model.eval()
    with torch.inference_mode():
        steps = TranslationSteps(model, model.encode(source, layout), rows(decoding))
        return search(steps, [limit] * len(source), decoding)


def _theirs(model: Any, source: Tensor, real: Tensor, new: int, **settings: Any) -> Any:
    return model.generate(
        input_ids=source,
        attention_mask=real.long(),
        max_new_tokens=new,
        do_sample=False,
        suppress_tokens=[0, 2],
        renormalize_logits=True,  # as ours: what is never said has no share
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )


def _said(sequence: Tensor) -> tuple[tuple[int, ...], bool]:
    """Ids between start and end, and whether the end was said."""
    ids = sequence[1:].tolist()
    return (tuple(ids[: ids.index(3)]), True) if 3 in ids else (tuple(ids), False)


def _logprob(model: Any, source: Tensor, real: Tensor, ids: tuple[int, ...]) -> float:
    """Their log-probability of a target and its end, by one uncached pass."""
    target = torch.tensor([[2, *ids]])
    out = model(input_ids=source[None], attention_mask=real[None].long(), decoder_input_ids=target)
    logits = out.logits[0].detach().clone()
    logits[:, [0, 2]] = float("-inf")
    wanted = torch.tensor([*ids, 3])
    return float(logits.double().log_softmax(-1).gather(1, wanted[:, None]).sum())


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("pair", PAIRS)
def test_greedy(pair: Any, seed: int) -> None:
    ours, theirs, _ = pair(19, seed=seed)
    source, layout, real = ragged_ids(LENGTHS, 19, seed)
    limit = 12
    found = _ours(ours, source, layout, limit, strategy="greedy")
    want = _theirs(theirs, source, real, limit, num_beams=1)
    for n, (got,) in enumerate(found):
        ids, _ = _said(want.sequences[n])
        assert got.ids == ids
        assert got.logprob == pytest.approx(_logprob(theirs, source[n], real[n], ids), abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0, -0.5])
@pytest.mark.parametrize("pair", PAIRS)
def test_beam_that_holds_everything(pair: Any, alpha: float) -> None:
    """Vocabulary: unk and three words; at most two tokens and the end."""
    limit, vocab = 2, 7
    ours, theirs, _ = pair(vocab, scale=20.0, seed=3)
    source, layout, real = ragged_ids(LENGTHS, vocab, seed=4)
    complete = 1 + 4 + 16
    found = _ours(ours, source, layout, limit, beam=complete, n_best=5, penalty="power", alpha=alpha)
    beams = complete + 64  # theirs also keep what did not end in time
    want = _theirs(
        theirs,
        source,
        real,
        limit + 1,
        num_beams=beams,
        num_return_sequences=beams,
        length_penalty=alpha,
        early_stopping="never",
    )
    for n, group in enumerate(found):
        scores = want.sequences_scores[n * beams : (n + 1) * beams].tolist()
        said = [_said(s) for s in want.sequences[n * beams : (n + 1) * beams]]
        ended = [(ids, score) for (ids, end), score in zip(said, scores, strict=True) if end and score > -1e5]
        assert len(ended) == complete
        for got, (ids, score) in zip(group, ended, strict=False):
            assert got.ids == ids
            assert got.score == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("pair", PAIRS)
def test_narrow_beam_is_worth_what_it_says(pair: Any, alpha: float) -> None:
    """Both score by their own model; ours is at least as good as greedy and, on these inputs, as theirs."""
    limit, vocab = 10, 19
    ours, theirs, _ = pair(vocab, scale=20.0, seed=5)
    source, layout, real = ragged_ids(LENGTHS, vocab, seed=6)
    found = _ours(ours, source, layout, limit, beam=4, n_best=4, penalty="power", alpha=alpha)
    want = _theirs(theirs, source, real, limit + 1, num_beams=4, length_penalty=alpha, early_stopping=True)
    for n, group in enumerate(found):
        for got in group:
            logprob = _logprob(theirs, source[n], real[n], got.ids)
            assert got.logprob == pytest.approx(logprob, abs=1e-4)
            assert got.score == pytest.approx(
                logprob / length_penalty("power", alpha, len(got.ids) + 1), abs=1e-4
            )
        assert [h.score for h in group] == sorted((h.score for h in group), reverse=True)
        _, end = _said(want.sequences[n])
        if end:
            assert group[0].score >= float(want.sequences_scores[n]) - 1e-4
