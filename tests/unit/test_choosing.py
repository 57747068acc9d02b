"""Which weights of a run are kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from triptych.evaluation import Measure
from triptych.objectives import Loss
from triptych.training import run
from triptych.training.checkpoint import list_checkpoints, save_checkpoint

# The one weight after each step; the loss is its distance from 2, so that of step 2 is the best.
STEPS = {1: 1.0, 2: 2.0, 3: 4.0, 4: 6.0}


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (None, "step 2"),
        (6.0, "step 4"),
        (1.0, "step 1"),
        (3.25, "average of steps 1, 2, 3, 4"),
        (9.0, "step 2"),  # all as good: by the loss
    ],
)
def test_by_the_measure_where_there_is_one_and_else_by_the_loss(
    tmp_path: Path, wanted: float | None, kept: str
) -> None:
    model = nn.Linear(1, 1, bias=False)
    for step, value in STEPS.items():
        state = {"model": {"weight": torch.full((1, 1), value)}, "origin": "o"}
        save_checkpoint(tmp_path, step, state, keep=4, best=2)
    assert len(list_checkpoints(tmp_path)) == 4

    def quality(bundle: Any, part: Any) -> Measure:
        return Measure("accuracy, %", 100.0 * (model.weight.item() == wanted))

    road = SimpleNamespace(measured=wanted is not None, quality=quality)
    trainer = SimpleNamespace(
        model=model,
        origin="o",
        best_step=2,
        config=SimpleNamespace(training=SimpleNamespace(keep=4)),
        validate=lambda: Loss(torch.zeros(()), 1, abs(model.weight.item() - 2)),
    )
    said: list[str] = []
    name, _ = run._choose(cast(Any, road), cast(Any, None), None, cast(Any, trainer), tmp_path, said.append)
    assert name == kept and said[-1].startswith(f"kept: {kept};")
    values = {**{f"step {step}": value for step, value in STEPS.items()}, "average of steps 1, 2, 3, 4": 3.25}
    assert model.weight.item() == values[kept]
