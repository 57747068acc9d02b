"""The parallel-data audit: what is odd about the pairs, and what little was done about it.

Every rule has a row in the report, also when it found nothing, with what was done (kept, changed, dropped),
how many pairs it concerns and where the first few are. Pairs are dropped whole, never one side of them, and
texts are changed only by rules that the options switch on. With ``REPORT_ONLY`` nothing is touched, which is
what test data
needs: there, line N of the output must stay line N of the input.

Defaults follow what cleaning tools for parallel text agree on (Moses ``clean-corpus-n``, OpusFilter,
Bifixer): empty sides and exact duplicates go, ends are trimmed, and only a length ratio that no translation
explains counts as misaligned. Everything else is a report, since what is noise in one language is spelling in
another.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

from triptych.errors import UserError
from triptych.text.characters import JOINERS, ZERO_WIDTH, is_blank
from triptych.text.oddities import REPORTS, find_oddities
from triptych.text.pairs import Pairs

__all__ = ["REPORT_ONLY", "Audit", "Cleaning", "Row", "clean"]

EXAMPLES = 5  # places named a rule
RATIO_SMOOTHING = 3  # characters added to both lengths: "Hi." against "嗨。" is no outlier
RATIO_MIN_PAIRS = 20  # fewer pairs have no usual ratio
_ZERO_WIDTH = re.compile(f"[{ZERO_WIDTH}]")
_JOINER = re.compile(f"[{JOINERS}]")
_INNER_SPACE = re.compile(r"(?<=\S)\s+(?=\S)")


@dataclass(frozen=True)
class Cleaning:
    """What ``clean`` may change or drop; all else is reported only.

    Args:
        trim: remove white space at the ends of both sides.
        collapse_space: turn every run of white space inside a text, of whatever kind, into one space.
        strip_zero_width: remove zero-width spaces, directional marks, soft hyphens and the like, but no
        joiners.
        strip_joiners: remove U+200C and U+200D as well. They are spelling in Sinhala, Persian and many
        others.
        drop_empty: drop pairs of which a side shows nothing.
        dedupe: drop pairs that occurred before, equal on both sides after the changes above.
        drop_copies: drop pairs whose sides are equal.
        report_ratio: report pairs whose length ratio is off the usual one of this corpus by more than this
        factor.
        max_ratio: drop them beyond this factor; None never.
        max_chars: drop pairs with a side longer than this many characters; None never.
        report_chars: report sides longer than this.
    """

    trim: bool = True
    collapse_space: bool = False
    strip_zero_width: bool = False
    strip_joiners: bool = False
    drop_empty: bool = True
    dedupe: bool = True
    drop_copies: bool = False
    report_ratio: float = 3.0
    max_ratio: float | None = 6.0
    max_chars: int | None = None
    report_chars: int = 1000

    def __post_init__(self) -> None:
        for name in "report_ratio", "max_ratio":
            value = getattr(self, name)
            if value is not None and not value > 1:
                raise UserError(f"a length ratio limit must be above 1, got {value}", name, "for example 6")
        for name in "max_chars", "report_chars":
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(
                    f"a length limit must be at least 1 character, got {value}", name, "for example 1000"
                )


REPORT_ONLY = Cleaning(trim=False, drop_empty=False, dedupe=False, max_ratio=None)


@dataclass(frozen=True)
class Row:
    """One rule's result.

    Args:
        rule: short name, stable for machines.
        what: the rule in words.
        done: ``kept``, ``changed`` or ``dropped``.
        count: pairs concerned.
        examples: ``file:line`` of the first few (at most 5).
        note: a figure that explains the count, or "".
    """

    rule: str
    what: str
    done: str
    count: int
    examples: list[str] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True)
class Audit:
    """All rows and the number of pairs before and after."""

    pairs_in: int
    pairs_out: int
    rows: list[Row]

    def to_dict(self) -> dict[str, object]:
        """Plain dicts, lists, strings and numbers, for JSON."""
        return asdict(self)

    def table(self) -> str:
        """Aligned plain text: a line a rule that found something, then the names of those that did not."""
        found = [row for row in self.rows if row.count]
        silent = [row.rule for row in self.rows if not row.count]
        lines = [f"{self.pairs_in:,} pairs read, {self.pairs_out:,} kept"]
        number = max((len(f"{row.count:,}") for row in found), default=0)
        width = max((len(row.what) for row in found), default=0)
        for row in found:
            tail = "; ".join(filter(None, [row.note, _places(row.examples)]))
            lines.append(f"  {row.done:<7}  {row.count:>{number},}  {row.what:<{width}}  {tail}".rstrip())
        if silent:
            lines.append("  nothing found: " + ", ".join(silent))
        return "\n".join(lines)


def _places(examples: list[str]) -> str:
    """``a.txt:3, 7, b.txt:1``: a file is named once for the lines that follow."""
    shown, last = [], ""
    for file, _, line in (example.rpartition(":") for example in examples):
        shown.append(line if file == last else f"{file}:{line}")
        last = file
    return ", ".join(shown)


def clean(pairs: Pairs, options: Cleaning | None = None) -> tuple[Pairs, Audit]:
    """Apply ``options`` (default: ``Cleaning()``) to every pair and report all that was seen.

    The order of pairs is kept. ``pairs_in`` is ``pairs_out`` plus the counts of all ``dropped`` rows: a pair
    is dropped by the first rule that hits it, and the ``kept`` rows speak of the pairs that remain.
    """
    options = options or Cleaning()
    tally = _Tally()
    source, target = _changed(pairs, options, tally)
    kept = _survivors(source, target, options, tally)
    out = Pairs([source[i] for i in kept], [target[i] for i in kept], [pairs.origin[i] for i in kept])
    odd = find_oddities(out.source, out.target)
    for rule, hits in odd.hits.items():
        tally.add(rule, [kept[hit] for hit in hits])
    for rule, texts in ("repeated_source", out.source), ("repeated_target", out.target):
        times = Counter(texts)
        tally.add(rule, [kept[i] for i, text in enumerate(texts) if times[text] > 1])
    rows = [
        Row(
            rule,
            what,
            done,
            tally.count[rule],
            [pairs.place(i) for i in tally.first[rule]],
            odd.notes.get(rule, ""),
        )
        for rule, what, done in _rules(options)
    ]
    return out, Audit(len(pairs), len(out), rows)


class _Tally:
    """Counts and first places, rule by rule."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.first: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, rule: str, indices: Sequence[int]) -> None:
        self.count[rule] += len(indices)
        first = self.first[rule]
        first.extend(indices[: EXAMPLES - len(first)])


