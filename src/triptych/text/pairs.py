"""Sentence pairs from files: tab-separated columns, JSON lines or two line-aligned files, plain or ``.gz``.

Nothing is dropped, trimmed or changed here: line N of the file is one pair, with where it came from beside
it. A line that cannot be a pair is an error which names it; a blank line is an empty pair, which the audit
(``triptych.text.audit``) drops on both sides together and reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triptych.errors import UserError
from triptych.text.alignment import Divergence, find_divergence
from triptych.text.characters import is_blank
from triptych.text.files import read_lines
from triptych.text.records import field, is_json, parse, shown, text_of

__all__ = ["Pairs", "read_aligned", "read_pairs"]

AS_ALIGNED = "give them as a source file and a target file instead of as two files of pairs"


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs and where each came from.

    Args:
        source, target: the texts, pair by pair.
        origin: file name and line (from 1) of each pair; for two aligned files, the source file's name.
    """

    source: list[str]
    target: list[str]
    origin: list[tuple[str, int]]

    def __post_init__(self) -> None:
        assert len(self.source) == len(self.target) == len(self.origin), (
            "one source, target and origin a pair"
        )

    def __len__(self) -> int:
        return len(self.source)

    def place(self, index: int) -> str:
        """``file:line`` of one pair."""
        name, line = self.origin[index]
        return f"{name}:{line}"

    def select(self, indices: Sequence[int]) -> Pairs:
        """The pairs at ``indices``, in that order."""
        return Pairs(
            [self.source[i] for i in indices],
            [self.target[i] for i in indices],
            [self.origin[i] for i in indices],
        )


def read_pairs(files: Sequence[Path], *, fields: tuple[str, str] = ("source", "target")) -> Pairs:
    """Read files of pairs, one after the other.

    A name ending in ``.jsonl``, ``.ndjson`` or ``.json`` (before ``.gz``) holds one JSON object a line;
    anything else holds tab-separated columns, of which the first two count. There is no quoting: a quote is a
    character.

    Args:
        files: at least one file.
        fields: the source and target keys of a JSON object. ``a.b`` looks for ``b`` inside ``a`` when no key
            is called ``a.b``, as in ``translation.en``.

    Raises:
        UserError: a line that is no pair, an empty or blank file, or what ``read_lines`` refuses.
    """
    if not files:
        raise UserError("no file of sentence pairs was named", mend="name one or more files")
    pairs = Pairs([], [], [])
    for file in files:
        lines = _some_lines(file)
        if is_json(file):
            texts = [
                _json_pair(line, f"{file}:{number}", fields) for number, line in enumerate(lines, start=1)
            ]
        else:
            texts = _columns(file, lines, files)
        if all(is_blank(s) and is_blank(t) for s, t in texts):
            raise _all_blank(file)
        pairs.source.extend(s for s, _ in texts)
        pairs.target.extend(t for _, t in texts)
        pairs.origin.extend((str(file), number) for number in range(1, len(texts) + 1))
    return pairs


def read_aligned(source: Path, target: Path) -> Pairs:
    """Read two files of which line N of the one is the translation of line N of the other.

    Raises:
        UserError: unequal numbers of lines (with a guess where they part), an empty or blank file, or what
            ``read_lines`` refuses.
    """
    source_lines, target_lines = _some_lines(source), _some_lines(target)
    if len(source_lines) != len(target_lines):
        raise _unequal(source, source_lines, target, target_lines)
    for file, lines in (source, source_lines), (target, target_lines):
        if all(map(is_blank, lines)):
            raise _all_blank(file)
    return Pairs(
        source_lines, target_lines, [(str(source), number) for number in range(1, len(source_lines) + 1)]
    )


def _some_lines(file: Path) -> list[str]:
    lines = read_lines(file)
    if not lines:
        raise UserError("this file is empty", str(file), "check that it was written or copied completely")
    return lines


def _all_blank(file: Path) -> UserError:
    return UserError("this file holds nothing but blank lines", str(file), "check that it is the right file")


