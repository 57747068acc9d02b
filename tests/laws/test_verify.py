"""``verify`` as a caller meets it."""

from __future__ import annotations

import copy
import json

import pytest
import torch

from triptych.config import ModelConfig, preset
from triptych.errors import UserError
from triptych.insight.laws import LAWS, learning, reduced, table, verify
from triptych.insight.laws.learning import by_heart, distinct
from triptych.insight.laws.reduced import LARGE, smaller
from triptych.insight.laws.subject import Subject
from triptych.insight.laws.verdict import close, distance
from triptych.model import build, cost

TINY = {"dim": 16, "layers": 1, "heads": 2, "vocab": 30, "dropout": 0.1}


def test_a_given_model_comes_back_unchanged() -> None:
    config = ModelConfig.parse(TINY)
    model = build(config, seed=3).train()
    model.requires_grad_(True)
    before, random = copy.deepcopy(model), torch.get_rng_state()
    verdicts = {v.number: v for v in verify(config, model=model)}
    assert model.training and torch.equal(torch.get_rng_state(), random)
    assert all(p.dtype == torch.float32 and p.grad is None for p in model.parameters())
    for (name, p), (other, q) in zip(model.named_parameters(), before.named_parameters(), strict=True):
        assert name == other and torch.equal(p, q)
    assert model.output.weight is model.target_embedding.weight  # type: ignore[union-attr]
    assert verdicts[11].status == "skipped" and "given" in verdicts[11].seen
    assert not [v for v in verdicts.values() if v.status == "broken"]


@pytest.mark.parametrize("form", ["encoder_decoder", "decoder", "encoder"])
def test_laws_hold_after_training(form: str) -> None:
    config = ModelConfig.parse({**TINY, "form": form, "position": "rope"})
    model = build(config, seed=3)
    subject = Subject(config, model, seed=2)
    mean, _ = by_heart(subject, model, distinct(subject, 30), rate=1e-2, steps=150)
    assert mean < 0.1
    broken = [v for v in verify(config, model=model) if v.status == "broken"]
    assert not broken, table(broken)


def test_a_large_given_model_learns_a_small_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (learning, reduced):
        monkeypatch.setattr(module, "LARGE", 8_000)
    config = ModelConfig.parse({**TINY, "layers": 3, "vocab": 60, "form": "encoder"})
    assert cost(config).parameters > 8_000
    (verdict,) = verify(config, model=build(config, seed=0), only=[12])
    assert verdict.status == "holds" and "a fresh model of these settings with 2 of 3 layers" in verdict.seen


def test_a_fault_in_a_given_model_is_found() -> None:
    config = ModelConfig.parse(TINY)
    model = build(config, seed=3)
    model.output.weight = torch.nn.Parameter(model.output.weight.detach().clone())
    found = {v.number for v in verify(config, model=model, only=[1, 7, 17]) if v.status == "broken"}
    assert found == {7, 17}


def test_the_same_seed_sees_the_same() -> None:
    config = ModelConfig.parse({**TINY, "form": "decoder"})
    one, other = (verify(config, seed=5, only=[1, 4, 8, 18]) for _ in range(2))
    assert [v.seen for v in one] == [v.seen for v in other]
    # A law sees the same alone as among others.
    assert verify(config, seed=5, only=[18])[0].seen == one[-1].seen


def test_the_vocabulary_may_be_open() -> None:
    config = ModelConfig.parse({**TINY, "vocab": 0})
    assert [v.status for v in verify(config, only=[1, 17])] == ["holds", "holds"]


def test_verdicts_are_plain_data_and_text() -> None:
    config = ModelConfig.parse({**TINY, "form": "encoder"})
    model = build(config, seed=0)
    torch.nn.init.normal_(model.output.weight, std=0.02)
    model.output = torch.nn.Linear(16, 30, bias=False)
    verdicts = verify(config, model=model, only=[1, 2, 7])
    plain = json.loads(json.dumps([v.to_dict() for v in verdicts]))
    assert [p["status"] for p in plain] == ["skipped", "holds", "broken"]
    text = table(verdicts)
    assert "BROKEN" in text and "likely cause: two maps" in text and "look in: src/triptych/model/" in text
    assert text.endswith("1 hold, 1 broken, 1 skipped")
    assert all(v.seen and v.name in text for v in verdicts)


def test_a_crash_is_a_broken_law_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    from triptych.model.feedforward import Plain

    def fails(self: object, h: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(Plain, "act", fails)
    (verdict,) = verify(ModelConfig.parse(TINY), only=[1])
    assert verdict.status == "broken" and "no such kernel" in verdict.seen
    assert verdict.place.startswith("src/triptych/model/feedforward.py:")


@pytest.mark.parametrize(
    ("change", "only", "words"),
    [
        ({}, [99], "no law 99"),
        ({"vocab": 6}, None, "vocabulary of 6"),
        ({"position": {"kind": "learned", "max": 5}}, None, "5 positions"),
    ],
)
def test_what_cannot_be_checked_is_said(
    change: dict[str, object], only: list[int] | None, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        verify(ModelConfig.parse({**TINY, **change}), only=only)


@pytest.mark.parametrize("name", ["transformer-base", "transformer-big", "student"])
def test_large_models_are_made_smaller_and_say_so(name: str) -> None:
    data = {"vocab": 16000, **preset(name)["model"]}
    config = ModelConfig.parse(data)
    assert cost(config).parameters > LARGE
    small, notes = smaller(config)
    # transformer-big stays a little above with one layer a stack: there is nothing left to take away.
    assert cost(small).parameters < 2 * LARGE
    assert notes and all(" of " in note for note in notes)
    assert small.dim == config.dim and small.ffn == config.ffn and small.heads == config.heads


def test_wide_windows_are_made_narrow() -> None:
    config = ModelConfig.parse(
        {**TINY, "form": "decoder", "attention": {"visible": {"kind": "window", "width": 500}}}
    )
    model = build(config, seed=0)
    subject = Subject(config, model, 0)
    assert "window width 4, not 500" in subject.reduced
    verdicts = verify(config, model=model, only=[1, 4, 13])
    assert [v.status for v in verdicts] == ["holds"] * 3
    assert subject.model is not model and "Window(width=500)" in repr(model.decoder.visible)  # type: ignore[union-attr]


def test_distances_are_relative_and_never_hide_nan() -> None:
    big = torch.tensor([1e6])
    assert distance(big + 1, big) == pytest.approx(1e-6)
    assert distance(torch.tensor([1e-3]), torch.tensor([0.0])) == pytest.approx(1e-3)
    assert not close("", torch.tensor([float("nan")]), torch.tensor([0.0])).holds
    assert not close("", torch.zeros(2), torch.zeros(3)).holds
    assert not close("", [torch.zeros(2)], [torch.zeros(2)] * 2).holds
    assert LAWS.keys() == set(range(1, 20))
