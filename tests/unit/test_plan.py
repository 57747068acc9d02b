"""Settings chosen where the user has set none fit those that are set."""

from __future__ import annotations

from typing import Any

import pytest

from triptych.config import RunConfig, load_config
from triptych.errors import UserError
from triptych.training.plan import Facts, fill, settle


@pytest.mark.parametrize(
    ("model", "position"),
    [
        ({}, "rope"),
        ({"mixer": "lstm"}, "sinusoidal"),
        ({"decoder_mixer": "conv"}, "sinusoidal"),
        ({"mixer": ["gru", "attention"]}, "rope"),
        ({"mixer": "bahdanau", "position": "none"}, "none"),
    ],
)
def test_rotary_positions_only_where_they_can_act(model: dict[str, Any], position: str) -> None:
    filled = fill({"model": model}, pairs=300, size=6000, seconds=20.0)
    assert RunConfig.parse(filled).model.position.kind == position


def planned(seconds: float = 3600.0, **given: Any) -> RunConfig:
    return RunConfig.parse(settle(given, Facts(300, 18000, seconds, 5e11)))


def test_layers_that_are_given_are_the_layers() -> None:
    model = planned(model={"layers": 5}).model
    assert (model.encoder_depth, model.decoder_depth) == (5, 5)
    model = planned(model={"encoder_layers": 5}).model
    assert (model.encoder_depth, model.decoder_depth) == (5, 2)
    assert planned(model={"form": "decoder"}).model.form == "decoder"


@pytest.mark.parametrize(("dim", "heads"), [(512, 8), (100, 2), (64, 2), (30, 1), (200, 2)])
def test_a_width_that_is_given_sets_what_depends_on_it(dim: int, heads: int) -> None:
    config = planned(model={"dim": dim})
    assert config.model.heads.count == heads
    assert getattr(config.model.ffn, "dim", None) == 4 * dim
    assert config.training.schedule.peak == pytest.approx(2e-3 * (256 / dim) ** 0.5)


def test_steps_that_are_given_set_the_warm_up_and_the_passes() -> None:
    config = planned(training={"steps": 300})
    assert config.training.schedule.warmup == 25
    assert planned(training={"steps": 5}).training.schedule.warmup == 5
    few, many = planned(training={"steps": 2}), planned(training={"steps": 5000})
    assert few.model.dropout == 0.1 and many.model.dropout == 0.3


def test_the_peak_of_noam_is_a_factor() -> None:
    assert planned(training={"schedule": {"kind": "noam"}}).training.schedule.peak == 1.0
    assert load_config({}, ["training.schedule.kind=noam"]).training.schedule.peak == 1.0
    own = load_config({}, ["training.schedule.kind=noam", "training.schedule.peak=2"])
    assert own.training.schedule.peak == 2.0


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"model": {"dim": "wide"}}, "model.dim"),
        ({"model": {"dim": 10**9}}, "model.dim"),
        ({"model": {"layers": 10**9}}, "model.layers"),
        ({"model": 5}, "model"),
        ({"data": {"tokens": "x"}}, "data.tokens"),
        ({"training": {"schedule": {"kind": "x"}}}, "training.schedule.kind"),
        ({"training": {"steps": -1}}, "training.steps"),
    ],
)
def test_what_cannot_be_is_refused_by_its_own_key(given: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError) as refusal:
        planned(**given)
    assert refusal.value.where == key


def labelled(kind: str, texts: int, **given: Any) -> RunConfig:
    return RunConfig.parse(
        settle({"objective": {"kind": kind}, **given}, Facts(texts, 100 * texts, 600.0, 2e11))
    )


def test_few_labels_are_learned_by_a_small_model_that_sees_half() -> None:
    few, many = labelled("classify", 7000), labelled("classify", 70_000)
    assert few.objective.word_dropout == few.model.dropout == 0.5 and few.training.keep == 8  # type: ignore[attr-defined]
    assert many.objective.word_dropout == 0 and many.model.dim > few.model.dim  # type: ignore[attr-defined]
    begun = labelled("classify", 7000, training={"init": "run"})
    assert begun.objective.word_dropout == 0 and begun.model.dropout < 0.5  # type: ignore[attr-defined]
    own = labelled("classify", 7000, model={"dropout": 0.1})
    assert own.model.dropout == 0.1


def test_few_labels_move_the_weights_as_far_in_any_time() -> None:
    def way(steps: int) -> float:
        return steps * labelled("classify", 7000, training={"steps": steps}).training.schedule.peak

    assert way(3000) == pytest.approx(way(12_000)) and way(300) < way(3000) / 2


@pytest.mark.parametrize(("kind", "most"), [("classify", 60), ("causal", 20), ("tag", None)])
def test_passes_that_are_of_no_use_are_not_made(kind: str, most: float | None) -> None:
    assert labelled(kind, 7000).training.epochs == most
    assert labelled(kind, 7000, training={"epochs": 3}).training.epochs == 3
    assert labelled(kind, 7000, training={"epochs": None}).training.epochs is None
    assert labelled(kind, 7000, training={"steps": 100}).training.epochs is None


@pytest.mark.parametrize(
    ("kind", "form", "prefix"),
    [
        ("tag", "encoder", True),
        ("classify", "decoder", True),
        ("masked", "encoder", True),
        ("causal", "decoder", False),
        ("translation", "encoder_decoder", True),
    ],
)
def test_words_read_one_by_one_are_those_of_the_text(kind: str, form: str, prefix: bool) -> None:
    config = labelled(kind, 7000, model={"form": form})
    assert config.text.tokenizer.dummy_prefix is prefix


@pytest.mark.parametrize("kind", ["classify", "causal"])
@pytest.mark.parametrize("texts", [20, 300, 7000])
@pytest.mark.parametrize("seconds", [30.0, 600.0])
def test_the_rate_rises_and_falls_within_the_run(kind: str, texts: int, seconds: float) -> None:
    """Whatever ends it; and the way of the weights is long enough, however few the examples are."""
    facts = Facts(texts, 100 * texts, seconds, 2e11)
    training = RunConfig.parse(settle({"objective": {"kind": kind}}, facts)).training
    assert training.epochs is not None
    a_pass = max(1.0, 100 * texts / 4 / 2048)
    steps = training.epochs * a_pass
    assert steps >= 1000 and training.schedule.warmup <= max(20, steps / 10)
    if kind == "classify":
        assert min(steps, seconds / 0.02) * training.schedule.peak >= 0.7


@pytest.mark.parametrize("images", [20, 2000, 200_000])
def test_images_are_moved_and_read_at_places(images: int) -> None:
    """And larger models are for more of them; nothing is chosen that is of texts."""
    given = {"objective": "classify", "model": {"embedding": "patches", "output": "classes"}}
    made = settle(given, Facts(images, 0, 900.0, 1e11))
    assert "text" not in made and made["data"]["shift"] == 0.125
    config = load_config(made)
    assert config.model.form == "encoder" and config.model.position.kind == "sinusoidal"
    assert config.model.pool == "mean" and not config.model.reads_ids and config.training.epochs
    small = load_config(settle(given, Facts(20, 0, 900.0, 1e11))).model.dim
    assert (config.model.dim > small) == (images > 20)
