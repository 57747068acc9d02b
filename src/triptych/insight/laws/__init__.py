"""The laws: what must hold of every configuration, checked on the user's own (``triptych verify``).

1 causality · 2 padding invariance · 3 row independence · 4 cache equals no cache · 5 packed equals separate ·
6 state select and truncate · 7 save and load · 8 accumulation · 9 deterministic evaluation · 10 every
parameter learns · 11 first loss is ln V · 12 a tiny batch is overfitted · 13 weights are distributions ·
14 order needs positions · 15 shift invariance · 16 rotary positions keep norms · 17 accounted equals
measured · 18 search · 19 targets

A law is a function in one of this package's files, registered with ``@law``. Models are checked in float64,
where rounding is so small that tolerances of 1e-9 tell any fault from it (verdict.py states the tolerances).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from triptych.config import ModelConfig
from triptych.errors import UserError
from triptych.insight.laws import (
    accounting,
    caching,
    invariance,
    learning,
    searching,
    storage,
    targets,
    weights,
)
from triptych.insight.laws.registry import LAWS, Law
from triptych.insight.laws.subject import Subject
from triptych.insight.laws.verdict import Compared, Skip, Verdict, summary, table
from triptych.model import Model


def verify(
    model_config: ModelConfig, *, model: Model | None = None, seed: int = 0, only: Sequence[int] | None = None
) -> list[Verdict]:
    """Check the laws on a configuration: on a fresh model, or on the given one, which is not changed.

    A large fresh model is checked with fewer layers and words, and the verdicts say so. Random state is
    left as it was. Runs on the CPU.

    Args:
        seed: of the fresh model and of all random batches.
        only: numbers of laws; all by default.

    Raises:
        UserError: an unknown law, or a vocabulary, width or position table too small for any check.
    """
    numbers = sorted(LAWS) if only is None else list(only)
    for number in numbers:
        if number not in LAWS:
            known = ", ".join(map(str, sorted(LAWS)))
            raise UserError(f"there is no law {number}", "verify", f"known laws: {known}")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        subject = Subject(model_config, model, seed)
        return [judge(LAWS[number], subject) for number in numbers]


def judge(law: Law, subject: Subject) -> Verdict:
    """One law's verdict."""
    began = time.perf_counter()

    def verdict(status: str, seen: str, cause: str = "", place: str = "") -> Verdict:
        took = time.perf_counter() - began
        return Verdict(law.number, law.name, status, seen, cause, place, took)  # type: ignore[arg-type]

    if subject.config.form not in law.forms:
        return verdict("skipped", law.reason)
    subject.reseed(law.number)
    torch.manual_seed(subject.seed)
    seen: list[Compared] = []
    notes = [subject.reduced] if subject.reduced and not law.whole else []
    try:
        for found in law.check(subject):
            if isinstance(found, str):
                notes.append(found)
                continue
            seen.append(found)
            if not found.holds:
                said = f"{found.what}: {found.figure}"
                return verdict("broken", said, found.cause or law.cause, found.place or law.place)
    except Skip as reason:
        return verdict("skipped", str(reason))
    except Exception as error:  # a law is there to find faults of any kind, and the others still run
        return verdict("broken", f"{type(error).__name__}: {error}", "the code fails here", origin(error))
    return verdict("holds", summary(seen, notes))


def origin(error: Exception) -> str:
    """File and line, within the package, where an exception arose."""
    place, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename.replace("\\", "/")
        if "/triptych/" in file:
            place = f"src/triptych/{file.rpartition('/triptych/')[2]}:{step.tb_lineno}"
        step = step.tb_next
    return place


__all__ = [
    "LAWS",
    "Law",
    "Verdict",
    "accounting",
    "caching",
    "invariance",
    "learning",
    "searching",
    "storage",
    "table",
    "targets",
    "verify",
    "weights",
]
