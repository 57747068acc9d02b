"""Vectors of lines on disk: one array in NumPy's format, [N, C] float32, row n of line n."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from triptych.errors import UserError
from triptych.text import write_bytes_atomic

Vectors = npt.NDArray[np.float32]


def write_vectors(path: Path, vectors_NC: Vectors) -> None:
    """Write them, whole or not at all."""
    buffer = io.BytesIO()
    np.save(buffer, vectors_NC.astype(np.float32))
    write_bytes_atomic(path, buffer.getvalue())


def read_vectors(path: Path, lines: int, width: int) -> Vectors:
    """The vectors of so many lines, each of length 1 or all zeros. Raises UserError for anything else."""
    mend = "make them with `triptych embed`, of this file with this run"
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"cannot be read as an array of NumPy: {error}", str(path), mend) from None
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind != "f":
        raise UserError("this is no table of numbers, a row for each line", str(path), mend)
    vectors: Vectors = found.astype(np.float32)
    if len(vectors) != lines:
        raise UserError(f"{len(vectors):,} vectors for {lines:,} lines", str(path), mend)
    if vectors.shape[1] != width:
        raise UserError(f"{vectors.shape[1]} numbers a vector, and the model's have {width}", str(path), mend)
    length = np.linalg.norm(vectors, axis=1)
    wrong = np.flatnonzero(~((np.abs(length - 1) < 1e-3) | (length == 0)))
    if len(wrong):
        row = int(wrong[0])
        what = (
            f"has length {length[row]:.4g} and not 1"
            if np.isfinite(length[row])
            else "holds what is no number"
        )
        raise UserError(f"vector {row + 1} {what}", str(path), mend)
    return vectors
