"""Learning rate as a function of where the run stands."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from triptych.config import ScheduleConfig


@dataclass(frozen=True)
class Pace:
    """Where a run stands between its start and its planned end.

    A run of given length advances by 1 / steps. A run with a time budget advances by what the measured
    speed says, re-planned at every validation, so that its schedule ends when the time does.

    Attributes:
        step: optimizer steps done.
        progress: share of the run done, from 0 to 1.
        stride: progress a step.
        warm: progress at which warm-up ended (or will end).
    """

    step: int = 0
    progress: float = 0.0
    stride: float = 0.0
    warm: float = 0.0

    def advance(self) -> Pace:
        """One step further."""
        return replace(self, step=self.step + 1, progress=min(1.0, self.progress + self.stride))

    def plan(self, left: int, warmup: int) -> Pace:
        """The same place with ``left`` steps to go."""
        stride = (1 - self.progress) / max(left, 1)
        warm = self.warm if self.step > warmup else min(1.0, self.progress + stride * (warmup - self.step))
        return replace(self, stride=stride, warm=warm)

    @staticmethod
    def at(step: int, steps: int, warmup: int) -> Pace:
        """After ``step`` of ``steps`` steps."""
        return Pace(step, step / steps, 1 / steps, min(1.0, warmup / steps))

    @property
    def over(self) -> bool:
        """Nothing is left to do (but for rounding).

        Re-planned over and over just before its end, a run's steps could become too short to move it.
        """
        return self.progress >= 1 - max(self.stride / 2, 1e-9)


def learning_rate(schedule: ScheduleConfig, pace: Pace, dim: int) -> float:
    """The rate of the step that leads to ``pace`` (whose ``step`` counts from 1).

    What falls to the end of the run is at a step as it is before it: of four steps the last has a quarter of
    what the first has, not nothing.
    """
    t, w = max(pace.step, 1), max(schedule.warmup, 1)
    if schedule.kind == "noam":  # Vaswani et al. 2017, section 5.3
        return float(schedule.peak * dim**-0.5 * min(t**-0.5, t * w**-1.5))
    if t < w:
        return schedule.peak * t / w
    if schedule.kind == "inverse_sqrt":
        return float(schedule.peak * (w / t) ** 0.5)
    if schedule.kind == "constant":
        return schedule.peak
    left = max(0.0, min(1.0, (1 - pace.progress + pace.stride) / max(1 - pace.warm, 1e-9)))
    fall = left if schedule.kind == "linear" else 0.5 * (1 - math.cos(math.pi * left))
    return schedule.peak * (schedule.floor + (1 - schedule.floor) * fall)
