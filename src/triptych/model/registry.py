"""From settings to modules: each part says which settings it carries out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from triptych.config import Part

C = TypeVar("C", bound=type)
_PARTS: dict[type[Part], type] = {}


def carries_out(settings: type[Part]) -> Callable[[C], C]:
    """Class decorator: this class is what ``settings`` describe."""

    def register(cls: C) -> C:
        _PARTS[settings] = cls
        return cls

    return register


def part_of(settings: Part) -> Any:
    """The class that carries out these settings."""
    return _PARTS[type(settings)]


@dataclass(frozen=True)
class Cost:
    """What a part costs: trained parameters, and floating-point operations of its matrix products (a
    multiply-add counts two) in one forward pass."""

    parameters: int = 0
    flops: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.parameters + other.parameters, self.flops + other.flops)

    def __mul__(self, times: int) -> Cost:
        return Cost(self.parameters * times, self.flops * times)


def linear_cost(tokens: int, inner: int, outer: int, bias: bool) -> Cost:
    """Cost of a linear map of ``tokens`` vectors."""
    return Cost(inner * outer + (outer if bias else 0), 2 * tokens * inner * outer)
