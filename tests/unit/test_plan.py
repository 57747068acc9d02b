"""Settings chosen where the user has set none fit those that are set."""

from __future__ import annotations

from typing import Any

import pytest

from triptych.config import RunConfig
from triptych.training.plan import fill


@pytest.mark.parametrize(
    ("model", "position"),
    [
        ({}, "rope"),
        ({"mixer": "lstm"}, "sinusoidal"),
        ({"decoder_mixer": "conv"}, "sinusoidal"),
        ({"mixer": ["gru", "attention"]}, "rope"),
        ({"mixer": "bahdanau", "position": "none"}, "none"),
    ],
)
def test_rotary_positions_only_where_they_can_act(model: dict[str, Any], position: str) -> None:
    filled = fill({"model": model}, pairs=300, size=6000, seconds=20.0)
    assert RunConfig.parse(filled).model.position.kind == position
