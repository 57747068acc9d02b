"""Translation: from files of sentence pairs to scores: read, audit, split, encode, search, score."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from triptych.config import DataConfig, RunConfig
from triptych.data import Dataset, ParallelData
from triptych.engine import Bundle
from triptych.errors import UserError
from triptych.evaluation import Result, dataset_loss, evaluate, tune_alpha
from triptych.objectives import objective
from triptych.text import (
    REPORT_ONLY,
    Cleaning,
    Pairs,
    Tokenizer,
    cldr,
    clean,
    group_split,
    overlap,
    read_aligned,
    read_pairs,
    write_bytes_atomic,
    write_text_atomic,
)
from triptych.text.split import text_key
from triptych.training.tasks.base import MINIMUM, Corpus, Say, Task, most_ids, position_limits

KEYS = "train_keys.npz"
# In place of a file: the phrase corpus of the two languages.
BUILT_IN = "cldr:"
# What is of pairs in files alone: that corpus has parts of its own, and is clean.
OF_FILES = (
    "data.valid", "data.valid_size", "data.test", "data.test_size", "data.aligned", "data.fields",
    "text.cleaning",
)  # fmt: skip
# Lines of up to so many tokens are never split, however short the pairs of a corpus are.
SHORT = 16
# The length penalty is tuned on so many pairs at most, and left alone with fewer than these.
TUNED, LEAST_TUNED = 500, 20


class TranslationTask(Task[Pairs]):
    """Sentence pairs (``objective.kind: translation``)."""

    noun = "pairs"

    def load(self, config: RunConfig, say: Say) -> Corpus[Pairs]:
        """Read, audit and split; the audit is said.

        What has no files of its own is split off the training pairs, group-disjoint. Held-out files are taken
        as they are, line by line, and searched for what is also trained on.
        """
        data, notes = config.data, []
        if not data.train:
            raise UserError("no training data", "data.train", "name a file of sentence pairs")
        if BUILT_IN in data.train:
            check_built_in(config)
            return phrases(config.text.source, config.text.target)
        pairs, audit = clean(read(data.train, data), Cleaning(**config.text.cleaning.dump()))
        say(audit.table())
        given = (("valid", data.valid), ("test", data.test))
        own = {name: clean(read(files, data), REPORT_ONLY)[0] if files else None for name, files in given}
        if len(pairs) < MINIMUM:
            raise UserError(
                f"{len(pairs)} usable pairs are left, and training needs at least {MINIMUM}",
                data.train[0],
                "add pairs; the audit above says what was left out and why",
            )
        share = min(1000, max(1, len(pairs) // 20))
        want = {
            "valid": 0 if own["valid"] else share if data.valid_size is None else data.valid_size,
            "test": 0 if own["test"] else share if data.test_size is None else data.test_size,
        }
        if not own["valid"] and not want["valid"]:
            raise UserError(
                "there is nothing to validate on", "data.valid_size", "leave it out, or give data.valid"
            )
        split = group_split(pairs.source, pairs.target, want["valid"], want["test"], config.training.seed)
        train = pairs.select(split.train)
        parts = {}
        for name, rows in (("valid", split.valid), ("test", split.test)):
            parts[name], changed = on_lines(own[name] or pairs.select(rows))
            if changed:
                notes.append(
                    f"{name}: line ends inside {changed} pairs are blanks now: one line holds one text"
                )
        for name, part in own.items():
            if part is not None:
                leak = overlap(train.source, train.target, part.source, part.target)
                if leak.both or leak.source or leak.target:
                    notes.append(f"{name}: {leak.describe()}")
        return parallel(train, parts["valid"], parts["test"], tuple(notes), audit.to_dict())

    def texts(self, part: Pairs) -> list[str]:
        """All sources, then all targets."""
        return [*part.source, *part.target]

    def encode(
        self, config: RunConfig, part: Pairs, tokenizer: Tokenizer, folder: Path, name: str, say: Say
    ) -> Dataset:
        """Encoded pairs. Those longer than ``data.max_length`` tokens are left out, and the user is told."""
        return encode(part, tokenizer, config, say, name)

    def settled(self, config: RunConfig, train: Dataset, valid: Dataset) -> dict[str, Any]:
        """A line longer than anything learned from is one that translation had better split."""
        # The end that every side carries is none of the line's tokens.
        longest = max(train.longest, valid.longest) - 1
        return {"data": {"max_length": max(longest, min(SHORT, config.data.max_length))}}

    def keep(self, config: RunConfig, corpus: Corpus[Pairs], folder: Path) -> None:
        """Aligned files, and hashes of the training texts: enough to evaluate later, and to notice when a
        test set was trained on."""
        keep_texts(folder, corpus)

    def held_out(self, config: RunConfig, folder: Path) -> Pairs | None:
        """The test pairs."""
        source, target = folder / "data" / "test.source", folder / "data" / "test.target"
        return read_aligned(source, target) if source.exists() else None

    def given(self, config: RunConfig, files: Sequence[str]) -> Pairs:
        """Files of pairs, or two aligned files, as ``data.aligned`` says."""
        return read(files, config.data)

    def trained_on(self, folder: Path, part: Pairs) -> dict[str, Any]:
        """By hashes of texts, blind to case, spacing and punctuation."""
        seen, warning = seen_in_training(folder, part.source, part.target), ""
        if seen and any(seen):
            warning = (
                f"{seen[0]} of {len(part)} source lines and {seen[1]} reference lines were trained on: "
                "these scores flatter the model"
            )
        return {"trained_on": seen, "warning": warning}

    def tune(self, bundle: Bundle, corpus: Corpus[Pairs], say: Say) -> RunConfig:
        """The length penalty with the best BLEU."""
        config, valid = bundle.config, corpus.valid
        if config.decoding.strategy != "beam" or len(valid) < LEAST_TUNED:
            return config
        source, target = valid.source[:TUNED], valid.target[:TUNED]
        alpha, tried = tune_alpha(bundle.translator, source, target, config.decoding)
        each = " ".join(f"{a}:{b:.1f}" for a, b in tried.items())
        say(f"length penalty: alpha {alpha} by validation BLEU {each}")
        return config.model_copy(update={"decoding": config.decoding.model_copy(update={"alpha": alpha})})

    def evaluate(self, bundle: Bundle, part: Pairs, say: Say) -> Result:
        """BLEU, chrF++, exact match; perplexity over all pairs that the model has positions for."""
        result = evaluate(bundle.translator, part.source, part.target, bundle.config.decoding)
        kept = [i for i in range(len(part)) if part.target[i].strip()]
        encode_batch, most = bundle.tokenizer.encode_batch, most_ids(bundle.config)
        source, target = (encode_batch([side[i] for i in kept]) for side in (part.source, part.target))
        fit = [pair for pair in zip(source, target, strict=True) if max(map(len, pair)) <= most]
        data = ParallelData([s for s, _ in fit], [t for _, t in fit], bundle.config.data.tokens)
        loss = dataset_loss(bundle.model, objective(bundle.config.objective), data, "fp32") if fit else None
        return Result(result.scores, result.samples, loss, left_out=len(kept) - len(fit))

    def title(self, config: RunConfig) -> str:
        """The two languages."""
        return f"{config.text.source or 'source'} → {config.text.target or 'target'}"


def parallel(train: Pairs, valid: Pairs, test: Pairs, notes: tuple[str, ...], audit: Any) -> Corpus[Pairs]:
    """A corpus of pairs."""
    h = hashlib.sha256()
    for part in (train, valid):
        for s, t in zip(part.source, part.target, strict=True):
            h.update(f"{s}\n{t}\n".encode("utf-8", "surrogatepass"))
    sizes = {"train": len(train), "valid": len(valid), "test": len(test)}
    facts = {"pairs": sizes, "audit": audit}
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in (*train.source, *train.target))
    held_out = test if len(test) else None
    return Corpus(train, valid, held_out, len(train), size, h.hexdigest(), notes, facts)


def read(files: Sequence[str], data: DataConfig) -> Pairs:
    """The pairs of some files, as ``data`` says they are to be read."""
    paths = [Path(f) for f in files]
    if data.aligned:
        if len(paths) != 2:
            what = f"two aligned files are needed, {len(paths)} given"
            raise UserError(what, "data.aligned", "name two for each part, or set data.aligned=false")
        return read_aligned(paths[0], paths[1])
    fields = data.fields or ("source", "target")
    if len(fields) != 2:
        raise UserError(f"{len(fields)} fields are named", "data.fields", "name two, those of both texts")
    return read_pairs(paths, fields=(fields[0], fields[1]))


def on_lines(pairs: Pairs) -> tuple[Pairs, int]:
    """Held-out pairs as lines of a file can hold them, and how many pairs that changed.

    What is scored after training is then what is kept, and scored again by ``triptych evaluate``.
    """

    def line(text: str) -> str:
        text = text.removeprefix("\ufeff").replace("\r\n", " ").replace("\n", " ")
        return text[:-1] + " " if text.endswith("\r") else text

    source, target = [line(s) for s in pairs.source], [line(t) for t in pairs.target]
    before = zip(pairs.source, pairs.target, strict=True)
    changed = sum(a != b for a, b in zip(before, zip(source, target, strict=True), strict=True))
    return Pairs(source, target, pairs.origin), changed


def check_built_in(config: RunConfig) -> None:
    """Refuse what the built-in corpus does not read."""
    if len(config.data.train) > 1:
        raise UserError(
            f"{BUILT_IN} stands for a whole corpus", "data.train", "name it alone, or files alone"
        )
    for where in OF_FILES:
        if config.is_set(where):
            raise UserError(f"{BUILT_IN} does not read this", where, "leave it out, or train on files")


def phrases(source: str, target: str) -> Corpus[Pairs]:
    """The built-in phrase corpus of two locales; its split is its own."""

    def part(pairs: list[tuple[str, str]], name: str) -> Pairs:
        origin = [(f"CLDR {name}", i + 1) for i in range(len(pairs))]
        return Pairs([s for s, _ in pairs], [t for _, t in pairs], origin)

    found = cldr.build(source, target)
    train, audit = clean(part(found.train, "train"), REPORT_ONLY)
    notes = (f"no CLDR data for: {', '.join(found.skipped)}",) if found.skipped else ()
    return parallel(train, part(found.valid, "valid"), part(found.test, "test"), notes, audit.to_dict())


def encode(pairs: Pairs, tokenizer: Tokenizer, config: RunConfig, say: Say, name: str) -> ParallelData:
    """Encoded pairs. Those longer than ``data.max_length`` tokens are left out, and the user is told."""
    source, target = tokenizer.encode_batch(pairs.source), tokenizer.encode_batch(pairs.target)
    limits = {"data.max_length": config.data.max_length, "data.tokens": config.data.tokens - 1}
    limits |= position_limits(config)
    key = min(limits, key=lambda name: limits[name])
    limit = limits[key]
    kept = [i for i in range(len(pairs)) if max(len(source[i]), len(target[i])) <= limit]
    if len(kept) < len(pairs):
        long = [i for i in range(len(pairs)) if max(len(source[i]), len(target[i])) > limit]
        places = ", ".join(pairs.place(i) for i in long[:3])
        more = ", …" if len(long) > 3 else ""
        say(f"{len(long)} {name} pairs are longer than {limit} tokens and left out ({places}{more})")
    if not kept:
        raise UserError(f"no {name} pair is at most {limit} tokens long", key, "raise it")
    return ParallelData(
        [source[i] for i in kept], [target[i] for i in kept], config.data.tokens, config.training.seed
    )


def keep_texts(folder: Path, corpus: Corpus[Pairs]) -> None:
    """Keep the held-out pairs as aligned files, and hashes of the training texts: enough to evaluate
    later, and to notice when a test set was trained on."""
    held = folder / "data"
    held.mkdir(parents=True, exist_ok=True)
    for name, part in (("valid", corpus.valid), ("test", corpus.test)):
        if part is not None and len(part):
            write_text_atomic(held / f"{name}.source", "".join(s + "\n" for s in part.source))
            write_text_atomic(held / f"{name}.target", "".join(t + "\n" for t in part.target))
    packed = io.BytesIO()
    np.savez_compressed(packed, source=hashes(corpus.train.source), target=hashes(corpus.train.target))
    write_bytes_atomic(folder / KEYS, packed.getvalue())


def hashes(texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """64-bit hashes of the texts, blind to case, spacing and punctuation as the split is; sorted."""
    out = [
        int.from_bytes(
            hashlib.blake2b(text_key(t).encode("utf-8", "surrogatepass"), digest_size=8).digest(),
            "big",
            signed=True,
        )
        for t in texts
    ]
    return np.unique(np.array(out, dtype=np.int64))


def seen_in_training(folder: Path, source: Sequence[str], target: Sequence[str]) -> tuple[int, int] | None:
    """How many of these texts the run was trained on: (source, target); None when the run does not say."""
    path = folder / KEYS
    if not path.exists():
        return None
    try:
        with np.load(path) as known:
            return tuple(  # type: ignore[return-value]
                int(np.isin([hashes([t])[0] for t in texts], known[side]).sum())
                for side, texts in (("source", source), ("target", target))
            )
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        what = "this file is damaged: it holds hashes of the training texts"
        raise UserError(what, str(path), "copy the run again, or delete it to do without") from None
