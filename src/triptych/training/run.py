"""A whole training run, from files to a run folder that every command accepts.

files ─ load ─ tokenizer, data ─ config.yaml, tokenizer/, data.json ─ Trainer ─ checkpoints/, metrics.jsonl
      ─ best or average ─ tune ─ model.safetensors ─ test scores

What differs from one objective to the next is in ``training/tasks``.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from triptych.config import RunConfig, differences, load_config, merge, to_yaml
from triptych.config.objectives import objectives
from triptych.data import Dataset
from triptych.engine import Bundle, read_json, save_weights
from triptych.engine.bundle import CONFIG, MODEL, TOKENIZER
from triptych.errors import UserError
from triptych.evaluation import Result
from triptych.model import Model, build, tensors
from triptych.objectives import Loss
from triptych.text import Tokenizer, write_text_atomic
from triptych.training.checkpoint import NONE, Newest, average, list_checkpoints, newest
from triptych.training.init import Start, begin
from triptych.training.loop import MARKS, Trainer
from triptych.training.machine import choose_precision, keep_memory, prefer_fast_fp32
from triptych.training.monitor import Monitor
from triptych.training.schedule import Pace
from triptych.training.tasks import Corpus, Say, Task, silent, task
from triptych.training.vectors import check_width, fill, freeze

# Of a budget, for choosing, averaging, tuning and scoring at the end.
RESERVE, MOST_RESERVED = 0.035, 90.0
DATA = "data.json"
# Settings that may be changed when a run goes on: none that the model, the data or their order depend on.
CHANGEABLE = (
    "training.steps",
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


@dataclass(frozen=True)
class Outcome:
    """What a finished run has to show.

    Attributes:
        test: scores and samples of the test part; None without one.
        valid: the loss of the validation part.
        seconds: wall-clock time in all.
    """

    bundle: Bundle
    test: Result | None
    valid: Loss
    seconds: float


@dataclass(frozen=True)
class Prepared:
    """A run before training: its settings, tokenizer and encoded data."""

    config: RunConfig
    tokenizer: Tokenizer
    train: Dataset
    valid: Dataset


def train(
    config: RunConfig,
    corpus: Corpus[Any],
    folder: Path,
    say: Say,
    resume: bool = False,
    started: float | None = None,
) -> Outcome:
    """Train as ``config`` says and write the run folder. With ``resume``, go on where it stands.

    Args:
        started: ``time.monotonic()`` when the budget began to run; now when not given.
    """
    started = time.monotonic() if started is None else started
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    keep_memory()
    prefer_fast_fp32()
    found = newest(folder / "checkpoints") if resume else NONE
    if found.state is None:
        check_width(config)
    check_form(config)
    start = Start.of(config) if not resume else None
    road = task(config)
    ready = (_found if resume else _made)(road, config, corpus, folder, say, device, start)
    config = ready.config
    torch.manual_seed(config.training.seed)
    model = begin(build(config.model), start, config, say)
    if config.text.vectors is not None:
        if found.state is None:
            fill(model, config.text.vectors, ready.tokenizer, road.texts(corpus.train), say)
        else:  # the checkpoint has them
            freeze(model, config.text.vectors)
    model.to(device)
    seconds = config.training.seconds
    reserve = min(MOST_RESERVED, RESERVE * seconds) if seconds else 0.0
    monitor = Monitor(folder, config.training.tensorboard)
    trainer = Trainer(config, model, ready.train, ready.valid, folder, monitor)
    trainer.origin = f"{corpus.digest} {ready.tokenizer.fingerprint}"
    if seconds is not None:
        trainer.seconds = seconds - reserve
    _describe(config, model, ready, road.noun, say)
    if resume:
        _restore(trainer, found, folder, monitor, say)
        write_text_atomic(folder / CONFIG, to_yaml(config))  # what was changed holds from here on
    del found  # it is as large as what is trained
    if not trainer.pace.over:
        trainer.probe()
        if trainer.seconds is not None and not resume:
            trainer.seconds -= time.monotonic() - started
        trainer.run()
    return _finish(road, ready, corpus, folder, trainer, say, started)


def prepare(config: RunConfig, corpus: Corpus[Any], folder: Path, say: Say) -> Prepared:
    """Everything before training, in a folder of its own."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return _made(task(config), config, corpus, folder, say, device, Start.of(config))


def _describe(config: RunConfig, model: Model, ready: Prepared, noun: str, say: Say) -> None:
    """The model and the data, in two lines."""
    size = sum(p.numel() for p in model.parameters())
    depth = "+".join(str(config.model.depth(side)) for side in config.model.stacks)
    say(
        f"model: {size:,} parameters, {depth} layers of {config.model.dim}, "
        f"vocabulary {config.model.vocab}, {config.training.precision}"
    )
    say(
        f"data: {len(ready.train):,} training {noun}, {len(ready.valid):,} validation; batches of "
        f"{config.data.tokens} tokens, {ready.train.padding():.1%} padding"
    )


