"""What can be odd about a text of a parallel corpus, found without changing anything.

The common case (nothing odd) must be cheap, so each text is searched once for the rare characters that any
rule starts from; only texts that hold one are tried against every rule.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import is_normalized

from triptych.text.characters import (
    JOINERS,
    SIMPLIFIED,
    TRADITIONAL,
    ZERO_WIDTH,
    main_scripts,
    script_pattern,
)

__all__ = ["REPORTS", "Oddities", "find_oddities"]

# Rule → its words in the report. (The rules of white space and invisible characters can also be acted upon:
# audit.py)
REPORTS = {
    "line_break": "line break inside a text",
    "control_character": "control characters",
    "damaged_character": "replacement, private-use or non-characters",
    "mojibake": "looks like UTF-8 read as another encoding (heuristic)",
    "not_nfc": "not in Unicode normal form NFC",
    "wrong_script": "no letter of the side's usual script",
    "mixed_chinese": "Traditional and Simplified in one text (heuristic)",
    "rarer_chinese": "in the rarer of Traditional and Simplified (heuristic)",
    "ascii_punctuation": "ASCII punctuation after Chinese or Japanese text",
    "full_width": "full-width letters or digits",
    "url": "web address",
    "markup": "HTML tag or entity",
    "special_token": "text that looks like a special token",
}

_PATTERNS = {
    "zero_width": re.compile(f"[{ZERO_WIDTH}]"),
    "joiner": re.compile(f"[{JOINERS}]"),
    "line_break": re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"),
    "control_character": re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]"),
    "damaged_character": re.compile("[\ufffd\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U000f0000-\U0010ffff]"),
    "mojibake": re.compile("[ÃÂÐ][\x80-\xbf€ƒ„†‡ˆ‰•˜™]|â€|ï»¿"),
    "full_width": re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]"),
    "url": re.compile(r"(?:https?|ftp)://|www\.\w"),
    "markup": re.compile(r"</?[A-Za-z][^<>]*>|&(?:[A-Za-z]{2,8}|#\d{1,7}|#x[0-9A-Fa-f]{1,6});"),
    "special_token": re.compile(
        r"</?s>|<(?:unk|pad|bos|eos|mask|sep|cls)>|\[(?:MASK|CLS|SEP|PAD|UNK|BOS|EOS)\]|@@|\u2581"
        r"|<\|[^|<>]{1,40}\|>|<extra_id_\d+>|<0x[0-9A-F]{2}>"
    ),
}
_UNUSUAL_SPACE = re.compile(r"[^\S ]|\s\s")

# One of these is in every text that any of the patterns above can match (beside the substrings in _is_plain).
_ASCII_TRIGGER = re.compile(r"[\x00-\x1f\x7f<&@\[]")
_TRIGGER = re.compile(
    r"[\x00-\x1f<&@\[\x7f-\xbf€ƒ„†‡ˆ‰•˜™\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\u2581"
    f"{ZERO_WIDTH}{JOINERS}"
    "\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\ufffd\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U000f0000-\U0010ffff]"
)
_LETTER = re.compile(r"[^\W\d_]")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
_ASCII_PUNCTUATION = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff][,.!?;:](?!\\d)")

Hits = dict[str, list[int]]


@dataclass(frozen=True)
class Oddities:
    """Rule → ascending indices of the pairs it hits on either side; rule → a note on the count."""

    hits: Hits
    notes: dict[str, str]


def find_oddities(source: Sequence[str], target: Sequence[str]) -> Oddities:
    """Try every rule on both sides of every pair."""
    sides = {"source": _scan(source), "target": _scan(target)}
    rules = {rule for hits, _ in sides.values() for rule in hits}
    hits = {rule: sorted(set().union(*(hits.get(rule, []) for hits, _ in sides.values()))) for rule in rules}
    notes: defaultdict[str, list[str]] = defaultdict(list)
    for side, (_, remarks) in sides.items():
        for rule, remark in remarks.items():
            notes[rule].append(f"{side}: {remark}")
    return Oddities(hits, {rule: ", ".join(remarks) for rule, remarks in notes.items()})


def _scan(texts: Sequence[str]) -> tuple[Hits, dict[str, str]]:
    """Hits and remarks for the texts of one side."""
    hits: defaultdict[str, list[int]] = defaultdict(list)
    scripts = main_scripts(texts[:: max(1, len(texts) // 2000)])
    usual = script_pattern(scripts) if scripts else _LETTER
    cjk = not {"Han", "Kana"}.isdisjoint(scripts)
    chinese = _Chinese(judged="Kana" not in scripts)
    for index, text in enumerate(texts):
        if text != text.strip():
            hits["outer_space"].append(index)
        if not _is_plain(text):
            for rule in _all_rules(text):
                hits[rule].append(index)
        if not usual.search(text) and _LETTER.search(text):
            hits["wrong_script"].append(index)
        if text.isascii():
            continue
        if not is_normalized("NFC", text):
            hits["not_nfc"].append(index)
        if cjk and _CJK.search(text):
            chinese.add(index, text)
            if _ASCII_PUNCTUATION.search(text):
                hits["ascii_punctuation"].append(index)
    remarks = {"wrong_script": " and ".join(scripts)} if hits["wrong_script"] else {}
    hits["mixed_chinese"] = chinese.both
    hits["rarer_chinese"] = min(chinese.traditional, chinese.simplified, key=len)
    if hits["rarer_chinese"]:
        counts = f"{len(chinese.traditional):,} Traditional, {len(chinese.simplified):,} Simplified"
        remarks["rarer_chinese"] = counts
    return hits, remarks


def _is_plain(text: str) -> bool:
    """True when no rule of _all_rules can hit."""
    if "  " in text or "://" in text or "www." in text:
        return False
    return (_ASCII_TRIGGER if text.isascii() else _TRIGGER).search(text) is None


def _all_rules(text: str) -> list[str]:
    rules = [rule for rule, pattern in _PATTERNS.items() if pattern.search(text)]
    if _UNUSUAL_SPACE.search(text.strip()):
        rules.append("inner_space")
    return rules


class _Chinese:
    """Sorts texts by the Chinese writing system their most telling characters belong to."""

    def __init__(self, judged: bool) -> None:
        self.judged = judged  # Japanese uses characters of both as its own
        self.traditional: list[int] = []
        self.simplified: list[int] = []
        self.both: list[int] = []

    def add(self, index: int, text: str) -> None:
        if not self.judged:
            return
        traditional, simplified = TRADITIONAL.search(text), SIMPLIFIED.search(text)
        if traditional and simplified:
            self.both.append(index)
        elif traditional:
            self.traditional.append(index)
        elif simplified:
            self.simplified.append(index)
