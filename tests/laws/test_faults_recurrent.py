"""Faults in recurrent and convolutional mixers, and the laws that find them."""

from __future__ import annotations

from typing import Any

import pytest

from laws.test_faults import ANY, CONFIGS, Fault, also, broken, check_fault, planted
from triptych.model.mixers import attentive, convolution, recurrent, runs

SMALL: dict[str, Any] = {"vocab": 30, "dim": 16, "layers": 1, "heads": 2, "position": "none"}
OWN: dict[str, dict[str, Any]] = {
    "lstm": {**SMALL, "form": "decoder", "mixer": "lstm", "layers": 2},
    "gru both ways": {**SMALL, "form": "encoder", "mixer": {"kind": "gru", "hidden": 7}},
    "bahdanau": {**SMALL, "mixer": {"kind": "bahdanau", "align": 5}},
    "luong": {**SMALL, "mixer": {"kind": "luong", "input_feeding": True}},
    "luong at once": {**SMALL, "mixer": {"kind": "luong", "score": "dot"}},
    "convolution": {**SMALL, "form": "decoder", "mixer": {"kind": "conv", "kernel": 4}},
}
CONFIGS.update(OWN)

F = Fault
FAULTS = [
    F("a sequence begins with another's state", 5, "lstm", recurrent.walk,
      "x.masked_fill(begins, 0)", "x", also(4)),
    F("padding steps the state", 4, "lstm", recurrent.walk,
      "torch.where(real, new, old)", "new", also(3, 18)),
    F("the state is not carried on", 4, "lstm", recurrent.Recurrent.go,
      "held.carry_on(*carry)", "held.carry_on(*self.zeros(x_BTC))", also(6, 18)),
    F("each pass begins a sequence", 4, "lstm", runs.pace,
      "context.layout if context.held is None else context.held.keys", "context.layout", also(6, 18)),
    F("both directions go forwards", 2, "gru both ways", recurrent.Recurrent.run,
      ".unbind(1)[::-1]", ".unbind(1)", ANY),
    F("the other direction is not turned back", 2, "gru both ways", recurrent.Recurrent.run,
      "back_BTH.flip(1)", "back_BTH", ANY),
    F("backwards, sequences begin where they begin forwards", 5, "gru both ways", runs._pace,
      "changes(first.cumsum(1).flip(1), real.flip(1))", "first.flip(1)", also(2, 3, 8)),
    F("beams read another's source", 4, "bahdanau", attentive.SourceAttention.forward,
      "q_RTA.reshape(len(k), 1, -1, q_RTA.shape[-1])",
      "q_RTA.reshape(-1, len(k), q_RTA.shape[-1]).transpose(0, 1)[:, None]", also(3, 6, 18)),
    F("beams see another's mask", 4, "luong", attentive.SourceAttention.masks,
      "seen.view(len(seen), -1, T, seen.shape[-1])", "seen.roll(1, 0).view(len(seen), -1, T, seen.shape[-1])",
      ANY),
    F("all of the source is read", 13, "luong at once", attentive.SourceAttention.mask,
      "SameSegment().lower(folded(context.layout, sources), context.source_layout)", "Mask(None)", ANY),
    F("steps are not joined", 13, "bahdanau", attentive.SourceAttention.join,
      "torch.cat(self.watch[-steps:], 2)", "self.watch[-1]"),
    F("what is fed is not counted", 17, "luong", attentive.Luong.kept, "[1] + fed", "[1]"),
    F("the state's products are not counted", 17, "lstm", recurrent.Recurrent.cost,
      "linear_cost(shape.tokens, H, own.gates * H, own.bias)", "linear_cost(0, H, own.gates * H, own.bias)"),
    F("what is kept of the source is counted without its map", 17, "bahdanau",
      attentive.Bahdanau.kept_of_source, "_align(settings, model) + model.dim", "model.dim"),
    F("taps read the next token", 1, "convolution", convolution.Convolution.__init__,
      "range(1 - k, 1)", "range(2 - k, 2)", also(4, 6, 18)),
    F("taps are one off over a cache", 4, "convolution", convolution.neighbours,
      "own[:, -T:, None]", "(own[:, -T:, None] - int(T < S))", also(6, 18)),
    F("slots that taps ask for are dropped", 4, "convolution", convolution.Convolution.sees,
      "settings.kernel - 1", "settings.kernel - 2", also(3, 6, 18)),
    F("taps reach into other sequences", 5, "convolution", convolution.neighbours,
      "(keys.segment << 32) + keys.position", "keys.position + 0", ANY),
    F("taps go by slots", 2, "convolution", convolution.near,
      "if keys.plain", "if keys.length == T", ANY),
]  # fmt: skip


@planted(FAULTS)
def test_fault_is_found_by_its_law(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fault(fault, monkeypatch)


@pytest.mark.parametrize("config", OWN)
def test_without_fault_all_hold(config: str) -> None:
    assert not broken(config)
