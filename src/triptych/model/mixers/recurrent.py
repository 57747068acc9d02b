"""Recurrent networks: one state a row, changed by each token in turn.

    causal:         x_BTC ─ cell → ─────────── h_BTH ─ out → y_BTC
    bidirectional:  x_BTC ─┬─ cell → ─┬─ h_BT(2H) ─ out → y_BTC
                           └─ cell ← ─┘
A sequence begins with a state of zeros; padding leaves the state as it is.

B rows, T tokens, C model width, H width of the state. What does not depend on the state, the input's part of
all gates, is one matrix product before the walk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.model.mixer import Mixer
from triptych.model.mixers.runs import Pace, pace
from triptych.model.registry import Context, Cost, Place, Shape, carries_out, linear_cost
from triptych.model.visible import Visible

Carry = tuple[Tensor, ...]
# (the state, what belongs to this step) → the state after it; its first tensor is what the step gives out.
Step = Callable[..., Carry]


def walk(step: Step, pace: Pace, carry: Carry, *along: Sequence[Any]) -> tuple[Tensor, Carry]:
    """Token by token: what the steps give out, ``[B, T, …]``, and the state after the last."""
    out = []
    for begins, real, *now in zip(pace.begins, pace.real, *along, strict=True):
        if begins is not None:
            carry = tuple(x.masked_fill(begins, 0) for x in carry)
        after = step(carry, *now)
        if real is not None:
            after = tuple(torch.where(real, new, old) for new, old in zip(after, carry, strict=True))
        carry = after
        out.append(carry[0])
    return torch.stack(out, 1), carry


class Cell(nn.Module):
    """Gates of an input, computed for all tokens at once by ``input``, and a step with them.

    Attributes:
        gates: vectors of width H that the input and the state are each mapped to.
        direct: of these maps of the state, those of the state as it is.
        states: vectors of width H that are carried; the first is the hidden state.
        bias: the state's map has a bias beside the input's.
    """

    gates: int
    direct: int
    states: int
    bias = False

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, self.gates * hidden)
        self.hidden = nn.Linear(hidden, self.gates * hidden, bias=self.bias)

    def step(self, carry: Carry, gates_BE: Tensor) -> Carry:
        """The state after a token."""
        raise NotImplementedError


class LstmCell(Cell):
    """i, f, o = σ(W x + U h + b);  g = tanh(W x + U h + b);  c' = f c + i g;  h' = o tanh(c')
    (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000)."""

    gates, direct, states = 4, 4, 2

    def step(self, carry: Carry, gates_BE: Tensor) -> Carry:
        h, c = carry
        gates_BE = torch.addmm(gates_BE, h, self.hidden.weight.t())
        i, f, o = gates_BE[:, : 3 * c.shape[1]].sigmoid().chunk(3, 1)
        c = f * c + i * gates_BE[:, 3 * c.shape[1] :].tanh()
        return o * c.tanh(), c


class GruCell(Cell):
    """r, z = σ(W x + U h + b);  n = tanh(W x + U (r h) + b);  h' = (1 - z) n + z h
    (Cho et al. 2014, section 2.3)."""

    gates, direct, states = 3, 2, 1

    def step(self, carry: Carry, gates_BE: Tensor) -> Carry:
        (h,) = carry
        H, U = h.shape[1], self.hidden.weight.t()
        r, z = torch.addmm(gates_BE[:, : 2 * H], h, U[:, : 2 * H]).sigmoid().chunk(2, 1)
        n = torch.addmm(gates_BE[:, 2 * H :], r * h, U[:, 2 * H :]).tanh()
        return (n + z * (h - n),)


class LateGruCell(Cell):
    """The same but n = tanh(W x + b + r (U h + b')), as ``torch.nn.GRU`` has it."""

    gates, direct, states, bias = 3, 3, 1, True

    def step(self, carry: Carry, gates_BE: Tensor) -> Carry:
        (h,) = carry
        H, own = h.shape[1], self.hidden(h)
        r, z = (gates_BE[:, : 2 * H] + own[:, : 2 * H]).sigmoid().chunk(2, 1)
        n = (gates_BE[:, 2 * H :] + r * own[:, 2 * H :]).tanh()
        return (n + z * (h - n),)


def cell_of(settings: Any) -> type[Cell]:
    """What a mixer is made of."""
    if isinstance(settings, parts.GatedMixer):
        return GruCell if settings.reset == "before" else LateGruCell
    return LstmCell


@carries_out(parts.LstmMixer)
@carries_out(parts.GruMixer)
class Recurrent(Mixer):
    """A cell in each direction that the stack sees, and a map of their states to the model's width."""

    def __init__(self, settings: parts.RecurrentMixer, model: ModelConfig, place: Place) -> None:
        super().__init__()
        cell, H = cell_of(settings), width(settings, model)
        self.widths = [H] * cell.states
        self.ahead = cell(model.dim, H)
        self.back = None if place.causal else cell(model.dim, H)
        self.out = nn.Linear(H if place.causal else 2 * H, model.dim)

    @classmethod
    def cost(cls, settings: Any, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        """All tokens through the cells, one product for their inputs and those of a step."""
        H, own, directions = width(settings, model), cell_of(settings), 1 if place.causal else 2
        cell = linear_cost(shape.tokens, model.dim, own.gates * H, True)
        cell += linear_cost(shape.tokens, H, own.gates * H, own.bias)
        cell += Cost(spared=2 * shape.batch * H * own.direct * H)  # the first state is zeros
        return cell * directions + linear_cost(shape.tokens, directions * H, model.dim, True)

    @classmethod
    def kept(cls, settings: Any, model: ModelConfig, place: Place) -> tuple[int, int]:
        """The state of each row."""
        return 0, cell_of(settings).states * width(settings, model)

    @classmethod
    def sees(cls, settings: Any, visible: Visible) -> int | None:
        """The token before: only whether it belongs to the same sequence."""
        return 1

    def scaled(self) -> list[Tensor]:
        """The map out: within a cell values pass gates that bound them."""
        return [self.out.weight]

    def go(self, step: Step, x_BTC: Tensor, context: Context, *along: Sequence[Any]) -> Tensor:
        """Forwards, from the state before the pass on, which is replaced: ``[B, T, …]``."""
        held, gates = context.held, self.ahead.input(x_BTC).unbind(1)
        carry = held.carry if held is not None else None
        out, carry = walk(step, pace(context), carry or self.zeros(x_BTC), gates, *along)
        if held is not None:
            held.carry_on(*carry)
        return out

    def zeros(self, x_BTC: Tensor) -> Carry:
        """The state before the first token."""
        return tuple(x_BTC.new_zeros(len(x_BTC), width) for width in self.widths)

    def run(self, x_BTC: Tensor, context: Context) -> Tensor:
        """Hidden states ``[B, T, H]`` of one direction, or ``[B, T, 2 H]`` of both."""
        h_BTH = self.go(self.ahead.step, x_BTC, context)
        if self.back is None:
            return h_BTH
        gates = self.back.input(x_BTC).unbind(1)[::-1]
        back_BTH, _ = walk(self.back.step, pace(context, backwards=True), self.zeros(x_BTC), gates)
        return torch.cat((h_BTH, back_BTH.flip(1)), -1)

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        y_BTC: Tensor = self.out(self.run(x_BTC, context))
        return y_BTC


def width(settings: parts.RecurrentMixer, model: ModelConfig) -> int:
    """Width of the state of one direction."""
    return settings.hidden or model.dim
