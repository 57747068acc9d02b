"""BERT of ``transformers`` at equal weights, in float64: its four heads, losses, and all gradients.

Post-norm, GELU, learned positions, types and a norm on the embeddings, and before the vocabulary a map, a
GELU and a norm.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from parity.weights import Match, model_of, ragged_ids, shaken
from triptych.config.objectives import ClassifyObjective, MaskedObjective, TagObjective
from triptych.data import IGNORE, Batch
from triptych.layout import Layout
from triptych.objectives import ClassLoss, NextSentenceLoss, TagLoss

V, C, K = 31, 24, 5
LENGTHS = [5, 9, 2, 7]
CLOSE = {"rtol": 1e-9, "atol": 1e-10}
# Our losses take their log-softmax in fp32.
SINGLE = {"rtol": 1e-5, "atol": 1e-6}


def _bert(head: str, output: dict[str, Any], tied: bool = True, **more: Any) -> tuple[Any, Any, Match]:
    """Ours, theirs with a head, and the pairing of all but the head."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=V,
        hidden_size=C,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=36,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
        tie_word_embeddings=tied,
        **more,
    )
    torch.manual_seed(0)
    theirs: Any = shaken(getattr(transformers, f"BertFor{head}")(config)).double()
    ours: Any = model_of(
        {
            "form": "encoder",
            "vocab": V,
            "dim": C,
            "layers": 2,
            "heads": 4,
            "position": {"kind": "learned", "max": 16},
            "norm": {"kind": "layernorm", "placement": "post", "eps": 1e-12},
            "ffn": {"kind": "gelu", "dim": 36},
            "types": 2,
            "embedding_norm": True,
            "scale_embedding": False,
            "tie": "all" if tied else "none",
            "output": output,
        }
    ).double()
    match = Match()
    for block, layer in zip(ours.encoder.blocks, theirs.bert.encoder.layer, strict=True):
        own = layer.attention
        match.layer(block.mixer.heads.qkv, own.self.query, own.self.key, own.self.value)
        match.layer(block.mixer.out, own.output.dense)
        match.layer(block.mixer_residual.norm, own.output.LayerNorm)
        match.layer(block.ffn.inner, layer.intermediate.dense)
        match.layer(block.ffn.outer, layer.output.dense)
        match.layer(block.ffn_residual.norm, layer.output.LayerNorm)
    table = theirs.bert.embeddings
    match.layer(ours.encoder.position.table, table.position_embeddings)
    match.layer(ours.encoder.embedding_norm, table.LayerNorm)
    match.layer(ours.types, table.token_type_embeddings)
    match.layer(ours.embedding, table.word_embeddings)
    return ours, theirs, match


def _inputs(side: Any) -> tuple[Tensor, Layout, dict[str, Tensor]]:
    """Ids with types, padded; and the same as their arguments. Their positions count slots: told apart."""
    ids, layout, real = ragged_ids(LENGTHS, V)
    if side == "left":
        left = Layout.padded(LENGTHS, "left")
        ids, layout, real = torch.zeros_like(ids).masked_scatter(left.real, ids[real]), left, left.real
    types = (ids % 2).masked_fill(~real, 0)
    given = {"input_ids": ids, "attention_mask": real.long(), "token_type_ids": types}
    return ids, layout, {**given, "position_ids": layout.position}


def _backward(ours: Any, theirs: Any, match: Match, got: Tensor, want: Tensor) -> None:
    """Losses that are the same to single precision, and their gradients."""
    torch.testing.assert_close(got.double(), want.double(), **SINGLE)
    got.backward()
    want.backward()
    match.assert_gradients(ours, theirs, rtol=1e-4, atol=1e-6)


def _exact(match: Match, ours: Any, theirs: Any, got: list[Tensor], want: list[Tensor]) -> None:
    """Scores, and the gradients of a random sum of them, in double precision."""
    for mine, their in zip(got, want, strict=True):
        torch.testing.assert_close(mine, their, **CLOSE)
    for scores in (got, want):
        generator = torch.Generator().manual_seed(3)
        weights = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in scores]
        sum((w * x).sum() for w, x in zip(weights, scores, strict=True)).backward()  # type: ignore[union-attr]
    match.assert_gradients(ours, theirs, rtol=1e-7, atol=1e-9)
    ours.zero_grad()
    theirs.zero_grad()


def _read_first_tokens(theirs: Any, layout: Layout) -> None:
    """Theirs pools the first slot, which on the left is padding: let it be given the first token there."""
    rows, slots = torch.arange(layout.batch), layout.real.long().argmax(1)
    theirs.bert.pooler.register_forward_pre_hook(lambda _, args: (args[0][rows, slots][:, None],))


SIDES = pytest.mark.parametrize("side", ["right", "left"])


