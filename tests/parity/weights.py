"""Equal weights for two implementations, and the comparison of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, RunConfig
from triptych.layout import Layout
from triptych.model import Model, build


@dataclass(frozen=True)
class Rows:
    """Rows ``start`` … ``stop`` - 1 of another implementation's parameter, or of its transpose."""

    parameter: Tensor
    start: int = 0
    stop: int | None = None
    transposed: bool = False

    def of(self, tensor: Tensor) -> Tensor:
        return (tensor.t() if self.transposed else tensor)[self.start : self.stop]


Source = Tensor | Rows


class Match:
    """Which rows of our parameters stand for which rows of another implementation's.

    Values are copied from theirs to ours as the pairs are named; ``assert_gradients`` then compares every
    row of every parameter of both sides, so that nothing can be left out by mistake.
    """

    def __init__(self) -> None:
        self.pairs: list[tuple[Tensor, slice, Rows]] = []
        self.unused: list[Rows] = []

    def put(self, ours: Tensor, *theirs: Source) -> None:
        """``ours`` is ``theirs`` one below the other."""
        start = 0
        for source in theirs:
            rows = source if isinstance(source, Rows) else Rows(source)
            value = rows.of(rows.parameter.detach())
            place = slice(start, start + len(value))
            with torch.no_grad():
                ours[place].copy_(value)
            self.pairs.append((ours, place, rows))
            start += len(value)
        assert start == len(ours), f"{start} rows for {len(ours)}"

    def layer(self, ours: nn.Module, *theirs: nn.Module, transposed: bool = False) -> None:
        """A linear map or a norm, from one or several of theirs; biases too, where we have them."""
        self.put(ours.weight, *(Rows(t.weight, transposed=transposed) for t in theirs))  # type: ignore[arg-type]
        if getattr(ours, "bias", None) is not None:
            self.put(ours.bias, *(t.bias for t in theirs))  # type: ignore[arg-type, misc]

    def assert_gradients(self, ours: nn.Module, theirs: nn.Module, rtol: float, atol: float) -> None:
        """Every parameter of both models is paired, and its gradients agree."""
        for side, model in enumerate((ours, theirs)):
            paired: dict[int, int] = {}
            for mine, place, rows in self.pairs:
                tensor = mine if side == 0 else rows.parameter
                count = place.stop - place.start
                width = tensor.numel() // (tensor.shape[1] if side and rows.transposed else tensor.shape[0])
                paired[id(tensor)] = paired.get(id(tensor), 0) + count * width
            for rows in self.unused if side else []:
                used = paired.get(id(rows.parameter), 0)
                paired[id(rows.parameter)] = used + rows.of(rows.parameter).numel()
            for name, p in model.named_parameters():
                if p.requires_grad:
                    assert paired.get(id(p)) == p.numel(), f"{name} is not paired whole"
        for mine, place, rows in self.pairs:
            got, want = mine.grad, rows.parameter.grad
            assert got is not None and want is not None
            torch.testing.assert_close(got[place], rows.of(want), rtol=rtol, atol=atol)
        for rows in self.unused:
            assert rows.parameter.grad is not None and not rows.of(rows.parameter.grad).any()


def shaken(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with every parameter moved a little: gains that are 1 and biases that are 0 hide faults."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return module


def model_of(settings: dict[str, object]) -> Model:
    """A model without dropout, in training mode (no short cut that only evaluation takes)."""
    config: ModelConfig = RunConfig.parse({"model": {"dropout": 0.0, **settings}}).model
    return build(config, seed=0)


def ragged_ids(lengths: Sequence[int], vocab: int, seed: int = 0) -> tuple[Tensor, Layout, Tensor]:
    """Random ids ``[B, T]`` in rows of these lengths, their layout, and which are real."""
    layout = Layout.padded(lengths)
    ids = torch.randint(4, vocab, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    return ids.masked_fill(~layout.real, 0), layout, layout.real


def transposed(layer: nn.Module, name: str = "weight") -> Rows:
    """The whole of a weight that is stored input by output."""
    return replace(Rows(getattr(layer, name)), transposed=True)
