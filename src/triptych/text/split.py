"""Train, validation and test parts that share no sentence, and a check whether two parts do.

Corpora of short sentences repeat themselves: one source with several translations, one target for several
sources. Split by line, the test part then holds sentences of the training part and its score is too good.
Here pairs that share a text, on whichever side, directly or through other pairs, form a *group*, and a group
stays in one part:

    (Hi., 嗨。)  (Hi., 你好。)  (Hello., 你好。)   one group        (Run., 跑。)   another

Two texts are the same when their keys are: NFKC, case-folded, without white space, punctuation and invisible
characters. Paraphrases are not seen.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from triptych.errors import UserError
from triptych.text.characters import JOINERS, ZERO_WIDTH

__all__ = ["Overlap", "Split", "group_split", "overlap", "text_key"]


@dataclass(frozen=True)
class Split:
    """Indices of the pairs of each part, ascending. Every pair is in exactly one part, none is left out."""

    train: list[int]
    valid: list[int]
    test: list[int]


@dataclass(frozen=True)
class Overlap:
    """Which test pairs a model may have seen in training.

    Args:
        size: test pairs in all.
        source: indices of the test pairs whose source occurs in the training part.
        target: those whose target does.
        both: those of which the very pair does.
    """

    size: int
    source: list[int]
    target: list[int]
    both: list[int]

    def describe(self) -> str:
        """One line for a warning; "" when nothing is shared."""
        if not (self.source or self.target):
            return ""
        counts = {"sources": self.source, "targets": self.target, "whole pairs": self.both}
        shares = ", ".join(
            f"{len(hits):,} {name} ({len(hits) / self.size:.1%})" for name, hits in counts.items()
        )
        return f"of {self.size:,} test pairs, also in the training data: {shares}"


def text_key(text: str) -> str:
    """What two texts must share to count as the same; the text itself if it is punctuation only."""
    if text.isascii():
        return _ignored().sub("", text.casefold()) or text.strip()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # Once more: marks may compose anew when what stood between them is gone.
    return unicodedata.normalize("NFKC", _ignored().sub("", folded)) or text.strip()


@cache
def _ignored() -> re.Pattern[str]:
    """White space, punctuation (Unicode P*) and invisible characters; combining marks are spelling."""
    codes = map(chr, range(0x11000))
    punctuation = "".join(code for code in codes if unicodedata.category(code).startswith("P"))
    return re.compile(rf"[\s{re.escape(punctuation)}{ZERO_WIDTH}{JOINERS}]+")


def group_split(
    source: Sequence[str], target: Sequence[str], valid: int, test: int, seed: int, noun: str = "pairs"
) -> Split:
    """Split pairs so that no source or target text of one part occurs, on either side, in another.

    Groups are taken in an order drawn from ``seed`` and their content, and go whole to the test part, else to
    the validation part, while they fit; the rest trains. A group of more than a twentieth of a part is passed
    over at first, so that no few sentences make up a part, and taken only when the part cannot be filled
    otherwise. A group larger than what is asked for always trains. Any other group has the same chance,
    whatever its size, so held-out pairs are drawn like the corpus.

    The same pairs in another order give the same parts, on every machine and version: no built-in hash or
    generator takes part.

    Args:
        source, target: texts, pair by pair.
        valid, test: how many pairs to hold out; reached exactly whenever single pairs abound, never exceeded.
        seed: any integer.
        noun: what the pairs are called, for messages.

    Raises:
        UserError: less than half of what was asked can be held out, or nothing would be left to train on.
    """
    assert len(source) == len(target), "one target a source"
    if valid < 0 or test < 0:
        raise UserError(f"cannot hold out {min(valid, test)} {noun}", mend="ask for 0 or more")
    if valid + test >= max(len(source), 1) and valid + test > 0:
        raise UserError(
            f"cannot hold out {valid:,} + {test:,} of {len(source):,} {noun} and still train",
            mend=f"ask for fewer validation and test {noun}",
        )
    parts: dict[str, list[int]] = {"test": [], "valid": []}
    wanted = {"test": test, "valid": valid}
    groups = _shuffled_groups(source, target, seed)
    for most in {name: max(1, number // 20) for name, number in wanted.items()}, wanted:
        groups = [group for group in groups if not _placed(group, parts, wanted, most)]
    for name, number in wanted.items():
        if 2 * len(parts[name]) < number:
            largest = max(map(len, groups), default=0)
            raise UserError(
                f"only {len(parts[name]):,} of {number:,} {name} {noun} can be held out: {noun} that share a "
                f"text stay together, and the largest group has {largest:,} of {len(source):,} {noun}",
                mend=f"lower data.{name}_size, or name files of {name} {noun}: data.{name}",
            )
    train = sorted(index for group in groups for index in group)
    return Split(train, sorted(parts["valid"]), sorted(parts["test"]))


def overlap(
    train_source: Sequence[str],
    train_target: Sequence[str],
    test_source: Sequence[str],
    test_target: Sequence[str],
) -> Overlap:
    """Which test pairs share a text with the training part, side by side, by ``text_key``."""
    train = list(zip(map(text_key, train_source), map(text_key, train_target), strict=True))
    test = list(zip(map(text_key, test_source), map(text_key, test_target), strict=True))
    pairs, sources, targets = set(train), {s for s, _ in train}, {t for _, t in train}
    return Overlap(
        size=len(test),
        source=[i for i, (s, _) in enumerate(test) if s in sources],
        target=[i for i, (_, t) in enumerate(test) if t in targets],
        both=[i for i, pair in enumerate(test) if pair in pairs],
    )


def _placed(
    group: list[int], parts: dict[str, list[int]], wanted: dict[str, int], most: dict[str, int]
) -> bool:
    """Put ``group`` into the first part that has room for it and takes groups of its size."""
    for name, part in parts.items():
        if len(group) <= min(most[name], wanted[name] - len(part)):
            part.extend(group)
            return True
    return False


def _shuffled_groups(source: Sequence[str], target: Sequence[str], seed: int) -> list[list[int]]:
    """Groups in an order that depends on the seed and on their content only."""
    texts = zip(map(text_key, source), map(text_key, target), strict=True)
    keys = [(s or t, t or s) for s, t in texts]  # an empty side is no text in common
    groups: defaultdict[str, list[int]] = defaultdict(list)
    leader = _leaders(keys)
    for index, (key, _) in enumerate(keys):
        groups[leader[key]].append(index)

    def rank(key: str) -> bytes:
        return hashlib.blake2b(f"{seed} {key}".encode(), digest_size=16).digest()

    return [groups[key] for key in sorted(groups, key=rank)]


def _leaders(keys: Sequence[tuple[str, str]]) -> dict[str, str]:
    """For every text key the smallest key of its group: union-find over the two keys of each pair."""
    parent: dict[str, str] = {}

    def find(key: str) -> str:
        root = key
        while parent[root] != root:
            root = parent[root]
        while parent[key] != root:  # path compression
            parent[key], key = root, parent[key]
        return root

    for pair in keys:
        for key in pair:
            parent.setdefault(key, key)
        low, high = sorted(map(find, pair))
        parent[high] = low  # the smaller key leads, whatever the order of pairs
    return {key: find(key) for key in parent}
