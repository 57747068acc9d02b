"""What an objective has to say on the road from files to scores; the road itself is ``training/run.py``.

files ─ load ─ Corpus ─ tokenizer ─ encode ─ Dataset ─ (training) ─ tune ─ evaluate ─ Result
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from triptych.config import RunConfig
from triptych.data import Dataset
from triptych.engine import Bundle
from triptych.evaluation import Measure, Result
from triptych.text import Tokenizer, train_tokenizer

Say = Callable[[str], None]

# Fewer examples cannot be split and learned from.
MINIMUM = 5


P = TypeVar("P")


@dataclass(frozen=True)
class Corpus(Generic[P]):
    """The three parts of a corpus, and what is to be said of them.

    Attributes:
        test: None when nothing is held out for a test.
        count, bytes: of the training part: examples, and UTF-8 bytes of their texts.
        digest: SHA-256 over the training and validation examples, in order.
        notes: warnings for the user.
        facts: what ``data.json`` keeps beside the digest.
    """

    train: P
    valid: P
    test: P | None
    count: int
    bytes: int
    digest: str
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """What ``data.json`` keeps."""
        return {"digest": self.digest, **self.facts, "notes": self.notes}


class Task(ABC, Generic[P]):
    """An objective's part of a run. Holds nothing: what it needs is handed to it.

    Attributes:
        noun: what its examples are called, in the plural.
        packed: what the rows of its data are called, where examples are packed into rows.
        measured: weights are chosen by ``quality``; else by the loss of the validation part.
    """

    noun: ClassVar[str] = "examples"
    packed: ClassVar[str] = ""
    measured: ClassVar[bool] = False

    @abstractmethod
    def load(self, config: RunConfig, say: Say) -> Corpus[P]:
        """Read the files, split off what is held out. Raises UserError for what cannot be used."""

    @abstractmethod
    def texts(self, part: P) -> Iterable[str]:
        """All texts of a part, in order: what the tokenizer learns from."""

    def symbols(self, config: RunConfig, corpus: Corpus[P]) -> tuple[str, ...]:
        """Entries of their own that the tokenizer needs."""
        return ()

    def tokenizer(self, config: RunConfig, corpus: Corpus[P]) -> Tokenizer | None:
        """Learn a tokenizer from the training part alone; none where there is no text."""
        settings = config.text.tokenizer
        return train_tokenizer(
            self.texts(corpus.train), **settings.model_dump(), symbols=self.symbols(config, corpus)
        )

    def texts_each(self, config: RunConfig, corpus: Corpus[P]) -> int:
        """How many texts a row has, told apart by the types of their tokens: one, or two."""
        return 1

    def decided(self, config: RunConfig, corpus: Corpus[P]) -> dict[str, Any]:
        """Settings that the data decide, as plain data to be laid over the configuration."""
        return {}

    @abstractmethod
    def encode(
        self, config: RunConfig, part: P, tokenizer: Tokenizer, folder: Path, name: str, say: Say
    ) -> Dataset:
        """Batches of a part, by name: training, validation or test. What cannot be used is said, by number
        and place. ``folder``: of the run, for what is too large to hold."""

    def settled(self, config: RunConfig, train: Dataset, valid: Dataset) -> dict[str, Any]:
        """Settings that follow from the encoded data, likewise."""
        return {}

    @abstractmethod
    def keep(self, config: RunConfig, corpus: Corpus[P], folder: Path) -> None:
        """Write into the run what evaluating it later needs: the held-out examples."""

    @abstractmethod
    def held_out(self, config: RunConfig, folder: Path) -> P | None:
        """The test part as it was kept; None when there is none."""

    @abstractmethod
    def given(self, config: RunConfig, files: Sequence[str]) -> P:
        """Examples of files that the user names for a test."""

    def trained_on(self, folder: Path, part: P) -> dict[str, Any]:
        """Whether a test part was trained on, as far as the run can tell: ``trained_on`` and ``warning``."""
        return {}

    def quality(self, bundle: Bundle, part: P) -> Measure:
        """The measure of the validation part by which weights are chosen, the more the better."""
        raise NotImplementedError

    def tune(self, bundle: Bundle, corpus: Corpus[P], say: Say) -> RunConfig:
        """The configuration, with what is chosen on the validation part after training."""
        return bundle.config

    @abstractmethod
    def evaluate(self, bundle: Bundle, part: P, say: Say) -> Result:
        """Score a run on examples."""

    def title(self, config: RunConfig) -> str:
        """Of the report."""
        stem = Path(config.data.train[0]).name.split(".")[0] if config.data.train else "run"
        return f"{stem}: {config.objective.kind}"


def position_limits(config: RunConfig) -> dict[str, int]:
    """How many ids of a text, specials not counted, the model has positions for, by the key that says so."""
    return {key: most - 1 for key, most in config.model.limits().items()}


def most_ids(config: RunConfig) -> int:
    """The least of them."""
    return min(position_limits(config).values(), default=sys.maxsize)


def silent(text: str) -> None:
    """For what was said once and need not be said again."""