def _columns(file: Path, lines: list[str], files: Sequence[Path]) -> list[tuple[str, str]]:
    """The first two tab-separated columns of every line; a blank line is a pair of empty texts."""
    texts: list[tuple[str, str]] = []
    alone: list[int] = []
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t", 2)
        if len(columns) > 1:
            texts.append((columns[0], columns[1]))
            continue
        texts.append((line, ""))
        if not is_blank(line):
            alone.append(number)
    if alone:
        raise _one_column(file, lines, alone, files)
    return texts


def _one_column(file: Path, lines: list[str], alone: list[int], files: Sequence[Path]) -> UserError:
    """The error for lines without a tab, with the most likely reason as the mend."""
    first = lines[alone[0] - 1]
    where = f"{file}:{alone[0]}"
    count = f"{len(alone):,} of {len(lines):,} lines have" if len(lines) > 1 else "the only line has"
    what = f"{count} no tab, so one column where two are needed; the first is {shown(first)}"
    never = not any("\t" in line for line in lines)
    others = [other for other in files if other != file]
    if never and len(files) == 2 and all(map(_without_tabs, others)):
        names = " and ".join(str(f) for f in files)
        return UserError(what, where, f"{names} look like two line-aligned files: {AS_ALIGNED}")
    if never and "|||" in first:
        return UserError(what, where, "replace ` ||| ` by a tab")
    if never and first.lstrip().startswith("{"):
        return UserError(what, where, "it looks like JSON lines: give the file a name that ends in `.jsonl`")
    if never and ".csv" in file.name.lower():
        return UserError(
            what, where, "CSV is not read: write it out with tabs between columns and no quoting"
        )
    return UserError(what, where, "write source, a tab and target on every line, or take these lines out")


def _without_tabs(file: Path) -> bool:
    """True when the other file of two can be read and has no tabs either."""
    try:
        return not is_json(file) and not any("\t" in line for line in read_lines(file))
    except UserError:
        return False


def _json_pair(line: str, where: str, fields: tuple[str, str]) -> tuple[str, str]:
    if is_blank(line):
        return "", ""
    record = parse(line, where)
    mend = "name the two fields that hold the source and the target"
    source, target = (text_of(field(record, name, where, mend), name, where) for name in fields)
    return source, target


def _unequal(source: Path, source_lines: list[str], target: Path, target_lines: list[str]) -> UserError:
    """Both counts, the best guess of where they part, and the lines around it."""
    guess = find_divergence(source_lines, target_lines)
    extra = abs(len(source_lines) - len(target_lines))
    longer = source if len(source_lines) > len(target_lines) else target
    lines = [
        f"the two files must have the same number of lines: {source} has {len(source_lines):,}, "
        f"{target} has {len(target_lines):,} ({longer} has {extra:,} more)",
        *_about(guess, min(len(source_lines), len(target_lines)), longer),
    ]
    around = range(max(guess.aligned - 1, 1), guess.aligned + 3) if guess.confident else ()
    for number in around:
        for file, texts in (source, source_lines), (target, target_lines):
            if number <= len(texts):
                lines.append(f"    {file}:{number}: {shown(texts[number - 1])}")
    if guess.first_blank is not None:
        cause = "; blank lines account for the whole difference" if guess.blanks_explain else ""
        lines.append(f"suspect: line {guess.first_blank} is the first that is blank in one file only{cause}")
    mend = "line N of one must translate line N of the other: "
    if guess.confident:
        mend += "mend the files from there on; nothing was cut"
        return UserError("\n".join(lines), f"{source}:{guess.aligned + 1}", mend)
    return UserError("\n".join(lines), str(source), mend + "check that the two files belong together")


def _about(guess: Divergence, shorter: int, longer: Path) -> list[str]:
    if guess.aligned == shorter and guess.confident:
        return [
            f"lines look aligned up to the end of the shorter file; {longer} goes on after line {shorter}"
        ]
    if not guess.confident:
        weak = f"a weak guess is line {guess.aligned + 1}"
        return [f"line lengths and digits do not tell clearly where they part; {weak}"]
    span = f" (somewhere in {guess.low}–{guess.high})" if guess.low < guess.high else ""
    more = "; there seem to be more places after it" if guess.several else ""
    return [f"lines look aligned up to about line {guess.aligned}{span}{more}"]
