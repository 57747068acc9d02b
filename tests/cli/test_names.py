"""Names on the command line: files, presets, settings and languages that are not what they should be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.conftest import Cli
from triptych.cli.common import check_languages, check_writable
from triptych.config.load import standing
from triptych.errors import UserError

LONG = "x" * 300


def refused(done: object, *words: str) -> None:
    assert done.returncode == 2, (done.returncode, done.stderr)  # type: ignore[attr-defined]
    for word in words:
        assert word in done.stderr, (word, done.stderr)  # type: ignore[attr-defined]


def test_names_that_no_file_can_have(here: Cli, tmp_path: Path) -> None:
    assert here("config", "small", f"text.source={LONG}").returncode == 0
    refused(here("config", LONG), "there is no such")
    refused(here("verify", f"{LONG}.yaml"), "there is no such file")
    refused(here("translate", LONG), "this is no run folder")
    refused(here("translate", ".", LONG), "there is no such file")
    assert standing(tmp_path / LONG) == standing(Path("a\0b")) == ""
    assert (standing(tmp_path), standing(Path(__file__))) == ("folder", "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(here: Cli, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o000)
    refused(here("config", "locked/c.yaml"), "locked/c.yaml", "cannot be read")


def test_a_refusal_of_the_system_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", denied)
    with pytest.raises(UserError, match="cannot be read: Permission denied"):
        standing(Path("x"))


def test_words_too_many_are_refused(here: Cli) -> None:
    refused(here("config", "small", "model.dim"), "'model.dim'", "section.key=value")
    refused(here("config", "small", "student"), "'student'", "'small'")
    refused(here("verify", "small", "student"), "'student'", "'small'")


def test_an_unknown_name_is_called_as_given(here: Cli, tmp_path: Path) -> None:
    done = here("config", "nosuch.yaml")
    refused(done, "nosuch.yaml: there is no such file")
    assert "--preset" not in done.stderr
    refused(here("verify", "smal"), "smal: there is no such run", "did you mean 'small'")
    (tmp_path / "mine.yaml").write_text("")
    refused(here("config", "mime.yaml"), "did you mean 'mine.yaml'")


def test_a_run_is_a_configuration(here: Cli, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    refused(here("config", "run"), "this is no run folder")
    (tmp_path / "run" / "config.yaml").write_text("model: {dim: 72}\n")
    assert "dim: 72" in here("config", "run").stdout


def test_where_output_goes_is_looked_at_first(here: Cli, tmp_path: Path) -> None:
    """Before the run, which does not exist either."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "in.txt").write_text("x\n")
    refused(here("translate", "norun", "in.txt", "--out", "nofolder/o.txt"), "nofolder/o.txt", "no folder")
    refused(here("translate", "norun", "in.txt", "--out", "folder"), "folder: this is a folder")
    refused(here("translate", "norun", "in.txt", "--out", "in.txt/o.txt"), "in.txt/o.txt")
    refused(here("translate", "norun", "in.txt", "--out", "o.txt"), "norun")
    check_writable(Path("/dev/null"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_where_nothing_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "ro").mkdir(mode=0o500)
    with pytest.raises(UserError, match="may not be written"):
        check_writable(tmp_path / "ro" / "o.txt")


@pytest.mark.parametrize(
    ("source", "target"), [("en", "EN"), ("pt_BR", "pt-br"), ("en/../..", "de"), ("en", "d e"), ("en", "..")]
)
def test_languages_that_are_none(source: str, target: str) -> None:
    with pytest.raises(UserError):
        check_languages(source, target)


def test_unusual_languages_are_let_through_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    for source, target in (("en", "en-corrected"), ("", ""), ("", "de"), ("zh-Hant", "yue"), ("EN", "pt_BR")):
        check_languages(source, target)
    assert capsys.readouterr().err == ""
    check_languages("en", "Deutsch")
    assert "warning: --to Deutsch" in capsys.readouterr().err


def test_a_width_too_small_for_the_laws(here: Cli) -> None:
    refused(here("verify", "small", "model.dim=1", "model.heads=1", "model.position=learned"), "model.dim")
    refused(here("verify", "small", "model.dim=4", "model.heads=1"), "model.dim", "at least 8")
