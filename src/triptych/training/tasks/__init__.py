"""The objectives on the road of a run, chosen by ``objective.kind``; each is loaded when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from triptych.config import RunConfig
from triptych.training.tasks.base import Corpus, Say, Task, most_ids, silent

TASKS = {
    "translation": "translation.TranslationTask",
    "causal": "running.CausalTask",
    "masked": "running.MaskedTask",
    "denoise": "running.DenoiseTask",
    "instruction": "instruction.InstructionTask",
    "classify": "labelled.ClassifyTask",
    "tag": "labelled.TagTask",
    "embed": "labelled.EmbedTask",
}


# Classes of images, whatever the objective is called: ``check_form`` refuses others.
IMAGES = "images.ImageTask"


def task(config: RunConfig) -> Task[Any]:
    """The task of a configuration."""
    kind = config.objective.kind
    module, name = (TASKS[kind] if config.model.reads_ids else IMAGES).split(".")
    road: Task[Any] = getattr(import_module(f"triptych.training.tasks.{module}"), name)()
    return road


__all__ = ["TASKS", "Corpus", "Say", "Task", "most_ids", "silent", "task"]
