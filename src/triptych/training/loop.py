"""The training loop: deterministic given its pace, as far as the device is; resumable at any step.

batches ─ forward in low precision ─ Loss(sum, count) ─ backward ─ … accumulate … ─ ÷ count ─ clip ─ step
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, nn

from triptych.config import RunConfig, TrainingConfig
from triptych.data import Batch, Cursor, Dataset
from triptych.engine import autocast
from triptych.errors import UserError
from triptych.evaluation import dataset_loss
from triptych.model import Model, tensors
from triptych.model.experts import counting, routers
from triptych.objectives import Loss, objective
from triptych.training.checkpoint import list_checkpoints, save_checkpoint
from triptych.training.monitor import Monitor, clock
from triptych.training.optimizer import build_optimizer, set_rate
from triptych.training.schedule import Pace, learning_rate

# What the count of a loss counts, by what the model puts out.
UNITS = {"vocabulary": "tokens", "classes": "texts", "tags": "words", "vector": "pairs"}
MARKS = 12  # validations (and checkpoints) a run
CALIBRATE = 12  # steps timed before a budget is turned into a number of steps


class DivergedError(UserError):
    """Training went wrong: the loss or the gradient is no longer a usable number."""


def most_steps(settings: TrainingConfig, train: Dataset) -> int:
    """The steps that end a run, whatever time it has; 0 when time alone does."""
    if settings.epochs is None:
        return settings.steps or 0
    return math.ceil(settings.epochs * len(train.plan(0)) / settings.accumulate)


class Trainer:
    """Trains a model; everything that changes while it does is in ``state()``."""

    def __init__(
        self,
        config: RunConfig,
        model: Model,
        train: Dataset,
        valid: Dataset,
        folder: Path,
        monitor: Monitor,
        seconds: float | None = None,
    ) -> None:
        settings = config.training
        assert settings.precision != "auto", "the precision is chosen before training"
        self.config, self.model, self.train_data, self.valid_data = config, model, train, valid
        self.folder, self.monitor = folder, monitor
        self.device = next(model.parameters()).device
        self.gpus = [self.device] if self.device.type == "cuda" else []
        self.objective = objective(config.objective, config.data.length)
        head_rate = getattr(config.objective, "head_rate", 1.0)
        self.optimizer = build_optimizer(settings.optimizer, model, model.output, head_rate)
        self.unit = UNITS[config.objective.readout] if config.model.reads_ids else "images"
        self.routers = routers(model)
        self.load: dict[str, Tensor] = {}  # tokens that each router sent to each expert, in the last step
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=settings.precision == "fp16")
        self.cursor = Cursor()
        self.origin = ""  # of the data and the tokenizer: checkpoints of one run have the same
        self.seconds = seconds  # left for training, of a budget
        self.spent = 0.0
        self.best = math.inf
        self.best_step = 0
        self.most = most_steps(settings, train)
        self.pace = Pace.at(0, self.most, settings.schedule.warmup) if self.most else Pace()
        # Rounded up: the last one is at the end, and not again a few steps before it.
        self.every = settings.validate_every or max(1, -(-self.most // MARKS))
        self.next_mark = 1 / MARKS  # of progress, for runs with a budget

    # -- state ---------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs to go on exactly."""
        return {
            "config": self.config.dump(),
            "origin": self.origin,
            "model": {name: p.detach().clone() for name, p in tensors(self.model).items()},
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "pace": asdict(self.pace),
            "cursor": asdict(self.cursor),
            "rng": torch.get_rng_state(),
            "cuda_rng": [torch.cuda.get_rng_state(gpu) for gpu in self.gpus],
            "spent": self.spent,
            "best": [self.best, self.best_step],
            "next_mark": self.next_mark,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        own = tensors(self.model)
        if {n: v.shape for n, v in own.items()} != {n: v.shape for n, v in state["model"].items()}:
            raise ValueError("these are not the tensors of this model")  # copying would stretch some to fit
        with torch.no_grad():
            for name, value in state["model"].items():
                own[name].copy_(value)
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.pace, self.cursor = Pace(**state["pace"]), Cursor(**state["cursor"])
        torch.set_rng_state(state["rng"])
        for gpu, rng in zip(self.gpus, state["cuda_rng"], strict=False):  # it may have been of other devices
            torch.cuda.set_rng_state(rng, gpu)
        self.spent, (self.best, self.best_step) = state["spent"], state["best"]
        self.next_mark = state["next_mark"]

    # -- one step ------------------------------------------------------------------------------------------

    def accumulate(self, batches: list[Batch]) -> tuple[Loss, Tensor]:
        """Gradients of the summed loss over all batches divided by all their tokens; loss and norm."""
        if not self.model.training:
            self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        total = Loss(torch.zeros((), device=self.device), 0, 0.0)
        count = max(1, sum(self.objective.count(self.model, b) for b in batches))
        self.load = {}
        for batch in batches:
            counted = counting(self.routers, self.load, learn=True)
            with autocast(self.config.training.precision, self.device), counted:
                loss = self.objective.loss(self.model, batch.to(self.device), self.pace.progress)
            # Divided by the count of the whole step: micro-batches add up to the large batch.
            self.scaler.scale(loss.sum / count).backward()  # type: ignore[no-untyped-call]
            total = total + Loss(loss.sum.detach(), loss.count, loss.nll)
        self.scaler.unscale_(self.optimizer)
        clip = self.config.training.optimizer.clip or math.inf
        return total, nn.utils.clip_grad_norm_(self.model.parameters(), clip)

    def step(self, batches: list[Batch]) -> tuple[Loss, float, float]:
        """One optimizer step; loss, gradient norm before clipping, learning rate."""
        loss, norm = self.accumulate(batches)
        self.pace = self.pace.advance()
        rate = learning_rate(self.config.training.schedule, self.pace, self.config.model.dim)
        self._healthy(loss, norm, rate)
        set_rate(self.optimizer, rate)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        for name, router in self.routers.items():
            router.settle(self.load[name])
        return loss, float(norm), rate

    def _healthy(self, loss: Loss, norm: Tensor, rate: float) -> None:
        step, mean, where = self.pace.step, loss.mean, f"step {self.pace.step}"
        if not math.isfinite(mean):
            what = f"the loss is {mean}: an activation overflowed, at a learning rate of {rate:.2e}"
            mend = "lower training.schedule.peak or lengthen its warmup"
            raise DivergedError(what, where, f"{mend}; {self._kept()}")
        if not bool(torch.isfinite(norm)) and not self.scaler.is_enabled():
            what = f"the gradient is not finite while the loss is {mean:.3f}"
            mend = "use training.precision=fp32, or lower the peak rate"
            raise DivergedError(what, where, f"{mend}; {self._kept()}")
        many = max(self.config.model.vocab, getattr(self.config.model.output, "count", 0))
        worst = math.log(many) + 5
        if step > max(100, self.config.training.schedule.warmup) and mean > worst:
            what = f"the loss rose to {mean:.2f}, far above that of guessing ({worst - 5:.2f})"
            mend = f"lower training.schedule.peak (now {rate:.2e} is reached)"
            raise DivergedError(what, where, f"{mend}; {self._kept()}")

    def _kept(self) -> str:
        """What a run that went wrong can go on from."""
        saved = list_checkpoints(self.folder / "checkpoints")
        return f"the last good checkpoint is kept: {saved[-1].path.name}" if saved else "begin a new run"

    # -- the run -------------------------------------------------------------------------------------------

    def probe(self) -> None:
        """Try the largest batch before anything is trained: running out of memory must come first, not last.

        A batch half as large is measured first, so that a machine that would rather kill than refuse is
        never asked for what it does not have. Random state and weights are as before.
        """
        scaler = self.scaler.state_dict()
        batch = self.train_data.largest()
        half = self.train_data.batch(batch.index[: max(1, len(batch.index) // 2)])
        advice = "lower data.tokens (or raise training.accumulate with it), or data.max_length"
        try:
            process = psutil.Process()
            before = process.memory_info().rss
            self._try(half)
            grown = max(0, process.memory_info().rss - before)
            states = 2 * 4 * sum(p.numel() for p in self.model.parameters())
            free = psutil.virtual_memory().available
            if self.device.type == "cpu" and grown + states > free:
                raise UserError(
                    f"the largest batch would need about {(grown + states) / 2**30:.1f} GiB more than is "
                    f"used now, and {free / 2**30:.1f} GiB are free",
                    "data.tokens",
                    advice,
                )
            self._try(batch)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            raise UserError(
                f"the largest batch {batch.shape} does not fit in memory", "data.tokens", advice
            ) from None
        finally:
            self.optimizer.zero_grad(set_to_none=True)
            self.scaler.load_state_dict(scaler)

    def _try(self, batch: Batch) -> None:
        """Gradients of a batch that are not to be used: the scaler, which lets them be unscaled once, forgets
        them, and random numbers are as before."""
        with torch.random.fork_rng(self.gpus):
            self.accumulate([batch])
        if self.scaler.is_enabled():
            self.scaler.update()

    def validate(self) -> Loss:
        """Loss on the validation examples, without smoothing."""
        return dataset_loss(self.model, self.objective, self.valid_data, self.config.training.precision)

    def run(self) -> None:
        """Train to the end of the plan, validating and saving on the way."""
        settings = self.config.training
        batches = self.train_data.read(self.cursor)
        started, spent_before = time.monotonic(), self.spent
        window, tokens, seen = time.monotonic(), 0, []
        losses: list[float] = []
        due = False
        while not self.pace.over:
            group = []
            for _ in range(settings.accumulate):
                batch, cursor = next(batches)
                group.append(batch)
            loss, norm, rate = self.step(group)
            self.cursor = cursor
            self.spent = spent_before + time.monotonic() - started
            tokens += loss.count
            seen.append(time.monotonic())
            losses = [*losses[-19:], loss.mean_nll]
            if self.seconds is not None and self.pace.step == CALIBRATE and len(seen) > 2:
                self._replan((seen[-1] - seen[1]) / max(len(seen) - 2, 1))
            if self.pace.step % settings.log_every == 0:
                now = time.monotonic()
                speed, window, tokens = tokens / max(now - window, 1e-9), now, 0
                self.monitor.record(
                    "train",
                    self.pace.step,
                    loss=loss.mean,
                    nll=loss.mean_nll,
                    gradient_norm=norm,
                    learning_rate=rate,
                    tokens_per_second=round(speed, 1),
                    unit=self.unit,
                    memory_mb=round(memory_mb(self.device), 1),
                    epoch=self.cursor.epoch,
                    progress=round(self.pace.progress, 5),
                    spent=round(self.spent, 2),
                    **self._experts(),
                )
                self._say(losses, speed)
            if due := self._due():
                self._checkpoint(seen)
                window, tokens = time.monotonic(), 0
        if not due:
            self._checkpoint(seen)

    def _experts(self) -> dict[str, dict[str, list[float]]]:
        """The share of the last step's choices that each expert got, by layer; nothing without experts."""
        shares = {name: (n / n.sum()).tolist() for name, n in self.load.items()}
        rounded = {name: [round(share, 4) for share in row] for name, row in shares.items()}
        return {"experts": rounded} if rounded else {}

    def _due(self) -> bool:
        if self.seconds is not None and self.config.training.validate_every is None:
            return self.pace.progress >= self.next_mark and not self.pace.over
        return self.pace.step % self.every == 0

    def _replan(self, step_seconds: float) -> None:
        """Turn the time that is left into steps, from the measured time of a step."""
        assert self.seconds is not None
        left = max(1, int((self.seconds - self.spent) / max(step_seconds, 1e-6)))
        left = max(1, min(left, self.most - self.pace.step)) if self.most else left
        self.pace = self.pace.plan(left, self.config.training.schedule.warmup)
        self.monitor.record("plan", self.pace.step, steps_left=left, step_seconds=round(step_seconds, 5))

    def _checkpoint(self, seen: list[float]) -> None:
        """Validate, re-plan, save."""
        began = time.monotonic()
        loss = self.validate()
        nll = loss.mean_nll
        if nll < self.best:
            self.best, self.best_step = nll, self.pace.step
        self.monitor.record("valid", self.pace.step, nll=nll, perplexity=loss.perplexity, tokens=loss.count)
        self.monitor.line(
            f"step {self.pace.step}  validation loss {nll:.4f}  perplexity {loss.perplexity:.2f}"
            + ("  best so far" if self.best_step == self.pace.step else "")
        )
        took = time.monotonic() - began
        self.spent += took
        # Twelve validations a run, fewer when they would take more than a twelfth of the time.
        gap = max(1 / MARKS, MARKS * took / self.seconds) if self.seconds else 1 / MARKS
        self.next_mark = min(self.pace.progress + gap, 1 - 1e-9)
        if self.seconds is not None and len(seen) > 2 and not self.pace.over:
            self.spent += 0.3  # saving, about
            marks = 1 + (1 - self.pace.progress) / gap
            recent = seen[-200:]
            pure = (recent[-1] - recent[0]) / (len(recent) - 1)
            left = self.seconds - self.spent - marks * took
            self._replan(pure * max(self.seconds - self.spent, 1e-6) / max(left, 1e-6))
            seen.clear()
        keep = self.config.training.keep
        save_checkpoint(self.folder / "checkpoints", self.pace.step, self.state(), keep, self.best_step)

    def _say(self, losses: list[float], speed: float) -> None:
        share = self.pace.progress
        left = self.spent / share * (1 - share) if share > 0 else 0.0
        nll = sum(losses) / len(losses)
        pace = f"{speed:,.0f} {self.unit}/s  left {clock(left)}"
        self.monitor.progress(f"step {self.pace.step}  {share:4.0%}  loss {nll:.3f}  {pace}")


def memory_mb(device: torch.device) -> float:
    """Memory of this process (on a GPU: the most allocated), in MiB."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**20
    return float(psutil.Process().memory_info().rss) / 2**20
