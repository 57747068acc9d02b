"""Experts in training: what is added to the loss, loads, biases that are saved; what is refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from triptych.config import ModelConfig, load_config
from triptych.data import ParallelData
from triptych.engine.bundle import load_weights, save_weights
from triptych.errors import UserError
from triptych.evaluation import dataset_loss
from triptych.insight.laws import verify
from triptych.model import EncoderDecoder, build
from triptych.model.experts import Experts, SigmoidRouter, counting, routers
from triptych.objectives import Loss, TokenLoss
from triptych.training.loop import Trainer
from triptych.training.monitor import Monitor, read_metrics

MODEL = {"vocab": 40, "dim": 16, "layers": 2, "heads": {"count": 2}, "dropout": 0.0, "ffn": {"dim": 16}}


def trainer(folder: Path, experts: dict[str, Any], seed: int = 1, **training: Any) -> Trainer:
    settings = {"steps": 12, "precision": "fp32", "log_every": 2, **training}
    data = {"model": {**MODEL, "experts": experts}, "data": {"tokens": 64}, "training": settings}
    config = load_config(data)
    model = build(config.model, seed)
    assert isinstance(model, EncoderDecoder)
    draw = torch.Generator().manual_seed(3)

    def rows(n: int) -> list[list[int]]:
        lengths = torch.randint(1, 9, (n,), generator=draw).tolist()
        return [torch.randint(4, 40, (k,), generator=draw).tolist() for k in lengths]

    train, valid = ParallelData(rows(40), rows(40), 64), ParallelData(rows(8), rows(8), 64)
    return Trainer(config, model, train, valid, folder, Monitor(folder, quiet=True))


def biases(model: EncoderDecoder) -> list[Tensor]:
    return [r.bias for r in routers(model).values() if isinstance(r, SigmoidRouter)]


# -- the loss ----------------------------------------------------------------------------------------------


def test_what_parts_add_is_a_mean_beside_the_loss() -> None:
    """sum / count is the mean and what was added; the likelihood does not know of it."""
    loss = Loss(torch.tensor(6.0), 3, 5.5)
    more = loss.plus([torch.tensor(0.25), torch.tensor(0.5)])
    assert (more.mean, more.count, more.nll) == (2.75, 3, 5.5)
    assert loss.plus([]) is loss


def test_losses_of_loads_are_in_training_alone(tmp_path: Path) -> None:
    """The sum holds the cross-entropy and, for each layer with experts, its loss; evaluation has neither."""
    t = trainer(tmp_path, {"count": 4, "router": {"balance": 0.5, "z": 0.25}})
    plain = trainer(tmp_path, {"count": 4, "router": {"balance": 0.0}})
    batch = t.train_data.batch(range(6))
    objective = TokenLoss(t.config.objective)
    losses = [objective.loss(x.model.train(), batch) for x in (t, plain)]
    aux: list[Tensor] = []
    t.model.decode(batch.ids, batch.layout, t.model.encode(batch.source, batch.source_layout, aux), aux=aux)
    assert len(aux) == 4 and all(a.dim() == 0 and a > 0 for a in aux)
    torch.testing.assert_close(losses[0].sum, losses[1].sum + losses[0].count * sum(aux))
    assert losses[0].nll == losses[1].nll and losses[0].count == losses[1].count
    calm = [objective.loss(x.model.eval(), batch) for x in (t, plain)]
    assert torch.equal(calm[0].sum, calm[1].sum)
    assert float(dataset_loss(t.model, objective, t.valid_data, "fp32").sum) > 0


def test_a_step_adds_up_its_batches(tmp_path: Path) -> None:
    """Loads are of all micro-batches of the last step; probing leaves no trace in biases."""
    t = trainer(tmp_path, {"count": 4, "router": "sigmoid"})
    batches = [t.train_data.batch(range(i, i + 4)) for i in (0, 4)]
    t.probe()
    assert not any(b.any() for b in biases(t.model))
    tokens = {
        "encoder": sum(int(b.source_layout.real.sum()) for b in batches),
        "decoder": sum(int(b.layout.real.sum()) for b in batches),
    }
    before = copy.deepcopy(t.model)
    load: dict[str, Tensor] = {}
    with counting(routers(before), load):
        for batch in batches:
            t.objective.loss(before.train(), batch)
    t.step(batches)
    assert set(t.load) == {f"{side}.blocks.{i}" for side in tokens for i in (0, 1)}
    for name, n in t.load.items():
        assert n.sum() == 2 * tokens[name.split(".")[0]] and torch.equal(n, load[name])
    for (name, n), bias in zip(t.load.items(), biases(t.model), strict=True):
        assert torch.equal(bias, 0.001 * (n.float().mean() - n).sign()), name
        assert not bias.requires_grad


def test_loads_stand_in_the_metrics(tmp_path: Path) -> None:
    t = trainer(tmp_path, {"count": 4, "top_k": 1, "every": 2, "router": "softmax"})
    t.run()
    records = [r for r in read_metrics(tmp_path / "metrics.jsonl") if r["kind"] == "train"]
    assert len(records) == 6
    for record in records:
        assert set(record["experts"]) == {"encoder.blocks.1", "decoder.blocks.1"}
        for shares in record["experts"].values():
            assert len(shares) == 4 and sum(shares) == pytest.approx(1, abs=1e-3)


def test_capacity_is_of_training(tmp_path: Path) -> None:
    t = trainer(tmp_path, {"count": 4, "top_k": 1, "capacity": 0.3, "router": "softmax"})
    batch = t.train_data.batch(range(8))
    free = copy.deepcopy(t.model)
    for module in free.modules():
        if isinstance(module, Experts):
            module.capacity = None
    calm = [t.objective.loss(m.eval(), batch).nll for m in (t.model, free)]
    busy = [t.objective.loss(m.train(), batch).nll for m in (t.model, free)]
    assert calm[0] == calm[1] == busy[1] != busy[0]


def test_more_room_than_there_are_tokens(tmp_path: Path) -> None:
    """Whatever the capacity: nothing is computed of tokens that are not there."""
    trainers = [trainer(tmp_path / str(i), {"count": 4, "capacity": c}) for i, c in enumerate((None, 1e300))]
    losses = [t.objective.loss(t.model.train(), t.train_data.batch(range(8))).nll for t in trainers]
    assert losses[0] == losses[1]


# -- what is kept ------------------------------------------------------------------------------------------


def test_biases_are_saved_and_restored(tmp_path: Path) -> None:
    """In the trainer's state, and in the file of weights."""
    one = trainer(tmp_path, {"count": 4, "router": "sigmoid"})
    batches = [one.train_data.batch(range(i, i + 5)) for i in (0, 5, 10)]
    one.step(batches[:1])
    state = copy.deepcopy(one.state())
    one.step(batches[1:])
    other = trainer(tmp_path, {"count": 4, "router": "sigmoid"}, seed=2)
    other.restore(state)
    assert any(b.any() for b in biases(other.model))
    other.step(batches[1:])
    assert all(map(torch.equal, biases(one.model), biases(other.model)))
    assert all(map(torch.equal, one.model.parameters(), other.model.parameters()))
    path = tmp_path / "model.safetensors"
    save_weights(one.model, path, tokenizer="")
    fresh = build(one.config.model, seed=5)
    load_weights(fresh, path)
    assert isinstance(fresh, EncoderDecoder)
    assert all(map(torch.equal, biases(one.model), biases(fresh)))
    (verdict,) = verify(one.config.model, model=one.model, only=[7])
    assert verdict.status == "holds", verdict.seen


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experts", "where", "says"),
    [
        ({"count": 4, "top_k": 5}, "model.experts.top_k", "4 or fewer"),
        ({"count": 4, "top_k": 1}, "model.experts.top_k", "softmax"),
        ({"count": 4, "top_k": 1, "router": "sigmoid"}, "model.experts.top_k", "2 or more"),
        (
            {"count": 4, "top_k": 1, "router": {"kind": "softmax", "renormalise": True}},
            "model.experts.top_k",
            "2 or more",
        ),
        ({"count": 4, "every": 7}, "model.experts.every", "6 or less"),
        ({"count": 1}, "model.experts.count", "≥ 2"),
        ({"capacity": 0}, "model.experts.capacity", ""),
        ({"router": "hash"}, "model.experts.router.kind", "sigmoid"),
        ({"router": {"kind": "softmax", "scale": 2}}, "model.experts.router.scale", ""),
        ({"top": 2}, "model.experts.top", "top_k"),
    ],
)
def test_what_cannot_be_is_refused(experts: dict[str, Any], where: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        load_config({"model": {"experts": experts}})
    assert caught.value.where == where and says in caught.value.mend


def test_short_forms() -> None:
    config = load_config(
        {}, ["model.experts.count=4", "model.experts.top_k=2", "model.experts.router=sigmoid"]
    )
    experts = config.model.experts
    assert experts is not None and (experts.count, experts.top_k, experts.router.kind) == (4, 2, "sigmoid")
    assert ModelConfig.parse(config.model.dump()) == config.model
    assert load_config({"model": {"experts": None}}).model.experts is None
