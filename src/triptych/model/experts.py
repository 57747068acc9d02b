"""Experts: many feed-forward networks, of which each token passes through a few.

    x_NC ─┬─ router ─ chosen_NK, gates_NK
          ├─ rows_RC, sorted by expert ─ each expert on its own rows ─ × gates ─ Σ over K ─ + → y_NC
          └─ shared expert ──────────────────────────────────────────────────────────────┘

N real tokens, E experts, K of them a token, R = N · K rows (fewer when room is short), C model width. Padding
is not routed: nothing is computed of it, and its output is zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.model.feedforward import FeedForward
from triptych.model.registry import Context, Cost, Place, carries_out, linear_cost, part_of


class Routed(NamedTuple):
    """Where tokens go.

    Attributes:
        chosen, gates: ``[N, K]`` the experts of each token, and their weights.
        logits, shares: ``[N, E]``, and the logits as a distribution over all experts.
    """

    chosen: Tensor
    gates: Tensor
    logits: Tensor
    shares: Tensor

    @property
    def load(self) -> Tensor:
        """``[E]``: tokens that chose each expert."""
        chosen = self.chosen.flatten()
        return chosen.new_zeros(self.logits.shape[1]).scatter_add_(0, chosen, torch.ones_like(chosen))


class Router(nn.Module):
    """``x_NC`` → ``Routed``."""

    def __init__(self, settings: parts.Router, model: ModelConfig) -> None:
        super().__init__()
        assert model.experts is not None
        self.map = nn.Linear(model.dim, model.experts.count, bias=False)
        self.k, self.balance, self.z = model.experts.top_k, settings.balance, settings.z
        self.renormalise: bool = getattr(settings, "renormalise", False)

    def route(self, logits_NE: Tensor) -> Routed:
        """The choice."""
        raise NotImplementedError

    def settle(self, load_E: Tensor) -> None:
        """Learn from the tokens that each expert got in a step, without gradient."""

    def forward(self, x_NC: Tensor) -> Routed:
        # In fp32 at least (Fedus et al. 2021, section 2.4): rounding sends tokens to other experts.
        dtype = torch.promote_types(x_NC.dtype, torch.float32)
        with torch.autocast(x_NC.device.type, enabled=False):
            return self.route(F.linear(x_NC.to(dtype), self.map.weight.to(dtype)))

    def loss(self, routed: Routed) -> Tensor:
        """E · Σ over experts of (how often a token chose it · its mean share) (Fedus et al. 2021, equations 4
        to 6), and the mean of log(Σ exp logits)² (Zoph et al. 2022, equation 5); both weighed."""
        total = routed.logits.new_zeros(())
        if self.balance:
            chose = routed.load / len(routed.logits)
            total = total + self.balance * len(chose) * (chose * routed.shares.mean(0)).sum()
        if self.z:
            total = total + self.z * routed.logits.logsumexp(-1).square().mean()
        return total


def _softmax(x_NE: Tensor) -> Tensor:
    """Over experts: side by side they are too few for the vectors of the kernel for a last dimension."""
    return x_NE.t().contiguous().softmax(0).t()


@carries_out(parts.SoftmaxRouter)
class SoftmaxRouter(Router):
    """Softmax, then the K largest."""

    def route(self, logits_NE: Tensor) -> Routed:
        shares = _softmax(logits_NE)
        gates, chosen = shares.topk(self.k)
        gates = gates / gates.sum(-1, keepdim=True) if self.renormalise else gates
        return Routed(chosen, gates, logits_NE, shares)


@carries_out(parts.TopSoftmaxRouter)
class TopSoftmaxRouter(Router):
    """The K largest, then softmax: what a softmax over all gives once renormalised."""

    def route(self, logits_NE: Tensor) -> Routed:
        top, chosen = logits_NE.topk(self.k)
        return Routed(chosen, _softmax(top), logits_NE, _softmax(logits_NE))


@carries_out(parts.SigmoidRouter)
class SigmoidRouter(Router):
    """The K largest of sigmoid + bias; gates are of the sigmoid alone."""

    bias: Tensor

    def __init__(self, settings: parts.SigmoidRouter, model: ModelConfig) -> None:
        super().__init__(settings, model)
        self.scale, self.rate = settings.scale, settings.rate
        self.register_buffer("bias", torch.zeros(self.map.out_features))

    def route(self, logits_NE: Tensor) -> Routed:
        s = logits_NE.sigmoid()
        chosen = (s + self.bias).topk(self.k).indices
        gates = s.gather(1, chosen)
        gates = gates / gates.sum(-1, keepdim=True) if self.renormalise else gates
        return Routed(chosen, gates * self.scale, logits_NE, s / s.sum(-1, keepdim=True))

    @torch.no_grad()
    def settle(self, load_E: Tensor) -> None:
        """The biases of experts with less than the mean load rise, the others fall."""
        load = load_E.to(self.bias)
        self.bias += self.rate * (load.mean() - load).sign()


class Experts(nn.Module):
    """See above. ``capacity`` acts in training only: what a token gets then depends on its batch."""

    def __init__(self, settings: parts.Experts, model: ModelConfig) -> None:
        super().__init__()
        ffn, width = part_of(model.ffn), settings.dim or model.ffn_dim
        self.router: Router = part_of(settings.router)(settings.router, model)
        self.experts = nn.ModuleList(ffn(model.ffn, model, width) for _ in range(settings.count))
        # So many networks side by side are one network so many times as wide.
        self.shared = ffn(model.ffn, model, settings.shared * width) if settings.shared else None
        self.capacity = settings.capacity

    @staticmethod
    def cost(settings: parts.Experts, model: ModelConfig, tokens: int) -> Cost:
        """All experts' parameters, and the products of ``top_k`` a token and of the shared ones."""
        ffn, width = part_of(model.ffn), settings.dim or model.ffn_dim
        rows = ffn.cost(model.ffn, model, tokens * settings.top_k, width)
        total = Cost(settings.count * rows.parameters, rows.flops)
        if settings.shared:
            total += ffn.cost(model.ffn, model, tokens, settings.shared * width)
        return total + linear_cost(tokens, model.dim, settings.count, bias=False)

    def scaled(self) -> list[Tensor]:
        """The weights that DeepNorm begins smaller: not the router's, which carry nothing through."""
        return [w for m in self.modules() if isinstance(m, FeedForward) for w in m.scaled()]

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        """``[B, T, C]``."""
        x, layout, real = x_BTC.flatten(0, 1), context.layout, None
        if not layout.plain:
            real = layout.memo("tokens", lambda: layout.real.flatten().nonzero()[:, 0])
            x = x.index_select(0, real)
        routed: Routed = self.router(x)
        if context.aux is not None and len(x):
            context.aux.append(self.router.loss(routed))
        y = self.mix(x, routed)
        y = y + self.shared(x) if self.shared is not None else y
        if real is not None:
            y = y.new_zeros(x_BTC.shape[:2].numel(), y.shape[1]).index_copy(0, real, y)
        return y.view_as(x_BTC)

    def mix(self, x_NC: Tensor, routed: Routed) -> Tensor:
        """The sum of each token's experts, weighed by its gates."""
        device = x_NC.device.type
        if torch.is_autocast_enabled(device):  # before rows are copied, and once
            x_NC = x_NC.to(torch.get_autocast_dtype(device))
        N = len(x_NC)
        order, sizes = self.deal(routed)
        token = order % N
        rows = zip(self.experts, torch.split(x_NC.index_select(0, token), sizes), strict=True)
        # In training an expert without tokens has gradients too: zeros.
        y_RC = torch.cat([network(own) for network, own in rows if len(own) or self.training or not N])
        gates = routed.gates.t().flatten()[order, None].to(y_RC.dtype)
        return y_RC.new_zeros(N, y_RC.shape[1]).index_add(0, token, y_RC * gates)

    def deal(self, routed: Routed) -> tuple[Tensor, list[int]]:
        """``order_R``, sorted by expert: k · N + n is the k-th choice of token n; and how many each has."""
        N, K = routed.chosen.shape
        expert, load = routed.chosen.t().flatten(), routed.load  # all first choices before all second ones
        order = expert.argsort(stable=True)
        if self.capacity is not None and self.training:
            room = math.ceil(min(self.capacity * N * K / len(load), N * K))
            place = torch.arange(N * K, device=order.device) - (load.cumsum(0) - load)[expert[order]]
            order, load = order[place < room], load.clamp(max=room)
        return order, load.tolist()