def _rules(options: Cleaning) -> list[tuple[str, str, str]]:
    """Every rule in the order of the report: name, words, what is done about it."""

    def done(switch: bool, verb: str) -> str:
        return verb if switch else "kept"

    rules = [
        ("empty_side", "a side without any visible text", done(options.drop_empty, "dropped")),
        ("duplicate_pair", "pair equal to an earlier one", done(options.dedupe, "dropped")),
        ("copy", "source and target are equal", done(options.drop_copies, "dropped")),
    ]
    if options.max_chars is not None:
        rules.append(("too_long", f"a side over {options.max_chars:,} characters", "dropped"))
    rules.append(("long", f"a side over {options.report_chars:,} characters", "kept"))
    if options.max_ratio is not None:
        rules.append(
            ("extreme_ratio", f"length ratio over {options.max_ratio:g} times off the usual", "dropped")
        )
    rules.append(("length_ratio", f"length ratio over {options.report_ratio:g} times off the usual", "kept"))
    rules += [
        ("outer_space", "white space at an end", done(options.trim, "changed")),
        ("inner_space", "repeated or unusual white space inside", done(options.collapse_space, "changed")),
        ("zero_width", "zero-width or directional characters", done(options.strip_zero_width, "changed")),
        (
            "joiner",
            "joiners U+200C, U+200D (spelling in many scripts)",
            done(options.strip_joiners, "changed"),
        ),
        ("repeated_source", "source that another pair has, too", "kept"),
        ("repeated_target", "target that another pair has, too", "kept"),
    ]
    return rules + [(rule, what, "kept") for rule, what in REPORTS.items()]


