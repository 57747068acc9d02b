"""Checkpoints: whole or absent, and able to say that they are damaged.

``checkpoints/step-000500-<digest>.pt``: the name holds the first 16 hex digits of the SHA-256 of the
content, so a file that was cut or altered is told from a good one without a second file.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from triptych.errors import UserError
from triptych.text.files import write_bytes_atomic

_NAME = re.compile(r"step-(\d+)-([0-9a-f]{16})\.pt")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk."""

    path: Path
    step: int
    digest: str

    def read(self) -> dict[str, Any]:
        """Its content. Raises UserError when damaged."""
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise UserError(f"cannot be read: {error.strerror}", str(self.path)) from None
        if hashlib.sha256(data).hexdigest()[:16] != self.digest:
            raise UserError("this checkpoint is damaged: its content does not match its name", str(self.path))
        try:
            state: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
        except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError) as error:
            what = f"this is no checkpoint of ours: {str(error).splitlines()[0]}"
            raise UserError(what, str(self.path)) from None
        return state


def save_checkpoint(
    folder: Path, step: int, state: Mapping[str, Any], keep: int, best: int = -1
) -> Checkpoint:
    """Write a checkpoint and drop all but the newest ``keep`` and that of step ``best``. The old ones go
    only once the new one is safely on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()[:16]
    path = folder / f"step-{step:06d}-{digest}.pt"
    write_bytes_atomic(path, data)
    for other in list_checkpoints(folder):
        if other.step == step and other.path != path:
            other.path.unlink(missing_ok=True)
    # Later ones are damaged ones that a resumed run went back past: they may not push out the new.
    for old in [c for c in list_checkpoints(folder) if c.step <= step][:-keep]:
        if old.step != best:
            old.path.unlink(missing_ok=True)
    return Checkpoint(path, step, digest)


def list_checkpoints(folder: Path) -> list[Checkpoint]:
    """The checkpoints of a folder, oldest first. Unfinished temporary files are no checkpoints."""
    if not folder.is_dir():
        return []
    found = ((entry, _NAME.fullmatch(entry)) for entry in os.listdir(folder))
    named = [Checkpoint(folder / entry, int(m[1]), m[2]) for entry, m in found if m]
    return sorted(named, key=lambda c: c.step)


class Newest(NamedTuple):
    """The newest undamaged checkpoint, if there is one, with its content; and the damaged ones passed over,
    as messages."""

    checkpoint: Checkpoint | None
    state: dict[str, Any] | None
    passed: list[str]


NONE = Newest(None, None, [])


def newest(folder: Path) -> Newest:
    """Of a run's checkpoints."""
    passed: list[str] = []
    for found in reversed(list_checkpoints(folder)):
        try:
            return Newest(found, found.read(), passed)
        except UserError as error:
            passed.append(str(error))
    return Newest(None, None, passed)


def average(states: list[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The mean of several models' weights, summed in fp64 (Vaswani et al. 2017, section 6.1)."""
    out = {}
    for name, first in states[0].items():
        total = sum((s[name].double() for s in states[1:]), first.double())
        out[name] = (total / len(states)).to(first.dtype)
    return out
