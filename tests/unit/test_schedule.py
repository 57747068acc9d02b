"""``Pace`` and ``learning_rate``: where a run stands, and what follows from it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from triptych.config import ModelConfig, OptimizerConfig, ScheduleConfig
from triptych.model import build
from triptych.training.optimizer import build_optimizer, set_rate
from triptych.training.schedule import Pace, learning_rate

PEAK = 1e-3
planned = st.sampled_from(["linear", "cosine"])
any_kind = st.sampled_from(["noam", "inverse_sqrt", "cosine", "linear", "constant"])


def _rate(kind: Any, warmup: int, pace: Pace, floor: float = 0.0) -> float:
    return learning_rate(ScheduleConfig(kind=kind, peak=PEAK, warmup=warmup, floor=floor), pace, 64)


def _run(steps: int, warmup: int) -> list[Pace]:
    pace, out = Pace().plan(steps, warmup), []
    while not pace.over:
        pace = pace.advance()
        out.append(pace)
        assert len(out) <= steps, "goes on past its plan"
    return out


@given(st.integers(1, 3000), st.integers(0, 4000))
def test_a_planned_run_has_its_steps(steps: int, warmup: int) -> None:
    run = _run(steps, warmup)
    assert [p.step for p in run] == list(range(1, steps + 1))
    assert all(0 <= a.progress <= b.progress <= 1 for a, b in pairwise(run))
    assert run[-1].progress == pytest.approx(1)


def test_a_long_run_ends_on_time() -> None:
    """The rounding of a million additions does not cost a step."""
    pace = Pace().plan(1_000_000, 4000)
    last = Pace(999_999, sum([pace.stride] * 999_999), pace.stride, pace.warm)
    assert not last.over and last.advance().over


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 400)), min_size=1, max_size=8), st.integers(0, 200)
)
def test_replanning_ends_when_it_says(plans: list[tuple[int, int]], warmup: int) -> None:
    """(steps taken, steps then left), again and again: progress never goes back or past the end, and the
    last plan is met to the step."""
    pace = Pace().plan(1000, warmup)
    for taken, left in plans:
        for _ in range(taken):
            if pace.over:
                return
            pace = pace.advance()
        again = pace.plan(left, warmup)
        assert (again.step, again.progress) == (pace.step, pace.progress)
        assert again.warm == pace.warm or again.step <= warmup
        pace = again
    start, far = pace.step, 1 - pace.progress > 1e-6
    while not pace.over:
        pace = pace.advance()
        assert pace.step <= start + plans[-1][1]
    assert not far or pace.step == start + plans[-1][1]


def test_replanning_at_the_very_end_still_ends() -> None:
    """So near to the end that a step would not change the progress at all."""
    for near in (1 - 1e-15, 1 - 1e-10, 1 - 1e-8):
        pace = Pace(1000, near, 1e-3).plan(10_000, 5)
        for _ in range(10_000):
            pace = pace.advance() if not pace.over else pace
        assert pace.over


def test_nothing_planned_is_not_over() -> None:
    assert not Pace().over and not Pace().advance().over


@given(any_kind, st.integers(2, 500), st.integers(0, 600), st.sampled_from([0.0, 0.1, 1.0]))
def test_rates_are_usable(kind: str, steps: int, warmup: int, floor: float) -> None:
    """Positive, finite, at most the peak; rising in warm-up and never after it."""
    run = _run(steps, warmup)
    rates = [_rate(kind, warmup, p, floor if kind in ("cosine", "linear") else 0.0) for p in run]
    assert all(math.isfinite(r) and 0 <= r <= PEAK * (1 + 1e-12) for r in rates)
    assert all(r > 0 for r in rates)
    for pace, (a, b) in zip(run[1:], pairwise(rates), strict=False):
        assert b > a if pace.step < warmup else True
        assert b <= a * (1 + 1e-12) if pace.step > max(warmup, 1) else True


@given(st.sampled_from(["inverse_sqrt", "cosine", "linear", "constant"]), st.integers(2, 500), st.data())
def test_the_peak_is_reached_after_warm_up(kind: str, steps: int, data: Any) -> None:
    warmup = data.draw(st.integers(1, steps - 1))
    run = _run(steps, warmup)
    assert _rate(kind, warmup, run[warmup - 1]) == pytest.approx(PEAK, rel=1e-6)


@given(planned, st.integers(2, 500), st.data())
def test_no_jumps(kind: str, steps: int, data: Any) -> None:
    """From step to step a rate moves by no more than the steepest slope of its two curves."""
    warmup = data.draw(st.integers(1, steps - 1))
    slope = PEAK * max(1 / warmup, math.pi / 2 / (steps - warmup)) * (1 + 1e-6)
    rates = [0.0, *(_rate(kind, warmup, p) for p in _run(steps, warmup))]
    assert all(abs(b - a) <= slope for a, b in pairwise(rates))


@given(planned, st.integers(1, 80), st.lists(st.integers(100, 2000), min_size=1, max_size=5))
def test_replanning_does_not_make_the_rate_jump(kind: str, warmup: int, plans: list[int]) -> None:
    pace = Pace().plan(1000, warmup)
    before = 0.0
    for left in plans:
        stride, pace = pace.stride, pace.plan(left, warmup)  # the first step moves the rate by the old stride
        for _ in range(50):
            pace = pace.advance()
            now = _rate(kind, warmup, pace)
            fall = math.pi / 2 * max(stride, pace.stride) / (1 - pace.warm)
            assert abs(now - before) <= PEAK * (fall if pace.step > warmup else 1 / warmup) * (1 + 1e-6)
            stride, before = pace.stride, now


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_a_planned_rate_falls_to_its_floor(kind: str) -> None:
    """It would be there at the step after the last."""
    for floor in (0.0, 0.25):
        last = _run(100, 10)[-1]
        after = replace(last, progress=last.progress + last.stride)
        assert _rate(kind, 10, after, floor) == pytest.approx(PEAK * floor, abs=1e-12)


@pytest.mark.parametrize("warmup", [0, 1])
def test_every_step_learns(warmup: int) -> None:
    """The first at the peak, the last too."""
    for steps in (1, 4):
        rates = [_rate("linear", warmup, p) / PEAK for p in _run(steps, warmup)]
        assert rates[0] == pytest.approx(1) and rates[-1] > 0
    assert [_rate("linear", 0, p) / PEAK for p in _run(4, 0)] == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert [_rate("cosine", 0, p) / PEAK for p in _run(2, 0)] == pytest.approx([1.0, 0.5])


def test_a_run_all_of_warm_up() -> None:
    """A warm-up longer than the run: the rate only rises, and the peak is not reached."""
    rates = [_rate("linear", 200, p) for p in _run(50, 200)]
    assert rates == sorted(rates) and rates[-1] == pytest.approx(PEAK / 4)


def test_pace_survives_a_checkpoint() -> None:
    pace = Pace().plan(37, 5).advance().advance()
    assert Pace(**json.loads(json.dumps(asdict(pace)))) == pace


def test_the_optimizer_takes_what_is_trained_and_one_rate() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 3))
    model[2].requires_grad_(False)
    optimizer = build_optimizer(OptimizerConfig(weight_decay=0.1), model)
    set_rate(optimizer, 0.5)
    groups = [(g["weight_decay"], g["lr"], {id(p) for p in g["params"]}) for g in optimizer.param_groups]
    norm = model[1]
    assert groups == [
        (0.1, 0.5, {id(model[0].weight)}),
        (0.0, 0.5, {id(model[0].bias), id(norm.weight), id(norm.bias)}),
    ]
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    frozen = [p.detach().clone() for p in model[2].parameters()]
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(frozen, model[2].parameters(), strict=True))


@pytest.mark.parametrize(
    ("model", "spared"),
    [
        ({"form": "decoder", "position": "xl"}, ["u", "v"]),
        ({"form": "decoder", "position": "t5"}, ["table"]),
        ({"form": "decoder", "position": "none", "mixer": "ssm"}, ["A_log"]),
        ({"form": "encoder", "mixer": {"kind": "deformable", "width": 4}}, ["start"]),
    ],
    ids=str,
)
def test_biases_of_any_shape_are_not_decayed(model: dict[str, Any], spared: list[str]) -> None:
    sizes = {"vocab": 9, "dim": 8, "layers": 1, "heads": 2}
    built = build(ModelConfig.parse({**sizes, **model}))
    decayed, others = build_optimizer(OptimizerConfig(weight_decay=0.1), built).param_groups
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    found = {id(p) for p in others["params"]}
    wide = {name.rpartition(".")[2] for name, p in built.named_parameters() if p.dim() > 1 and id(p) in found}
    assert sorted(wide) == spared
    assert {id(p) for p in built.parameters()} == found | {id(p) for p in decayed["params"]}
