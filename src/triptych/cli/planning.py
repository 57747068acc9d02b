"""From what stands on the command line to the configuration of a run; shared by `train` and `data show`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.cli.common import check_languages, existing, free_folder, sort_out
from triptych.errors import UserError

if TYPE_CHECKING:
    from triptych.config import RunConfig
    from triptych.training.tasks import Corpus

BUDGET = "15m"


@dataclass(frozen=True)
class Asked:
    """What a user asked for.

    Attributes:
        given: the settings that were given, as plain data, over those of a run to begin with.
        hand_set: they are a configuration or a preset: nothing else is chosen from the data.
        endless: nothing said how long to train.
    """

    given: dict[str, Any]
    hand_set: bool
    endless: bool

    def config(self) -> RunConfig:
        """The configuration, as far as it is known before the data are. Raises UserError."""
        from triptych.config import load_config
        from triptych.training.plan import settle

        return load_config(self.given if self.hand_set else settle(self.given))

    def fitted(self, corpus: Corpus[Any], config: RunConfig) -> RunConfig:
        """The configuration, with what is chosen from the data."""
        if self.hand_set:
            return config
        from triptych.config import load_config
        from triptych.training.plan import fill

        seconds = config.training.seconds or 3600.0
        return load_config(fill(self.given, corpus.count, corpus.bytes, seconds))


def asked(
    what: list[str], options: Mapping[str, Any], preset: str, source: Path | None, target: Path | None
) -> Asked:
    """Files, settings and options, later ones over earlier ones: preset, configuration, files, options,
    ``section.key=value``."""
    from triptych.config import merge, override
    from triptych.training.init import inherit
    from triptych.training.plan import embedding_kind, objective_kind

    files, settings = sort_out(what)
    given, hand_set = _files(files, source, target, preset)
    given = override(merge(given, options), settings)
    if not hand_set and objective_kind(given) == "classify":
        images = bool(files) and all(Path(file).is_dir() for file in files)
        if images or embedding_kind(given) == "patches":
            given = merge({"model": {"embedding": {"kind": "patches"}, "output": {"kind": "classes"}}}, given)
    training = given.get("training") or {}
    endless = isinstance(training, dict) and not any(map(training.get, ("steps", "epochs", "budget")))
    if endless:
        given = merge(given, {"training": {"budget": BUDGET}})
    return Asked(inherit(given), hand_set, endless)


def check(config: RunConfig) -> None:
    """What can be known to be wrong before the data are read."""
    from triptych.data.images import SUFFIXES
    from triptych.training.prepare import check_form

    translation = config.objective.kind == "translation"
    if config.data.aligned and not (translation or config.objective.kind == "embed"):
        mend = "name the files without --source and --target; pairs are for translation and embed"
        raise UserError(f"{config.objective.kind} learns from no aligned files", "data.aligned", mend)
    if config.data.fields and (translation or config.objective.kind == "embed"):
        from triptych.text.records import is_json

        files = (*config.data.train, *config.data.valid, *config.data.test)
        if config.data.aligned or not any(is_json(Path(file)) for file in files):
            what = "fields are the keys of JSON, and these files have none"
            raise UserError(
                what, "data.fields", "leave it out: the first two columns are read, or whole lines"
            )
    check_languages(config.text.source, config.text.target)
    if not config.data.train:
        mend = f"name files: triptych train FILE… --objective {config.objective.kind}"
        if translation:
            mend = "name a file of sentence pairs: triptych train pairs.tsv"
        raise UserError("no training data", "command line", mend)
    for path in (*config.data.train, *config.data.valid, *config.data.test):
        try:
            path.encode()
        except UnicodeEncodeError:
            what = "the name of this file is not UTF-8"
            raise UserError(what, ascii(path), "give it another name") from None
        if Path(path).suffix.lower() in SUFFIXES and Path(path).is_file():
            mend = "name the folder that holds a folder of images for each class, with --objective classify"
            raise UserError("this is an image", path, mend)
    folders = [path for path in config.data.train if Path(path).is_dir()]
    if folders and config.model.reads_ids and config.objective.kind not in ("causal", "masked", "denoise"):
        mend = "name a file in it, or add --resume to go on with a run"
        raise UserError("this is a folder, and files are needed", folders[0], mend)
    check_form(config)


def default_folder(config: RunConfig) -> Path:
    """A free folder in ``runs``, named after the first file, the objective and the languages."""
    stem = Path(config.data.train[0]).name.split(".")[0] or "run"
    kind = "" if config.objective.kind == "translation" else config.objective.kind
    named = (stem, kind, config.text.source, config.text.target)
    return free_folder(Path("runs") / "-".join(x for x in named if x))


def _files(
    files: list[str], source: Path | None, target: Path | None, preset: str
) -> tuple[dict[str, Any], bool]:
    """Preset, configuration and data files as plain settings; whether the settings were made by hand."""
    from triptych.config import merge, read_yaml
    from triptych.config import preset as preset_data

    given: dict[str, Any] = preset_data(preset) if preset else {}
    hand_set = bool(preset)
    if files and files[0].endswith((".yaml", ".yml")):
        given = merge(given, read_yaml(existing(Path(files[0]), "a configuration")))
        files, hand_set = files[1:], True
    for path in files:
        if (Path(path) / "config.yaml").is_file():
            raise UserError("this is the folder of a run", path, "add --resume to go on with it")
    if (source is None) != (target is None):
        raise UserError("one aligned file needs the other", "--source, --target", "give both")
    if source is not None and target is not None:
        if files:
            mend = "leave one of them out"
            raise UserError("give files of pairs or --source and --target, not both", "command line", mend)
        return merge(given, {"data": {"train": [str(source), str(target)], "aligned": True}}), hand_set
    return merge(given, {"data": {"train": files, "aligned": False}} if files else {}), hand_set


__all__ = ["BUDGET", "Asked", "asked", "check", "default_folder"]
