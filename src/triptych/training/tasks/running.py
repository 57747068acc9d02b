"""Running text: language models, masked models, denoising, on documents streamed from disk.

documents ─ tokenizer ─ TokenStore (RUN/data/training.ids) ─ rows of data.length tokens ─ loss a token, a byte
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from triptych.config import RunConfig
from triptych.config.objectives import DenoiseObjective, MaskedObjective
from triptych.data import IGNORE, Dataset
from triptych.data.masking import Facts, MaskedData
from triptych.data.running import PackedData, StreamData
from triptych.data.spans import SpanData
from triptych.data.store import TokenStore
from triptych.engine import Bundle
from triptych.errors import UserError
from triptych.evaluation import Result, Sample
from triptych.evaluation.language import LanguageScores, TokenScores, score_language, score_tokens
from triptych.objectives import TokenLoss, objective
from triptych.objectives.tokens import run
from triptych.text import Tokenizer, write_lines_atomic
from triptych.text.documents import Documents, encode_documents, read_documents
from triptych.training.tasks.base import Corpus, Say, Task

TEST = "test.jsonl"
# Negative log-likelihood in nats, and tokens.
Piece = tuple[float, int]


@dataclass(frozen=True)
class Count:
    """What a pass over some documents saw."""

    documents: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.documents:,} document{'s' * (self.documents != 1)}, {self.bytes / 1e6:,.2f} MB"


class RunningTask(Task[Documents]):
    """Documents (``objective.kind`` causal, masked, denoise)."""

    noun: ClassVar[str] = "rows of text"

    def load(self, config: RunConfig, say: Say) -> Corpus[Documents]:
        """Split off what has no files of its own, by documents, or by the tail of a few long ones."""
        data = config.data
        whole = read(config, data.train)
        own = {name: read(config, files) if files else None for name, files in held(config)}
        want = {
            "valid": 0 if own["valid"] else data.valid_size,
            "test": 0 if own["test"] else data.test_size,
        }
        train, *rest = whole.split(want["valid"], want["test"], config.training.seed)
        parts = [own[name] or part for name, part in zip(("valid", "test"), rest, strict=True)]
        h = hashlib.sha256()
        seen = {"training": measured(train, h), "validation": measured(parts[0], h)}
        seen["test"] = measured(parts[1], hashlib.sha256())
        if not seen["training"].bytes:
            raise UserError("there is no text to learn from", data.train[0], "name files that hold text")
        if not seen["validation"].bytes:
            mend = "give data.valid, or more text"
            raise UserError("there is no text to validate on", data.train[0], mend)
        for name, count in seen.items():
            say(f"{name}: {count}")
        if seen["training"].documents == 1:
            say("a file is a document; data.documents=paragraph or line makes it many")
        facts = {"documents": {name: count.documents for name, count in seen.items()}}
        test = parts[1] if seen["test"].bytes else None
        count = seen["training"]
        return Corpus(train, parts[0], test, count.documents, count.bytes, h.hexdigest(), (), facts)

    def texts(self, part: Documents) -> Iterable[str]:
        """Line by line."""
        return part.lines()

    def encode(
        self, config: RunConfig, part: Documents, tokenizer: Tokenizer, folder: Path, name: str, say: Say
    ) -> Dataset:
        """Ids go to a file of the run; one that is there was made of the same texts and tokenizer."""
        path = folder / "data" / f"{name}.ids"
        try:
            store = TokenStore.open(path)
        except (OSError, UserError):
            store = TokenStore.write(path, encode_documents(part, tokenizer))
        return self.rows(config, store, tokenizer)

    @abstractmethod
    def rows(self, config: RunConfig, store: TokenStore, tokenizer: Tokenizer) -> Dataset:
        """The rows that the objective learns from."""

    def keep(self, config: RunConfig, corpus: Corpus[Documents], folder: Path) -> None:
        """The test documents, one a line."""
        if corpus.test is not None:
            texts = whole_texts(corpus.test)
            lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
            write_lines_atomic(folder / "data" / TEST, lines)

    def held_out(self, config: RunConfig, folder: Path) -> Documents | None:
        """The test documents."""
        path = folder / "data" / TEST
        return read_documents([path]) if path.exists() else None

    def given(self, config: RunConfig, files: Sequence[str]) -> Documents:
        """Text files, read as the training files were."""
        return read(config, files)

    def evaluate(self, bundle: Bundle, part: Documents, say: Say) -> Result:
        """Perplexity."""
        with tempfile.TemporaryDirectory() as folder:
            store = TokenStore.write(Path(folder) / "ids", encode_documents(part, bundle.tokenizer))
            data = self.rows(bundle.config, store, bundle.tokenizer)
            found, told = pieces(bundle, data), self.told(bundle, data)
        return Result(self.scores(found, told, part), self.samples(bundle, part))

    def scores(
        self, found: Sequence[Piece], told: Sequence[bool], part: Documents
    ) -> LanguageScores | TokenScores:
        """Of the tokens that were hidden or taken out."""
        return score_tokens([nll for nll, _ in found], [count for _, count in found], told)

    def told(self, bundle: Bundle, data: Dataset) -> list[bool]:
        """Of pairs of texts, whether it is told rightly if the second follows the first."""
        return []

    def samples(self, bundle: Bundle, part: Documents) -> list[Sample]:
        """A few outputs, beside what stood there."""
        return []


class CausalTask(RunningTask):
    """Language models (``objective.kind: causal``)."""

    def scores(self, found: Sequence[Piece], told: Sequence[bool], part: Documents) -> LanguageScores:
        """Of all tokens, and of all bytes."""
        return scored(found, measured(part, hashlib.sha256()).bytes)

    def rows(self, config: RunConfig, store: TokenStore, tokenizer: Tokenizer) -> Dataset:
        """Whole documents side by side, or one stream."""
        data = config.data
        kind = StreamData if data.packing == "stream" else PackedData
        return kind(store, data.length, data.tokens, config.training.seed)

    def samples(self, bundle: Bundle, part: Documents) -> list[Sample]:
        """How the model goes on after the first words of some documents."""
        generator, most = bundle.generator, 60
        texts = [text for text, _ in zip(whole_texts(part), range(4), strict=False)]
        cuts = [min(len(text) // 2, 60) for text in texts]
        if generator.known is not None:
            # Half of the positions are for what is said.
            most = min(most, max(1, generator.known // 2))
            room = generator.known - most
            for i, text in enumerate(texts):
                while cuts[i] and len(generator.begun(text[: cuts[i]])) > room:
                    cuts[i] -= 1
        starts = [text[:cut] for text, cut in zip(texts, cuts, strict=True)]
        update = {"strategy": "sample", "temperature": 0.8, "top_p": 0.95, "n_best": 1}
        update |= {"min_length": 0, "max_length": most}
        settings = bundle.config.decoding.model_copy(update=update)
        said = generator.generate(starts, settings)
        ends = [text[cut : cut + 200] for text, cut in zip(texts, cuts, strict=True)]
        return [Sample(s, e, g[0].text) for s, e, g in zip(starts, ends, said, strict=True)]


class MaskedTask(RunningTask):
    """Masked models (``objective.kind: masked``)."""

    def symbols(self, config: RunConfig, corpus: Corpus[Documents]) -> tuple[str, ...]:
        """What encoders read beside text."""
        return ENCODER

    def texts_each(self, config: RunConfig, corpus: Corpus[Documents]) -> int:
        """Two, when pairs are learned."""
        return 2 if getattr(config.objective, "next_sentence", False) else 1

    def decided(self, config: RunConfig, corpus: Corpus[Documents]) -> dict[str, Any]:
        """Kinds of tokens and a head for pairs, when pairs are learned."""
        assert isinstance(config.objective, MaskedObjective)
        pairs = {"types": 2, "output": {"next_sentence": True}}
        return {"model": pairs} if config.objective.next_sentence else {}

    def rows(self, config: RunConfig, store: TokenStore, tokenizer: Tokenizer) -> Dataset:
        """Rows with some tokens hidden, drawn anew each epoch."""
        assert isinstance(config.objective, MaskedObjective)
        data = config.data
        return MaskedData(
            store, data.length, data.tokens, config.training.seed, config.objective, Facts.of(tokenizer)
        )

    @torch.inference_mode()
    def told(self, bundle: Bundle, data: Dataset) -> list[bool]:
        """Where pairs are learned."""
        assert isinstance(bundle.config.objective, MaskedObjective)
        if not bundle.config.objective.next_sentence:
            return []
        device, out = next(bundle.model.parameters()).device, {}
        for batch in (batch.to(device) for batch in data.once()):
            said = bundle.model.output.pair(run(bundle.model, batch), batch.layout).argmax(-1)
            assert batch.labels is not None
            for i, one, right in zip(batch.index, said.tolist(), batch.labels.tolist(), strict=True):
                out.update({i: one == right} if right != IGNORE else {})
        return [out[i] for i in sorted(out)]


class DenoiseTask(RunningTask):
    """Denoising (``objective.kind: denoise``)."""

    def symbols(self, config: RunConfig, corpus: Corpus[Documents]) -> tuple[str, ...]:
        """One sentinel a span."""
        assert isinstance(config.objective, DenoiseObjective)
        return tuple(f"<extra_id_{i}>" for i in range(config.objective.sentinels))

    def rows(self, config: RunConfig, store: TokenStore, tokenizer: Tokenizer) -> Dataset:
        """Rows with spans taken out, drawn anew each epoch."""
        assert isinstance(config.objective, DenoiseObjective)
        data = config.data
        sentinels = [tokenizer.symbol_id(f"<extra_id_{i}>") for i in range(config.objective.sentinels)]
        return SpanData(store, data.length, data.tokens, config.training.seed, config.objective, sentinels)


ENCODER = ("[CLS]", "[SEP]", "[MASK]")


def held(config: RunConfig) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Files of the held-out parts, by name."""
    return (("valid", config.data.valid), ("test", config.data.test))


