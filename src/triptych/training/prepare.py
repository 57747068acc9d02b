"""Everything before training: the tokenizer, the complete configuration, the encoded data.

corpus ─ tokenizer ─ what the data decide ─ Dataset ─ what follows from it ─ RUN/config.yaml
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from triptych.config import RunConfig, merge, to_yaml
from triptych.config.objectives import objectives
from triptych.config.parts import CoAttentionMixer
from triptych.data import Dataset
from triptych.engine import read_json
from triptych.engine.bundle import CONFIG, TOKENIZER, fingerprint, read_tokenizer
from triptych.errors import UserError
from triptych.text import Tokenizer, write_text_atomic
from triptych.training.init import Start
from triptych.training.machine import choose_precision
from triptych.training.tasks import Corpus, Say, Task, silent, task

DATA = "data.json"


@dataclass(frozen=True)
class Prepared:
    """A run before training: its settings, tokenizer and encoded data."""

    config: RunConfig
    tokenizer: Tokenizer | None
    train: Dataset
    valid: Dataset


def prepare(config: RunConfig, corpus: Corpus[Any], folder: Path, say: Say) -> Prepared:
    """Everything before training, in a folder of its own."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return made(task(config), config, corpus, folder, say, device, Start.of(config))


def reopened(
    road: Task[Any],
    config: RunConfig,
    corpus: Corpus[Any],
    folder: Path,
) -> Prepared:
    """What a run was begun with."""
    known = read_json(folder / DATA)
    if known.get("digest") != corpus.digest:
        what = "the data are not those the run was begun with"
        raise UserError(what, str(folder / DATA), "restore the files, or begin a new run")
    tokenizer = read_tokenizer(folder, config)
    if known.get("tokenizer", fingerprint(tokenizer)) != fingerprint(tokenizer):
        what = "the tokenizer is not the one this run was begun with"
        raise UserError(what, str(folder / TOKENIZER), "restore its files, or begin a new run")
    for name in known.get("kept", ()):
        if not (folder / "data" / name).exists():
            what = "this file of the run is missing"
            raise UserError(what, str(folder / "data" / name), "put it back, or begin a new run")
    road.held_out(config, folder)  # what cannot be read is said before training, not after it
    return _encoded(road, config, corpus, tokenizer, folder, silent)


def made(
    road: Task[Any],
    config: RunConfig,
    corpus: Corpus[Any],
    folder: Path,
    say: Say,
    device: torch.device,
    start: Start | None,
) -> Prepared:
    """The tokenizer, the complete configuration and the data: made and written."""
    with claimed(folder):
        tokenizer = road.tokenizer(config, corpus) if start is None else start.tokenizer
        if start is not None and tokenizer is not None:
            tokenizer = tokenizer.with_symbols(road.symbols(config, corpus))
        size = tokenizer.size if tokenizer is not None else 0
        if config.model.vocab not in (0, size):
            say(f"vocabulary: the tokenizer has {size} entries, model.vocab follows")
        decided = merge(road.decided(config, corpus), {"model": {"vocab": size}})
        config = RunConfig.parse(merge(config.dump(), decided))
        mixers = [mixer for _, mixer in config.model.mixing]
        if road.texts_each(config, corpus) != 2 and any(isinstance(m, CoAttentionMixer) for m in mixers):
            what = f"coattention is between two texts, and these {road.noun} have one each"
            raise UserError(what, "model.mixer", "use attention, or train on pairs of texts")
        road.keep(config, corpus, folder)
        kept = sorted(path.name for path in (folder / "data").iterdir())
        ready = _encoded(road, config, corpus, tokenizer, folder, say)
        precision = choose_precision(config.training.precision, device, config.model.dim)
        settled = road.settled(config, ready.train, ready.valid)
        settled = merge(settled, {"training": {"precision": precision}})
        config = RunConfig.parse(merge(config.dump(), settled))
        if tokenizer is not None:
            tokenizer.save(folder / TOKENIZER)
        known = {**corpus.summary(), "tokenizer": fingerprint(tokenizer), "kept": kept}
        write_text_atomic(folder / DATA, json.dumps(known, ensure_ascii=False, indent=1))
        # Last: a folder with a configuration is a run that can be resumed.
        write_text_atomic(folder / CONFIG, to_yaml(config))
        return replace(ready, config=config)


def _encoded(
    road: Task[Any],
    config: RunConfig,
    corpus: Corpus[Any],
    tokenizer: Tokenizer | None,
    folder: Path,
    say: Say,
) -> Prepared:
    def encoded(part: Any, name: str) -> Dataset:
        # A road without a tokenizer takes none.
        return road.encode(config, part, cast(Tokenizer, tokenizer), folder, name, say)

    train = encoded(corpus.train, "training")
    return Prepared(config, tokenizer, train, encoded(corpus.valid, "validation"))


def check_form(config: RunConfig) -> None:
    """Refuse a model that cannot learn the objective."""
    kind, forms, form = config.objective.kind, config.objective.forms, config.model.form
    if not config.model.reads_ids and kind != "classify":
        mend = "set objective.kind=classify, or model.embedding=table for texts"
        raise UserError(f"{kind} is of texts, and patches are of images", "model.embedding.kind", mend)
    if form not in forms:
        mend = f"set model.form={' or '.join(forms)}"
        if fitting := [k for k, o in objectives().items() if form in o.forms]:
            mend += f", or learn another objective: {', '.join(fitting)}"
        raise UserError(f"the objective {kind} is not learned by form {form}", "model.form", mend)
    if getattr(config.objective, "frozen", False) and config.training.init is None:
        what = "a model that was never trained would be frozen"
        raise UserError(what, "objective.frozen", "name the run to begin with: --init RUN")


def check_free(folder: Path) -> None:
    """Refuse a run folder that is in use or cannot be made; nothing is written."""
    place = folder
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        occupied = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise _unusable(folder, error.strerror) from None
    if not place.is_dir():
        raise _unusable(folder, f"{place} is no folder")
    if occupied and (folder / CONFIG).exists():
        mend = f"go on with `triptych train {folder} --resume`, or choose another --out"
        raise UserError("this folder is not empty", str(folder), mend)
    if occupied:
        mend = "choose another --out: it may be of another run, one just beginning or killed then"
        raise UserError("this folder is not empty, and holds no run that could go on", str(folder), mend)
    if not os.access(place, os.W_OK | os.X_OK):
        raise _unusable(folder, f"{place} may not be written to")


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """A run folder that one run alone can make: of two that begin at once, the other is refused. What goes
    wrong meanwhile leaves things as they were. Raises UserError."""
    check_free(folder)
    stood = folder.is_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "data").mkdir()
    except FileExistsError:
        mend = "let it end, or choose another --out"
        raise UserError("another run has just begun in this folder", str(folder), mend) from None
    except OSError as error:
        raise _unusable(folder, error.strerror) from None
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # all that is in it is of this run
        if stood:
            folder.mkdir(exist_ok=True)
        raise


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No other process trains in this folder meanwhile: the second is refused. Held where the system can lock
    folders, until the process ends, however it ends. Raises UserError."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        mend = "let it end, or stop it first"
        raise UserError("another process is training this run", str(folder), mend) from None
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(handle)


def _unusable(folder: Path, why: str | None) -> UserError:
    return UserError(f"cannot be used: {why}", str(folder), "choose another --out")
