"""Optimizers: Adam and AdamW."""

from __future__ import annotations

import torch
from torch import nn

from triptych.config import OptimizerConfig


def build_optimizer(settings: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Adam or AdamW (Loshchilov and Hutter 2019); biases and norms (vectors) are never decayed."""
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    kind = torch.optim.Adam if settings.kind == "adam" else torch.optim.AdamW
    return kind(
        [g for g in groups if g["params"]], lr=0.0, betas=settings.betas, eps=settings.eps, fused=True
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step, in all groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate
