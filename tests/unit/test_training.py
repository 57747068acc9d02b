"""The trainer: accumulation, probing, refusals, averaging, the plan."""

from __future__ import annotations

import copy
import json
import math
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from triptych.config import RunConfig, load_config
from triptych.data import ParallelData
from triptych.errors import UserError
from triptych.model import EncoderDecoder, build
from triptych.objectives import Loss
from triptych.training import loop
from triptych.training.checkpoint import save_checkpoint
from triptych.training.loop import DivergedError, Trainer
from triptych.training.monitor import Monitor, clock, read_metrics
from triptych.training.plan import SIZES, Facts, choose, vocabulary

MODEL = {"vocab": 40, "dim": 16, "layers": 1, "heads": {"count": 2}, "dropout": 0.0}


def config(*settings: str) -> RunConfig:
    data = {"model": MODEL, "data": {"tokens": 64}, "training": {"steps": 12, "precision": "fp32"}}
    return load_config(data, settings)


def trainer(folder: Path, *settings: str, seed: int = 1) -> Trainer:
    made = config(*settings)
    model = build(made.model, seed)
    assert isinstance(model, EncoderDecoder)
    draw = torch.Generator().manual_seed(3)

    def rows(n: int) -> list[list[int]]:
        lengths = torch.randint(1, 9, (n,), generator=draw).tolist()
        return [torch.randint(4, 40, (k,), generator=draw).tolist() for k in lengths]

    train, valid = ParallelData(rows(40), rows(40), 64), ParallelData(rows(8), rows(8), 64)
    return Trainer(made, model, train, valid, folder, Monitor(folder, made.training.tensorboard, quiet=True))


def grads(t: Trainer) -> list[torch.Tensor]:
    return [p.grad.clone() for p in t.model.parameters() if p.grad is not None]