def feed_forward(model: ModelConfig, place: Place) -> FeedForward | Experts:
    """A layer's feed-forward network, or its experts."""
    if model.experts is not None and model.routed(place.layer):
        return Experts(model.experts, model)
    network: FeedForward = part_of(model.ffn)(model.ffn, model)
    return network


def feed_forward_cost(model: ModelConfig, place: Place, tokens: int) -> Cost:
    """Of what ``feed_forward`` gives."""
    if model.experts is not None and model.routed(place.layer):
        return Experts.cost(model.experts, model, tokens)
    cost: Cost = part_of(model.ffn).cost(model.ffn, model, tokens)
    return cost


def routers(model: nn.Module) -> dict[str, Router]:
    """The routers of a model, by the name of their layer."""
    found = {name: m for name, m in model.named_modules() if isinstance(m, Router)}
    return {name.removesuffix(".ffn.router"): m for name, m in found.items()}


@contextmanager
def counting(routers: Mapping[str, Router], load: dict[str, Tensor], learn: bool = False) -> Iterator[None]:
    """Add to ``load`` how many tokens each router sends to each expert, ``[E]``, in the passes within: in
    all, or in those that have gradients, from which is learned (``learn``)."""

    def count(name: str, module: nn.Module, args: Any, routed: Routed) -> None:
        if not learn or torch.is_grad_enabled():
            load[name] = load.get(name, 0) + routed.load

    handles = [router.register_forward_hook(partial(count, name)) for name, router in routers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