def _changed(pairs: Pairs, options: Cleaning, tally: _Tally) -> tuple[list[str], list[str]]:
    """Both sides after the changes asked for; a pair changed on either side counts once a rule."""
    source, target = pairs.source, pairs.target
    changes: list[tuple[str, bool, Callable[[str], str]]] = [
        (
            "zero_width",
            options.strip_zero_width,
            lambda text: text if text.isascii() else _ZERO_WIDTH.sub("", text),
        ),
        ("joiner", options.strip_joiners, lambda text: text if text.isascii() else _JOINER.sub("", text)),
        ("outer_space", options.trim, str.strip),
        ("inner_space", options.collapse_space, _collapse),
    ]
    for rule, wanted, change in changes:
        if wanted:
            new_source, new_target = list(map(change, source)), list(map(change, target))
            old_and_new = zip(source, new_source, target, new_target, strict=True)
            tally.add(rule, [i for i, (s, ns, t, nt) in enumerate(old_and_new) if s != ns or t != nt])
            source, target = new_source, new_target
    return source, target


def _collapse(text: str) -> str:
    """Runs of white space between two visible characters as one space; the ends are ``trim``'s matter."""
    return _INNER_SPACE.sub(" ", text)


def _survivors(source: list[str], target: list[str], options: Cleaning, tally: _Tally) -> list[int]:
    """Indices of the pairs that stay. Rules that drop go first, so that the others count what remains."""
    kept = list(range(len(source)))
    for dropping in True, False:
        for rule, drops, finds in _pair_rules(options):
            if drops == dropping:
                hits = finds(source, target, kept)
                tally.add(rule, hits)
                if drops and hits:
                    gone = set(hits)
                    kept = [i for i in kept if i not in gone]
    return kept


Finds = Callable[[list[str], list[str], list[int]], list[int]]


def _pair_rules(options: Cleaning) -> list[tuple[str, bool, Finds]]:
    """The rules about whole pairs: name, whether it drops, and what finds its pairs among those kept."""
    rules: list[tuple[str, bool, Finds]] = [
        ("empty_side", options.drop_empty, _empty),
        ("duplicate_pair", options.dedupe, _duplicates),
        ("copy", options.drop_copies, _copies),
        ("long", False, partial(_longer, options.report_chars)),
        ("length_ratio", False, partial(_off_ratio, options.report_ratio)),
    ]
    if options.max_chars is not None:
        rules.append(("too_long", True, partial(_longer, options.max_chars)))
    if options.max_ratio is not None:
        rules.append(("extreme_ratio", True, partial(_off_ratio, options.max_ratio)))
    return rules


def _empty(source: list[str], target: list[str], kept: list[int]) -> list[int]:
    return [i for i in kept if is_blank(source[i]) or is_blank(target[i])]


def _duplicates(source: list[str], target: list[str], kept: list[int]) -> list[int]:
    first: dict[tuple[str, str], int] = {}
    return [i for i in kept if first.setdefault((source[i], target[i]), i) != i]


def _copies(source: list[str], target: list[str], kept: list[int]) -> list[int]:
    return [i for i in kept if source[i] == target[i] and not is_blank(source[i])]


def _longer(limit: int, source: list[str], target: list[str], kept: list[int]) -> list[int]:
    return [i for i in kept if len(source[i]) > limit or len(target[i]) > limit]


def _off_ratio(limit: float, source: list[str], target: list[str], kept: list[int]) -> list[int]:
    """Pairs whose length ratio is off the usual one, the median of this corpus, by more than ``limit``."""
    lengths = [(i, len(source[i].strip()), len(target[i].strip())) for i in kept]
    lengths = [(i, s, t) for i, s, t in lengths if s and t]
    if len(lengths) < RATIO_MIN_PAIRS:
        return []
    usual = statistics.median(t / s for _, s, t in lengths)
    add = RATIO_SMOOTHING
    return [i for i, s, t in lengths if not 1 / limit <= (t + add) / (s * usual + add) <= limit]