def test_accumulation_equals_the_large_batch(tmp_path: Path) -> None:
    """Ragged parts of one batch, added up, give its gradient: there is no mean of means."""
    t = trainer(tmp_path)
    whole = t.train_data.batch(range(9))
    t.accumulate([whole])
    wanted = grads(t)
    parts = [t.train_data.batch(part) for part in (range(1), range(1, 3), range(3, 9))]
    counts = {int(b.layout.real.sum()) for b in parts}
    assert len(counts) == 3  # of different size, or a mean of means would pass
    loss, _ = t.accumulate(parts)
    for a, b in zip(grads(t), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert loss.count == int(whole.layout.real.sum())


def test_probing_changes_nothing(tmp_path: Path) -> None:
    t = trainer(tmp_path, "model.dropout=0.5")
    before, rng = {k: v.clone() for k, v in t.state()["model"].items()}, torch.get_rng_state()
    t.probe()
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(torch.equal(v, before[k]) for k, v in t.state()["model"].items())
    assert all(p.grad is None for p in t.model.parameters())


def test_random_state_is_that_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU its own: probing puts it back, a checkpoint has it alone and one of several devices loads."""
    t = trainer(tmp_path)
    gpu, states, forked = torch.device("cuda", 0), {0: torch.ones(3)}, []
    t.device, t.gpus = gpu, [gpu]
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: states[device.index])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda rng, device: states.update({device.index: rng}))
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda _: pytest.fail("those of other devices"))
    state = copy.deepcopy(t.state())
    assert torch.equal(torch.stack(state["cuda_rng"]), torch.ones(1, 3))
    t.restore({**state, "cuda_rng": [torch.zeros(3), torch.full((3,), 7.0)]})
    assert torch.equal(states[0], torch.zeros(3)) and len(states) == 1
    with monkeypatch.context() as patch:
        patch.setattr(torch.random, "fork_rng", lambda devices: forked.append(devices) or nullcontext())
        patch.setattr(t, "accumulate", lambda _: None)
        t.probe()
    assert forked == [[gpu], [gpu]]
    # And one of a GPU loads on a CPU.
    trainer(tmp_path).restore({**state, "cuda_rng": [torch.zeros(3)]})
    assert torch.equal(states[0], torch.zeros(3))


def test_a_failed_validation_leaves_the_model_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = trainer(tmp_path)
    t.model.train()

    def failed(*_: object) -> None:
        assert not t.model.training
        raise MemoryError

    monkeypatch.setattr(t.objective, "loss", failed)
    with pytest.raises(MemoryError):
        t.validate()
    assert t.model.training


def test_the_end_is_validated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a budget's last step is one at which to validate."""
    t = trainer(tmp_path, "training.validate_every=2", "training.epochs=2", "training.steps=null")
    t.seconds = 1e4
    steps = []
    monkeypatch.setattr(t, "_checkpoint", lambda _: steps.append(t.pace.step))
    t.run()
    assert t.pace.step % 2 == 0
    assert steps == list(range(2, t.pace.step + 1, 2))


def test_half_precision_is_probed_and_trained(tmp_path: Path) -> None:
    """The scaler lets gradients be unscaled once an update; probing leaves it as it was."""
    t = trainer(tmp_path, "training.precision=fp16")
    before = t.scaler.state_dict()
    t.probe()
    assert t.scaler.state_dict() == before
    assert math.isfinite(t.step([t.train_data.batch(range(4))])[0].mean)


def test_divergence_names_a_checkpoint_only_if_there_is_one(tmp_path: Path) -> None:
    t = trainer(tmp_path)
    wrong = Loss(torch.tensor(math.nan), 1, math.nan)
    with pytest.raises(DivergedError) as first:
        t._healthy(wrong, torch.tensor(1.0), 1.0)
    assert "checkpoint" not in str(first.value)
    saved = save_checkpoint(tmp_path / "checkpoints", 1, t.state(), 1)
    with pytest.raises(DivergedError, match=saved.path.name):
        t._healthy(wrong, torch.tensor(1.0), 1.0)


def test_too_little_memory_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(UserError, match=r"data\.tokens"):
        trainer(tmp_path).probe()

    def out_of_memory(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    t = trainer(tmp_path)
    monkeypatch.setattr(t, "accumulate", out_of_memory)
    with pytest.raises(UserError, match="largest batch"):
        t.probe()


def test_a_bug_while_probing_is_not_called_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    t = trainer(tmp_path)

    def broken(*_: object) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(t, "accumulate", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        t.probe()


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_nan_stops_before_the_weights_are_touched(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    t = trainer(tmp_path)
    batch = t.train_data.batch(range(4))
    if what == "loss":
        with torch.no_grad():
            t.model.decoder.blocks[0].ffn.outer.weight[0, 0] = float("nan")  # type: ignore[union-attr, index]
    else:
        whole = t.accumulate
        monkeypatch.setattr(t, "accumulate", lambda b: (whole(b)[0], torch.tensor(float("nan"))))
    before = {k: v.clone() for k, v in t.state()["model"].items()}
    with pytest.raises(DivergedError, match=what):
        t.step([batch])
    after = t.state()["model"]
    assert all(torch.equal(v, before[k]) or v.isnan().any() for k, v in after.items())


def test_state_restored_elsewhere_goes_on_alike(tmp_path: Path) -> None:
    """Two steps, or one step, a new trainer from its state, and another step: the same to the last bit."""
    one = trainer(tmp_path, "model.dropout=0.3")
    batches = [one.train_data.batch(range(i, i + 5)) for i in (0, 5)]
    torch.manual_seed(9)
    one.step([batches[0]])
    state = copy.deepcopy(one.state())
    one.step([batches[1]])
    other = trainer(tmp_path, "model.dropout=0.3", seed=2)
    torch.manual_seed(99)
    other.restore(state)
    other.step([batches[1]])
    for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_run_with_a_budget_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of our own: a step takes a tenth of a second, then, from the middle on, twice as long."""
    t = trainer(tmp_path, "training.steps=null", "training.budget=20s")
    t.seconds = 20.0
    now = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    step = t.step

    def slow(batches: list[object]) -> object:
        now[0] += 0.1 if now[0] < 8 else 0.2
        return step(batches)  # type: ignore[arg-type]

    monkeypatch.setattr(t, "step", slow)
    t.run()
    assert t.pace.over and 17 < now[0] < 22, now
    assert t.pace.step < 190  # it noticed that steps had become slower


@pytest.mark.parametrize(("epochs", "accumulate"), [(1, 1), (3, 1), (2.5, 2), (40, 1)])
@pytest.mark.parametrize("seconds", [None, 1e4])
def test_epochs_end_a_run(tmp_path: Path, epochs: float, accumulate: int, seconds: float | None) -> None:
    """However much time there is, and the learning rate with it."""
    given = [f"training.epochs={epochs}", f"training.accumulate={accumulate}", "training.steps=null"]
    given += ["training.schedule.kind=linear", "training.schedule.warmup=1", "training.log_every=1"]
    t = trainer(tmp_path, *given, *([f"training.budget={seconds}s"] if seconds else []))
    t.seconds = seconds
    t.run()
    batches = len(t.train_data.plan(0))
    want = math.ceil(epochs * batches / accumulate)
    assert t.pace.over and t.pace.step == want
    assert t.cursor.epoch == want * accumulate // batches
    rates = [r["learning_rate"] for r in read_metrics(tmp_path / "metrics.jsonl") if r["kind"] == "train"]
    assert len(rates) == want and rates[-1] < rates[0] * 2 / want


def test_time_ends_a_run_before_its_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    t = trainer(tmp_path, "training.epochs=1000", "training.steps=null", "training.budget=20s")
    t.seconds = 20.0
    now = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    step = t.step

    def slow(batches: list[object]) -> object:
        now[0] += 0.1
        return step(batches)  # type: ignore[arg-type]

    monkeypatch.setattr(t, "step", slow)
    t.run()
    assert t.pace.over and 17 < now[0] < 22 and t.pace.step < t.most


def test_metrics_are_whole_records_and_rewind(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, quiet=True)
    for step in range(5):
        monitor.record("train", step, loss=float("nan") if step == 2 else 1.0)
    with monitor.path.open("a") as file:
        file.write('{"kind": "train", "st')  # cut by a kill
    assert [r["step"] for r in read_metrics(monitor.path)] == [0, 1, 2, 3, 4]
    monitor.rewind(2)
    assert [json.loads(x)["step"] for x in monitor.path.read_text().splitlines()] == [0, 1, 2]


def test_tensorboard_is_optional(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = Monitor(tmp_path, tensorboard=True, quiet=True)
    for step in (1, 2, 3):
        first.record("train", step, loss=2.0 / step)
    first.close()
    # Resumed from step 1, its curve is one.
    second = Monitor(tmp_path, tensorboard=True, quiet=True)
    second.rewind(1)
    for step in (2, 3, 4):
        second.record("train", step, loss=5.0 + step)
    second.close()
    shown = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Scalars("train/loss")
    assert [(one.step, one.value) for one in shown] == [(1, 2.0), (2, 7.0), (3, 8.0), (4, 9.0)]


def test_the_plan_grows_with_time_and_data() -> None:
    def width(pairs: int, seconds: float) -> int:
        chosen = choose(Facts(pairs, pairs * 60, seconds, 5e11))
        RunConfig.parse(chosen)
        return int(chosen["model"]["dim"])

    by_time = [width(400_000, s) for s in (5, 60, 900, 7200, 1e6)]
    by_data = [width(n, 1e9) for n in (5, 500, 5_000, 50_000, 5_000_000)]
    assert by_time == sorted(by_time) and len(set(by_time)) >= 3
    assert by_data == sorted(by_data) and by_data[-1] == SIZES[-1][0]
    sizes = [vocabulary(n) for n in (1, 2_000, 5_000, 50_000, 500_000, 10_000_000)]
    assert sizes == sorted(sizes)


def test_clock() -> None:
    assert [clock(s) for s in (0, 75, 3599.6, 3725)] == ["0:00", "1:15", "1:00:00", "1:02:05"]
