"""Faults in experts and embeddings, and the laws that find them."""

from __future__ import annotations

import pytest

from laws.test_faults import ANY, CONFIGS, Fault, also, broken, check_fault, planted
from triptych.model import embedding, experts

SMALL = {"vocab": 30, "dim": 16, "layers": 2, "heads": 2, "ffn": {"dim": 32}}
CONFIGS["experts"] = {
    **SMALL,
    "dropout": 0.1,
    "embedding": {"kind": "factorised", "dim": 6},
    "experts": {"count": 4, "top_k": 2, "shared": 1, "router": "sigmoid"},
}
CONFIGS["switch"] = {
    **SMALL,
    "form": "decoder",
    "norm": {"placement": "pre"},
    "experts": {
        "count": 4,
        "top_k": 1,
        "every": 2,
        "capacity": 0.5,
        "router": {"kind": "softmax", "z": 0.01},
    },
}

F = Fault
FAULTS = [
    F("padding is routed", 2, "experts", experts.Experts.forward, "if not layout.plain:", "if False:"),
    F("the balance loss counts padding", 2, "switch", experts.Experts.forward,
      "self.router.loss(routed)", "self.router.loss(self.router(x_BTC.flatten(0, 1)))"),
    F("gates are not renormalised", 13, "experts", experts.SigmoidRouter.route,
      "gates / gates.sum(-1, keepdim=True) if self.renormalise else gates", "gates"),
    F("the bias is in the gates", 13, "experts", experts.SigmoidRouter.route,
      "s.gather(1, chosen)", "(s + self.bias).gather(1, chosen)"),
    F("a shared expert costs nothing", 17, "experts", experts.Experts.cost,
      "if settings.shared:", "if False:"),
    F("cost follows the count of experts", 17, "switch", experts.Experts.cost,
      "tokens * settings.top_k", "tokens * settings.count"),
    F("every layer is counted with experts", 17, "switch", experts.feed_forward_cost,
      "model.routed(place.layer)", "model.routed(1)"),
    F("the factorised output has a map of its own", 7, "experts", embedding.Factorised.back,
      "if tied:", "if False:", also(17)),
    F("capacity acts in evaluation", 3, "switch", experts.Experts.deal,
      "self.capacity is not None and self.training", "self.capacity is not None", ANY),
    F("rows go back to other tokens", 1, "switch", experts.Experts.mix,
      "index_add(0, token, y_RC", "index_add(0, token.sort().values, y_RC", ANY),
    F("gates learn nothing", 10, "switch", experts.Experts.mix,
      "routed.gates.t()", "routed.gates.detach().t()"),
    F("logits are made in low precision", 3, "experts", experts.Router.forward,
      "x_NC.to(dtype), self.map.weight.to(dtype)", "x_NC.float(), self.map.weight.float()", ANY),
]  # fmt: skip


@planted(FAULTS)
def test_fault_is_found_by_its_law(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fault(fault, monkeypatch)


@pytest.mark.parametrize("config", ["experts", "switch"])
def test_without_fault_all_hold(config: str) -> None:
    assert not broken(config)
