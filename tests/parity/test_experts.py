"""Experts against a loop in numpy written from the papers, and against ``transformers``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from parity.weights import Match, Rows, shaken
from triptych.config import ModelConfig
from triptych.layout import Layout
from triptych.model.experts import Experts, counting, feed_forward, routers
from triptych.model.registry import Context, Place
from triptych.model.visible import Everything

C, F = 8, 12
PLACE = Place(causal=False)
Array = np.ndarray[Any, Any]


def _experts(settings: dict[str, Any], kind: str = "swiglu", seed: int = 0) -> Experts:
    ffn = {"kind": kind, "dim": F}
    model = ModelConfig.parse({"dim": C, "heads": 1, "layers": 1, "ffn": ffn, "experts": settings})
    torch.manual_seed(seed)
    made = feed_forward(model, PLACE)
    assert isinstance(made, Experts)
    for module in made.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.5)
    return shaken(made).double()  # type: ignore[return-value]


def _context(layout: Layout, aux: list[Tensor] | None = None) -> Context:
    return Context(layout, Everything(), nn.Identity(), aux=aux)  # type: ignore[arg-type]


def _x(rows: int = 3, length: int = 7) -> Tensor:
    return torch.randn(rows, length, C, dtype=torch.float64)


# -- against transformers ----------------------------------------------------------------------------------


def _pair(match: Match, ours: Experts, theirs: Any) -> None:
    """Weights of all routed experts: theirs are stacked."""
    for e, network in enumerate(ours.experts):
        match.put(network.inner.weight, theirs.gate_up_proj[e])  # type: ignore[union-attr, arg-type]
        match.put(network.outer.weight, theirs.down_proj[e])  # type: ignore[union-attr, arg-type]


def _same_gradients(ours: Experts, theirs: Any, gate: Tensor) -> None:
    for e, network in enumerate(ours.experts):
        for mine, other in ((network.inner, theirs.gate_up_proj), (network.outer, theirs.down_proj)):
            torch.testing.assert_close(mine.weight.grad, other.grad[e], rtol=1e-4, atol=1e-5)  # type: ignore[union-attr]
    torch.testing.assert_close(ours.router.map.weight.grad, gate.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("router", ["top_softmax", {"kind": "softmax", "renormalise": True}])
def test_experts_are_mixtrals(router: Any) -> None:
    """A softmax over the chosen logits is a renormalised softmax over all: both are Mixtral's block."""
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = MixtralConfig(
        hidden_size=C, intermediate_size=F, num_local_experts=5, num_experts_per_tok=2, num_attention_heads=1
    )
    config._experts_implementation = "eager"
    theirs: Any = MixtralSparseMoeBlock(config).double()
    for p in theirs.parameters():
        nn.init.normal_(p, std=0.5)
    ours = _experts({"count": 5, "top_k": 2, "router": router})
    match = Match()
    _pair(match, ours, theirs.experts)
    match.put(ours.router.map.weight, Rows(theirs.gate.weight))
    x = _x()
    mine, twin = x.clone().requires_grad_(), x.clone().requires_grad_()
    got, want = ours(mine, _context(Layout.full(3, 7))), theirs(twin)
    # Their softmax is in fp32.
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    got.pow(2).sum().backward()
    want.pow(2).sum().backward()
    torch.testing.assert_close(mine.grad, twin.grad, rtol=1e-4, atol=1e-5)
    _same_gradients(ours, theirs.experts, theirs.gate.weight)


