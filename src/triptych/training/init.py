"""Beginning with a run that was trained before: its tokenizer, its model, its weights.

RUN ─┬─ config.yaml ─ model settings ─ with what is given laid over them
     ├─ tokenizer/ ─ and new symbols at its end
     └─ weights ─ copied wherever a tensor of that name is in the new model
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triptych.config import RunConfig, merge
from triptych.config.objectives import objectives
from triptych.engine import load
from triptych.errors import UserError
from triptych.model import Model, tensors
from triptych.text import Tokenizer
from triptych.training.tasks import Say


@dataclass(frozen=True)
class Start:
    """What a run begins with."""

    config: RunConfig
    tokenizer: Tokenizer
    weights: dict[str, Tensor]

    @classmethod
    def of(cls, config: RunConfig) -> Start | None:
        """Read the run that ``training.init`` names; None when it names none."""
        if config.training.init is None:
            return None
        bundle = load(Path(config.training.init))
        return cls(bundle.config, bundle.tokenizer, tensors(bundle.model))


def inherit(given: Mapping[str, Any]) -> dict[str, Any]:
    """``given``, plain settings, laid over the model and tokenizer settings of the run it begins with."""
    training = given.get("training")
    init = training.get("init") if isinstance(training, Mapping) else None
    if not isinstance(init, str):
        return dict(given)
    from triptych.config import load_config
    from triptych.config.load import standing
    from triptych.engine.bundle import CONFIG

    if not standing(Path(init) / CONFIG):
        raise UserError("there is no run here", f"training.init: {init}", "name the folder of a trained run")
    old = load_config(Path(init) / CONFIG)
    model = old.model.dump()
    objective = given.get("objective")
    kind = objective.get("kind", "translation") if isinstance(objective, Mapping) else objective
    known = objectives().get(str(kind))
    if known is not None and known.readout != model["output"]["kind"]:
        del model["output"]
    inherited = {"model": model, "text": {"tokenizer": old.text.tokenizer.dump()}}
    inherited["data"] = {"length": old.data.length, "packing": old.data.packing}
    return merge(inherited, given)


def freeze_all_but_head(model: Model, config: RunConfig) -> None:
    """Where ``objective.frozen`` says so, nothing but the head learns."""
    if getattr(config.objective, "frozen", False):
        model.requires_grad_(False)
        model.output.requires_grad_(True)


def copy(model: Model, start: Start, say: Say) -> None:
    """Give a fresh model the weights of ``start`` where it has them; the rest, such as a new head and the
    rows of new symbols, stays as drawn, and is said."""
    own, fresh = tensors(model), []
    before, now = start.config.model.vocab, model.config.vocab
    with torch.no_grad():
        for name, value in own.items():
            old = start.weights.get(name)
            if old is not None and old.shape == value.shape:
                value.copy_(old)
            elif (
                old is not None
                and (before, *old.shape[1:]) == old.shape
                and (now, *old.shape[1:]) == value.shape
            ):
                value[:before].copy_(old)
                fresh.append(f"{name} from row {before} on")
            else:
                fresh.append(name)
    if len(fresh) == len(own):
        what = "the run's weights fit none of the model's"
        raise UserError(what, "training.init", "leave the model's settings to the run")
    gone = [name for name in start.weights if name not in own]
    said = f"; new: {', '.join(fresh)}" if fresh else ""
    said += f"; left behind: {', '.join(gone)}" if gone else ""
    say(f"begun with {len(own) - len([f for f in fresh if f in own])} of {len(own)} tensors{said}")
