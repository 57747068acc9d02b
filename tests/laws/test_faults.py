"""For each law, faults are planted in the code, and the law finds them, by name.

A fault is one piece of a function's text changed. ``also`` names laws that the same fault breaks by its
nature; that no others are broken shows that verdicts point at the cause and not everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from plant import plant
from triptych.config import ModelConfig
from triptych.data import batches
from triptych.decoding import rules
from triptych.decoding import steps as stepping
from triptych.decoding.search import Chain, _Beam, _Draws
from triptych.insight.laws import LAWS, verify
from triptych.model import (
    attend,
    attention,
    dropout,
    embedding,
    heads,
    norm,
    output,
    state,
    transformer,
    visible,
)
from triptych.model.positions import absolute, base, rotary
from triptych.objectives import loss, tokens

CONFIGS: dict[str, dict[str, Any]] = {
    # Vaswani et al. 2017 in small.
    "translator": {"vocab": 30, "dim": 16, "layers": 1, "heads": 2, "dropout": 0.1},
    "beams": {
        "vocab": 30,
        "dim": 16,
        "layers": 1,
        "heads": {"count": 2, "kv": 1},
        "position": "rope",
        "norm": {"kind": "rmsnorm", "placement": "pre"},
        "tie": "none",
    },
    "decoder": {
        "form": "decoder",
        "vocab": 30,
        "dim": 16,
        "layers": 2,
        "heads": {"count": 2, "kv": 1},
        "attention": {"visible": {"kind": "window", "width": 3}, "dropout": 0.1},
        "position": "rope",
        "norm": {"kind": "rmsnorm", "placement": "pre"},
        "ffn": "swiglu",
    },
    "encoder": {
        "form": "encoder",
        "vocab": 30,
        "dim": 16,
        "layers": 1,
        "heads": 2,
        "position": {"kind": "learned", "max": 80},
    },
    "set": {"form": "encoder", "vocab": 30, "dim": 16, "layers": 1, "heads": 2, "position": "none"},
    "set and reader": {"vocab": 30, "dim": 16, "layers": 1, "heads": 2, "position": "none"},
}

ANY = frozenset(LAWS)


@dataclass(frozen=True)
class Fault:
    """``old`` → ``new`` in ``function`` breaks ``law``, and by its nature ``also``."""

    name: str
    law: int
    config: str
    function: Callable[..., Any]
    old: str
    new: str
    also: frozenset[int] = frozenset()


def also(*numbers: int) -> frozenset[int]:
    """The other laws a fault breaks."""
    return frozenset(numbers)


F = Fault
FAULTS = [
    F("a query sees the next token", 1, "decoder", visible.Causal.__call__,
      "<= query.position[:, :, None]", "<= query.position[:, :, None] + 1", also(4, 6, 13, 18)),
    F("norms count the tokens around", 1, "translator", norm.Residual.forward,
      "self.norm(y)", "self.norm(y - x_BTC.mean(1, keepdim=True))", ANY),
    F("padding is seen", 2, "translator", visible.SameSegment.__call__,
      "(q == k) & (q >= 0)", "(q == k) | (k < 0)", ANY),
    F("positions count slots", 2, "translator", base.waves,
      "layout.position[:, :, None]", "torch.arange(layout.length)[None, :, None]", ANY),
    F("learned positions count slots", 2, "encoder", absolute.Learned.embed,
      "layout.position.masked_fill(~layout.real, 0)",
      "layout.position.new_ones(1, layout.length).cumsum(1) - 1",
      also(5)),
    F("random numbers belong to a slot of the batch", 3, "beams", _Draws.__init__,
      "for i in index", "for i in range(len(index))"),
    F("finished hypotheses drop the wrong source", 3, "beams", Chain._leave,
      "busy[here].nonzero()[:, 0]", "torch.arange(int(busy[here].sum()))", also(18)),
    F("rotary positions count from the chunk", 4, "decoder", rotary.Rope.rotate,
      "layout.position[:, None, :, None]", "torch.arange(layout.length)[:, None]",
      # Slots and positions differ: angles are rounded elsewhere, and float64 shows it.
      also(2, 3, 5, 6, 18)),
    F("causality goes by slots", 4, "translator", visible.Causal.__call__,
      "key.position[:, None, :] <= query.position[:, :, None]",
      "(torch.arange(key.length) <= torch.arange(query.length)[:, None]).expand(query.batch, -1, -1)",
      also(6, 18)),
    F("each step is at position 0", 4, "translator", stepping.TranslationSteps.step,
      "self.state.length, device", "0, device", also(18)),
    F("a window is wider over a cache", 4, "decoder", visible.Window.__call__,
      "self.width - 1", "self.width - 1 + (query.length != key.length)", also(6, 13, 18)),
    F("slots that grow are not copied", 4, "translator", state._store,
      "grown.narrow(axis, 0, start).copy_(held.narrow(axis, 0, start))", "pass", also(3, 6, 18)),
    F("beams are folded across sources", 4, "beams", attention.CrossAttention.forward,
      "q.reshape(sources, rows // sources, *q.shape[1:])",
      "q.reshape(rows // sources, sources, *q.shape[1:]).transpose(0, 1)",
      also(6, 18, 3)),
    F("slots that are still seen are dropped", 4, "decoder", state.Book._drop,
      "later < most", "later < most - 1", ANY),
    F("packed sequences see each other", 5, "translator", visible.SameSegment.__call__,
      "(q == k) & (q >= 0)", "(q >= 0) & (k >= 0)", also(4)),
    F("packed sequences see each other, encoder", 5, "encoder", visible.SameSegment.__call__,
      "(q == k) & (q >= 0)", "(q >= 0) & (k >= 0)"),
    F("the source's keys stay behind", 6, "beams", state.LayerState.select,
      "tuple(x[sources] for x in self.cross)", "tuple(x[: len(sources)] for x in self.cross)", also(3, 18)),
    F("the source's layout stays behind", 6, "beams", state.State.select,
      "self.source.select(sources)", "self.source.select(sources.sort().values)", also(3, 18)),
    F("keys of beams are not reordered", 6, "beams", state.LayerState.select,
      "self.book.stop][rows]", "self.book.stop][rows.sort().values]", also(3, 18)),
    F("layouts of rows are not reordered", 6, "decoder", state.Book.select,
      "self._tokens[:, rows]", "self._tokens[:, rows.sort().values]", also(3, 18)),
    F("truncation forgets nothing", 6, "decoder", state.Book.truncate, "self.stop = length", "pass"),
    F("tied weights are copies", 7, "translator", output.Vocabulary.__init__,
      "self.weight = embedding.weight", "self.weight.data.copy_(embedding.weight)", also(17)),
    F("a number that is drawn is not saved", 7, "translator", transformer.Transformer.__init__,
      "math.sqrt(model.dim) if", "4 * torch.rand(()) if"),
    F("a loss is a mean of means", 8, "translator", loss.cross_entropy,
      "Loss(total, target_N.numel(), float(nll))",
      "Loss(total / target_N.numel(), 1, float(nll) / target_N.numel())", also(19)),
    F("losses are averaged", 8, "decoder", loss.Loss.__add__,
      "self.sum + other.sum", "(self.sum + other.sum) / 2"),
    F("gradients are scaled by the rows of a chunk", 8, "encoder", loss._Smoothed.forward,
      "dw += low.t() @ h", "dw += low.t() @ h / len(h)", also(12)),
    F("dropout in evaluation", 9, "translator", dropout.Dropout.forward, "self.training", "True", ANY),
    F("attention dropout in evaluation", 9, "decoder", attention.Attention.meet,
      "self.p if self.training else 0.0", "self.p", ANY),
    F("attention dropout never", 9, "decoder", attention.Attention.meet,
      "self.p if self.training else 0.0", "0.0"),
    F("dropout never", 9, "translator", dropout.Dropout.forward, "self.training", "False"),
    F("keys learn nothing", 10, "decoder", heads.GroupedHeads.project,
      "position.rotate(q, k, layout)", "position.rotate(q, k.detach(), layout)"),
    F("positions learn nothing", 10, "encoder", absolute.Learned.embed,
      "self.table(position)", "self.table(position).detach()"),
    F("the output map is drawn too large", 11, "beams", output.Vocabulary.__init__,
      "std=E**-0.5 / self.scale", "std=1.0"),
    F("the tied table is drawn too large", 11, "decoder", embedding.spread, "1 / math.sqrt(wide)", "1.0"),
    F("gradients point the wrong way", 12, "translator", loss._Smoothed.backward,
      "dh * grads[0]", "-dh * grads[0]"),
    F("a window is one too wide", 13, "decoder", visible.Window.__call__, "self.width - 1", "self.width",
      # Its state drops what the window lets it see.
      also(4)),
    F("weights sum over queries", 13, "encoder", attend._softmax,
      "raised.sum(-1, keepdim=True)", "raised.sum(-2, keepdim=True)"),
    F("NaN leaks", 13, "translator", attend.reference, "bad = ~v.isfinite()", "bad = v > 1e300"),
    F("a blind query gets a mean", 13, "translator", visible.Mask.rows.fget,  # type: ignore[attr-defined]
      "bool(some.all())", "bool(some.any())"),
    F("attention is scaled by another width", 13, "encoder", attend._short, "scale,", "scale * 1.01,"),
    F("an encoder sees one direction", 14, "set", visible.direction, "else Everything()", "else Causal()",
      also(13)),
    F("a source is read in one direction", 14, "set and reader", visible.direction,
      "else Everything()", "else Causal()", also(13)),
    F("what stands late counts more", 14, "set", attention.SelfAttention.forward,
      "self.heads.open(tuple(kept))",
      "(x * (1 + keys.position[:, None, :, None]) for x in self.heads.open(tuple(kept)))", also(15)),
    F("keys turn the other way", 15, "decoder", rotary.Rope.rotate,
      "_turn(k_BGTD, cos, sin)", "_turn(k_BGTD, cos, -sin)", also(16)),
    F("positions are absolute too", 15, "beams", transformer.Transformer.run,
      "stack.embedding_norm(x)", "stack.embedding_norm(x + 0.01 * layout.position[:, :, None])"),
    F("both halves turn one way", 16, "decoder", rotary.Rope.rotate,
      "torch.stack((-sin, sin),", "torch.stack((sin, sin),", also(15)),
    F("rotation stretches", 16, "beams", rotary.Rope.rotate, "torch.stack((cos, cos),",
      "1.1 * torch.stack((cos, cos),", also(15)),
    F("a multiply-add counts one", 17, "decoder", attention.Attention.base_cost,
      "Cost(0, 2 * pairs * value)", "Cost(0, pairs * value)"),
    F("the source's keys are counted once a token", 17, "translator", attention.CrossAttention.cost,
      "shape.sources * shape.source", "shape.tokens * shape.source"),
    F("cached heads are counted expanded", 17, "decoder", heads.GroupedHeads.kept_values,
      "model.kv_heads", "model.heads.count"),
    F("a norm is not counted", 17, "beams", norm.norms_in_block, "sublayers)", "sublayers - 1)"),
    F("unused slots are counted", 17, "decoder", state.LayerState.tensors, "[:, :, : self.book.stop]", ""),
    F("top-k keeps one more", 18, "translator", rules.keep_likely,
      "settings.top_k :]", "settings.top_k + 1 :]"),
    F("top-p drops the token that reaches p", 18, "translator", rules.keep_likely,
      "p.cumsum(-1) - p >=", "p.cumsum(-1) >="),
    F("the repetition penalty forgets the prompt", 18, "decoder", rules.rules,
      "less(logits, tokens)", "less(logits, tokens[:, prompt:])"),
    F("temperature multiplies", 18, "decoder", rules.keep_likely,
      "/ settings.temperature", "* settings.temperature"),
    F("finished beams advance", 18, "translator", _Beam.run,
      "total.masked_fill(token == eos, NEVER)[going]", "total[going]"),
    F("length counts the start", 18, "decoder", rules.length_penalty, "(5 + length)", "(6 + length)"),
    F("beams are reordered only when a source ends", 18, "beams", stepping.TranslationSteps.select,
      "self.state.select(rows, sources)", "sources is not None and self.state.select(rows, sources)",
      also(3)),
    F("beams go on from another's state", 18, "beams", stepping.TranslationSteps.select,
      "self.state.select(rows, sources)", "self.state.select(rows.sort().values, sources)", also(3)),
    F("targets are shifted twice", 19, "translator", batches.translation_batch,
      "[*row, EOS] for row in target", "[*row[1:], EOS, EOS][: len(row) + 1] for row in target"),
    F("targets are not shifted", 19, "translator", batches.translation_batch,
      "[*row, EOS] for row in target", "[BOS, *row] for row in target", also(11)),
    F("the source has no end", 19, "translator", batches.translation_batch,
      "[*row, EOS] for row in source", "[*row, row[-1]] for row in source"),
    F("padding is learned", 19, "translator", batches.translation_batch,
      "side, IGNORE)", "side)", also(8)),
    F("validation is smoothed", 19, "translator", tokens.TokenLoss.read,
      "self.smoothing if model.training else 0.0", "self.smoothing"),
    F("smoothing leaves the target out", 19, "translator", loss._Smoothed.forward,
      "smoothing / V * logp.sum", "smoothing / (V - 1) * logp.sum"),
]  # fmt: skip


def broken(config: str, numbers: frozenset[int] = ANY) -> dict[int, str]:
    """The laws that a configuration breaks."""
    found = verify(ModelConfig.parse(CONFIGS[config]), only=sorted(numbers))
    return {v.number: v.seen for v in found if v.status == "broken"}


def planted(faults: Sequence[Fault]) -> pytest.MarkDecorator:
    """Decorator: a test of each fault."""
    return pytest.mark.parametrize("fault", faults, ids=lambda f: f"{f.law}-{f.name}".replace(" ", "_"))


def check_fault(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a fault; its law is broken, and no others but those it breaks by its nature.

    A fault that shows everywhere is checked with its own law alone. Law 12, which trains, takes as long as
    all others together: it is left out where nothing is said of it.
    """
    plant(monkeypatch, fault.function, fault.old, fault.new)
    own = frozenset({fault.law})
    found = broken(fault.config, own if fault.also == ANY else own | (ANY - {12}))
    assert fault.law in found, f"not found; broken: {found}"
    assert set(found) <= own | fault.also, found


@planted(FAULTS)
def test_fault_is_found_by_its_law(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fault(fault, monkeypatch)


@pytest.mark.parametrize("config", CONFIGS)
def test_without_fault_all_hold(config: str) -> None:
    assert not broken(config)


def test_every_law_has_a_fault() -> None:
    assert {fault.law for fault in FAULTS} == set(LAWS)


def test_untied_on_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def assign(self: nn.Module, values: dict[str, torch.Tensor]) -> None:
        # What loading into a model made on the meta device does.
        nn.Module.load_state_dict(self, values, assign=True)

    monkeypatch.setattr(transformer.Transformer, "load_state_dict", assign)
    assert set(broken("translator")) == {7}
