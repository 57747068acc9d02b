"""Beginning with a run that was trained before: its tokenizer, its model, its weights.

RUN ─┬─ config.yaml ─ model settings ─ with what is given laid over them
     ├─ tokenizer/ ─ and new symbols at its end
     └─ weights ─ copied wherever a tensor of that name is in the new model
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from triptych.config import RunConfig, merge
from triptych.config.objectives import objectives
from triptych.engine import load
from triptych.engine.labels import read_labels
from triptych.errors import UserError
from triptych.model import Model, tensors
from triptych.text import Tokenizer
from triptych.training.tasks import Say

# What scores classes or tags, a row each.
NAMED = "output.map."


@dataclass(frozen=True)
class Start:
    """What a run begins with.

    Attributes:
        labels: the names of its classes or tags, in the order of its outputs.
    """

    config: RunConfig
    tokenizer: Tokenizer | None
    weights: dict[str, Tensor]
    labels: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: RunConfig) -> Start | None:
        """Read the run that ``training.init`` names; None when it names none."""
        if config.training.init is None:
            return None
        bundle = load(Path(config.training.init))
        labels = names(Path(config.training.init), bundle.config)
        return cls(bundle.config, bundle.words, tensors(bundle.model), labels)


def names(folder: Path, config: RunConfig) -> tuple[str, ...]:
    """Of the classes or tags that a run tells apart, in the order of its outputs; none of other runs."""
    count = getattr(config.model.output, "count", 0)
    return read_labels(folder, count) if count else ()


def inherit(given: Mapping[str, Any]) -> dict[str, Any]:
    """``given``, plain settings, laid over the model and tokenizer settings of the run it begins with."""
    training = given.get("training")
    init = training.get("init") if isinstance(training, Mapping) else None
    if not isinstance(init, str):
        return dict(given)
    from triptych.config import load_config
    from triptych.config.load import standing
    from triptych.engine.bundle import CONFIG
    from triptych.training.plan import embedding_kind

    if not standing(Path(init) / CONFIG):
        raise UserError("there is no run here", f"training.init: {init}", "name the folder of a trained run")
    old = load_config(Path(init) / CONFIG)
    asked = embedding_kind(given)
    if asked and (asked == "patches") == old.model.reads_ids:
        read = "texts" if old.model.reads_ids else "images"
        what = f"the run to begin with reads {read}, and this one does not"
        raise UserError(what, f"training.init: {init}", "name another run")
    model, tokenizer = old.model.dump(), old.text.tokenizer.dump()
    text = given.get("text")
    wanted = text.get("tokenizer") if isinstance(text, Mapping) else None
    wanted = {"kind": wanted} if isinstance(wanted, str) else wanted
    for key, value in wanted.items() if isinstance(wanted, Mapping) else ():
        if key in tokenizer and tokenizer[key] != value:
            what = f"the run to begin with has its tokenizer, of {key} {tokenizer[key]}"
            raise UserError(what, f"text.tokenizer.{key}: {value}", "leave it out, or do without --init")
    objective = given.get("objective")
    kind = objective.get("kind", "translation") if isinstance(objective, Mapping) else objective
    known = objectives().get(str(kind))
    if known is not None and known.readout != model["output"]["kind"]:
        del model["output"]
    inherited = {"model": model, "text": {"tokenizer": tokenizer}}
    inherited["data"] = {"length": old.data.length, "packing": old.data.packing}
    return merge(inherited, given)


def freeze_all_but_head(model: Model, config: RunConfig) -> None:
    """Where ``objective.frozen`` says so, nothing but the head learns."""
    if getattr(config.objective, "frozen", False):
        model.requires_grad_(False)
        model.output.requires_grad_(True)


def copy(model: Model, start: Start, labels: Sequence[str], say: Say) -> None:
    """Give a fresh model the weights of ``start`` where it has them; the rest, such as a new head and the
    rows of new symbols, stays as drawn, and is said.

    Args:
        labels: the model's classes or tags. What the run knew of those it had, by name, is kept.
    """
    own, fresh = tensors(model), []
    before, now = start.config.model.vocab, model.config.vocab
    known = [label for label in labels if label in start.labels]
    new_rows, old_rows = [labels.index(k) for k in known], [start.labels.index(k) for k in known]
    with torch.no_grad():
        for name, value in own.items():
            old = start.weights.get(name)
            if old is None or old.shape[1:] != value.shape[1:]:
                fresh.append(name)
            elif name.startswith(NAMED) and start.labels and tuple(labels) != start.labels:
                value[new_rows] = old[old_rows].to(value)
                missing = [label for label in labels if label not in known]
                fresh.append(f"{name} of {', '.join(missing)}" if missing else "")
            elif old.shape == value.shape:
                value.copy_(old)
            elif (len(old), len(value)) == (before, now):
                value[:before].copy_(old)
                fresh.append(f"{name} from row {before} on")
            else:
                fresh.append(name)
    fresh = [name for name in fresh if name]
    if len(fresh) == len(own):
        what = "the run's weights fit none of the model's"
        raise UserError(what, "training.init", "leave the model's settings to the run")
    gone = [name for name in start.weights if name not in own]
    said = f"; new: {', '.join(fresh)}" if fresh else ""
    said += f"; left behind: {', '.join(gone)}" if gone else ""
    say(f"begun with {len(own) - len([f for f in fresh if f in own])} of {len(own)} tensors{said}")
