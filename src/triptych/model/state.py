"""All that is carried between decoding steps.

Shapes: R rows, N sources (R = N · beams), G key/value heads, S slots, D head width.
"""

from __future__ import annotations

from torch import Tensor

from triptych.layout import Layout

CHUNK = 16  # slots added at a time: growth copies are rare, and unused slots few


class LayerState:
    """What one layer keeps: the keys and values of its past, and those of the source.

    Attributes:
        k, v: ``[R, G, capacity, D]``; None before the first step. Heads are stored unexpanded.
        cross: keys and values of the source, ``[N, G, S, D]`` each; computed once.
    """

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None
        self.cross: tuple[Tensor, Tensor] | None = None

    def append(self, k_RGTD: Tensor, v_RGTD: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Store new keys and values from slot ``start`` on; all of them so far, ``[R, G, S, D]`` each."""
        stop = start + k_RGTD.shape[2]
        self.k, self.v = _room(self.k, k_RGTD, stop), _room(self.v, v_RGTD, stop)
        self.k[:, :, start:stop], self.v[:, :, start:stop] = k_RGTD, v_RGTD
        return self.k[:, :, :stop], self.v[:, :, :stop]


class State:
    """The cache of a stack.

    Attributes:
        keys: layout of the cached tokens, ``[R, S]``; None before the first step.
        layers: what each layer keeps.
        source: layout of the source, ``[N, S]``; None without one.
        beams: rows a source. Rows of a source stand together: row r reads source r // beams, and the
            source's keys are stored once, not once a beam.
    """

    def __init__(self, depth: int, source: Layout | None = None, beams: int = 1) -> None:
        self.keys: Layout | None = None
        self.layers = [LayerState() for _ in range(depth)]
        self.source = source
        self.beams = beams
        self.length = 0
        self._position: Tensor | None = None
        self._segment: Tensor | None = None

    def advance(self, layout: Layout) -> int:
        """Make room for the tokens of ``layout``; the slot of the first of them. Called once a step,
        before the layers append to it."""
        start, self.length = self.length, self.length + layout.length
        self._position = _room(self._position, layout.position, self.length)
        self._segment = _room(self._segment, layout.segment, self.length)
        self._position[:, start : self.length] = layout.position
        self._segment[:, start : self.length] = layout.segment
        self._see(plain=layout.plain and start == 0)
        return start

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Keep the given rows in the given order (beam search moves and drops hypotheses).

        ``sources``: which sources remain, when some are finished; row r of the result must belong to
        ``sources[r // beams]``.
        """
        for layer in self.layers:
            if layer.k is not None and layer.v is not None:
                # Only the slots in use travel.
                layer.k, layer.v = layer.k[:, :, : self.length][rows], layer.v[:, :, : self.length][rows]
            if layer.cross is not None and sources is not None:
                layer.cross = (layer.cross[0][sources], layer.cross[1][sources])
        if self.source is not None and sources is not None:
            self.source = self.source.select(sources)
        if self._position is not None and self._segment is not None:
            plain = self.keys is not None and self.keys.plain
            self._position, self._segment = self._position[rows], self._segment[rows]
            self._see(plain)

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` slots."""
        assert 0 <= length <= self.length
        self.length = length
        if length:
            self._see(plain=self.keys is not None and self.keys.plain)
        else:
            self.keys = None

    def bytes(self) -> int:
        """Memory in use: keys and values of the tokens so far and of the source, in bytes."""
        total = 0
        for layer in self.layers:
            for x in (layer.k, layer.v):
                if x is not None:
                    total += x[:, :, : self.length].numel() * x.element_size()
            for x in layer.cross or ():
                total += x.numel() * x.element_size()
        return total

    def _see(self, plain: bool) -> None:
        assert self._position is not None and self._segment is not None
        self.keys = Layout(self._position[:, : self.length], self._segment[:, : self.length], plain)


def _room(held: Tensor | None, new: Tensor, stop: int) -> Tensor:
    """``held`` with at least ``stop`` slots; slots are the axis after rows (and heads)."""
    axis = 2 if new.dim() == 4 else 1
    have = held.shape[axis] if held is not None else 0
    if held is not None and have >= stop:
        return held
    shape = list(new.shape)
    shape[axis] = -(-stop // CHUNK) * CHUNK
    # What stands in unused slots is never read: append gives back the used ones only.
    grown = new.new_empty(shape)
    if held is not None:
        grown.narrow(axis, 0, have).copy_(held)
    return grown
