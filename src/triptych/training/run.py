"""A whole training run, from files to a run folder that every command accepts.

files ─ load ─ tokenizer, data ─ config.yaml, tokenizer/, data.json ─ Trainer ─ checkpoints/, metrics.jsonl
      ─ best or average ─ tune ─ model.safetensors ─ test scores

What differs from one objective to the next is in ``training/tasks``.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from triptych.config import RunConfig, to_yaml
from triptych.config.parts import PatchEmbedding
from triptych.engine import Bundle, save_weights
from triptych.engine.bundle import CONFIG, MODEL, fingerprint
from triptych.errors import UserError
from triptych.evaluation import Result
from triptych.model import Model, build, tensors
from triptych.objectives import Loss
from triptych.text import write_text_atomic
from triptych.training.checkpoint import NONE, average, list_checkpoints, newest
from triptych.training.init import Start, copy, freeze_all_but_head, names
from triptych.training.loop import Trainer
from triptych.training.machine import keep_memory, prefer_fast_fp32
from triptych.training.monitor import Monitor
from triptych.training.prepare import Prepared, alone, check_form, made, reopened
from triptych.training.resume import restore
from triptych.training.tasks import Corpus, Say, Task, task
from triptych.training.vectors import check_width, fill, freeze

# Of a budget, for choosing, averaging, tuning and scoring at the end.
RESERVE, MOST_RESERVED = 0.035, 90.0


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
    start = Start.of(config) if found.state is None else None
    road = task(config)
    if resume:
        ready = reopened(road, config, corpus, folder)
    else:
        ready = made(road, config, corpus, folder, say, device, start)
    config = ready.config
    torch.manual_seed(config.training.seed)
    model = build(config.model)
    if start is not None:
        copy(model, start, names(folder, config), say)
    freeze_all_but_head(model, config)
    if config.text.vectors is not None:
        if found.state is None:
            assert ready.tokenizer is not None
            fill(model, config.text.vectors, ready.tokenizer, road.texts(corpus.train), say)
        else:  # the checkpoint has them
            freeze(model, config.text.vectors)
    model.to(device)
    seconds = config.training.seconds
    reserve = min(MOST_RESERVED, RESERVE * seconds) if seconds else 0.0
    with alone(folder), closing(Monitor(folder, config.training.tensorboard)) as monitor:
        trainer = Trainer(config, model, ready.train, ready.valid, folder, monitor)
        trainer.origin = f"{corpus.digest} {fingerprint(ready.tokenizer)}"
        if seconds is not None:
            trainer.seconds = seconds - reserve
        _describe(config, model, ready, road.packed or road.noun, trainer.most, say)
        if resume:
            restore(trainer, found, folder, monitor, say)
            write_text_atomic(folder / CONFIG, to_yaml(config))  # what was changed holds from here on
        del found  # it is as large as what is trained
        if not trainer.pace.over:
            trainer.probe()
            if trainer.seconds is not None and not resume:
                trainer.seconds -= time.monotonic() - started
            trainer.run()
        return _finish(road, ready, corpus, folder, trainer, say, started)


def _describe(config: RunConfig, model: Model, ready: Prepared, noun: str, most: int, say: Say) -> None:
    """The model, the data and what may end training before its budget, a line each."""
    size = sum(p.numel() for p in model.parameters())
    depth = "+".join(str(config.model.depth(side)) for side in config.model.stacks)
    what = f"vocabulary {config.model.vocab}"
    if isinstance(image := config.model.embedding, PatchEmbedding):
        what = f"images of {image.height} × {image.width} in patches of {image.size} × {image.size}"
    layers = f"{depth} layers of {config.model.dim}"
    say(f"model: {size:,} parameters, {layers}, {what}, {config.training.precision}")
    say(
        f"data: {len(ready.train):,} training {noun}, {len(ready.valid):,} validation; batches of "
        f"{config.data.tokens} tokens, {ready.train.padding():.1%} padding"
    )
    if config.training.epochs and config.training.budget:
        passes = f"{config.training.epochs:g} passes over the data, {most:,} steps"
        say(f"training: at most {passes}; training.epochs=null takes the whole budget")


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
    bundle = Bundle(ready.config, ready.tokenizer, model, folder)
    chosen, valid = _choose(road, bundle, corpus.valid, trainer, folder / "checkpoints", say)
    model.eval()
    config = road.tune(bundle, corpus, say)
    write_text_atomic(folder / CONFIG, to_yaml(config))
    save_weights(model, folder / MODEL, fingerprint(ready.tokenizer))
    bundle = Bundle(config, ready.tokenizer, model, folder)
    part = road.held_out(config, folder)
    test = road.evaluate(bundle, part, say) if part is not None else None
    seconds = time.monotonic() - started
    final: dict[str, Any] = {"chosen": chosen, "valid_nll": valid.mean_nll}
    final |= {"alpha": config.decoding.alpha, "parameters": sum(p.numel() for p in model.parameters())}
    final |= {"seconds": round(seconds, 1), "training_seconds": round(trainer.spent, 1)}
    if test is not None:
        final["scores"] = test.scores.to_dict()
    monitor.record("final", trainer.pace.step, **final)
    return Outcome(bundle, test, valid, seconds)


def _choose(
    road: Task[Any], bundle: Bundle, part: Any, trainer: Trainer, checkpoints: Path, say: Say
) -> tuple[str, Loss]:
    """Leave in the model the best of: the best checkpoint, the last one, the average of the last ones. Where
    the objective has a measure of its own this decides, and every checkpoint is tried: the loss of few
    examples is at its best long before their accuracy is."""
    model = trainer.model
    found = []
    for c in list_checkpoints(checkpoints):
        try:
            state = c.read()
            if state.get("origin") == trainer.origin:
                found.append((c, state["model"]))
        except UserError as error:  # one of several: the others will do
            say(f"passed over: {error}")
    if not found:
        raise UserError("no undamaged checkpoint is left", str(checkpoints), "begin the run again")
    last = found[-trainer.config.training.keep :]
    candidates = {
        f"step {c.step}": state
        for c, state in found
        if road.measured or c.step in (trainer.best_step, last[-1][0].step)
    }
    if len(last) > 1:
        candidates[f"average of steps {', '.join(str(c.step) for c, _ in last)}"] = average(
            [s for _, s in last]
        )
    losses, measures = {}, {}
    for name, state in candidates.items():
        _put(model, state)
        losses[name] = trainer.validate()
        if road.measured:
            measures[name] = road.quality(bundle, part)
    scores = {name: measures[name].score if road.measured else 0.0 for name in candidates}
    best = max(candidates, key=lambda name: (scores[name], -losses[name].nll))
    _put(model, candidates[best])
    told = {
        name: f"{m.name} {m.score:.2f}" if (m := measures.get(name)) else f"perplexity {loss.perplexity:.3f}"
        for name, loss in losses.items()
    }
    say(f"kept: {best}; " + "; ".join(f"{name}: {one}" for name, one in told.items()))
    return best, losses[best]


def _put(model: Model, state: dict[str, torch.Tensor]) -> None:
    own = tensors(model)
    with torch.no_grad():
        for name, value in state.items():
            own[name].copy_(value)


__all__ = ["Outcome", "train"]