@pytest.mark.parametrize("renormalise", [True, False])
def test_experts_are_deepseeks(renormalise: bool) -> None:
    """Sigmoid, a bias that only chooses, a scale, shared experts."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE

    config = DeepseekV3Config(
        hidden_size=C,
        moe_intermediate_size=F,
        n_routed_experts=6,
        num_local_experts=6,
        num_experts_per_tok=2,
        n_shared_experts=2,
        n_group=1,
        topk_group=1,
        norm_topk_prob=renormalise,
        routed_scaling_factor=2.5,
        num_attention_heads=1,
    )
    config._experts_implementation = "eager"
    theirs: Any = DeepseekV3MoE(config).double()
    for p in theirs.parameters():
        nn.init.normal_(p, std=0.5)
    router = {"kind": "sigmoid", "scale": 2.5, "renormalise": renormalise}
    ours = _experts({"count": 6, "top_k": 2, "shared": 2, "router": router})
    bias = torch.tensor([0.4, -0.3, 0.2, 0.0, -0.4, 0.1])
    ours.router.bias.copy_(bias)  # type: ignore[operator, union-attr]
    theirs.gate.e_score_correction_bias.copy_(bias)
    match = Match()
    _pair(match, ours, theirs.experts)
    match.put(ours.router.map.weight, Rows(theirs.gate.weight))
    assert ours.shared is not None
    shared = theirs.shared_experts
    match.put(ours.shared.inner.weight, shared.gate_proj.weight, shared.up_proj.weight)
    match.put(ours.shared.outer.weight, shared.down_proj.weight)
    x = _x()
    with torch.no_grad():
        plain = ours.router.route(torch.nn.functional.linear(x.flatten(0, 1), ours.router.map.weight))
    assert plain.chosen.sort(-1).values.ne(plain.shares.topk(2).indices.sort(-1).values).any(), (
        "the bias chose"
    )
    mine, twin = x.clone().requires_grad_(), x.clone().requires_grad_()
    got, want = ours(mine, _context(Layout.full(3, 7))), theirs(twin)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    got.pow(2).sum().backward()
    want.pow(2).sum().backward()
    torch.testing.assert_close(mine.grad, twin.grad, rtol=1e-4, atol=1e-4)
    for e, network in enumerate(ours.experts):
        torch.testing.assert_close(
            network.inner.weight.grad,
            theirs.experts.gate_up_proj.grad[e],
            rtol=1e-4,
            atol=1e-4,  # type: ignore[union-attr]
        )
    torch.testing.assert_close(ours.router.map.weight.grad, theirs.gate.weight.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_balance_loss_is_mixtrals_without_padding(k: int) -> None:
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    ours = _experts({"count": 5, "top_k": k, "router": {"kind": "softmax", "balance": 0.7}})
    layout, x, aux = Layout.padded([7, 3, 5]), _x(), []
    ours(x, _context(layout, aux))
    logits = (x.flatten(0, 1) @ ours.router.map.weight.t()).detach().requires_grad_()
    want = 0.7 * load_balancing_loss_func((logits,), 5, k, layout.real.long())
    torch.testing.assert_close(aux[0], want.double(), rtol=1e-6, atol=1e-7)
    ours.zero_grad()
    aux[0].backward()
    want.backward()
    through = logits.grad.t() @ x.flatten(0, 1)  # type: ignore[union-attr]
    torch.testing.assert_close(ours.router.map.weight.grad, through, rtol=1e-5, atol=1e-7)


def test_balance_and_z_losses_are_switchs() -> None:
    from transformers.models.switch_transformers.modeling_switch_transformers import (
        load_balancing_loss_func,
        router_z_loss_func,
    )

    ours = _experts({"count": 4, "top_k": 1, "router": {"kind": "softmax", "balance": 0.01, "z": 0.1}})
    x, aux = _x(), []
    ours(x, _context(Layout.full(3, 7), aux))
    logits = (x.flatten(0, 1) @ ours.router.map.weight.t())[None]
    want = 0.01 * load_balancing_loss_func(logits.softmax(-1), logits.argmax(-1))
    want = want + 0.1 * router_z_loss_func(logits)  # type: ignore[operator]
    torch.testing.assert_close(aux[0], want.double(), rtol=1e-6, atol=1e-8)  # type: ignore[union-attr]
    got = torch.autograd.grad(aux[0], ours.router.map.weight, retain_graph=True)
    torch.testing.assert_close(got, torch.autograd.grad(want, ours.router.map.weight), rtol=1e-6, atol=1e-9)


# -- against a loop ----------------------------------------------------------------------------------------


def _silu(x: Array) -> Array:
    return np.asarray(x / (1 + np.exp(-x)))


def _network(network: Any, x: Array) -> Array:
    """A SwiGLU network."""
    gate, up = np.split(x @ network.inner.weight.detach().numpy().T, 2, -1)
    return np.asarray((_silu(gate) * up) @ network.outer.weight.detach().numpy().T)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max())
    return np.asarray(e / e.sum())


def _loop(ours: Experts, x: Array, router: dict[str, Any], k: int, room: int | None) -> Array:
    """One token after another, each of its choices in turn; with ``room``, first choices of all before second
    choices, and no expert takes more."""
    out, taken = np.zeros_like(x), np.zeros(len(ours.experts), int)
    picks = []
    for t, row in enumerate(x):
        logits = ours.router.map.weight.detach().numpy() @ row
        if router["kind"] == "sigmoid":
            p = 1 / (1 + np.exp(-logits))
            best = np.argsort(-(p + ours.router.bias.numpy()))[:k]  # type: ignore[union-attr, operator]
        else:
            p = _softmax(logits)
            best = np.argsort(-p)[:k]
        gates = _softmax(logits[best]) if router["kind"] == "top_softmax" else p[best]
        if router.get("renormalise", router["kind"] == "sigmoid"):
            gates = gates / gates.sum()
        gates = gates * router.get("scale", 1)
        picks += [(choice, t, best[choice], gates[choice]) for choice in range(k)]
    for _, t, e, g in sorted(picks, key=lambda pick: pick[:2]):
        taken[e] += 1
        if room is None or taken[e] <= room:
            out[t] += g * _network(ours.experts[e], x[t])
    return out + _network(ours.shared, x) if ours.shared is not None else out


@pytest.mark.parametrize(
    "router",
    [
        {"kind": "softmax"},
        {"kind": "softmax", "renormalise": True},
        {"kind": "top_softmax"},
        {"kind": "sigmoid", "scale": 1.7},
        {"kind": "sigmoid", "renormalise": False},
    ],
    ids=lambda router: "-".join(map(str, router.values())),
)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("capacity", [None, 0.6, 1.0])
@pytest.mark.parametrize("shared", [0, 1])
def test_experts_are_a_loop_over_tokens(
    router: dict[str, Any], k: int, capacity: float | None, shared: int
) -> None:
    settings = {"count": 4, "top_k": k, "capacity": capacity, "shared": shared, "router": router}
    ours = _experts(settings).train()
    if router["kind"] == "sigmoid":
        nn.init.uniform_(ours.router.bias, -0.3, 0.3)  # type: ignore[arg-type]
    x, layout = _x(), Layout.padded([7, 2, 5], "left")
    real = layout.real
    N = int(real.sum())
    room = None if capacity is None else math.ceil(capacity * N * k / 4)
    want = _loop(ours, x[real].numpy(), router, k, room)
    got = ours(x, _context(layout))
    np.testing.assert_allclose(got[real].detach().numpy(), want, rtol=1e-9, atol=1e-11)
    assert not got[~real].any()
    free = _loop(ours, x[real].numpy(), router, k, None)
    if room is not None:
        assert np.abs(free - want).max() > 1e-3, "nothing was dropped: this tests nothing"
    # In evaluation no token is left out.
    np.testing.assert_allclose(ours.eval()(x, _context(layout))[real].detach().numpy(), free, atol=1e-11)


@pytest.mark.parametrize("router", ["softmax", "top_softmax", "sigmoid"])
def test_gradients_are_differences(router: str) -> None:
    """Of what reaches the input, the router and the experts, through gates and through both losses."""
    ours = _experts(
        {"count": 4, "top_k": 2, "shared": 1, "router": {"kind": router, "balance": 0.3, "z": 0.2}}
    )
    layout, x = Layout.padded([3, 2]), _x(2, 3)

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        aux: list[Tensor] = []
        values = dict(zip(names, weights, strict=True))
        y: Tensor = torch.func.functional_call(ours, values, (x, _context(layout, aux)))
        return torch.cat((y[layout.real].flatten(), aux[0][None]))

    names = ["router.map.weight", "experts.1.inner.weight", "shared.outer.weight"]
    weights = [ours.get_parameter(name).detach().clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(run, (x.requires_grad_(), *weights), atol=1e-7, rtol=1e-5)


@pytest.mark.parametrize("kind", ["relu", "relu2", "geglu"])
def test_an_expert_is_a_network_of_the_models_kind(kind: str) -> None:
    """With as many a token as there are, in equal parts, experts are the mean of the networks."""
    ours = _experts({"count": 3, "top_k": 3, "router": "softmax"}, kind)
    nn.init.zeros_(ours.router.map.weight)
    x = _x()
    want = sum(network(x) for network in ours.experts) / 3
    torch.testing.assert_close(ours(x, _context(Layout.full(3, 7))), want, rtol=1e-9, atol=1e-12)


# -- what they promise -------------------------------------------------------------------------------------


def test_padding_is_neither_routed_nor_counted() -> None:
    ours = _experts({"count": 4, "top_k": 2})
    layout, x = Layout.padded([4, 1]), _x(2, 4)
    x = torch.where(layout.real[:, :, None], x, torch.nan)
    load: dict[str, Tensor] = {}
    aux: list[Tensor] = []
    with counting({"here": ours.router}, load):
        y = ours(x, _context(layout, aux))
    assert y[layout.real].isfinite().all() and not y[~layout.real].any()
    assert load["here"].sum() == 5 * 2 and bool(aux[0].isfinite())
    y[layout.real].sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in ours.parameters())


def test_cost_follows_top_k_and_not_count() -> None:
    def products(count: int, k: int) -> int:
        ours = _experts({"count": count, "top_k": k, "router": "softmax"})
        with FlopCounterMode(display=False) as counter:
            ours(_x(), _context(Layout.full(3, 7)))
        return int(counter.get_total_flops()) - 2 * 21 * C * count  # the router's own

    assert products(4, 2) == products(16, 2) == 2 * products(16, 1)


def test_the_router_is_in_fp32_under_autocast() -> None:
    ours = _experts({"count": 4, "top_k": 2}).float()
    seen = []
    ours.router.register_forward_hook(lambda module, args, routed: seen.append(routed))
    with torch.autocast("cpu", torch.bfloat16):
        y = ours(_x().float(), _context(Layout.full(3, 7)))
    assert seen[0].logits.dtype == seen[0].gates.dtype == torch.float32 and y.dtype == torch.bfloat16


def test_biases_even_out_the_load() -> None:
    """A router that sends all tokens the same way is brought to send them everywhere, without a gradient."""
    router = {"kind": "sigmoid", "rate": 0.02}
    ours = _experts({"count": 4, "top_k": 1, "router": {**router, "renormalise": False}})
    with torch.no_grad():
        ours.router.map.weight[0] += 1.0
    x = _x(40, 10) / 4 + 0.5
    weight = ours.router.map.weight.clone()

    def shares() -> Tensor:
        load: dict[str, Tensor] = {}
        with torch.no_grad(), counting({"r": ours.router}, load):
            ours(x, _context(Layout.full(40, 10)))
        ours.router.settle(load["r"])
        return load["r"] / load["r"].sum()

    first = shares()
    for _ in range(100):
        last = shares()
    assert first.max() > 0.6 and last.max() < 0.35
    assert torch.equal(ours.router.map.weight, weight)


def test_counting_adds_up_and_lets_go() -> None:
    ours = _experts({"count": 4, "top_k": 2})
    load: dict[str, Tensor] = {}
    found = routers(nn.ModuleDict({"ffn": ours}))
    assert set(found) == {"ffn.router".removesuffix(".ffn.router")}
    for _ in range(2):
        with counting(found, load):
            ours(_x(), _context(Layout.full(3, 7)))
    ours(_x(), _context(Layout.full(3, 7)))
    assert [int(n.sum()) for n in load.values()] == [2 * 2 * 21]
    assert not ours.router._forward_hooks


def test_passes_that_teach_nothing_are_not_counted() -> None:
    ours, load = _experts({"count": 4, "top_k": 2}), dict[str, Tensor]()
    with counting({"r": ours.router}, load, learn=True):
        with torch.no_grad():
            ours(_x(), _context(Layout.full(3, 7)))
        assert not load
        ours(_x(), _context(Layout.full(3, 7)))
    assert int(load["r"].sum()) == 2 * 21


def test_padding_alone_has_no_loss() -> None:
    ours = _experts({"count": 4, "top_k": 2, "router": {"kind": "softmax", "z": 0.1}})
    nothing = torch.full((3, 7), -1)
    context = _context(Layout(torch.zeros_like(nothing), nothing), aux=[])
    y = ours(_x(), context)
    assert not y.any() and context.aux is not None and context.aux == []
