"""Faults in heads, scores and patterns over layers, and the laws that find them."""

from __future__ import annotations

import pytest

from laws.test_faults import CONFIGS, Fault, also, broken, check_fault, planted
from triptych.model import attend, heads, norm, stack, state

CONFIGS["latent"] = {
    "form": "decoder",
    "vocab": 30,
    "dim": 16,
    "layers": 2,
    "heads": {"kind": "mla", "count": 2, "query": 10},
    "attention": {"visible": [{"kind": "window", "width": 3}, "everything"], "softcap": 4.0, "sinks": True},
    "position": "rope",
    "norm": {"kind": "rmsnorm", "placement": "sandwich"},
    "ffn": "swiglu",
}

F = Fault
FAULTS = [
    F("the shared rotary key is not turned", 15, "latent", heads.LatentHeads.project,
      "(*kept, r)", "(*kept, self.rotary(x_BTC)[:, None])", also(17)),
    F("the shared rotary key is not kept", 4, "latent", heads.LatentHeads.open,
      "kept[1].expand", "(kept[1] * (kept[1].shape[2] == self.R)).expand", also(3, 6, 10, 18)),
    F("the queries' latent is not counted", 17, "latent", heads.LatentHeads.cost,
      "linear_cost(queries, C, asks, bias)", "linear_cost(queries, C, asks - 1, bias)"),
    F("the cached latent is counted as keys and values", 17, "latent", heads.LatentHeads.kept_values,
      "_latent(model) +", "2 * _latent(model) +"),
    F("a sink is left out", 13, "latent", attend._softmax,
      "total = total + ", "total = total + 0 * ", also(10)),
    F("scores are capped with the mask in them", 13, "latent", attend.reference,
      "weights = _softmax(scores, mask, shaping.sink)",
      "weights = _softmax(scores.masked_fill(~mask.seen, -4.0), type(mask)(None), shaping.sink)",
      also(1, 2, 3, 4, 5, 6, 8, 17, 18, 19)),
    F("all layers see what the first sees", 13, "latent", stack.sights,
      'model.sights("decoder" if causal else "encoder")',
      'model.sights("decoder" if causal else "encoder")[:1] * model.depth("decoder")', also(10)),
    F("layers with and without a window share slots", 4, "latent", state.State.__init__,
      "LayerState(books[reach])", "LayerState(books[reaches[0]])", also(6, 17, 18)),
    F("a sandwich's second norm is not counted", 17, "latent", norm.norms_in_block,
      "2 * sublayers", "sublayers"),
]  # fmt: skip


@planted(FAULTS)
def test_fault_is_found_by_its_law(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fault(fault, monkeypatch)


def test_without_fault_all_hold() -> None:
    assert not broken("latent")
