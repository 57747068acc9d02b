"""Settings: presets, parts, errors that name the nearest key, impossible combinations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from triptych.config import (
    PRESETS,
    DecodingConfig,
    ModelConfig,
    Part,
    RunConfig,
    Settings,
    choices,
    differences,
    load_config,
    parts,
    preset,
    to_yaml,
)
from triptych.config.objectives import objectives
from triptych.config.run import READ_BY
from triptych.errors import UserError
from triptych.model import build
from triptych.model.registry import part_of


def _refused(data: Any, *settings: str) -> UserError:
    with pytest.raises(UserError) as caught:
        load_config(data, settings)
    return caught.value


def _leaves(data: dict[str, Any], section: str = "") -> Iterator[tuple[str, str]]:
    """(section, key) of every key of a dumped configuration, sections themselves too."""
    for key, value in data.items():
        yield section, key
        if isinstance(value, dict):
            yield from _leaves(value, f"{section}.{key}".lstrip("."))


def _nest(section: str, key: str, value: Any) -> dict[str, Any]:
    """``{a: {b: {key: value}}}`` for section ``a.b``."""
    for name in [key, *reversed(section.split("."))] if section else [key]:
        value = {name: value}
    return value  # type: ignore[no-any-return]


KEYS = list(_leaves(RunConfig().dump()))


# -- presets and round trips


@pytest.mark.parametrize("name", PRESETS)
def test_presets_round_trip(name: str, tmp_path: Path) -> None:
    """As data, as JSON and as a YAML file; what is written is complete."""
    config = load_config(preset(name))
    assert RunConfig.parse(config.dump()) == config
    assert RunConfig.parse(json.loads(json.dumps(config.dump()))) == config
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    assert load_config(path) == config
    assert differences(load_config(path), config) == []
    assert {key for _, key in KEYS} - {"sinusoidal"} >= {"dim", "alpha", "warmup"}


def test_presets_are_copies() -> None:
    preset("small")["model"]["dim"] = 1
    assert preset("small")["model"]["dim"] != 1


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'transformer-base'"):
        preset("transformer-bas")
    with pytest.raises(UserError, match=r"known: .*small"):
        preset("zzz")


def test_defaults_are_the_papers_base_model() -> None:
    paper = load_config(preset("transformer-base")).model
    assert (
        ModelConfig(vocab=37000).dump() == ModelConfig.parse({**paper.dump(), "ffn": {"kind": "relu"}}).dump()
    )
    assert ModelConfig(vocab=37000).ffn_dim == paper.ffn_dim == 2048


@pytest.mark.parametrize(
    ("axis", "key"),
    [(parts.Position, "position"), (parts.Norm, "norm"), (parts.FeedForward, "ffn"), (parts.Mixer, "mixer")],
)
def test_parts_by_name(axis: type[Part], key: str) -> None:
    """Every registered choice, by its kind alone (where nothing else is needed) and by a mapping: the same
    settings, kept through YAML, carried out by a module."""
    assert len(choices(axis)) >= 1
    for kind, cls in choices(axis).items():
        needed = {name: 4 for name, field in cls.model_fields.items() if field.is_required()}
        stacks = getattr(cls, "stacks", ("causal", "bidirectional"))
        form: dict[str, Any] = {} if len(stacks) == 2 else {"form": "decoder", "types": 2}
        form |= {"form": "encoder"} if stacks == {"bidirectional"} else {}
        ways = ({"kind": kind, **needed} if needed else kind, {"kind": kind, **needed})
        short, long = (ModelConfig.parse({key: given, **form}) for given in ways)
        assert short == long and type(getattr(short, key)) is cls
        assert ModelConfig.parse(short.dump()) == short
        assert part_of(getattr(short, key)) is not None
        assert cls.__doc__, "a choice says what it is and where it is from"


def test_settings_of_a_choice_survive() -> None:
    """Also those that the axis does not have."""
    config = load_config({"model": {"attention": {"visible": {"kind": "window", "width": 7}}}})
    again = load_config({"model": config.model.dump()})
    assert again == config and again.model.attention.visible.dump() == {"kind": "window", "width": 7}


def test_a_part_without_kind_is_of_the_usual_one() -> None:
    model = ModelConfig.parse({"ffn": {"dim": 99}, "norm": {"placement": "pre"}, "heads": 4})
    assert (model.ffn.kind, model.ffn_dim, model.norm.kind, model.heads.count) == ("relu", 99, "layernorm", 4)


def test_constructors_refuse_in_the_same_words() -> None:
    for call, parse in (
        (lambda: ModelConfig(dimm=3), lambda: ModelConfig.parse({"dimm": 3})),
        (lambda: DecodingConfig(beam=0), lambda: DecodingConfig.parse({"beam": 0})),
        (lambda: parts.Rope(bas=3), lambda: parts.Rope.parse({"bas": 3})),
    ):
        with pytest.raises(UserError) as by_call:
            call()
        with pytest.raises(UserError) as by_data:
            parse()
        assert str(by_call.value) == str(by_data.value)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        RunConfig().model.dim = 3  # type: ignore[misc]


# -- unknown keys


@pytest.mark.parametrize(("section", "key"), [k for k in KEYS if len(k[1]) > 3 and k[1] != "kind"])
def test_a_misspelt_key_is_recognised(section: str, key: str) -> None:
    """Every key there is, with a letter too much: the error says where it is and what was meant."""
    wrong = key[:2] + "q" + key[2:]
    error = _refused(_nest(section, wrong, 1))
    assert error.where == f"{section}.{wrong}".lstrip(".")
    assert repr(wrong) in error.what
    assert f"did you mean {key!r} in section {section or 'top level'!r}?" in error.mend


@pytest.mark.parametrize(
    ("where", "meant", "home"),
    [
        ("model.label_smoothing", "label_smoothing", "objective"),
        ("training.warmup", "warmup", "training.schedule"),
        ("training.weight_decay", "weight_decay", "training.optimizer"),
        ("model.kv", "kv", "model.heads"),
        ("model.placement", "placement", "model.norm"),
        ("training.max_lenght", "max_length", "data' or 'decoding"),
        ("decoding.tokenizer", "tokenizer", "text"),
        ("lable_smoothing", "label_smoothing", "objective"),
        ("schedule", "schedule", "training"),
    ],
)
def test_a_key_in_the_wrong_section_is_sent_home(where: str, meant: str, home: str) -> None:
    section, _, key = where.rpartition(".")
    error = _refused(_nest(section, key, 1))
    assert error.where == where
    assert f"did you mean {meant!r} in section '{home}'?" in error.mend


def test_a_key_like_no_other_lists_the_section() -> None:
    error = _refused({"text": {"cleaning": {"zzzzzz": 1}}})
    assert error.mend == f"section 'text.cleaning' knows: {', '.join(RunConfig().text.cleaning.dump())}"


def test_an_unknown_kind_lists_the_known() -> None:
    error = _refused({"model": {"position": "roep"}})
    assert error.where == "model.position.kind" and "did you mean rope" in error.mend
    for kind in choices(parts.Position):
        assert kind in error.mend


def test_a_key_of_another_kind_is_refused() -> None:
    """A window has a width; everything has none."""
    error = _refused({"model": {"attention": {"visible": {"kind": "everything", "width": 3}}}})
    assert error.where == "model.attention.visible.width"


@pytest.mark.parametrize(
    ("data", "where"),
    [
        ({"model": {"dim": "wide"}}, "model.dim"),
        ({"model": {"dim": 0}}, "model.dim"),
        ({"model": {"dim": 2.5}}, "model.dim"),
        ({"model": {"dropout": 1.0}}, "model.dropout"),
        ({"model": {"heads": 0}}, "model.heads.count"),
        ({"model": {"position": ["rope"]}}, "model.position"),
        ({"model": {"position": {"kind": ["rope"]}}}, "model.position.kind"),
        ({"model": {"position": {"kind": None}}}, "model.position.kind"),
        ({"model": {"norm": {"placement": "middle"}}}, "model.norm.placement"),
        ({"model": {"attention": {"visible": {"kind": "window"}}}}, "model.attention.visible.width"),
        ({"model": 5}, "model"),
        ({"model": [1]}, "model"),
        ({"training": {"schedule": {"floor": 2}}}, "training.schedule.floor"),
        ({"training": {"budget": "soon"}}, "training.budget"),
        ({"training": {"budget": True}}, "training.budget"),
        ({"training": {"budget": -3}}, "training.budget"),
        ({"text": {"source": True}}, "text.source"),
        ({"decoding": {"top_p": 0}}, "decoding.top_p"),
        ({"objective": {"label_smoothing": -0.1}}, "objective.label_smoothing"),
        ({"data": {"train": 3}}, "data.train"),
        ({"model": {"dim": 10**30}}, "model.dim"),
        ({"model": {"layers": 10**9}}, "model.layers"),
        ({"model": {"encoder_layers": 10**9}}, "model.encoder_layers"),
        ({"model": {"dim": 2**20 - 1, "heads": 8, "position": "none"}}, "model.heads.count"),
        ({"training": {"seed": 2**63}}, "training.seed"),
        ({"training": {"optimizer": {"betas": [0.9, 1.0]}}}, "training.optimizer.betas.1"),
        ({"training": {"optimizer": {"betas": [-0.1, 0.9]}}}, "training.optimizer.betas.0"),
        ({"decoding": {"seed": 2**63}}, "decoding.seed"),
        ({"decoding": {"alpha": 21}}, "decoding.alpha"),
        ({"decoding": {"beam": 2**12 + 1}}, "decoding.beam"),
        ({"decoding": {"n_best": 2**31}}, "decoding.n_best"),
        ({"model": {"mixer": {"kind": "linear", "map": "favor", "features": 2**31}}}, "model.mixer.features"),
        ({"decoding": {"max_length": 2**20 + 1}}, "decoding.max_length"),
        ({"data": {3: 4}}, "data.3"),
        ({3: 4}, "3"),
        ({True: {}}, "True"),
    ],
)
def test_a_wrong_value_is_placed(data: Any, where: str) -> None:
    """In the user's words: the key, the value, never a traceback or a type of the library beneath."""
    error = _refused(data)
    assert error.where == where
    assert "pydantic" not in str(error) and "Config" not in str(error)


