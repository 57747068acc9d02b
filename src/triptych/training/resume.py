"""Going on with a run: which settings may change, and from where it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from triptych.config import RunConfig, differences, load_config
from triptych.engine.bundle import CONFIG, MODEL
from triptych.errors import UserError
from triptych.training.checkpoint import Newest
from triptych.training.loop import MARKS, Trainer
from triptych.training.monitor import Monitor
from triptych.training.schedule import Pace
from triptych.training.tasks import Say

# Settings that may be changed when a run goes on: none that the model, the data or their order depend on.
ENDS = ("steps", "epochs", "budget")
CHANGEABLE = (
    "training.steps",
    "training.epochs",
    "training.budget",
    "training.keep",
    "training.log_every",
    "training.validate_every",
    "training.tensorboard",
    "decoding.",
    # Files may have moved; that they hold the same is looked at by itself.
    "data.train",
    "data.valid",
)


def reopen(folder: Path, settings: list[str], say: Say) -> RunConfig:
    """The configuration of a run that is to go on, with changes laid over it, each of them shown."""
    if not (folder / CONFIG).exists():
        mend = "nothing was begun there; train without --resume"
        if (folder / MODEL).exists() or (folder / "checkpoints").exists():
            raise UserError("the run's configuration is missing", str(folder / CONFIG), "put it back")
        if folder.is_dir() and any(folder.iterdir()):
            mend = "what is in it was left before training began, or is no run; choose another --out"
        raise UserError("there is no run to resume", str(folder), mend)
    old = load_config(folder / CONFIG)
    # Steps end a run, or time and epochs do: naming the one takes the others back.
    gone = {"steps": ("budget", "epochs"), "budget": ("steps",), "epochs": ("steps",)}
    given = {k: v for k, _, v in (setting.partition("=") for setting in settings)}
    named = {end for end in gone if given.get(f"training.{end}", "null") not in ("null", "~", "")}
    others = {other for end in named for other in gone[end]} - named
    new = load_config(folder / CONFIG, [*(f"training.{other}=null" for other in sorted(others)), *settings])
    if not any(getattr(new.training, end) for end in ENDS):
        raise UserError("nothing says how long to train", "training", "give --budget, or steps, or epochs")
    _show(differences(old, new), say, "begin a new run for this")
    return new


def _show(changes: list[tuple[str, Any, Any]], say: Say, mend: str) -> None:
    """Say what changed since the run was begun. Raises UserError for what may not."""
    for key, was, now in changes:
        say(f"changed: {key}: {was} → {now}")
        if not key.startswith(CHANGEABLE):
            mend = f"{mend}; a run goes on with the model, data and seed it began with"
            raise UserError("this setting cannot change while a run goes on", key, mend)


def restore(trainer: Trainer, found: Newest, folder: Path, monitor: Monitor, say: Say) -> None:
    """Bring a trainer to where its run stood at the newest undamaged checkpoint, or to the beginning.

    Raises:
        UserError: the checkpoints are of other data, of another model, or gone though training had ended.
    """
    for unfinished in folder.rglob(".*.tmp*"):  # what a kill cut off
        unfinished.unlink(missing_ok=True)
    checkpoint, state, damaged = found
    for message in damaged:
        say(f"passed over: {message}")
    if checkpoint is None or state is None:
        if (folder / MODEL).exists():
            what, mend = "a finished run has lost its checkpoints", "put them back, or begin a new run"
            raise UserError(what, str(folder / "checkpoints"), mend)
        say(f"no {'undamaged ' if damaged else ''}checkpoint: starting from the beginning")
        monitor.rewind(-1)
        return
    if state.get("origin") != trainer.origin:
        what = "this checkpoint is of a run with other data or another tokenizer"
        raise UserError(what, str(checkpoint.path), "put back the checkpoints of this run")
    before = RunConfig.parse(state["config"])
    changed = [c for c in differences(before, trainer.config) if not c[0].startswith("decoding.")]
    shown = [c[0] for c in differences(load_config(folder / CONFIG), trainer.config)]
    _show([c for c in changed if c[0] not in shown], say, f"put it back in {folder / CONFIG}")
    try:
        trainer.restore(state)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError):
        what = "this checkpoint does not fit the run's model"
        raise UserError(
            what, str(checkpoint.path), "put back the checkpoints and config.yaml of this run"
        ) from None
    _replan(trainer, any(key.removeprefix("training.") in ENDS for key, _, _ in changed))
    monitor.rewind(checkpoint.step)
    monitor.record("resume", checkpoint.step)
    say(f"going on from step {checkpoint.step}")
    if trainer.pace.over:
        end = "a longer --budget"
        if trainer.most:
            end = "more training.epochs" if trainer.config.training.epochs else "more training.steps"
        say(f"training is at its end: give {end} to train on")


def _replan(trainer: Trainer, changed: bool) -> None:
    """With a changed length, a run stands where it would, had it been planned so from the start.

    The same plan is left alone, to the last bit. Time is turned into steps by the pace so far.
    """
    step, planned = trainer.pace.step, trainer.most
    if planned and planned < step:
        what = f"{planned} steps are fewer than the {step} that are done"
        key = "steps" if trainer.config.training.epochs is None else "epochs"
        raise UserError(what, f"training.{key}", f"give more, for {step} steps at least")
    if trainer.seconds is not None:
        if not changed:
            return
        timed = max(step, round(step * trainer.seconds / max(trainer.spent, 1e-9)))
        planned = min(timed, planned or timed)
    if not planned:
        return
    here = Pace.at(step, planned, trainer.config.training.schedule.warmup)
    if trainer.pace.stride != here.stride:
        trainer.pace = replace(here, progress=min(here.progress, 1.0))
        trainer.next_mark = here.progress + 1 / MARKS
