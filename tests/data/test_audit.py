"""The audit: counts that add up, no change without a row, and real noise found where it is known to be."""

from __future__ import annotations

import dataclasses
import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text import oddities
from triptych.text.audit import REPORT_ONLY, Audit, Cleaning, Row, clean
from triptych.text.characters import is_blank
from triptych.text.pairs import Pairs, read_aligned, read_pairs

TEXT = st.text(
    st.sampled_from("ab .,\t\u00a0\u200b\u200d\u3000你們们<>&@[]:/w\n\x07é\u0301０Ａ\ufffdÃ©â€")
    | st.characters(exclude_categories=["Cs"]),
    max_size=12,
)
PAIRS = st.lists(st.tuples(TEXT, TEXT), max_size=30)
OPTIONS = st.builds(
    Cleaning,
    trim=st.booleans(),
    collapse_space=st.booleans(),
    strip_zero_width=st.booleans(),
    strip_joiners=st.booleans(),
    drop_empty=st.booleans(),
    dedupe=st.booleans(),
    drop_copies=st.booleans(),
    max_ratio=st.none() | st.just(4.0),
    max_chars=st.none() | st.just(8),
)


def pairs_of(*pairs: tuple[str, str]) -> Pairs:
    return Pairs(
        [s for s, _ in pairs], [t for _, t in pairs], [("f.tsv", i) for i in range(1, len(pairs) + 1)]
    )


def row(audit: Audit, rule: str) -> Row:
    return next(row for row in audit.rows if row.rule == rule)


def lines(audit: Audit, rule: str) -> list[int]:
    found = row(audit, rule)
    assert found.count >= len(found.examples) == min(found.count, 5)
    return [int(place.removeprefix("f.tsv:")) for place in found.examples]


@given(PAIRS, OPTIONS)
def test_nothing_happens_without_a_row(texts, options):
    pairs = pairs_of(*texts)
    before = [*pairs.source, *pairs.target]
    out, audit = clean(pairs, options)
    assert before == [*pairs.source, *pairs.target]  # the input is left alone
    dropped = sum(row.count for row in audit.rows if row.done == "dropped")
    assert audit.pairs_in == len(pairs) == audit.pairs_out + dropped
    assert audit.pairs_out == len(out)
    assert out.origin == sorted(out.origin)
    kept = [(line - 1, s, t) for s, t, (_, line) in zip(out.source, out.target, out.origin, strict=True)]
    changed = sum(texts[i] != (s, t) for i, s, t in kept)
    assert changed <= sum(row.count for row in audit.rows if row.done == "changed")
    assert len({row.rule for row in audit.rows}) == len(audit.rows)
    assert all(row.done in ("kept", "changed", "dropped") for row in audit.rows)
    assert all(len(row.examples) == min(row.count, 5) for row in audit.rows)
    assert json.loads(json.dumps(audit.to_dict()))["pairs_out"] == len(out)


@given(PAIRS)
def test_report_only_changes_nothing_and_cleaning_is_done_at_once(texts):
    pairs = pairs_of(*texts)
    out, audit = clean(pairs, REPORT_ONLY)
    assert out == pairs
    assert all(row.done == "kept" for row in audit.rows)
    once, _ = clean(pairs, dataclasses.replace(Cleaning(), max_ratio=None))
    twice, again = clean(once, dataclasses.replace(Cleaning(), max_ratio=None))
    assert once == twice
    assert not any(row.count for row in again.rows if row.done != "kept")
    assert not any(is_blank(s) or is_blank(t) for s, t in zip(once.source, once.target, strict=True))
    assert len(set(zip(once.source, once.target, strict=True))) == len(once)


@given(TEXT)
def test_the_quick_look_misses_nothing(text):
    if oddities._is_plain(text):
        assert oddities._all_rules(text) == []


def test_every_report_rule_has_words_and_can_be_found():
    noise = {
        "line_break": "a\u2028b",
        "control_character": "a\x07b",
        "damaged_character": "a\ufffdb",
        "mojibake": "cafÃ© â€“ x",
        "not_nfc": "cafe\u0301",
        "wrong_script": "привет",
        "full_width": "Ｎｏ １２",
        "url": "see https://example.org",
        "markup": "a &amp; <b>b</b>",
        "special_token": "a <s> [MASK] b",
    }
    plain = [(f"source {i} has words", f"target {i} has words") for i in range(30)]
    _, audit = clean(pairs_of(*plain, *((text, "fine words") for text in noise.values())), REPORT_ONLY)
    for line, rule in enumerate(noise, start=31):
        assert line in lines(audit, rule), rule
    _, audit = clean(
        pairs_of(*((t, s) for s, t in plain), *(("fine words", text) for text in noise.values()))
    )
    for line, rule in enumerate(noise, start=31):
        assert line in lines(audit, rule), rule
    _, audit = clean(pairs_of(*plain))
    assert not any(row.count for row in audit.rows)
    assert "nothing found: " in audit.table()
    chinese = {"mixed_chinese", "rarer_chinese", "ascii_punctuation"}
    assert set(oddities.REPORTS) == set(noise) | chinese