@pytest.mark.parametrize(
    ("setting", "what", "mend"),
    [
        ("model.dim=0", "0 does not fit", "give an integer > 0 and ≤ 1048576"),
        ("model.dim=wide", "'wide' does not fit", "give an integer > 0 and ≤ 1048576"),
        ("model.dim=true", "true does not fit", "give an integer > 0 and ≤ 1048576"),
        ("model.dim=null", "null does not fit", "give an integer > 0 and ≤ 1048576"),
        ("model.dim=2.5", "2.5 does not fit", "give an integer > 0 and ≤ 1048576"),
        ("model.scale_embedding=3", "3 does not fit", "give true or false"),
        ("model.attention.softcap=.inf", "inf does not fit", "give a number ≥ 0.1 and ≤ 10000 or null; sco"),
        ("model.position.base=1", "1 does not fit", "give a number > 1"),
        ("model.position={kind: t5, buckets: 5}", "5 does not fit", "an integer ≥ 4 and a multiple of 2"),
        ("model.ffn.dim=0", "0 does not fit", "an integer > 0 or null; inner width; 4 × model.dim when"),
        ("model.norm.placement=per", "'per' does not fit", "did you mean pre? known: post, pre, sandwich"),
        ("model.form=5", "5 does not fit", "known: encoder_decoder, decoder, encoder"),
        ("training.optimizer.betas=[0.9, 1]", "1 does not fit", "give a number ≥ 0 and < 1; two shares"),
        ("training.optimizer.betas=3", "3 does not fit", "give a list of a number ≥ 0 and < 1, a number"),
        ("data.train=[1]", "1 does not fit", "give text"),
        ("model.attention.visible=window", "needed and was not given", "give an integer > 0"),
        (
            "model.attention.visible=all",
            "needed",
            "a list of kinds of model.attention.visible: everything, w",
        ),
        ("model.embedding=factorised", "needed", "give an integer ≥ 4; width of the vectors"),
        ("model.experts=4", "4 stands where keys", "give its keys: count, top_k, dim, shared, every, capaci"),
        ("model.experts=4", "4 stands where keys", "such as model.experts.count=8"),
        ("text.vectors=a.vec", "'a.vec' stands", "give its keys: file, frozen; such as text.vectors.file=…"),
        ("model.attention=3", "3 stands", "such as model.attention.dropout=0.0"),
        ("model=5", "5 stands", "give its keys: form, vocab, dim"),
        ("modle.dim=3", "unknown section 'modle'", "did you mean model.dim?"),
        ("modle.dmi=3", "unknown section 'modle'", "did you mean 'model' in section 'top level'?"),
        ("modle=3", "unknown section 'modle'", "did you mean 'model' in section 'top level'?"),
        ("model.mixer=[lstm, 3]", "3 names no kind", "give one of: attention, lstm"),
        ("model.mixer=null", "null names no kind", "give one of: attention, lstm"),
        ("model.position=null", "null names no kind", "give one of: sinusoidal, learned"),
        ("model.position=ROPE", "unknown kind 'ROPE'", "did you mean rope"),
        ("model.DIM=3", "unknown key 'DIM'", "did you mean 'dim' in section 'model'?"),
        (
            "model.attention.visible.width=3",
            "unknown key 'width'",
            "everything has none; of these kinds it is a setting: window, dilated, axial, cells",
        ),
        ("model.position.max=3", "unknown key 'max'", "sinusoidal has none; of these kinds it is a sett"),
        ("model.attention.softcap=1e+300", "1e+300' does not fit", "a number ≥ 0.1 and ≤ 10000"),
        ("model.attention.softcap=1.0e+300", "1e+300 does not fit", "a number ≥ 0.1 and ≤ 10000"),
        ("model.norm.eps=1.0e+10", "10000000000.0 does not fit", "a number > 0 and ≤ 1; added"),
        ("model.norm={kind: rmsnorm, eps: 2}", "2 does not fit", "a number > 0 and ≤ 1; added"),
        ("model.embedding={kind: factorised, dim: 1}", "1 does not fit", "an integer ≥ 4; width"),
        ("model.mixer={kind: bottleneck, latents: 1}", "1 does not fit", "of one alone a token reads"),
        ("model.mixer={kind: linformer, rank: 1}", "1 does not fit", "of one alone a token reads"),
        ("model.dim=1" + 5000 * "0", "…", "give an integer > 0 and ≤ 1048576"),
    ],
)
def test_a_wrong_value_is_told_what_fits(setting: str, what: str, mend: str) -> None:
    """Type, bounds and meaning are those of the field; of a choice its names; of a section its keys."""
    error = _refused({}, setting)
    assert what in error.what and mend in error.mend


