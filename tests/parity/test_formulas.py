"""Schedules, length penalties and optimizers against the papers' formulas and against ``transformers``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from triptych.config import OptimizerConfig, ScheduleConfig
from triptych.decoding import length_penalty
from triptych.training.optimizer import build_optimizer, set_rate
from triptych.training.schedule import Pace, learning_rate

STEPS, WARMUP, PEAK = 400, 60, 3e-4


def _rates(steps: int, warmup: int, dim: int = 512, **settings: Any) -> np.ndarray:
    """The rate of every step of a run."""
    schedule = ScheduleConfig(warmup=warmup, **settings)
    pace, out = Pace().plan(steps, warmup), []
    while not pace.over:
        pace = pace.advance()
        out.append(learning_rate(schedule, pace, dim))
    assert len(out) == steps
    return np.array(out)


def test_noam() -> None:
    """lrate = d^-0.5 · min(step^-0.5, step · warmup^-1.5) (Vaswani et al. 2017, equation 3)."""
    t = np.arange(1, 10001)
    want = 512**-0.5 * np.minimum(t**-0.5, t * 4000**-1.5)
    got = _rates(10000, 4000, 512, kind="noam", peak=1.0)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert got.argmax() + 1 == 4000
    assert got.max() == pytest.approx(6.9877e-4, rel=1e-4)  # the number people know


def test_inverse_square_root() -> None:
    t = np.arange(1, STEPS + 1)
    want = PEAK * np.where(t < WARMUP, t / WARMUP, np.sqrt(WARMUP / t))
    np.testing.assert_allclose(_rates(STEPS, WARMUP, kind="inverse_sqrt", peak=PEAK), want, rtol=1e-12)


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant", "inverse_sqrt"])
def test_schedules_are_those_of_transformers(kind: str) -> None:
    """A step's rate there is of the steps before it. Here what rises, or goes by the number of steps, counts
    the step too, so that none has the rate 0; what falls to the end of the run does not."""
    import transformers

    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=PEAK)
    name: Any = {"constant": "constant_with_warmup"}.get(kind, kind)
    scheduler = transformers.get_scheduler(name, optimizer, WARMUP, STEPS)
    theirs = []
    for _ in range(STEPS + 1):
        theirs.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    falls = kind in ("cosine", "linear")
    want = theirs[1 : WARMUP + 1] + (theirs[WARMUP:STEPS] if falls else theirs[WARMUP + 1 :])
    assert theirs[STEPS] == 0 or not falls
    np.testing.assert_allclose(_rates(STEPS, WARMUP, kind=kind, peak=PEAK), want, rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize("kind", ["cosine", "linear"])
@pytest.mark.parametrize("floor", [0.1, 0.5, 1.0])
def test_floor(kind: str, floor: float) -> None:
    """Falls from the peak to a share of it, along the same curve."""
    t = np.arange(WARMUP, STEPS)  # steps done
    done = (t - WARMUP) / (STEPS - WARMUP)
    fall = 1 - done if kind == "linear" else (1 + np.cos(np.pi * done)) / 2
    got = _rates(STEPS, WARMUP, kind=kind, peak=PEAK, floor=floor)[WARMUP:]
    np.testing.assert_allclose(got, PEAK * (floor + (1 - floor) * fall), rtol=1e-9)


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.6, 1.0, 2.5])
def test_penalties(alpha: float) -> None:
    """lp(Y) = (5 + |Y|)^α / (5 + 1)^α (Wu et al. 2016, equation 14), and |Y|^α."""
    n = np.arange(1, 200)
    gnmt = [length_penalty("gnmt", alpha, int(i)) for i in n]
    power = [length_penalty("power", alpha, int(i)) for i in n]
    np.testing.assert_allclose(gnmt, (5.0 + n) ** alpha / 6.0**alpha, rtol=1e-12)
    np.testing.assert_allclose(power, n.astype(float) ** alpha, rtol=1e-12)
    assert gnmt[0] == power[0] == 1.0


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam(kind: str, decay: float) -> None:
    """Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2; vectors are not decayed."""
    settings = OptimizerConfig.parse({"kind": kind, "betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": decay})
    model = nn.Linear(3, 4).double()
    optimizer = build_optimizer(settings, model)
    value = [p.detach().numpy().copy() for p in model.parameters()]
    m, v = [np.zeros_like(x) for x in value], [np.zeros_like(x) for x in value]
    for t in range(1, 6):
        rate = 0.01 * t
        set_rate(optimizer, rate)
        for i, p in enumerate(model.parameters()):
            g = np.random.standard_normal(value[i].shape)
            p.grad = torch.from_numpy(g.copy())
            own = decay if value[i].ndim > 1 else 0.0
            if kind == "adam":
                g = g + own * value[i]
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.98 * v[i] + 0.02 * g**2
            step = m[i] / (1 - 0.9**t) / (np.sqrt(v[i] / (1 - 0.98**t)) + 1e-9)
            if kind == "adamw":
                step = step + own * value[i]
            value[i] = value[i] - rate * step
        optimizer.step()
    for p, want in zip(model.parameters(), value, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), want, rtol=1e-7, atol=1e-9)
