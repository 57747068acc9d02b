"""Optimizers: Adam and AdamW."""

from __future__ import annotations

import torch
from torch import nn

from triptych.config import OptimizerConfig


def build_optimizer(
    settings: OptimizerConfig, model: nn.Module, head: nn.Module | None = None, head_rate: float = 1.0
) -> torch.optim.Optimizer:
    """Adam or AdamW (Loshchilov and Hutter 2019); biases and norms are never decayed: vectors, and what a
    module names as ``undecayed``.

    Args:
        head: a part of the model that learns at ``head_rate`` times the rate of the others.
    """
    own = {id(p) for p in head.parameters()} if head is not None and head_rate != 1 else set[int]()
    spared = {id(getattr(m, name)) for m in model.modules() for name in getattr(m, "undecayed", ())}
    groups = []
    for in_head, scale in ((False, 1.0), (True, head_rate)):
        learned = [p for p in model.parameters() if p.requires_grad and (id(p) in own) == in_head]
        matrices = [p for p in learned if p.dim() > 1 and id(p) not in spared]
        vectors = [p for p in learned if p.dim() <= 1 or id(p) in spared]
        groups.append({"params": matrices, "weight_decay": settings.weight_decay, "scale": scale})
        groups.append({"params": vectors, "weight_decay": 0.0, "scale": scale})
    kind = torch.optim.Adam if settings.kind == "adam" else torch.optim.AdamW
    return kind(
        [g for g in groups if g["params"]], lr=0.0, betas=settings.betas, eps=settings.eps, fused=True
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step, in all groups, each by its scale."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]