@SIDES
def test_pretraining(side: Any) -> None:
    """Hidden tokens and next sentences, as both were learned together."""
    output = {"transform": "gelu", "bias": True, "next_sentence": True}
    ours, theirs, match = _bert("PreTraining", output)
    head = theirs.cls.predictions
    match.layer(ours.output.transform.map, head.transform.dense)
    match.layer(ours.output.transform.norm, head.transform.LayerNorm)
    match.put(ours.output.bias, head.bias)
    match.layer(ours.output.pair.pooler, theirs.bert.pooler.dense)
    match.layer(ours.output.pair.map, theirs.cls.seq_relationship)
    ids, layout, given = _inputs(side)
    types, real = given["token_type_ids"], layout.real
    _read_first_tokens(theirs, layout)
    hidden = ours.encode(ids, layout, types)
    said = theirs(**given)
    want = [said.prediction_logits[real], said.seq_relationship_logits]
    _exact(match, ours, theirs, [ours.output(hidden)[real], ours.output.pair(hidden, layout)], want)
    # Their loss is a mean over tokens plus one over rows; ours a sum in which a row counts as w tokens.
    targets = ids.masked_fill(~real | (layout.position % 3 > 0), IGNORE)
    labels = torch.tensor([0, 1, 1, 0])
    batch = Batch(ids, layout, targets, (0, 1, 2, 3), types=types, labels=labels)
    loss = NextSentenceLoss(MaskedObjective(rate=0.5), length=6).loss(ours.train(), batch)
    said = theirs.train()(**given)
    tokens = F.cross_entropy(said.prediction_logits[targets != IGNORE], targets[targets != IGNORE])
    rows = F.cross_entropy(said.seq_relationship_logits, labels)
    assert loss.count == int((targets != IGNORE).sum())
    assert loss.nll / loss.count == pytest.approx(float(tokens.detach()), rel=1e-6)
    _backward(ours, theirs, match, loss.sum / loss.count, tokens + 3.0 * rows * 4 / loss.count)


@SIDES
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_masked(side: Any, tied: bool) -> None:
    ours, theirs, match = _bert("MaskedLM", {"transform": "gelu", "bias": True}, tied)
    head = theirs.cls.predictions
    match.layer(ours.output.transform.map, head.transform.dense)
    match.layer(ours.output.transform.norm, head.transform.LayerNorm)
    if not tied:
        head.bias = head.decoder.bias  # theirs has another that nothing reads
        match.put(ours.output.weight, head.decoder.weight)
    match.put(ours.output.bias, head.bias)
    ids, layout, given = _inputs(side)
    got = ours(ids, layout, given["token_type_ids"])[layout.real]
    _exact(match, ours, theirs, [got], [theirs(**given).logits[layout.real]])


@SIDES
def test_sequence_classification(side: Any) -> None:
    """The class of a row, from its first token through a pooler."""
    ours, theirs, match = _bert(
        "SequenceClassification", {"kind": "classes", "count": K, "pooler": True}, num_labels=K
    )
    match.layer(ours.output.pooler, theirs.bert.pooler.dense)
    match.layer(ours.output.map, theirs.classifier)
    ids, layout, given = _inputs(side)
    types = given["token_type_ids"]
    _read_first_tokens(theirs, layout)
    _exact(match, ours, theirs, [ours(ids, layout, types)], [theirs(**given).logits])
    labels = torch.tensor([3, 0, IGNORE, 4])
    batch = Batch(ids, layout, torch.full_like(ids, IGNORE), (0, 1, 2, 3), types=types, labels=labels)
    loss = ClassLoss(ClassifyObjective()).loss(ours, batch)
    assert loss.count == 3
    want = F.cross_entropy(theirs(**given).logits, labels, ignore_index=IGNORE)
    _backward(ours, theirs, match, loss.sum / loss.count, want)


@SIDES
def test_token_classification(side: Any) -> None:
    """Tags of tokens, of which some have none."""
    ours, theirs, match = _bert("TokenClassification", {"kind": "tags", "count": K}, num_labels=K)
    match.layer(ours.output.map, theirs.classifier)
    ids, layout, given = _inputs(side)
    types, real = given["token_type_ids"], layout.real
    _exact(match, ours, theirs, [ours(ids, layout, types)[real]], [theirs(**given).logits[real]])
    targets = (ids % K).masked_fill(~real | (layout.position % 2 > 0), IGNORE)
    loss = TagLoss(TagObjective()).loss(ours, Batch(ids, layout, targets, (0, 1, 2, 3), types=types))
    want = F.cross_entropy(theirs(**given).logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)
    _backward(ours, theirs, match, loss.sum / loss.count, want)


def test_next_sentence_alone() -> None:
    """The head by itself, against theirs that has no other."""
    ours, theirs, match = _bert("NextSentencePrediction", {"next_sentence": True})
    match.layer(ours.output.pair.pooler, theirs.bert.pooler.dense)
    match.layer(ours.output.pair.map, theirs.cls.seq_relationship)
    ids, layout, given = _inputs("right")
    hidden = ours.encode(ids, layout, given["token_type_ids"])
    _exact(match, ours, theirs, [ours.output.pair(hidden, layout)], [theirs(**given).logits])


def test_types_are_the_first_unless_given() -> None:
    ours, theirs, _ = _bert("MaskedLM", {})
    ids, layout, given = _inputs("right")
    want = theirs.bert(**given | {"token_type_ids": torch.zeros_like(ids)}).last_hidden_state
    torch.testing.assert_close(ours.encode(ids, layout)[layout.real], want[layout.real], **CLOSE)
    other = ours.encode(ids, layout, given["token_type_ids"])
    assert not torch.allclose(other[layout.real], want[layout.real], atol=1e-3)