def _fields(cls: type[Settings], section: str) -> Iterator[tuple[type[Settings], str]]:
    """Every field of settings and of those within them, each by its class."""
    for name, field in cls.model_fields.items():
        yield cls, name
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Settings) and not issubclass(inner, Part):
            yield from _fields(inner, f"{section}.{name}")


PLACES = [
    *_fields(RunConfig, ""),
    *_fields(parts.Experts, ""),
    *(
        (choice, name)
        for axis in Part.__subclasses__()
        for choice in choices(axis).values()
        for name in choice.model_fields
    ),
]


@pytest.mark.parametrize(("cls", "name"), PLACES, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_every_wrong_value_has_a_mend(cls: type[Settings], name: str) -> None:
    """Whatever is no setting of a key: what fits is said, without a word of the library beneath."""
    for wrong in (object(), -(2**70), {"no": {"such": 1}}, "", [[]], float("nan")):
        try:
            cls.parse({name: wrong})
        except UserError as error:
            assert error.what and error.mend, (name, wrong)
            said = f"{error.what} {error.mend}"
            assert not re.search(r"Input should|Value error|pydantic|alidation", said), said


WIDE = {"attention": {"visible": {"kind": "window", "width": 10**20}}}
LATE = {"position": {"kind": "rope", "scaling": {"kind": "llama3", "factor": 2, "original": 10**400}}}


@pytest.mark.parametrize("model", [
    WIDE,
    LATE,
    {"position": {"kind": "sinusoidal", "offset": 10**20}},
    {"mixer": {"kind": "retrieval", "width": 2**31 + 1}},
    {"attention": {"visible": {"kind": "random", "size": 2**63}}},
    {"encoder_mixer": {"kind": "deformable", "width": 10**30}},
])  # fmt: skip
def test_an_integer_past_all_bounds_is_refused(model: dict[str, Any]) -> None:
    """In the same words wherever it stands: arithmetic with it would pass 64 bits."""
    error = _refused({"model": model})
    assert "does not fit: an integer is at most 2,147,483,648" in error.what and len(error.what) < 200
    assert error.mend.startswith("give an integer")


def test_the_largest_integers_are_taken() -> None:
    """And seeds, which are drawn from more."""
    most = {"kind": "random", "size": 2**31, "count": 2**31, "seed": 2**32 - 1}
    config = load_config({"model": {"attention": {"visible": most}}, "training": {"seed": 2**63 - 1}})
    assert config.model.attention.visible.dump() == most and config.training.seed == 2**63 - 1
    for number in (True, 2.0, "8"):  # pydantic's own conversions are left alone, but for truth values
        if number is True:
            _refused({"model": {"dim": number}})
        else:
            load_config({"model": {"dim": number, "heads": 1}})


def test_one_alone_is_a_list_of_one() -> None:
    for kind in ("any", "all"):
        model = ModelConfig.parse(
            {"attention": {"visible": {"kind": kind, "of": {"kind": "window", "width": 3}}}}
        )
        assert model.attention.visible.dump() == {"kind": kind, "of": [{"kind": "window", "width": 3}]}
        assert ModelConfig.parse({"attention": {"visible": {"kind": kind, "of": "everything"}}})


def test_how_long_a_sequence_may_be() -> None:
    """The least of what positions and mixers say, stack by stack, and by the keys that the user has."""
    short, long = {"kind": "linformer", "max": 30}, {"kind": "linformer", "max": 60}
    none = ModelConfig()
    assert none.limits() == {} and none.max_positions() is None
    model = ModelConfig.parse({"encoder_mixer": [long, short], "position": {"kind": "learned", "max": 50}})
    assert model.limits() == {"model.position.max": 50, "model.encoder_mixer.max": 30}
    assert (model.max_positions(), model.max_positions("encoder"), model.max_positions("decoder")) == (
        30,
        30,
        50,
    )
    alone = ModelConfig.parse({"form": "encoder", "mixer": long, "position": "none"})
    assert alone.limits() == {"model.mixer.max": 60} and alone.max_positions() == 60


def test_a_value_that_yaml_cannot_make_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("text: {source: 2020-13-45}\n")
    with pytest.raises(UserError, match="cannot be read") as caught:
        load_config(path)
    assert caught.value.where == str(path) and "quotes" in caught.value.mend
    assert load_config({}, ["text.source=2020-13-45"]).text.source == "2020-13-45"


def test_one_file_needs_no_list() -> None:
    data = load_config({"data": {"train": "a.tsv"}}, ["data.valid=b.tsv", "data.test=c.tsv"]).data
    assert (data.train, data.valid, data.test) == (("a.tsv",), ("b.tsv",), ("c.tsv",))


def test_empty_sections_are_defaults() -> None:
    """``training:`` with nothing under it is null in YAML."""
    assert load_config({"training": None, "model": {}}) == RunConfig()


# -- impossible combinations


@pytest.mark.parametrize(
    ("model", "where"),
    [
        ({"dim": 512, "heads": 7}, "model.heads.count"),
        ({"heads": {"count": 8, "kv": 3}}, "model.heads.kv"),
        ({"heads": {"count": 4, "kv": 8}}, "model.heads.kv"),
        ({"dim": 15, "heads": 5, "position": "rope"}, "model.position.kind"),
        ({"dim": 15, "heads": 5}, "model.dim"),
        ({"form": "decoder", "encoder_layers": 2}, "model.encoder_layers"),
        ({"form": "encoder", "decoder_layers": 2}, "model.decoder_layers"),
    ],
)
def test_impossible_models(model: dict[str, Any], where: str) -> None:
    error = _refused({"model": model})
    assert error.where == where and error.mend


@pytest.mark.parametrize(
    ("section", "where"),
    [
        ({"decoding": {"beam": 2, "n_best": 3}}, "decoding.n_best"),
        ({"decoding": {"strategy": "greedy", "n_best": 2}}, "decoding.n_best"),
        ({"decoding": {"min_length": 9, "max_length": 8}}, "decoding.min_length"),
        ({"training": {"steps": 9, "budget": "1m"}}, "training.budget"),
        ({"training": {"schedule": {"kind": "constant", "floor": 0.5}}}, "training.schedule.floor"),
        (
            {
                "model": {"form": "decoder"},
                "objective": {"kind": "causal", "segment": 64},
                "data": {"length": 64},
            },
            "objective.segment",
        ),
    ],
)
def test_impossible_runs(section: dict[str, Any], where: str) -> None:
    error = _refused(section)
    assert error.where == where and error.mend


OTHER_THAN_DEFAULT = {
    "fields": ["text"],
    "column": 2,
    "repair": True,
    "documents": "line",
    "packing": "stream",
    "max_length": 9,
    "source": "en",
    "target": "en",
    "cleaning": {"dedupe": False},
}


@pytest.mark.parametrize("kind", sorted(objectives()))
@pytest.mark.parametrize("key", sorted(OTHER_THAN_DEFAULT))
def test_what_an_objective_does_not_read_is_refused(key: str, kind: str) -> None:
    """Of the settings of the data, with the objectives that would read it."""
    section = "text" if f"text.{key}" in READ_BY else "data"
    kinds = READ_BY[f"{section}.{key}"]
    model = {"form": objectives()[kind].forms[0]}
    given = {"model": model, "objective": kind, section: {key: OTHER_THAN_DEFAULT[key]}}
    if kind in kinds:
        RunConfig.parse(given)
        return
    error = _refused(given)
    assert error.where == f"{section}.{key}" and all(other in error.mend for other in kinds)


def test_all_that_objectives_read_is_looked_at() -> None:
    assert sorted(OTHER_THAN_DEFAULT) == sorted(where.partition(".")[2] for where in READ_BY)


@given(st.integers(1, 200), st.integers(1, 64))
def test_the_mend_of_heads_works(dim: int, heads: int) -> None:
    """Whatever is advised loads."""
    try:
        ModelConfig.parse({"dim": dim * 2, "heads": heads})
    except UserError as error:
        advised = [int(n) for n in re.findall(r"\d+", error.mend)]
        assert advised and (dim * 2) % heads
        for n in advised:
            ModelConfig.parse({"dim": dim * 2, "heads": n})


def test_what_is_possible_is_built() -> None:
    """Head widths and key/value heads that only look odd; samples need no beam."""
    data = {"vocab": 9, "dim": 10, "layers": 1, "heads": {"count": 3, "kv": 1, "dim": 4}, "position": "rope"}
    build(ModelConfig.parse(data))
    DecodingConfig(strategy="sample", n_best=9, beam=1)


@pytest.mark.parametrize("form", ["encoder_decoder", "decoder", "encoder"])
def test_depths(form: str) -> None:
    """``layers`` sets both stacks, and each can be set alone; a form has no other stack."""
    own = {"encoder_layers": 5} if form != "decoder" else {}
    own |= {"decoder_layers": 2} if form != "encoder" else {}
    both, each = (ModelConfig.parse({"form": form, "layers": 3, **more}) for more in ({}, own))
    encoder, decoder = form != "decoder", form != "encoder"
    assert (both.encoder_depth, both.decoder_depth) == (3 * encoder, 3 * decoder)
    assert (each.encoder_depth, each.decoder_depth) == (5 * encoder, 2 * decoder)