def read(config: RunConfig, files: Sequence[str]) -> Documents:
    """The documents of some files."""
    fields = config.data.fields or ("text",)
    if len(fields) != 1:
        raise UserError(f"{len(fields)} fields are named", "data.fields", "name the one that holds the text")
    return read_documents([Path(f) for f in files], config.data.documents, fields[0])


def measured(part: Documents, digest: Any) -> Count:
    """Count a part, and let a digest see it."""
    documents = size = 0
    for chunk in part:
        content = chunk.text.encode("utf-8", "surrogatepass")
        digest.update(content + (b"\0" if chunk.ends else b""))
        documents, size = documents + chunk.ends, size + len(content)
    return Count(documents, size)


def scored(found: Sequence[Piece], size: int) -> LanguageScores:
    """Perplexities of a text of ``size`` bytes from its pieces; the bytes of a piece are those of its share
    of the tokens. Raises UserError when there are none."""
    if not found:
        what = "there is nothing to score: every text ends within the start that is read and not foretold"
        raise UserError(what, mend="give longer texts")
    counts = [count for _, count in found]
    ends = [round(size * done / sum(counts)) for done in itertools.accumulate(counts, initial=0)]
    return score_language([nll for nll, _ in found], counts, [b - a for a, b in itertools.pairwise(ends)])


def whole_texts(part: Iterable[Any]) -> Iterator[str]:
    """Document by document, each as one text."""
    text = ""
    for chunk in part:
        text += chunk.text
        if chunk.ends:
            yield text
            text = ""


@torch.inference_mode()
def pieces(bundle: Bundle, data: Dataset) -> list[Piece]:
    """The likelihood of each sequence that stands in the rows of a part: a document, or a row's part of
    one."""
    learned = objective(bundle.config.objective, bundle.config.data.length)
    assert isinstance(learned, TokenLoss)
    device = next(bundle.model.parameters()).device
    found = [one for batch in data.once() for one in learned.pieces(bundle.model, batch.to(device))]
    # In the order of the examples: what is drawn for an interval does not depend on the batches.
    return [(nll, count) for _, nll, count in sorted(found, key=lambda one: one[0])]
