"""Faults in outputs, types and what is learned, and the laws that find them; and those that parity finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from laws.test_faults import ANY, CONFIGS, Fault, also, broken, check_fault, planted
from parity import test_bert as bert
from parity import test_t5 as t5
from plant import plant
from triptych.config import model as settings
from triptych.data import masking, running
from triptych.model import output, stack, transformer
from triptych.objectives import labels, loss, tokens

SMALL: dict[str, Any] = {"vocab": 30, "dim": 16, "layers": 1, "heads": 2, "ffn": {"dim": 32}}
BERT: dict[str, Any] = {"transform": "gelu", "bias": True, "next_sentence": True}
CONFIGS |= {
    "bert": {**SMALL, "form": "encoder", "types": 2, "embedding_norm": True, "output": BERT},
    "mean": {**SMALL, "form": "encoder", "output": {"kind": "vector", "pool": "mean"}},
    "max": {**SMALL, "form": "encoder", "output": {"kind": "vector", "pool": "max"}},
    "first": {**SMALL, "form": "encoder", "output": {"kind": "classes", "count": 3, "pooler": True}},
    "last": {**SMALL, "form": "decoder", "position": "rope", "types": 2,
             "output": {"kind": "classes", "count": 3}},
    "tags": {**SMALL, "form": "encoder", "output": {"kind": "tags", "count": 4}},
    "prefix lm": {**SMALL, "form": "decoder", "attention": {"visible": {"kind": "prefix", "length": 3}},
                  "output": {"bias": True}},
    "shared": {**SMALL, "tie": "source"},
}  # fmt: skip

F = Fault
FAULTS = [
    F("a mean counts padding", 2, "mean", output.pooled, "/ real_BT1.sum(1)", "/ layout.length", also(3, 8)),
    F("a mean is of padding too", 2, "mean", output.pooled,
      "hidden_BTC.masked_fill(~real_BT1, 0).sum(1)", "hidden_BTC.sum(1)", also(3, 8)),
    F("a maximum is of padding too", 2, "max", output.pooled,
      "hidden_BTC.masked_fill(~real_BT1, -torch.inf)", "hidden_BTC", also(3, 8)),
    F("a maximum takes padding for 0", 2, "max", output.pooled, "-torch.inf", "0", also(3, 8)),
    F("the last slot is the last token", 2, "last", output.pooled,
      "* layout.real", "* (layout.segment > -2)", also(3, 8)),
    F("the last token is at the number of tokens", 2, "last", output.pooled,
      "((rank if how == \"last\" else rank.flip(0)) * layout.real).argmax(1)", "layout.real.sum(1) - 1"),
    F("the first slot is the first token", 2, "first", output.pooled,
      "((rank if how == \"last\" else rank.flip(0)) * layout.real).argmax(1)", "rank[:1] * 0"),
    F("next sentences are read off the first slot", 2, "bert", output.pooled,
      "((rank if how == \"last\" else rank.flip(0)) * layout.real).argmax(1)", "rank[:1] * 0"),
    F("rows read a neighbour's token", 3, "first", output.pooled,
      "torch.arange(layout.batch, device=hidden_BTC.device), slot", "0, slot", ANY),
    F("types are not read", 10, "bert", transformer.Transformer.run,
      "if self.types is not None:", "if False:"),
    F("all tokens are of the first type", 4, "last", transformer.Transformer.run,
      "types is None else types", "types is None or kwargs.get('state') else types", also(1, 6)),
    F("types stand by slots", 2, "bert", transformer.Transformer.run,
      "self.types(torch.zeros_like(layout.segment) if types is None else types)",
      "self.types((torch.zeros_like(ids) + torch.arange(ids.shape[1])) % 2)", also(5, 3)),
    F("a prefix that was seen is learned", 19, "prefix lm", tokens.learned,
      "has & (batch.layout.position + 1 >= ahead) if ahead else has", "has"),
    F("one token past a prefix is not learned", 19, "prefix lm", tokens.learned,
      "position + 1 >= ahead", "position >= ahead"),
    F("documents begin with nothing", 19, "prefix lm", running.PackedData.text,
      "read[(size.cumsum() - size)[self.begins[sequence]]] = BOS", "pass"),
    F("documents are not shifted", 19, "prefix lm", running.PackedData.text,
      "self.store.ids[at + 1]", "self.store.ids[at]"),
    F("what is hidden is to be said as it is read", 19, "bert", masking.MaskedData.row,
      "np.where(chosen, ids, IGNORE)", "np.where(chosen, read, IGNORE)"),
    F("all tokens are learned, hidden or not", 19, "bert", masking.MaskedData.row,
      "np.where(chosen, ids, IGNORE)", "ids"),
    F("hidden tokens are learned in padding", 19, "bert", tokens.learned,
      "batch.targets != IGNORE", "batch.targets != IGNORE - 1", ANY),
    F("the loss leaves the bias out", 10, "bert", tokens.TokenLoss.read, ", output.bias)", ")"),
    F("the bias learns by the tokens of a chunk", 8, "prefix lm", loss._Smoothed.forward,
      "db += grad.sum(0)", "db += grad.sum(0) / len(h)"),
    F("the loss leaves the map before the vocabulary out", 19, "bert", tokens.TokenLoss.read,
      "output.inner(hidden_NC)", "output.reduce(hidden_NC)", also(10)),
    F("next sentences are not learned", 10, "bert", labels.NextSentenceLoss.read,
      "self.weight * chosen", "0 * chosen"),
    F("a head teaches the layers nothing", 10, "tags", output.Head.forward,
      "self.map(self.dropout(hidden))", "self.map(hidden.detach())"),
    F("classes begin far apart", 11, "first", output.Head.__init__, "std=0.02", "std=2.0"),
    F("a pooler costs nothing", 17, "first", output.Head.cost, "return pooler +", "return"),
    F("classes are counted once a token", 17, "first", output.Head.cost,
      "1 if settings.whole else length", "length"),
    F("the map before the vocabulary is counted once a row", 17, "bert", output.Vocabulary.cost,
      "linear_cost(batch * length,", "linear_cost(batch,"),
    F("the norm of embeddings is not counted", 17, "bert", stack.stack_costs, "+ model.embedding_norm", ""),
    F("types are not counted", 17, "bert", transformer.costs, "model.types * model.dim", "0"),
    F("source and target alone also tie the output", 7, "shared",
      settings.ModelConfig.tied.fget, '("decoder", "all")', '("source", "decoder", "all")', also(11)),
    F("source and target have two tables", 7, "shared", settings.ModelConfig.shared.fget,
      '("source", "all")', '("all",)'),
]  # fmt: skip


@planted(FAULTS)
def test_fault_is_found_by_its_law(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fault(fault, monkeypatch)


NEW = ["bert", "mean", "max", "first", "last", "tags", "prefix lm", "shared"]


@pytest.mark.parametrize("config", NEW)
def test_without_fault_all_hold(config: str) -> None:
    assert not broken(config)


Case = tuple[Callable[..., Any], str, str, Callable[[], None]]
UNKNOWN_TO_LAWS: dict[str, Case] = {
    "a pooler has no tanh": (
        output.Head.forward, ".tanh()", "", lambda: bert.test_sequence_classification("right")
    ),
    "next sentences are read off the last token": (
        output.Vocabulary.__init__, "Head(PAIR, ", 'Head(PAIR.model_copy(update={"pool": "last"}), ',
        bert.test_next_sentence_alone,
    ),
    "the norm before the vocabulary stands before its map": (
        output.Transform.forward, "self.norm(self.act(self.map(hidden)))",
        "self.act(self.map(self.norm(hidden)))", lambda: bert.test_masked("right", True),
    ),
    "types join after the norm": (
        transformer.Transformer.run, "stack.embedding_norm(x)",
        "stack.embedding_norm(x - self.types(types)) + self.types(types)",
        lambda: bert.test_token_classification("right"),
    ),
    "embeddings are not normalised": (
        transformer.Transformer.run, "stack.embedding_norm(x)", "x",
        lambda: bert.test_token_classification("right"),
    ),
    "hidden states are not scaled": (
        output.Vocabulary.inner, "hidden * self.scale", "hidden", lambda: t5.test_t5(False, True, "right")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN_TO_LAWS, ids=lambda name: name.replace(" ", "_"))
def test_fault_is_found_by_parity(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, old, new, check = UNKNOWN_TO_LAWS[name]
    check()
    plant(monkeypatch, function, old, new)
    with pytest.raises(AssertionError):
        check()
