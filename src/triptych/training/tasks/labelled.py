"""What is learned on top of a model: classes of texts, tags of words, vectors of texts."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from triptych.config import RunConfig
from triptych.config.objectives import ClassifyObjective, EmbedObjective, Tuned
from triptych.data import IGNORE, UNK, Dataset
from triptych.data.frames import Frame
from triptych.data.labelled import ClassData, Hiding, PairData, TagData
from triptych.engine import Bundle
from triptych.engine.classifier import Classified
from triptych.engine.labels import read_labels, write_labels
from triptych.errors import UserError
from triptych.evaluation import Measure, Result, Sample
from triptych.evaluation.classes import score_classes
from triptych.evaluation.entities import score_tags
from triptych.evaluation.retrieval import evaluate_pairs
from triptych.text import Pairs, Tokenizer, write_lines_atomic
from triptych.text.bio import is_bio, repaired
from triptych.text.characters import is_blank
from triptych.text.conll import Tagged, check_bio, read_conll
from triptych.text.labelled import Labelled, read_labelled
from triptych.training.tasks.base import MINIMUM, Corpus, Say, Task, position_limits
from triptych.training.tasks.running import ENCODER
from triptych.training.tasks.split import parts, texts_digest
from triptych.training.tasks.translation import read as read_sides


class Examples(Protocol):
    """A list of examples on lines of files."""

    def __len__(self) -> int: ...

    def select(self, indices: Sequence[int]) -> Self:
        """These examples, in this order."""
        ...

    def place(self, index: int) -> str:
        """``file:line`` of one."""
        ...


E = TypeVar("E", bound=Examples)


class LabelledTask(Task[E], Generic[E]):
    """Examples that are short texts; those that share a text stay in one part.

    Attributes:
        least: examples that a held-out part needs.
        whole: an example has one name.
    """

    least: ClassVar[int] = 1
    whole: ClassVar[bool] = False
    labels_are: ClassVar[str] = "check which column is the label: data.fields names it"

    @abstractmethod
    def alike(self, part: E) -> list[tuple[str, ...]]:
        """Of each example, the texts that may not stand in two parts."""

    def names(self, part: E) -> list[str]:
        """Classes or tags of a part, in order of their names."""
        return []

    @abstractmethod
    def lines(self, part: E) -> Iterable[str]:
        """The lines of a file that ``given`` reads again."""

    def load(self, config: RunConfig, say: Say) -> Corpus[E]:
        """Read and split."""
        whole = self.given(config, config.data.train)
        config = self.read_alike(config, whole)
        if len(whole) < MINIMUM:
            what = f"{len(whole)} {self.noun}, and training needs at least {MINIMUM}"
            raise UserError(what, config.data.train[0], f"add {self.noun}")
        train, valid, test = parts(config, whole, self.alike(whole), self.given, self.noun, self.least)
        names, notes = self.names(train), []
        if self.whole and len(names) > max(10, len(train) * 3 // 4):
            what = f"{len(names)} different labels of {len(train)} {self.noun}: these are no classes"
            raise UserError(what, config.data.train[0], self.labels_are)
        for name, part in (("valid", valid), ("test", test)):
            own = set(self.names(part)) if part is not None else set()
            new = sorted(own - set(names))
            if own and len(new) == len(own):
                what = f"nothing in the {name} part is named as in training: {', '.join(map(repr, new[:10]))}"
                mend = f"trained are {', '.join(map(repr, names[:10]))}; name files that go together"
                raise UserError(what, f"data.{name}", mend)
            if new:
                notes.append(
                    f"{name}: never seen in training, so never said: {', '.join(map(repr, new[:10]))}"
                )
        notes += self.doubts(whole)
        for name, part in (("valid", valid), ("test", test)):
            notes += [f"{name}: {note}" for note in getattr(part, "notes", ())]
        if train is not whole:
            say(
                f"{len(train):,} {self.noun} to train on, {len(valid):,} to validate, {_size(test):,} to test"
            )
        if names:
            say(f"{len(names)} names: {', '.join(names[:20])}{', …' if len(names) > 20 else ''}")
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in self.texts(train))
        digest = texts_digest([*self.lines(train), *self.lines(valid)])
        sizes = {"training": len(train), "validation": len(valid), "test": _size(test)}
        facts = {self.noun: sizes, "labels": names, "texts_each": self.each(train)}
        return Corpus(train, valid, test, len(train), size, digest, tuple(notes), facts)

    def doubts(self, whole: E) -> list[str]:
        """What is odd about the examples."""
        empty = [i for i, texts in enumerate(self.alike(whole)) if any(map(is_blank, texts))]
        if not empty:
            return []
        places = ", ".join(whole.place(i) for i in empty[:3]) + (", …" if len(empty) > 3 else "")
        return [f"empty {self.noun}, learned from as they are: {len(empty):,} ({places})"]

    def read_alike(self, config: RunConfig, part: E) -> RunConfig:
        """The configuration that reads other files as this part was read."""
        return config

    def texts_each(self, config: RunConfig, corpus: Corpus[E]) -> int:
        """Of an example."""
        return self.each(corpus.train)

    def symbols(self, config: RunConfig, corpus: Corpus[E]) -> tuple[str, ...]:
        """What encoders read beside text."""
        return ENCODER if config.model.form == "encoder" else ()

    def decided(self, config: RunConfig, corpus: Corpus[E]) -> dict[str, Any]:
        """As many outputs as names."""
        output: dict[str, Any] = {"kind": config.objective.readout}
        if names := self.names(corpus.train):
            if len(names) < 2:
                what = f"there is one name alone in the training data: {names[0]!r}"
                raise UserError(what, config.data.train[0], "give examples of two or more")
            output["count"] = len(names)
            asked = getattr(config.model.output, "count", 0)
            if asked not in (0, len(names)) and config.training.init is None:
                what = f"the training data have {len(names)} names, and the output {asked}"
                raise UserError(what, "model.output.count", "leave it out: the data decide")
        if isinstance(config.objective, ClassifyObjective | EmbedObjective):
            output["pool"] = config.objective.pool
            if output["pool"] == "auto":
                output["pool"] = getattr(config.model.output, "pool", "auto")
        fields = self.read_alike(config, corpus.train).data.fields
        model: dict[str, Any] = {"output": output}
        if self.each(corpus.train) == 2 and config.model.form == "encoder":
            model["types"] = max(2, config.model.types)  # which text a token is of
        return {"model": model, "data": {"fields": fields}}

    def each(self, part: E) -> int:
        """Texts that are read together: one, or two."""
        return 1

    def fitting(self, config: RunConfig, part: E, sizes: Sequence[int], name: str, say: Say) -> list[int]:
        """The examples that are short enough; the others are said by number and place."""
        limits = {"data.max_length": config.data.max_length, "data.tokens": config.data.tokens}
        own = self.each(part)  # each text has an end of its own
        limits |= {key: most - own for key, most in position_limits(config).items()}
        key = min(limits, key=lambda name: limits[name])
        kept = [i for i, size in enumerate(sizes) if size <= limits[key]]
        if len(kept) < len(sizes):
            long = [i for i, size in enumerate(sizes) if size > limits[key]]
            places = ", ".join(part.place(i) for i in long[:3]) + (", …" if len(long) > 3 else "")
            say(
                f"{len(long)} {name} {self.noun} are longer than {limits[key]} tokens and left out ({places})"
            )
        if not kept:
            raise UserError(
                f"none of the {name} {self.noun} is at most {limits[key]} tokens long", key, "raise it"
            )
        return kept

    def keep(self, config: RunConfig, corpus: Corpus[E], folder: Path) -> None:
        """The names, and the test examples in a form that ``given`` reads."""
        if names := self.names(corpus.train):
            write_labels(folder, names)
        if corpus.test is not None:
            self.write(corpus.test, folder / "data" / self.file)

    def write(self, part: E, path: Path) -> None:
        """Examples in a file that ``held_out`` reads again."""
        write_lines_atomic(path, self.lines(part))

    file: ClassVar[str] = "test.jsonl"

    def held_out(self, config: RunConfig, folder: Path) -> E | None:
        """The test examples."""
        path = folder / "data" / self.file
        data = config.data.model_copy(update={"fields": (), "column": None, "aligned": False})
        return self.given(config.model_copy(update={"data": data}), [str(path)]) if path.exists() else None


class ClassifyTask(LabelledTask[Labelled]):
    """Classes of texts, or of pairs of texts (``objective.kind: classify``)."""

    noun: ClassVar[str] = "texts"
    whole: ClassVar[bool] = True
    measured: ClassVar[bool] = True

    def given(self, config: RunConfig, files: Sequence[str]) -> Labelled:
        """Files of texts with labels."""
        return read_labelled([Path(f) for f in files], config.data.fields)

    def read_alike(self, config: RunConfig, part: Labelled) -> RunConfig:
        """By the same columns or keys."""
        data = config.data.model_copy(update={"fields": part.fields})
        return config.model_copy(update={"data": data})

    def each(self, part: Labelled) -> int:
        """Texts of an example."""
        return len(part.texts[0])

    def texts(self, part: Labelled) -> Iterable[str]:
        """Text by text."""
        return (text for each in part.texts for text in each)

    def alike(self, part: Labelled) -> list[tuple[str, ...]]:
        """The text, or the first and the second."""
        return list(part.texts)

    def names(self, part: Labelled) -> list[str]:
        """The classes."""
        return part.classes

    def lines(self, part: Labelled) -> Iterable[str]:
        """JSON lines."""
        for texts, label in zip(part.texts, part.labels, strict=True):
            record = dict(
                zip(("text",) if len(texts) == 1 else ("sentence1", "sentence2"), texts, strict=True)
            )
            yield json.dumps({**record, "label": label}, ensure_ascii=False) + "\n"

    def encode(
        self, config: RunConfig, part: Labelled, tokenizer: Tokenizer, folder: Path, name: str, say: Say
    ) -> Dataset:
        """Texts as ids; a class that was never trained is not in the loss."""
        ids = [tokenizer.encode_batch(list(texts)) for texts in part.texts]
        kept = self.fitting(config, part, [sum(map(len, each)) for each in ids], name, say)
        number = numbered(config, folder)
        labels = [number.get(part.labels[i], IGNORE) for i in kept]
        frame = Frame.of(tokenizer, config.model.form)
        hiding = hidden(config, tokenizer, name)
        return ClassData(
            [ids[i] for i in kept], labels, frame, config.data.tokens, config.training.seed, hiding
        )

    def quality(self, bundle: Bundle, part: Labelled) -> Measure:
        """Accuracy."""
        said = [one.label for one in classified(bundle, part)]
        return score_classes(said, part.labels, bundle.classifier.labels, resamples=0).accuracy

    def evaluate(self, bundle: Bundle, part: Labelled, say: Say) -> Result:
        """Accuracy, macro-F1 and the confusion matrix."""
        found = classified(bundle, part)
        said = [one.label for one in found]
        if cut := sum(one.cut for one in found):
            say(f"{cut:,} texts are longer than the model takes; their ends were not read")
        scores = score_classes(said, part.labels, bundle.classifier.labels)
        triples = zip(part.texts, part.labels, said, strict=True)
        return Result(scores, [Sample(" ⟂ ".join(texts), right, one) for texts, right, one in triples])


class TagTask(LabelledTask[Tagged]):
    """Tags of words (``objective.kind: tag``)."""

    noun: ClassVar[str] = "sentences"
    measured: ClassVar[bool] = True
    file: ClassVar[str] = "test.conll"

    def given(self, config: RunConfig, files: Sequence[str]) -> Tagged:
        """CoNLL files; tags that mark spans must be balanced, or are mended where ``data.repair`` says so."""
        found = read_conll([Path(f) for f in files], config.data.column)
        if config.data.repair and is_bio(set(found.names)):
            found = replace(found, tags=[repaired(tags) for tags in found.tags])
        check_bio(found)
        return found

    def doubts(self, whole: Tagged) -> list[str]:
        """And which rows were not read."""
        rows = [f"{kind} {count:,}" for kind, count in whole.skipped.items() if kind != "comments"]
        return [
            *super().doubts(whole),
            *([f"rows that are no words, left out: {', '.join(rows)}"] if rows else []),
        ]

    def texts(self, part: Tagged) -> Iterable[str]:
        """Words with a blank between them."""
        return map(" ".join, part.words)

    def alike(self, part: Tagged) -> list[tuple[str, ...]]:
        """The words."""
        return [(" ".join(words),) for words in part.words]

    def names(self, part: Tagged) -> list[str]:
        """The tags."""
        return part.names

    def lines(self, part: Tagged) -> Iterable[str]:
        """A word and its tag a line, a blank line after each sentence."""
        for words, tags in zip(part.words, part.tags, strict=True):
            yield "".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n"

    def encode(
        self, config: RunConfig, part: Tagged, tokenizer: Tokenizer, folder: Path, name: str, say: Say
    ) -> Dataset:
        """Words as pieces; a tag that was never trained is not in the loss."""
        ids = [tokenizer.encode_batch(words) for words in part.words]
        kept = self.fitting(config, part, [sum(map(len, words)) for words in ids], name, say)
        number = numbered(config, folder)
        tags = [[number.get(tag, IGNORE) for tag in part.tags[i]] for i in kept]
        frame = Frame.of(tokenizer, config.model.form)
        hiding = hidden(config, tokenizer, name)
        return TagData([ids[i] for i in kept], tags, frame, config.data.tokens, config.training.seed, hiding)

    def quality(self, bundle: Bundle, part: Tagged) -> Measure:
        """F1 of spans where tags mark spans, else accuracy."""
        scores = score_tags(bundle.tagger.tag(part.words), part.tags, resamples=0)
        return scores.spans.f1 if scores.spans else scores.accuracy

    def evaluate(self, bundle: Bundle, part: Tagged, say: Say) -> Result:
        """Accuracy, and F1 of spans where tags mark spans."""
        said = bundle.tagger.tag(part.words)
        scores = score_tags(said, part.tags, bundle.tagger.tags)
        triples = zip(part.words, part.tags, said, strict=True)
        return Result(scores, [Sample(" ".join(w), " ".join(r), " ".join(s)) for w, r, s in triples])


class EmbedTask(LabelledTask[Pairs]):
    """Vectors of texts, from pairs that belong together (``objective.kind: embed``)."""

    noun: ClassVar[str] = "pairs"
    least: ClassVar[int] = 2  # one is told from others

    def given(self, config: RunConfig, files: Sequence[str]) -> Pairs:
        """Files of pairs, or two aligned files, as ``data.aligned`` says."""
        return read_sides(files, config.data)

    def texts(self, part: Pairs) -> Iterable[str]:
        """All first texts, then all second ones."""
        return (*part.source, *part.target)

    def alike(self, part: Pairs) -> list[tuple[str, ...]]:
        """Both texts."""
        return list(zip(part.source, part.target, strict=True))

    def lines(self, part: Pairs) -> Iterable[str]:
        """JSON lines."""
        for first, second in zip(part.source, part.target, strict=True):
            yield json.dumps({"source": first, "target": second}, ensure_ascii=False) + "\n"

    def encode(
        self, config: RunConfig, part: Pairs, tokenizer: Tokenizer, folder: Path, name: str, say: Say
    ) -> Dataset:
        """Both texts of each pair as ids."""
        ids = list(zip(*map(tokenizer.encode_batch, (part.source, part.target)), strict=True))
        kept = self.fitting(config, part, [max(map(len, pair)) for pair in ids], name, say)
        frame = Frame.of(tokenizer, config.model.form)
        hiding = hidden(config, tokenizer, name)
        data = PairData([ids[i] for i in kept], frame, config.data.tokens, config.training.seed, hiding)
        if max(len(batch) for batch in data.plan(0)) < 2:
            what = f"no batch of the {name} part holds two pairs, and a pair is told from others of its batch"
            raise UserError(what, "data.tokens", "raise it, or give more pairs")
        return data

    def evaluate(self, bundle: Bundle, part: Pairs, say: Say) -> Result:
        """How well the second text of a pair is found by its first, among all."""
        return Result(evaluate_pairs(bundle.embedder, part.source, part.target), [])


def classified(bundle: Bundle, part: Labelled) -> list[Classified]:
    """What each text, or pair of texts, is taken for."""
    given = [each[0] if len(each) == 1 else (each[0], each[1]) for each in part.texts]
    return bundle.classifier.classify(given)


def hidden(config: RunConfig, tokenizer: Tokenizer, name: str) -> Hiding:
    """What is hidden of a part: of the training part as much as ``objective.word_dropout``, else nothing."""
    assert isinstance(config.objective, Tuned)
    mask = tokenizer.symbol_id("[MASK]") if "[MASK]" in tokenizer.symbols else UNK
    return Hiding(config.objective.word_dropout if name == "training" else 0.0, mask)


def numbered(config: RunConfig, folder: Path) -> dict[str, int]:
    """The number of each name among the model's outputs."""
    names = read_labels(folder, getattr(config.model.output, "count", 0))
    return {name: number for number, name in enumerate(names)}


def _size(part: Any) -> int:
    return 0 if part is None else len(part)
