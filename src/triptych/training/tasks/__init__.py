"""The objectives on the road of a run: one file each, chosen by ``objective.kind``."""

from __future__ import annotations

from typing import Any

from triptych.config import RunConfig
from triptych.training.tasks.base import Corpus, Say, Task, most_ids, silent
from triptych.training.tasks.translation import TranslationTask

TASKS: dict[str, Task[Any]] = {
    "translation": TranslationTask(),
}


def task(config: RunConfig) -> Task[Any]:
    """The task of a configuration."""
    return TASKS[config.objective.kind]


__all__ = ["TASKS", "Corpus", "Say", "Task", "most_ids", "silent", "task"]
