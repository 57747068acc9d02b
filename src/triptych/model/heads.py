"""Heads: what is projected, what of it is cached, and how keys and values are opened from that.

Shapes: B rows, T tokens, S keys, H query heads, G key/value heads, D head width, L latent, R rotary width.

    grouped:  x ─ qkv ─ q_BHTD, [k_BGTD, v_BGTD]                             open: as they are
    latent:   x ─ (query) ─ q_BHT(D+R)
              x ─ down ─ norm ─ [c_B1TL], x ─ rotary ─ [r_B1TR]              open: c ─ up ─ k_BHSD ‖ r, v_BHSD
    what stands in [ ] is kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.layout import Layout
from triptych.model.positions import Position
from triptych.model.registry import Cost, carries_out, linear_cost

Kept = tuple[Tensor, ...]


def split_heads(x_BTE: Tensor, heads: int) -> Tensor:
    """``[B, T, heads·D]`` → ``[B, heads, T, D]``."""
    return x_BTE.view(*x_BTE.shape[:2], heads, -1).transpose(1, 2)


class Heads(nn.Module):
    """Projections of one attention.

    Attributes:
        dotted: width of what a query and a key dot.
        width: of all heads' values side by side: what the output map reads.
    """

    dotted: int
    width: int

    def query(self, x_BTC: Tensor) -> Tensor:
        """Queries ``[B, H, T, D]`` that meet the keys of a source."""
        raise NotImplementedError

    def keep(self, x_BSC: Tensor) -> Kept:
        """What is kept of a source."""
        raise NotImplementedError

    def project(self, x_BTC: Tensor, position: Position, layout: Layout) -> tuple[Tensor, Kept]:
        """Queries of tokens, and what is kept of them for later ones; positions are in both."""
        raise NotImplementedError

    def open(self, kept: Kept) -> tuple[Tensor, Tensor]:
        """Keys ``[B, G, S, D]`` and values from what was kept."""
        raise NotImplementedError

    def scaled(self) -> list[Tensor]:
        """The weights of the values, which DeepNorm begins smaller (Wang et al. 2022, section 4.1)."""
        raise NotImplementedError


@carries_out(parts.GroupedHeads)
class GroupedHeads(Heads):
    """H query heads over G key/value heads, which are kept unexpanded (MHA, GQA, MQA)."""

    def __init__(self, settings: parts.GroupedHeads, model: ModelConfig, cross: bool) -> None:
        super().__init__()
        self.H, self.G, self.D = settings.count, model.kv_heads, model.head_dim
        self.dotted, self.width = self.D, self.H * self.D
        if cross:
            self.q = nn.Linear(model.dim, self.H * self.D, bias=settings.bias)
            self.kv = nn.Linear(model.dim, 2 * self.G * self.D, bias=settings.bias)
        else:
            self.qkv = nn.Linear(model.dim, (self.H + 2 * self.G) * self.D, bias=settings.bias)
        self.q_norm = nn.RMSNorm(self.D, eps=1e-6) if settings.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(self.D, eps=1e-6) if settings.qk_norm else nn.Identity()

    @staticmethod
    def cost(model: ModelConfig, cross: bool, queries: int, kept: int, opened: int) -> Cost:
        """``queries`` tokens asking, ``kept`` tokens projected to be kept, ``opened`` kept ones used."""
        H, G, D, bias = model.heads.count, model.kv_heads, model.head_dim, model.heads.bias
        asking = linear_cost(queries, model.dim, H * D, bias)
        norms = Cost(2 * D if model.heads.qk_norm else 0)
        return asking + linear_cost(kept, model.dim, 2 * G * D, bias) + norms

    @staticmethod
    def dots(model: ModelConfig, cross: bool) -> int:
        """Width of what is dotted."""
        return model.head_dim

    @staticmethod
    def kept_values(model: ModelConfig, cross: bool) -> int:
        """Values kept of each token."""
        return 2 * model.kv_heads * model.head_dim

    def query(self, x_BTC: Tensor) -> Tensor:
        q: Tensor = self.q_norm(split_heads(self.q(x_BTC), self.H))
        return q

    def keep(self, x_BSC: Tensor) -> Kept:
        k, v = self.kv(x_BSC).chunk(2, -1)
        return self.k_norm(split_heads(k, self.G)), split_heads(v, self.G)

    def project(self, x_BTC: Tensor, position: Position, layout: Layout) -> tuple[Tensor, Kept]:
        q, k, v = self.qkv(x_BTC).split((self.H * self.D, self.G * self.D, self.G * self.D), -1)
        q, k = self.q_norm(split_heads(q, self.H)), self.k_norm(split_heads(k, self.G))
        q, k = position.rotate(q, k, layout)
        return q, (k, split_heads(v, self.G))

    def open(self, kept: Kept) -> tuple[Tensor, Tensor]:
        k, v = kept
        return k, v

    def scaled(self) -> list[Tensor]:
        fused = self.kv if hasattr(self, "kv") else self.qkv
        return [fused.weight[-self.G * self.D :]]


@carries_out(parts.LatentHeads)
class LatentHeads(Heads):
    """Multi-head latent attention (DeepSeek-AI 2024, section 2.1): equations 9–19 there.

    Rotary positions turn R values of each query and one key of R values that all heads share; a source's
    keys have none.
    """

    def __init__(self, settings: parts.LatentHeads, model: ModelConfig, cross: bool) -> None:
        super().__init__()
        self.H, self.D = settings.count, model.head_dim
        self.L, self.R = _latent(model), _rotary(model, cross)
        self.dotted, self.width = self.D + self.R, self.H * self.D
        C, bias, asks = model.dim, settings.bias, settings.query or model.dim
        if settings.query:
            self.q_down = nn.Linear(C, asks, bias=bias)
            self.q_latent_norm = nn.RMSNorm(asks, eps=1e-6)
        self.q = nn.Linear(asks, self.H * self.dotted, bias=bias)
        self.down = nn.Linear(C, self.L, bias=bias)
        self.latent_norm = nn.RMSNorm(self.L, eps=1e-6)
        self.rotary = nn.Linear(C, self.R, bias=bias) if self.R else None
        self.up = nn.Linear(self.L, 2 * self.H * self.D, bias=bias)

    @staticmethod
    def cost(model: ModelConfig, cross: bool, queries: int, kept: int, opened: int) -> Cost:
        settings: Any = model.heads
        H, D, C, bias = settings.count, model.head_dim, model.dim, settings.bias
        asks = settings.query or C
        L, R = _latent(model), _rotary(model, cross)
        total = linear_cost(queries, asks, H * (D + R), bias)
        if settings.query:
            total += linear_cost(queries, C, asks, bias) + Cost(asks)
        if R:
            total += linear_cost(kept, C, R, bias)
        return total + linear_cost(kept, C, L, bias) + Cost(L) + linear_cost(opened, L, 2 * H * D, bias)

    @staticmethod
    def dots(model: ModelConfig, cross: bool) -> int:
        return model.head_dim + _rotary(model, cross)

    @staticmethod
    def kept_values(model: ModelConfig, cross: bool) -> int:
        return _latent(model) + _rotary(model, cross)

    def query(self, x_BTC: Tensor) -> Tensor:
        if hasattr(self, "q_down"):
            x_BTC = self.q_latent_norm(self.q_down(x_BTC))
        return split_heads(self.q(x_BTC), self.H)

    def keep(self, x_BSC: Tensor) -> Kept:
        return (self.latent_norm(self.down(x_BSC))[:, None],)

    def project(self, x_BTC: Tensor, position: Position, layout: Layout) -> tuple[Tensor, Kept]:
        q, kept = self.query(x_BTC), self.keep(x_BTC)
        if self.rotary is None:  # there is no key to turn, but queries may be moved
            return position.rotate(q, q[:, :0], layout)[0], kept
        plain, turning = torch.split(q, [self.D, self.R], -1)
        turning, r = position.rotate(turning, self.rotary(x_BTC)[:, None], layout)
        return torch.cat((plain, turning), -1), (*kept, r)

    def open(self, kept: Kept) -> tuple[Tensor, Tensor]:
        k, v = split_heads(self.up(kept[0][:, 0]), self.H).chunk(2, -1)
        if len(kept) > 1:
            k = torch.cat((k, kept[1].expand(-1, self.H, -1, -1)), -1)
        return k, v

    def scaled(self) -> list[Tensor]:
        return [self.up.weight.view(self.H, 2, self.D, self.L)[:, 1]]


def _latent(model: ModelConfig) -> int:
    return getattr(model.heads, "latent", None) or 4 * model.head_dim


def _rotary(model: ModelConfig, cross: bool) -> int:
    return model.rotary_dim if isinstance(model.position, parts.Rope) and not cross else 0