def test_chinese():
    texts = ["我们来了。", "他说什么？", "開門吧。", "這個国家", "你好,吗?", "山水", "3.14公里"]
    out, audit = clean(pairs_of(*((f"line {i}", text) for i, text in enumerate(texts))))
    assert out.target == texts
    assert lines(audit, "mixed_chinese") == [4]
    assert lines(audit, "rarer_chinese") == [3]
    assert row(audit, "rarer_chinese").note == "target: 1 Traditional, 3 Simplified"
    assert lines(audit, "ascii_punctuation") == [5]
    # Japanese writes characters of both kinds: never judged.
    _, audit = clean(pairs_of(("a", "これは国です"), ("b", "時間がない"), ("c", "学校の電話")))
    assert not row(audit, "mixed_chinese").count and not row(audit, "rarer_chinese").count


def test_joiners_are_spelling_and_stay_unless_asked():
    sinhala, persian = "ක්‍රීඩා", "می‌خواهم"
    assert "\u200d" in sinhala and "\u200c" in persian
    pairs = pairs_of((sinhala, "sport\u200b"), (persian, "I \u00adwant"))
    out, audit = clean(pairs, Cleaning(strip_zero_width=True))
    assert out.source == [sinhala, persian] and out.target == ["sport", "I want"]
    assert row(audit, "zero_width").done == "changed" and row(audit, "zero_width").count == 2
    assert row(audit, "joiner").done == "kept" and lines(audit, "joiner") == [1, 2]
    out, audit = clean(pairs, Cleaning(strip_joiners=True))
    assert "\u200d" not in out.source[0] and "\u200c" not in out.source[1]
    assert out.target == pairs.target
    assert row(audit, "joiner").done == "changed"


def test_pairs_go_as_pairs():
    pairs = pairs_of(("a", "x"), ("", "y"), ("b", " \u200b"), (" a", "x "), ("same", "same"), ("a", "z"))
    out, audit = clean(pairs)
    assert list(zip(out.source, out.target, strict=True)) == [("a", "x"), ("same", "same"), ("a", "z")]
    assert [line for _, line in out.origin] == [1, 5, 6]
    assert lines(audit, "empty_side") == [2, 3]
    assert lines(audit, "duplicate_pair") == [4]
    assert lines(audit, "copy") == [5] and row(audit, "copy").done == "kept"
    assert lines(audit, "repeated_source") == [1, 6]
    out, audit = clean(pairs, Cleaning(drop_copies=True, dedupe=False))
    assert [line for _, line in out.origin] == [1, 4, 6]
    assert row(audit, "copy").done == "dropped" and row(audit, "duplicate_pair").done == "kept"


def test_length_ratio_is_against_this_corpus():
    usual = [("x" * n, "y" * (3 * n)) for n in range(10, 60)]  # the target is three times as long
    odd = [("x" * 60, "y" * 45), ("x" * 60, "y" * 12), ("x" * 10, "y" * 300), ("x" * 61, "y" * 61)]
    out, audit = clean(pairs_of(*usual, *odd))
    assert lines(audit, "length_ratio") == [51] and row(audit, "length_ratio").done == "kept"
    assert lines(audit, "extreme_ratio") == [52, 53] and row(audit, "extreme_ratio").done == "dropped"
    assert len(out) == 52
    _, few = clean(pairs_of(*odd))
    assert not row(few, "extreme_ratio").count  # four pairs have no usual ratio
    _, audit = clean(pairs_of(*usual, *odd), Cleaning(max_ratio=None))
    assert lines(audit, "length_ratio") == [51, 52, 53]


