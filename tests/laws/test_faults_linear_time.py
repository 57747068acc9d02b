"""Faults in mixers whose time grows with the length, and the laws that find them.

Chunks are made small here: the sequences of the laws go through several.
"""

from __future__ import annotations

from typing import Any

import pytest

from laws.test_faults import ANY, CONFIGS, Fault, also, broken, check_fault, planted
from triptych.model.mixers import apart, convolution, linear, linformer, retention, ssm, sums

DECODER: dict[str, Any] = {
    "form": "decoder",
    "vocab": 30,
    "dim": 16,
    "layers": 2,
    "heads": 2,
    "position": "none",
    "norm": {"kind": "rmsnorm", "placement": "pre"},
    "tie": "none",
}
FAVOR = {"kind": "linear", "map": "favor", "features": 10}
MINE: dict[str, dict[str, Any]] = {
    "linear": {**DECODER, "mixer": "linear"},
    "retention": {**DECODER, "mixer": "retention"},
    "turning retention": {**DECODER, "mixer": "retention", "position": "rope"},
    "ssm": {**DECODER, "mixer": {"kind": "ssm", "state": 4}},
    "favor": {**DECODER, "form": "encoder", "mixer": FAVOR},
    "linformer": {**DECODER, "form": "encoder", "mixer": {"kind": "linformer", "rank": 5, "max": 40}},
    "linear translator": {**DECODER, "form": "encoder_decoder", "mixer": ["linear", FAVOR]},
    "mixed translator": {
        **DECODER,
        "form": "encoder_decoder",
        "encoder_mixer": ["attention", {"kind": "linformer", "rank": 5, "max": 200}],
        "decoder_mixer": ["retention", {"kind": "ssm", "state": 3}],
    },
}
CONFIGS.update(MINE)

F = Fault
FAULTS = [
    F("decay counts slots", 4, "retention", sums.Summing.sums, "chunks(keys, T,",
      "chunks(Layout(torch.arange(keys.length).expand_as(keys.segment), keys.segment), T,"),
    F("decay counts passes", 4, "retention", sums.chunks,
      "power(*each, *first)", "power(*each, first[0], each[1] - 1)", also(2, 5, 6, 18)),
    F("keys do not turn", 15, "turning retention", retention.Retention.forward,
      "q, k = context.position", "q, _ = context.position"),
    F("the sum goes on into the next sequence", 5, "linear", sums.numbers,
      "begins(keys).cumsum(1)", "begins(keys).cummax(1).values.long()"),
    F("the state goes on into the next sequence", 5, "ssm", ssm.Ssm.scan,
      "masked_fill(first, 0).", ""),
    F("padding moves the state", 4, "ssm", ssm.Ssm.scan,
      ".masked_fill(~real, 1)", ""),
    F("a chunk forgets the sum before", 4, "linear", sums.Summing.sums,
      "carry * chunk.keep + new", "new", also(2, 5, 6, 18)),
    F("a chunk does not read the sum before", 4, "retention", sums.Summing.sums,
      "out.append(y if carry is None else", "out.append(y if i or carry is None else",
      also(2, 5, 6, 17, 18)),
    F("the state is that before the last chunk", 4, "linear", sums.Summing.sums,
      "held is not None or i + 1 < len(cut)", "i + 1 < len(cut)", also(6, 17, 18)),
    F("the normaliser is forgotten between passes", 4, "linear", sums.Summing.sums,
      "held.carry_on(carry)", "held.carry_on(F.pad(carry[..., :-1], (0, 1)))", also(6, 18)),
    F("the normaliser of both directions counts padding", 2, "favor", linear.Linear.forward,
      "(k * layout.real[:, None, :, None])", "k", also(3, 5, 8, 19)),
    F("the state is forgotten between passes", 4, "ssm", ssm.Ssm.scan,
      "carry = held.carry[0] if", "carry = None if", also(6, 18)),
    F("what a chunk begins with is not decayed", 4, "ssm", ssm.scan,
      "torch.addcmul(h, k, begun)", "h + begun", ANY),
    F("taps read one token too early", 4, "ssm", convolution.near,
      "neighbours(keys, T, reach)", "neighbours(keys, T, range(reach[0] - 1, reach[-1]))",
      also(3, 8, 18)),
    F("taps read one token too late", 1, "ssm", convolution.near,
      "neighbours(keys, T, reach)", "neighbours(keys, T, range(reach[0] + 1, reach[-1] + 2))",
      also(3, 4, 6, 8, 18)),
    F("taps read one token too late where nothing is padded", 3, "ssm", convolution.near,
      "(0, 0, -reach[0], reach[-1])", "(0, 0, -reach[0] - 1, reach[-1] + 1)", also(4, 8, 18)),
    F("random features are drawn anew", 7, "favor", linear.Favor.__init__,
      'self.register_buffer("omega", omega.flatten(0, 1)[:many].float())',
      "self.omega = torch.randn(many, D)"),
    F("sequences of a row are summed as one", 5, "linformer", apart.apart,
      "bool((layout.segment > 0).any())", "False"),
    F("sequences are taken apart and put back in another order", 5, "favor", apart._apart,
      "sequence.argsort(stable=True)", "sequence.argsort(stable=True).flip(0)"),
    F("summaries count slots", 2, "linformer", linformer.Linformer.over,
      "layout.position.masked_fill(~layout.real, 0)", "torch.arange(layout.length)[None]"),
    F("padding is summed up", 2, "linformer", linformer.Linformer.over,
      "weights * layout.real[..., None]", "weights", also(3, 5, 8, 19)),
    F("the normaliser is not counted", 17, "linear", linear.Linear.kept,
      "(model.head_dim + 1)", "model.head_dim"),
    F("sums between chunks are not counted", 17, "retention", sums.Summing.sums_cost,
      "through * F * D", "0"),
    F("a gain is not counted", 17, "retention", retention.Retention.cost, "Cost(2 * H * D)", "Cost(H * D)"),
    F("summaries of values are not counted", 17, "linformer", linformer.Linformer.cost,
      "4 * 2 * N", "3 * 2 * N"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "CHUNK", 4)


@planted(FAULTS)
def test_fault_is_found_by_its_law(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fault(fault, monkeypatch)


@pytest.mark.parametrize("config", MINE)
def test_without_fault_all_hold(config: str) -> None:
    assert not broken(config)
