"""Build the phrase corpus: draw, write on both sides, drop what is ambiguous, split without leaks.

    FAMILIES ──draw──▶ (source, target, kind, atoms) ──one target a source──▶ groups of equal target
    groups ──▶ train │ valid │ test

Every word of the last two stands in train too, in other combinations.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from triptych.errors import UserError, nearest

if TYPE_CHECKING:
    from babel import Locale

    from triptych.text.cldr.phrases import Atom, Phrase, Writer

__all__ = ["PhraseCorpus", "build"]

TRAIN_SIZE = 30_000
HELD_OUT_SHARE = 1 / 30
HELD_OUT_LIMIT = 1_000
"""Valid and test are this share of train each, and no more pairs than this."""

MIN_EXPOSURE = 3
"""A word of a test phrase stands in at least this many train phrases."""

MISSES = 100
"""A kind is used up when this many draws, and two for each one that was new, gave nothing new."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class PhraseCorpus:
    """Pairs (source, target) and, beside each list, the kind of each pair.

    A source stands once in the whole corpus. No source and no target of one part stands in another part.
    """

    source: str
    target: str
    train: list[Pair] = field(repr=False)
    valid: list[Pair] = field(repr=False)
    test: list[Pair] = field(repr=False)
    train_kinds: list[str] = field(repr=False)
    valid_kinds: list[str] = field(repr=False)
    test_kinds: list[str] = field(repr=False)
    skipped: tuple[str, ...] = ()
    """Kinds that one of the locales has no data for."""


class _Entry(NamedTuple):
    source: str
    target: str
    kind: str
    atoms: frozenset[Atom]


def build(source: str, target: str, *, seed: int = 0, size: int | None = None) -> PhraseCorpus:
    """The phrase corpus of two locales; the same arguments give the same corpus.

    Args:
        source, target: CLDR locale codes such as ``en``, ``zh_Hant`` or ``pt-BR``.
        seed: another seed draws other phrases.
        size: train pairs, 30,000 when not given. Valid and test have a thirtieth of it each, 1,000 at most.
            A pair of locales with little data may give fewer.

    Raises:
        UserError: an unknown locale, the same one twice, or two that write every phrase alike.
    """
    locales = _locale(source, "source"), _locale(target, "target")
    if str(locales[0]) == str(locales[1]):
        raise UserError(f"source and target are the same locale, {locales[0]}", mend="choose two locales")
    train = TRAIN_SIZE if size is None else size
    if train < 1:
        raise UserError(f"a corpus of {size} pairs cannot be built", "size", "give a positive number")
    held_out = min(HELD_OUT_LIMIT, max(1, round(train * HELD_OUT_SHARE)))
    rng = Random(f"{locales[0]} {locales[1]} {seed}")
    entries, skipped = _draw(locales, train + 2 * held_out, rng)
    if all(entry.source == entry.target for entry in entries):
        raise UserError(
            f"{source} and {target} write all phrases alike, so there is nothing to translate",
            mend="choose two locales of different languages",
        )
    parts = _split(entries, held_out, rng)
    pairs = [[(entry.source, entry.target) for entry in part] for part in parts]
    kinds = [[entry.kind for entry in part] for part in parts]
    names = str(locales[0]), str(locales[1])
    return PhraseCorpus(*names, pairs[0], pairs[1], pairs[2], kinds[0], kinds[1], kinds[2], skipped)


def _locale(code: str, where: str) -> Locale:
    from babel import Locale, UnknownLocaleError
    from babel.localedata import locale_identifiers

    known = locale_identifiers()
    name = code.strip().replace("-", "_")
    try:
        locale = Locale.parse(name)
        # Babel drops a script it does not know and takes "und" for English; "root" has no words of its own.
        dropped = {part.lower() for part in name.split("_")[1:]} - set(str(locale).lower().split("_"))
        if dropped or str(locale) not in known or name.lower() in ("root", "und"):
            raise UnknownLocaleError(name)
        return locale
    except (ValueError, UnknownLocaleError):
        english = {name.lower(): tag for tag, name in Locale("en").languages.items() if tag in known}
        by_name = [english[match] for match in nearest(name, english, 3, 0.8)]
        by_code = nearest(name, known, 5, 0.5)
        near = list(dict.fromkeys(by_name + by_code)) or ["en", "de", "zh", "ar", "pt_BR"]
        raise UserError(f"no locale {code!r} in CLDR", where, f"near it: {', '.join(near)}") from None


class _Pool:
    """Entries by source, one target a source."""

    def __init__(self, locales: tuple[Locale, Locale]) -> None:
        self.locales = locales
        self.by_source: dict[str, _Entry] = {}
        self.ambiguous: set[str] = set()

    def entries(self) -> list[_Entry]:
        return [entry for source, entry in self.by_source.items() if source not in self.ambiguous]

    def __len__(self) -> int:
        return len(self.by_source) - len(self.ambiguous)

    def take(self, kind: str, phrases: Iterable[Phrase], limit: int) -> int:
        """Add up to ``limit`` new entries of one kind and return how many; fewer when the kind is used up."""
        taken = misses = 0
        for phrase in phrases:
            if taken == limit or misses > MISSES + 2 * taken:
                break
            if self._add(kind, phrase):
                taken += 1
            else:
                misses += 1
        return taken

    def _add(self, kind: str, phrase: Phrase) -> bool:
        source, target = self.locales
        text, translation = _write(phrase.write, source), _write(phrase.write, target)
        if (
            text is None
            or translation is None
            or any(_write(rival, source) == text for rival in phrase.rivals)
        ):
            return False
        entry = _Entry(text, translation, kind, phrase.atoms | self._plurals(phrase))
        old = self.by_source.setdefault(entry.source, entry)
        if old.target != entry.target:
            self.ambiguous.add(entry.source)
        return old is entry

    def _plurals(self, phrase: Phrase) -> set[Atom]:
        """The atoms of counted nouns, by the plural categories of both locales."""
        return {
            (*atom, *(locale.plural_form(number) for locale in self.locales))
            for atom, number in phrase.counts
        }


def _write(write: Writer, locale: Locale) -> str | None:
    """The phrase in one locale; None when the locale has no data for it."""
    try:
        return write(locale)
    except LookupError:  # no such pattern or name
        return None


def _draw(locales: tuple[Locale, Locale], total: int, rng: Random) -> tuple[list[_Entry], tuple[str, ...]]:
    """About ``total`` entries, each kind by its share, and the kinds without data."""
    from triptych.text.cldr.phrases import FAMILIES, NAMES

    pool = _Pool(locales)
    pool.take("name", NAMES, min(len(NAMES), total // 20))
    left = dict(FAMILIES)
    while left and (missing := total - len(pool)) > 0:
        shares = sum(share for share, _ in left.values())
        for kind, (share, family) in list(left.items()):
            limit = min(math.ceil(missing * share / shares), total - len(pool))
            if pool.take(kind, (family(rng) for _ in itertools.count()), limit) < limit:
                del left[kind]
    entries = pool.entries()
    without = FAMILIES.keys() - left.keys() - {entry.kind for entry in entries}
    return entries, tuple(kind for kind in FAMILIES if kind in without)


def _split(
    entries: list[_Entry], held_out: int, rng: Random
) -> tuple[list[_Entry], list[_Entry], list[_Entry]]:
    """(train, valid, test). Phrases with the same target stay together, and kinds keep their shares."""
    groups: dict[str, list[_Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.target, []).append(entry)
    order = list(groups.values())
    rng.shuffle(order)
    in_train = Counter(atom for entry in entries for atom in entry.atoms)
    kinds = Counter(entry.kind for entry in entries if entry.kind != "name")
    quota = {kind: held_out * count / kinds.total() for kind, count in kinds.items()}
    taken: Counter[tuple[str, str]] = Counter()
    parts: dict[str, list[_Entry]] = {"train": [], "valid": [], "test": []}
    for group in order:
        # A bare name was drawn first, so it is the first of its group, and names have no quota.
        kind, atoms = group[0].kind, Counter(atom for entry in group for atom in entry.atoms)
        part = next((p for p in ("test", "valid") if taken[p, kind] < round(quota.get(kind, 0))), "train")
        replaceable = all(in_train[atom] - count >= MIN_EXPOSURE for atom, count in atoms.items())
        if part == "train" or not replaceable:
            parts["train"] += group
            continue
        in_train -= atoms
        taken[part, kind] += len(group)
        parts[part] += group
    return parts["train"], parts["valid"], parts["test"]