def test_long_sides_and_white_space():
    pairs = pairs_of(("a" * 30, "b"), ("a\u00a0 b", "c\td"), ("  a  b", "c"))
    out, audit = clean(pairs, Cleaning(max_chars=20, collapse_space=True))
    assert lines(audit, "too_long") == [1]
    assert out.source == ["a b", "a b"] and out.target == ["c d", "c"]
    assert lines(audit, "outer_space") == [3] and lines(audit, "inner_space") == [2, 3]
    _, audit = clean(pairs, Cleaning(report_chars=20))
    assert lines(audit, "long") == [1]
    assert lines(audit, "inner_space") == [2, 3] and row(audit, "inner_space").done == "kept"


@pytest.mark.parametrize(
    "bad", [{"max_ratio": 1.0}, {"report_ratio": 0.5}, {"max_chars": 0}, {"report_chars": -1}]
)
def test_impossible_options_are_refused(bad):
    with pytest.raises(UserError) as error:
        Cleaning(**bad)
    assert error.value.where == next(iter(bad))


def test_the_table_is_aligned_and_names_files_once():
    pairs = Pairs(["", "", "", " a "], ["x"] * 4, [("a.tsv", 1), ("a.tsv", 2), ("b.tsv", 1), ("b.tsv", 2)])
    _, audit = clean(pairs)
    table = audit.table().split("\n")
    assert table[0] == "4 pairs read, 1 kept"
    assert table[1].startswith("  dropped  3  a side without") and table[1].endswith("a.tsv:1, 2, b.tsv:1")
    assert table[2].startswith("  changed  1  white space") and table[2].endswith("b.tsv:2")
    assert table[1].index("a.tsv") == table[2].index("b.tsv")
    assert clean(Pairs([], [], []))[1].table().startswith("0 pairs read, 0 kept")


# ---- real data ------------------------------------------------------------------------------------


def real(folder: Path, source: str, target: str = "") -> Pairs:
    return read_aligned(folder / source, folder / target) if target else read_pairs([folder / source])


def test_tatoeba_noise(data_folder):
    pairs = real(data_folder / "tatoeba_eng_cmn", "cmn.txt")
    out, audit = clean(pairs)
    assert len(out) == len(pairs) == 28_447
    places = [int(place.rpartition(":")[2]) for place in row(audit, "zero_width").examples]
    assert places == [9999, 13881, 18279, 22296, 28408]
    assert row(audit, "inner_space").count == 3  # U+3000
    counts = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", row(audit, "rarer_chinese").note)]
    assert counts[0] > 9_000 and counts[1] > 10_000
    mixed = clean(pairs, REPORT_ONLY)[1]
    assert 15 <= row(mixed, "mixed_chinese").count <= 60
    _, audit = clean(real(data_folder / "tatoeba_eng_cmn", "cmn_simplified_2025.txt"))
    assert row(audit, "duplicate_pair").count == 100
    assert row(audit, "mixed_chinese").count == row(audit, "rarer_chinese").count == 0


def test_low_resource_noise(data_folder):
    aymara = real(data_folder / "lowres_spa_aym", "train.es", "train.aym")
    _, audit = clean(aymara)
    assert row(audit, "duplicate_pair").count == 78
    assert row(audit, "damaged_character").examples == [aymara.place(5688)]
    assert [p.rpartition(":")[2] for p in row(audit, "zero_width").examples] == [
        "3903",
        "4111",
        "4685",
        "4973",
    ]
    assert row(clean(aymara, REPORT_ONLY)[1], "copy").count == 374
    out, audit = clean(real(data_folder / "lowres_spa_aym", "dev.es", "dev.aym"))
    assert [p.rpartition(":")[2] for p in row(audit, "empty_side").examples] == ["250", "750"]
    assert len(out) == 994 - row(audit, "duplicate_pair").count - row(audit, "extreme_ratio").count
    _, audit = clean(real(data_folder / "lowres_eng_yor", "train.en", "train.yor"))
    assert row(audit, "duplicate_pair").count == 72
    assert any(place.endswith(":2977") for place in row(audit, "mojibake").examples)


def test_sinhala_spelling_is_kept(data_folder):
    pairs = real(data_folder / "floresv1_si_en", "dev.si-en.si", "dev.si-en.en")
    out, audit = clean(pairs)
    assert "".join(out.source).count("\u200d") == "".join(pairs.source).count("\u200d") == 1_760
    assert row(audit, "joiner").count >= 1_082
    assert row(audit, "outer_space").done == "changed"
    not_nfc = sum(
        not (unicodedata.is_normalized("NFC", s) and unicodedata.is_normalized("NFC", t))
        for s, t in zip(out.source, out.target, strict=True)
    )
    assert row(audit, "not_nfc").count == not_nfc > 0
