"""Configurations as users give them: YAML files, overrides, lengths of time; and what differs between two."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.config import differences, duration, load_config, merge, override, parts, read_yaml
from triptych.errors import UserError


def _refused(data: Any, *settings: str) -> UserError:
    with pytest.raises(UserError) as caught:
        load_config(data, settings)
    return caught.value


# -- overrides and merging


def test_overrides_are_read_as_yaml() -> None:
    settings = ["model.dim=256", "training.schedule.peak=1e-3", "text.source=de", "data.train=[a.tsv, b.tsv]"]
    settings += [
        "data.aligned=true",
        "training.budget=90s",
        "model.position=rope",
        "decoding.max_length=null",
    ]
    config = load_config({}, settings)
    assert (config.model.dim, config.training.schedule.peak, config.text.source) == (256, 1e-3, "de")
    assert config.data.train == ("a.tsv", "b.tsv") and config.data.aligned
    assert config.training.seconds == 90 and config.model.position.kind == "rope"
    assert config.decoding.max_length is None


def test_later_overrides_win_and_data_is_left_alone() -> None:
    data: dict[str, Any] = {"model": {"ffn": {"dim": 8}}}
    assert override(data, ["model.ffn.dim=16", "model.ffn.dim=32"]) == {"model": {"ffn": {"dim": 32}}}
    assert data == {"model": {"ffn": {"dim": 8}}}


@pytest.mark.parametrize(
    ("data", "setting", "heads"),
    [
        ({"heads": 4}, "model.heads.kv=2", (4, 2)),
        ({"heads": {"count": 4}}, "model.heads.kv=2", (4, 2)),
        ({"heads": {"count": 4, "kv": 2}}, "model.heads=8", (8, 8)),
        ({}, "model.heads.count=4", (4, 4)),
    ],
)
def test_the_short_form_of_heads_takes_overrides(
    data: dict[str, Any], setting: str, heads: tuple[int, int]
) -> None:
    model = load_config({"model": data}, [setting]).model
    assert (model.heads.count, model.kv_heads) == heads


def test_another_kind_drops_the_settings_of_the_old() -> None:
    data = {"model": {"position": {"kind": "learned", "max": 64}, "norm": {"kind": "layernorm", "eps": 1e-3}}}
    data["model"]["norm"]["placement"] = "pre"
    config = load_config(data, ["model.position.kind=rope", "model.norm.kind=rmsnorm"])
    assert config.model.position == parts.Rope()
    assert config.model.norm == parts.RMSNorm(placement="pre"), "where a norm stands is of every kind"
    assert load_config(
        {"model": {"position": "learned"}}, ["model.position.max=9"]
    ).model.position == parts.Learned(max=9)


KINDS = {
    "training.schedule": "linear",
    "training.optimizer": "adam",
    "text.tokenizer": "char",
    "objective": "translation",
    "model.position": "learned",
    "model.norm": "rmsnorm",
}


@pytest.mark.parametrize("section", KINDS)
def test_the_kind_alone_is_short_for_it(section: str) -> None:
    short, long = (load_config({}, [f"{section}{key}={KINDS[section]}"]) for key in ("", ".kind"))
    assert short == long
    *outer, last = section.split(".")
    data: Any = {last: KINDS[section]}
    assert load_config({outer[0]: data} if outer else data) == long


def test_the_short_form_keeps_what_the_long_one_keeps() -> None:
    """The same kind: its settings stay; another: only what every kind has."""
    base = {"training": {"schedule": {"kind": "linear", "peak": 2e-3}}}
    base["model"] = {"norm": {"kind": "layernorm", "placement": "pre", "eps": 1e-3}}
    assert load_config(base, ["training.schedule=linear"]).training.schedule.peak == 2e-3
    assert load_config(base, ["model.norm=rmsnorm"]).model.norm == parts.RMSNorm(placement="pre")
    assert merge(base, {"training": {"schedule": "linear"}}) == base
    assert merge(base, {"training": {"schedule": "cosine"}})["training"] == {"schedule": {"kind": "cosine"}}


def test_an_unknown_kind_alone() -> None:
    error = _refused({}, "training.schedule=linea")
    assert error.where == "training.schedule.kind" and "'linea'" in error.what
    assert error.mend.startswith("did you mean linear")


def test_merge() -> None:
    base = {"model": {"dim": 8, "position": {"kind": "learned", "max": 9}}, "data": {"tokens": 5}}
    over = {"model": {"position": {"kind": "rope"}, "layers": 2}, "text": {"source": "en"}}
    merged = merge(base, over)
    assert merged == {
        "model": {"dim": 8, "position": {"kind": "rope"}, "layers": 2},
        "data": {"tokens": 5},
        "text": {"source": "en"},
    }
    assert merge(base, {"model": {"position": {"max": 3}}})["model"]["position"] == {
        "kind": "learned",
        "max": 3,
    }
    assert base["model"]["position"] == {"kind": "learned", "max": 9}
    assert merge(base, {}) == base and merge({}, base) == base


@pytest.mark.parametrize("setting", ["model.dim", "=3", "model.=3", ""])
def test_what_is_no_setting_is_refused(setting: str) -> None:
    with pytest.raises(UserError) as caught:
        override({}, [setting])
    assert caught.value.where == "command line"


def test_a_misspelt_override_is_recognised() -> None:
    error = _refused({}, "training.schedule.warmpu=3")
    assert error.where == "training.schedule.warmpu" and "'warmup'" in error.mend


# -- files


def _file(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    return path


def test_yaml_files(tmp_path: Path) -> None:
    assert read_yaml(_file(tmp_path, b"")) == {} == read_yaml(_file(tmp_path, b"# nothing\n"))
    with_bom = _file(tmp_path, "\ufeffmodel: {dim: 64}\r\ntext: {source: zh}\r\n".encode())
    assert load_config(with_bom).model.dim == 64


@pytest.mark.parametrize(
    ("content", "where", "what"),
    [
        (b"model:\n  dim: [1\n", ":3", "not YAML"),
        (b"model: {dim: \xff}", "", "not UTF-8"),
        (b"- a\n- b\n", "", "mapping"),
        (b"a: !!python/object/apply:os.getcwd []\n", ":1", "not YAML"),
    ],
)
def test_bad_yaml_is_placed(tmp_path: Path, content: bytes, where: str, what: str) -> None:
    path = _file(tmp_path, content)
    with pytest.raises(UserError, match=what) as caught:
        read_yaml(path)
    assert caught.value.where == f"{path}{where}"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"model: {dim: 64}\ntext: {source: en}\nmodel: {layers: 2}\n", 3),
        (b"model:\n  dim: 64\n  layers: 2\n  dim: 32\n", 4),
        (b'model: {dim: 64, "dim": 32}\n', 1),
    ],
)
def test_a_key_given_twice_is_refused(tmp_path: Path, content: bytes, line: int) -> None:
    path = _file(tmp_path, content)
    with pytest.raises(UserError, match=r"is given twice, first in line [12]") as caught:
        read_yaml(path)
    assert caught.value.where == f"{path}:{line}"


def test_anchors_and_merge_keys_are_no_duplicates(tmp_path: Path) -> None:
    content = b"model:\n  norm: &n {kind: rmsnorm, eps: 1.0e-3}\n  encoder_layers: 1\n"
    content += (
        b"text: {tokenizer: &t {kind: char, size: 99}}\ndata: {<<: {tokens: 3, max_length: 4}, tokens: 5}\n"
    )
    data = read_yaml(_file(tmp_path, content))
    assert data["data"] == {"tokens": 5, "max_length": 4}


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    deep = "[" * 2000 + "]" * 2000
    path = _file(tmp_path, f"model: {deep}".encode())
    with pytest.raises(UserError, match="nested too deep") as caught:
        load_config(path)
    assert caught.value.where == str(path)
    assert _refused({}, f"model.dim={deep}").where == "model.dim"


def test_a_path_may_be_a_str(tmp_path: Path) -> None:
    assert load_config(str(_file(tmp_path, b"model: {dim: 64}"))).model.dim == 64


def test_an_error_names_the_file_that_is_at_fault(tmp_path: Path) -> None:
    path = _file(tmp_path, b"model: {dims: 64}")
    assert _refused(path).where == f"{path}: model.dims"
    assert _refused(path, "model.layers=2").where == f"{path}: model.dims"
    path = _file(tmp_path, b"modle: {dim: 64}")
    assert _refused(path).where == f"{path}: modle"
    path = _file(tmp_path, b"model: {dim: 64}")
    assert _refused(path, "model.dims=2").where == "model.dims", "the file is sound"


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_yaml(tmp_path / "none.yaml")


@pytest.mark.parametrize("code", ["no", "NO", "No"])
def test_norwegian_is_a_language(tmp_path: Path, code: str) -> None:
    """Unquoted, YAML reads the code as false."""
    assert load_config(_file(tmp_path, f"text: {{target: {code}}}".encode())).text.target == "no"
    assert load_config({}, [f"text.source={code}"]).text.source == "no"


# -- differences


def test_differences() -> None:
    old = load_config({"model": {"position": {"kind": "learned", "max": 9}}})
    new = load_config({"model": {"position": "shaw", "dim": 256}, "text": {"source": "de"}})
    assert sorted(differences(old, new), key=lambda d: d[0]) == [
        ("model.dim", 512, 256),
        ("model.position.clip", None, 16),
        ("model.position.kind", "learned", "shaw"),
        ("model.position.max", 9, None),
        ("text.source", "", "de"),
    ]
    assert differences(new, new) == []


# -- lengths of time


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 500), st.integers(1, 500), st.booleans())
def test_durations_add(days: int, hours: int, minutes: int, seconds: int, upper: bool) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s"
    assert (
        duration(text.upper() if upper else text, "x") == ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("1h30m", 5400),
        ("90", 90),
        ("0.5h", 1800),
        (" 1.5m ", 90),
        (".5s", 0.5),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text, "x") == seconds
    assert load_config({"training": {"budget": text}}).training.seconds == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "s",
        "h2",
        "5x",
        "1h30",
        "1.2.3s",
        ".s",
        "0",
        "0s",
        "-5s",
        "1 0s",
        "inf",
        "nan",
        "²s",
        "9" * 400,
    ],
)
def test_bad_durations(text: str) -> None:
    with pytest.raises(UserError) as caught:
        duration(text, "training.budget")
    assert caught.value.where == "training.budget" and "15m" in caught.value.mend


@given(st.text(max_size=8))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with contextlib.suppress(UserError):
        assert 0 < duration(text, "x") < float("inf")


def test_a_bare_number_of_seconds_needs_no_quotes() -> None:
    assert load_config({"training": {"budget": 90}}).training.seconds == 90
    assert load_config({}, ["training.budget=90"]).training.seconds == 90