def _found(
    road: Task[Any],
    config: RunConfig,
    corpus: Corpus[Any],
    folder: Path,
    say: Say,
    device: torch.device,
    start: Start | None,
) -> Prepared:
    """What a run was begun with."""
    known = read_json(folder / DATA)
    if known.get("digest") != corpus.digest:
        what = "the data are not those the run was begun with"
        raise UserError(what, str(folder / DATA), "restore the files, or begin a new run")
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    if known.get("tokenizer", tokenizer.fingerprint) != tokenizer.fingerprint:
        what = "the tokenizer is not the one this run was begun with"
        raise UserError(what, str(folder / TOKENIZER), "restore its files, or begin a new run")
    return _encoded(road, config, corpus, tokenizer, folder, silent)


def _made(
    road: Task[Any],
    config: RunConfig,
    corpus: Corpus[Any],
    folder: Path,
    say: Say,
    device: torch.device,
    start: Start | None,
) -> Prepared:
    """The tokenizer, the complete configuration and the data: made and written."""
    check_free(folder)
    if start is not None:
        tokenizer = start.tokenizer.with_symbols(road.symbols(config, corpus))
    else:
        tokenizer = road.tokenizer(config, corpus)
    if config.model.vocab not in (0, tokenizer.size):
        say(f"vocabulary: the tokenizer has {tokenizer.size} entries, model.vocab follows")
    decided = merge(road.decided(config, corpus), {"model": {"vocab": tokenizer.size}})
    config = RunConfig.parse(merge(config.dump(), decided))
    try:
        (folder / "data").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error.strerror) from None
    try:
        road.keep(config, corpus, folder)
        ready = _encoded(road, config, corpus, tokenizer, folder, say)
    except UserError:
        shutil.rmtree(folder, ignore_errors=True)  # there was nothing in it
        raise
    precision = choose_precision(config.training.precision, device, config.model.dim)
    settled = merge(road.settled(config, ready.train, ready.valid), {"training": {"precision": precision}})
    config = RunConfig.parse(merge(config.dump(), settled))
    tokenizer.save(folder / TOKENIZER)
    known = {**corpus.summary(), "tokenizer": tokenizer.fingerprint}
    write_text_atomic(folder / DATA, json.dumps(known, ensure_ascii=False, indent=1))
    # Last: a folder with a configuration is a run that can be resumed.
    write_text_atomic(folder / CONFIG, to_yaml(config))
    return replace(ready, config=config)


def _encoded(
    road: Task[Any], config: RunConfig, corpus: Corpus[Any], tokenizer: Tokenizer, folder: Path, say: Say
) -> Prepared:
    train = road.encode(config, corpus.train, tokenizer, folder, "training", say)
    return Prepared(
        config, tokenizer, train, road.encode(config, corpus.valid, tokenizer, folder, "validation", say)
    )


def check_form(config: RunConfig) -> None:
    """Refuse a model that cannot learn the objective."""
    kind, forms, form = config.objective.kind, config.objective.forms, config.model.form
    if form not in forms:
        mend = f"set model.form={' or '.join(forms)}"
        if fitting := [k for k, o in objectives().items() if form in o.forms]:
            mend += f", or learn another objective: {', '.join(fitting)}"
        raise UserError(f"the objective {kind} is not learned by form {form}", "model.form", mend)


def check_free(folder: Path) -> None:
    """Refuse a run folder that is in use or cannot be made; nothing is written."""
    place = folder
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        occupied = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise _unusable(folder, error.strerror) from None
    if not place.is_dir():
        raise _unusable(folder, f"{place} is no folder")
    if occupied and (folder / CONFIG).exists():
        mend = f"go on with `triptych train {folder} --resume`, or choose another --out"
        raise UserError("this folder is not empty", str(folder), mend)
    if occupied:
        mend = "delete the folder, or choose another --out"
        raise UserError("this folder is not empty, and holds no run that could go on", str(folder), mend)
    if not os.access(place, os.W_OK | os.X_OK):
        raise _unusable(folder, f"{place} may not be written to")


def _unusable(folder: Path, why: str | None) -> UserError:
    return UserError(f"cannot be used: {why}", str(folder), "choose another --out")


def reopen(folder: Path, settings: list[str], say: Say) -> RunConfig:
    """The configuration of a run that is to go on, with changes laid over it, each of them shown."""
    if not (folder / CONFIG).exists():
        mend = "nothing was begun there; train without --resume"
        if folder.is_dir() and any(folder.iterdir()):
            mend = "it was left before training began: delete the folder, or choose another --out"
        raise UserError("there is no run to resume", str(folder), mend)
    old = load_config(folder / CONFIG)
    # One of the two ends a run: naming the one takes the other back.
    ends = [end for end in ("steps", "budget") if any(s.startswith(f"training.{end}=") for s in settings)]
    other = {"steps": "budget", "budget": "steps"}[ends[0]] if len(ends) == 1 else None
    new = load_config(folder / CONFIG, [f"training.{other}=null", *settings] if other else settings)
    _show(differences(old, new), say, "begin a new run for this")
    return new


