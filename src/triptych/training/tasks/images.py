"""Classes of images (``objective.kind: classify`` with ``model.embedding: patches``).

folders of classes ─ pixels of one size ─ patches ─ (training) ─ accuracy; there are no texts and no tokenizer
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar
from zipfile import BadZipFile

import numpy as np

from triptych.config import RunConfig
from triptych.config.objectives import ClassifyObjective
from triptych.config.parts import PatchEmbedding
from triptych.data import IGNORE, Dataset
from triptych.data.images import UNCHANGED, Changes, ImageData, Images, read_images
from triptych.engine import Bundle
from triptych.errors import UserError
from triptych.evaluation import Measure, Result, Sample
from triptych.evaluation.classes import score_classes
from triptych.text import Tokenizer, write_bytes_atomic
from triptych.training.tasks.base import Corpus, Say
from triptych.training.tasks.labelled import LabelledTask, numbered


class ImageTask(LabelledTask[Images]):
    """Images by class; those with equal pixels stay in one part."""

    noun: ClassVar[str] = "images"
    whole: ClassVar[bool] = True
    measured: ClassVar[bool] = True
    file: ClassVar[str] = "test.npz"
    labels_are: ClassVar[str] = "check the folders: each is a class"

    def given(self, config: RunConfig, files: Sequence[str]) -> Images:
        """Folders that hold a folder for each class."""
        return read_images([Path(file) for file in files], settings(config))

    def read_alike(self, config: RunConfig, part: Images) -> RunConfig:
        """At the same size."""
        model = config.model.model_copy(update={"embedding": part.settings})
        return config.model_copy(update={"model": model})

    def texts(self, part: Images) -> Iterable[str]:
        """None."""
        return ()

    def alike(self, part: Images) -> list[tuple[str, ...]]:
        """What stands for the pixels."""
        return [(digest,) for digest in part.digests]

    def names(self, part: Images) -> list[str]:
        """The classes."""
        return part.classes

    def lines(self, part: Images) -> Iterable[str]:
        """What stands for the pixels, and the class."""
        return map("\t".join, zip(part.digests, part.labels, strict=True))

    def doubts(self, whole: Images) -> list[str]:
        """What was scaled or left out."""
        return list(whole.notes)

    def tokenizer(self, config: RunConfig, corpus: Corpus[Images]) -> Tokenizer | None:
        """None."""
        return None

    def symbols(self, config: RunConfig, corpus: Corpus[Images]) -> tuple[str, ...]:
        """None."""
        return ()

    def decided(self, config: RunConfig, corpus: Corpus[Images]) -> dict[str, Any]:
        """And the size of images and patches."""
        decided = super().decided(config, corpus)
        decided["model"]["embedding"] = corpus.train.settings.dump()
        return decided

    def encode(
        self, config: RunConfig, part: Images, tokenizer: Tokenizer | None, folder: Path, name: str, say: Say
    ) -> Dataset:
        """Pixels as patches; a class that was never trained is not in the loss."""
        assert isinstance(config.objective, ClassifyObjective)
        number = numbered(config, folder)
        labels = [number.get(label, IGNORE) for label in part.labels]
        data = config.data
        changes = Changes(config.objective.word_dropout, data.shift, data.flip)
        changes = changes if name == "training" else UNCHANGED
        return ImageData(part, labels, data.tokens, config.training.seed, changes)

    def write(self, part: Images, path: Path) -> None:
        """Images as they were read."""
        lists = {"labels": part.labels, "origin": part.origin, "digests": part.digests}
        arrays: dict[str, Any] = {name: np.array(each) for name, each in lists.items()}
        file = BytesIO()
        np.savez_compressed(file, pixels=part.pixels, **arrays)
        write_bytes_atomic(path, file.getvalue())

    def held_out(self, config: RunConfig, folder: Path) -> Images | None:
        """The test images."""
        path = folder / "data" / self.file
        if not path.exists():
            return None
        try:
            with np.load(path) as file:
                labels, origin, digests = (file[name].tolist() for name in ("labels", "origin", "digests"))
                return Images(file["pixels"], labels, origin, digests, settings(config))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
            what = f"the test images cannot be read: {error or type(error).__name__}"
            raise UserError(what, str(path), "copy the run again, or name a folder of images") from None

    def quality(self, bundle: Bundle, part: Images) -> Measure:
        """Accuracy."""
        said = [one.label for one in bundle.viewer.classify(part.pixels)]
        return score_classes(said, part.labels, bundle.viewer.labels, resamples=0).accuracy

    def evaluate(self, bundle: Bundle, part: Images, say: Say) -> Result:
        """Accuracy, macro-F1 and the confusion matrix."""
        for note in part.notes:
            say(f"warning: {note}")
        said = [one.label for one in bundle.viewer.classify(part.pixels)]
        scores = score_classes(said, part.labels, bundle.viewer.labels)
        triples = zip(part.origin, part.labels, said, strict=True)
        return Result(scores, [Sample(*triple) for triple in triples])


def settings(config: RunConfig) -> PatchEmbedding:
    """How images are read."""
    assert isinstance(config.model.embedding, PatchEmbedding)
    return config.model.embedding
