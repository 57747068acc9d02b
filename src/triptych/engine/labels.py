"""RUN/labels.json: the names of a run's classes or tags, in the order of its outputs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from triptych.errors import UserError
from triptych.text import write_text_atomic

LABELS = "labels.json"


def write_labels(folder: Path, labels: Sequence[str]) -> None:
    """Write the names, a JSON list, whole or not at all."""
    assert len(set(labels)) == len(labels), "every name once"
    write_text_atomic(folder / LABELS, json.dumps(list(labels), ensure_ascii=False, indent=1) + "\n")


def read_labels(folder: Path, count: int) -> tuple[str, ...]:
    """The names of ``count`` outputs. Raises UserError when they are missing, damaged or another number."""
    path = folder / LABELS
    mend = "copy the whole run again: this file came with it"
    try:
        labels = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = f"the run lacks {LABELS}, the names of what it tells apart"
        raise UserError(what, str(folder), mend) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot be read as JSON: {error}", str(path), mend) from None
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise UserError("this is no list of names", str(path), mend)
    if len(set(labels)) != len(labels):
        raise UserError("a name stands here twice", str(path), mend)
    if len(labels) != count:
        raise UserError(f"{len(labels)} names for the model's {count} outputs", str(path), mend)
    return tuple(labels)