def _show(changes: list[tuple[str, Any, Any]], say: Say, mend: str) -> None:
    """Say what changed since the run was begun. Raises UserError for what may not."""
    for key, was, now in changes:
        say(f"changed: {key}: {was} → {now}")
        if not key.startswith(CHANGEABLE):
            mend = f"{mend}; a run goes on with the model, data and seed it began with"
            raise UserError("this setting cannot change while a run goes on", key, mend)


def _restore(trainer: Trainer, found: Newest, folder: Path, monitor: Monitor, say: Say) -> None:
    for unfinished in folder.rglob(".*.tmp*"):  # what a kill cut off
        unfinished.unlink(missing_ok=True)
    checkpoint, state, damaged = found
    for message in damaged:
        say(f"passed over: {message}")
    if checkpoint is None or state is None:
        say("no checkpoint yet: starting from the beginning")
        monitor.rewind(-1)
        return
    if state.get("origin", trainer.origin) != trainer.origin:
        what = "this checkpoint is of a run with other data or another tokenizer"
        raise UserError(what, str(checkpoint.path), "put back the checkpoints of this run")
    before = RunConfig.parse(state["config"]) if "config" in state else trainer.config
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
    _replan(trainer, any(key in ("training.steps", "training.budget") for key, _, _ in changed))
    monitor.rewind(checkpoint.step)
    monitor.record("resume", checkpoint.step)
    say(f"going on from step {checkpoint.step}")
    if trainer.pace.over:
        say("training is at its end: give more training.steps, or a longer --budget, to train on")


def _replan(trainer: Trainer, changed: bool) -> None:
    """With a changed length, a run stands where it would, had it been planned so from the start.

    The same plan is left alone, to the last bit. Time is turned into steps by the pace so far.
    """
    step, planned = trainer.pace.step, trainer.config.training.steps
    if planned and planned < step:
        what = f"{planned} steps are fewer than the {step} that are done"
        raise UserError(what, "training.steps", f"give {step} or more")
    if trainer.seconds is not None and changed:
        planned = max(step, round(step * trainer.seconds / max(trainer.spent, 1e-9)))
    if not planned:
        return
    here = Pace.at(step, planned, trainer.config.training.schedule.warmup)
    if trainer.pace.stride != here.stride:
        trainer.pace = replace(here, progress=min(here.progress, 1.0))
        trainer.next_mark = here.progress + 1 / MARKS


def _finish(
    road: Task[Any],
    ready: Prepared,
    corpus: Corpus[Any],
    folder: Path,
    trainer: Trainer,
    say: Say,
    started: float,
) -> Outcome:
    """Choose the weights, tune what is chosen last, save, score."""
    model, monitor = trainer.model, trainer.monitor
    chosen, valid = _choose(trainer, folder / "checkpoints", say)
    model.cpu().eval()
    config = road.tune(Bundle(ready.config, ready.tokenizer, model, folder), corpus, say)
    write_text_atomic(folder / CONFIG, to_yaml(config))
    save_weights(model, folder / MODEL, ready.tokenizer.fingerprint)
    bundle = Bundle(config, ready.tokenizer, model, folder)
    test = road.evaluate(bundle, corpus.test, say) if corpus.test is not None else None
    seconds = time.monotonic() - started
    final: dict[str, Any] = {"chosen": chosen, "valid_nll": valid.nll / max(valid.count, 1)}
    final |= {"alpha": config.decoding.alpha, "parameters": sum(p.numel() for p in model.parameters())}
    final |= {"seconds": round(seconds, 1), "training_seconds": round(trainer.spent, 1)}
    if test is not None:
        final["scores"] = test.scores.to_dict()
    monitor.record("final", trainer.pace.step, **final)
    return Outcome(bundle, test, valid, seconds)


def _choose(trainer: Trainer, checkpoints: Path, say: Say) -> tuple[str, Loss]:
    """Leave in the model the best of: the best checkpoint, the average of the last ones."""
    model = trainer.model
    found = []
    for c in list_checkpoints(checkpoints):
        try:
            state = c.read()
            if state.get("origin", trainer.origin) == trainer.origin:
                found.append((c, state["model"]))
        except UserError as error:  # one of several: the others will do
            say(f"passed over: {error}")
    if not found:
        raise UserError("no undamaged checkpoint is left", str(checkpoints), "begin the run again")
    last = found[-trainer.config.training.keep :]
    candidates = {
        f"step {c.step}": state for c, state in found if c.step in (trainer.best_step, last[-1][0].step)
    }
    if len(last) > 1:
        candidates[f"average of steps {', '.join(str(c.step) for c, _ in last)}"] = average(
            [s for _, s in last]
        )
    losses = {}
    for name, state in candidates.items():
        _put(model, state)
        losses[name] = trainer.validate()
    best = min(losses, key=lambda n: losses[n].nll)
    _put(model, candidates[best])
    say("kept: " + best + "; " + "; ".join(f"{n}: perplexity {v.perplexity:.3f}" for n, v in losses.items()))
    return best, losses[best]


def _put(model: Model, state: dict[str, torch.Tensor]) -> None:
    own = tensors(model)
    with torch.no_grad():
        for name, value in state.items():
            own[name].copy_(value)


__all__ = ["Outcome", "check_form", "check_free", "prepare", "reopen", "train"]
