"""From files to encoded pairs: read, audit, split, learn the tokenizer, encode."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from triptych.config import DataConfig, RunConfig
from triptych.data import ParallelData
from triptych.errors import UserError
from triptych.text import (
    REPORT_ONLY,
    Audit,
    Cleaning,
    Pairs,
    Tokenizer,
    cldr,
    clean,
    group_split,
    overlap,
    read_aligned,
    read_pairs,
    train_tokenizer,
    write_bytes_atomic,
    write_text_atomic,
)
from triptych.text.split import text_key

# Fewer pairs cannot be split and learned from.
MINIMUM = 5
KEYS = "train_keys.npz"
# In place of a file: the phrase corpus of the two languages.
BUILT_IN = "cldr:"


def silent(text: str) -> None:
    """For what was said once and need not be said again."""


@dataclass(frozen=True)
class Corpus:
    """The three parts of a corpus, cleaned, and what the audit saw."""

    train: Pairs
    valid: Pairs
    test: Pairs
    audit: Audit
    notes: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over the training and validation pairs, in order."""
        h = hashlib.sha256()
        for part in (self.train, self.valid):
            for s, t in zip(part.source, part.target, strict=True):
                h.update(f"{s}\n{t}\n".encode("utf-8", "surrogatepass"))
        return h.hexdigest()

    def summary(self) -> dict[str, Any]:
        """What ``data.json`` keeps."""
        sizes = {"train": len(self.train), "valid": len(self.valid), "test": len(self.test)}
        return {"pairs": sizes, "digest": self.digest, "audit": self.audit.to_dict(), "notes": self.notes}


def read(files: Sequence[str], data: DataConfig) -> Pairs:
    """The pairs of some files, as ``data`` says they are to be read."""
    paths = [Path(f) for f in files]
    if data.aligned:
        if len(paths) != 2:
            raise UserError(f"two aligned files are needed, {len(paths)} given", "data.train")
        return read_aligned(paths[0], paths[1])
    return read_pairs(paths, fields=data.fields)


def load_corpus(config: RunConfig, say: Callable[[str], None]) -> Corpus:
    """Read, audit and split; the audit is said. Raises UserError for what cannot be used or is too little.

    What has no files of its own is split off the training pairs, group-disjoint. Held-out files are taken as
    they are, line by line, and searched for what is also trained on.
    """
    data, notes = config.data, []
    if not data.train:
        raise UserError("no training data", "data.train", "name a file of sentence pairs")
    if data.train == (BUILT_IN,):
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
            notes.append(f"{name}: line ends inside {changed} pairs are blanks now: one line holds one text")
    for name, part in own.items():
        if part is not None:
            leak = overlap(train.source, train.target, part.source, part.target)
            if leak.both or leak.source or leak.target:
                notes.append(f"{name}: {leak.describe()}")
    return Corpus(train, parts["valid"], parts["test"], audit, tuple(notes))


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


def phrases(source: str, target: str) -> Corpus:
    """The built-in phrase corpus of two locales; its split is its own."""

    def part(pairs: list[tuple[str, str]], name: str) -> Pairs:
        origin = [(f"CLDR {name}", i + 1) for i in range(len(pairs))]
        return Pairs([s for s, _ in pairs], [t for _, t in pairs], origin)

    found = cldr.build(source, target)
    train, audit = clean(part(found.train, "train"), REPORT_ONLY)
    notes = (f"no CLDR data for: {', '.join(found.skipped)}",) if found.skipped else ()
    return Corpus(train, part(found.valid, "valid"), part(found.test, "test"), audit, notes)


def learn_tokenizer(config: RunConfig, train: Pairs) -> Tokenizer:
    """One tokenizer for both sides, from the training pairs alone."""
    settings = config.text.tokenizer
    return train_tokenizer(
        [*train.source, *train.target],
        kind=settings.kind,
        size=settings.size,
        coverage=settings.coverage,
        byte_fallback=settings.byte_fallback,
        dummy_prefix=settings.dummy_prefix,
        shrink=settings.shrink,
    )


def encode(
    pairs: Pairs, tokenizer: Tokenizer, config: RunConfig, say: Callable[[str], None], name: str
) -> ParallelData:
    """Encoded pairs. Those longer than ``data.max_length`` tokens are left out, and the user is told."""
    source, target = tokenizer.encode_batch(pairs.source), tokenizer.encode_batch(pairs.target)
    limits = {"data.max_length": config.data.max_length, "data.tokens": config.data.tokens - 1}
    limits["model.position.max"] = most_ids(config)
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


def most_ids(config: RunConfig) -> int:
    """How many ids of a text, specials not counted, the model has positions for."""
    most: int | None = getattr(config.model.position, "max", None)
    return sys.maxsize if most is None else most - 1


def keep_texts(folder: Path, corpus: Corpus) -> None:
    """Keep the held-out pairs as aligned files, and hashes of the training texts: enough to evaluate
    later, and to notice when a test set was trained on."""
    held = folder / "data"
    held.mkdir(parents=True, exist_ok=True)
    for name, part in (("valid", corpus.valid), ("test", corpus.test)):
        if len(part):
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
