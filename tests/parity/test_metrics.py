"""Scores against sacreBLEU itself, and against BLEU and chrF written from their papers."""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF

from triptych.errors import UserError
from triptych.evaluation import Scores, bleu, score

WORDS = ["the", "a", "cat", "dog", "sees", "finds", "red", "old", "river", "under", "near", "runs"]
CHARS = "我你他看见狗猫在山水下大小红的了很不"
SPACED = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
HAN = st.text(st.sampled_from(CHARS + "aB 3"), max_size=12)


def noisy(n: int, seed: int = 3, language: str = "en") -> tuple[list[str], list[str]]:
    """Hypotheses and references: about every fourth word is another, every tenth line is right."""
    rng = random.Random(seed)
    units, glue = (WORDS, " ") if language == "en" else (list(CHARS), "")
    references = [[rng.choice(units) for _ in range(rng.randint(4, 14))] for _ in range(n)]
    hypotheses = [
        list(r) if rng.random() < 0.1 else [w if rng.random() < 0.75 else rng.choice(units) for w in r]
        for r in references
    ]
    return [glue.join(h) for h in hypotheses], [glue.join(r) for r in references]


def bleu_from_paper(hypotheses: list[list[str]], references: list[list[str]]) -> float | None:
    """BP · exp(Σ ¼ log p_n) with clipped counts over the corpus (Papineni et al. 2002, sections 2.1.1, 2.3).

    None where a precision is 0 or undefined, which the paper leaves open and sacreBLEU smooths.
    """
    log_sum = 0.0
    for n in (1, 2, 3, 4):
        clipped = total = 0
        for h, r in zip(hypotheses, references, strict=True):
            said = Counter(tuple(h[i : i + n]) for i in range(len(h) - n + 1))
            wanted = Counter(tuple(r[i : i + n]) for i in range(len(r) - n + 1))
            clipped += sum((said & wanted).values())
            total += sum(said.values())
        if clipped == 0:
            return None
        log_sum += 0.25 * math.log(clipped / total)
    c, r_length = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * min(1.0, math.exp(1 - r_length / c)) * math.exp(log_sum)


def chrf_from_paper(hypotheses: list[str], references: list[str]) -> float:
    """F_2 of mean precision and recall over 1- to 6-grams of characters and 1- to 2-grams of words, on
    sums over the corpus (Popović 2017); text without punctuation, and long enough for every order."""
    precisions, recalls = [], []
    for words, n in [(False, n) for n in range(1, 7)] + [(True, 1), (True, 2)]:
        match = said_all = wanted_all = 0
        for h, r in zip(hypotheses, references, strict=True):
            a, b = (h.split(), r.split()) if words else (list(h.replace(" ", "")), list(r.replace(" ", "")))
            said = Counter(tuple(a[i : i + n]) for i in range(len(a) - n + 1))
            wanted = Counter(tuple(b[i : i + n]) for i in range(len(b) - n + 1))
            match += sum((said & wanted).values())
            said_all, wanted_all = said_all + sum(said.values()), wanted_all + sum(wanted.values())
        precisions.append(match / said_all)
        recalls.append(match / wanted_all)
    p, r = sum(precisions) / 8, sum(recalls) / 8
    return 100 * 5 * p * r / (4 * p + r)


@given(st.lists(st.tuples(SPACED, SPACED), min_size=1, max_size=6))
def test_bleu_and_chrf_are_sacrebleus(pairs: list[tuple[str, str]]) -> None:
    hypotheses, references = [h for h, _ in pairs], [r for _, r in pairs]
    expected = BLEU(tokenize="13a", force=True).corpus_score(hypotheses, [references]).score
    found = score(hypotheses, references, "de", resamples=0)
    assert found.bleu.score == expected == bleu(hypotheses, references, "de")
    assert found.chrf.score == CHRF(word_order=2).corpus_score(hypotheses, [references]).score


@given(
    st.lists(st.tuples(HAN, HAN), min_size=1, max_size=6), st.sampled_from(["zh", "zh-CN", "ZH_Hant", "yue"])
)
def test_chinese_is_cut_into_characters(pairs: list[tuple[str, str]], language: str) -> None:
    hypotheses, references = [h for h, _ in pairs], [r for _, r in pairs]
    found = score(hypotheses, references, language, resamples=0)
    assert found.bleu.score == BLEU(tokenize="zh").corpus_score(hypotheses, [references]).score
    assert "tok:zh|" in found.bleu.signature


@given(st.integers(0, 10**6), st.integers(3, 12), st.sampled_from(["en", "zh"]))
def test_bleu_is_the_papers(seed: int, n: int, language: str) -> None:
    hypotheses, references = noisy(n, seed, language)
    cut = str.split if language == "en" else list
    expected = bleu_from_paper([cut(h) for h in hypotheses], [cut(r) for r in references])
    if expected is not None:
        assert bleu(hypotheses, references, language) == pytest.approx(expected, rel=1e-9)


@given(st.integers(0, 10**6), st.integers(3, 12))
def test_chrf_is_the_papers(seed: int, n: int) -> None:
    hypotheses, references = noisy(n, seed)
    found = score(hypotheses, references, "en", resamples=0).chrf.score
    assert found == pytest.approx(chrf_from_paper(hypotheses, references), rel=1e-9)


def test_known_values() -> None:
    """By hand: 4 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 quadruples; one word short of six."""
    expected = 100 * math.exp(1 - 6 / 5) * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert bleu(["the cat sees it now"], ["the cat sees it near us"], "en") == pytest.approx(expected)


def test_resamples_are_sacrebleus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the width of our interval and its signature are those of sacreBLEU's own bootstrap."""
    hypotheses, references = noisy(150)
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    found = score(hypotheses, references, "en", resamples=200, seed=77)
    for metric, ours in ((BLEU(), found.bleu), (CHRF(word_order=2), found.chrf)):
        theirs = metric.corpus_score(hypotheses, [references], n_bootstrap=200)
        assert ours.low is not None and ours.high is not None
        assert (ours.high - ours.low) / 2 == pytest.approx(theirs._ci, rel=1e-4)
        assert ours.low <= theirs._mean <= ours.high
        assert ours.signature == metric.get_signature().format()
        assert "bs:200|seed:77|" in ours.signature


@given(st.lists(st.tuples(SPACED, SPACED), min_size=1, max_size=8))
def test_intervals_hold_the_score_and_stay_in_range(pairs: list[tuple[str, str]]) -> None:
    found = score([h for h, _ in pairs], [r for _, r in pairs], "en", resamples=50)
    for m in (found.bleu, found.chrf, found.exact):
        assert m.low is not None and m.high is not None
        assert 0 <= m.low <= m.score <= m.high <= 100 + 1e-9


def test_intervals_narrow_with_more_lines() -> None:
    """Sixteen times the lines: about a quarter of the width."""
    few, many = (score(*noisy(n), "en", resamples=300) for n in (60, 960))
    for a, b in ((few.bleu, many.bleu), (few.chrf, many.chrf), (few.exact, many.exact)):
        assert None not in (a.low, a.high, b.low, b.high)
        assert 0.15 < (b.high - b.low) / (a.high - a.low) < 0.4  # type: ignore[operator]


def test_interval_of_a_share_is_the_binomials() -> None:
    """Exact match of 40 in 200 lines: ± 1.96 · √(p (1 - p) / N)."""
    references = [f"line {i}" for i in range(200)]
    hypotheses = [r if i < 40 else "other" for i, r in enumerate(references)]
    exact = score(hypotheses, references, "en", resamples=2000).exact
    half = 196 * math.sqrt(0.2 * 0.8 / 200)
    assert exact.score == 20
    assert exact.low == pytest.approx(20 - half, abs=0.8) and exact.high == pytest.approx(20 + half, abs=0.8)


def test_same_seed_same_interval() -> None:
    lines = noisy(30)
    assert score(*lines, "en", resamples=60) == score(*lines, "en", resamples=60)
    assert score(*lines, "en", resamples=60, seed=1) != score(*lines, "en", resamples=60, seed=2)


@given(st.lists(st.tuples(SPACED, SPACED), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_order_of_lines_does_not_matter(pairs: list[tuple[str, str]], rng: random.Random) -> None:
    mixed = pairs[:]
    rng.shuffle(mixed)
    a, b = (score([h for h, _ in p], [r for _, r in p], "en", resamples=0) for p in (pairs, mixed))
    assert (a.bleu, a.chrf, a.exact, a.counts) == (b.bleu, b.chrf, b.exact, b.counts)


def test_counts_and_exact_match() -> None:
    hypotheses = ["a cat ", "", "  ", "the dog"]
    references = ["a cat", "", "it", "the  dog"]
    found = score(hypotheses, references, "en", resamples=10)
    assert found.exact.score == 50  # outer space is no difference, inner space is
    assert found.counts == {
        "lines": 4,
        "equal": 2,
        "empty_hypotheses": 2,
        "empty_references": 1,
        "hypothesis_tokens": 4,
        "reference_tokens": 5,
    }


def test_all_right_and_all_wrong() -> None:
    same = ["the cat sees the dog", "it is not very tall at all"]
    for m in (score(same, same, "en", resamples=20).bleu, score(same, same, "en", resamples=20).chrf):
        assert m.score == pytest.approx(100) and m.low == pytest.approx(100)
    wrong = score(["", ""], same, "en", resamples=20)
    assert (wrong.bleu.score, wrong.chrf.score, wrong.exact.score) == (0, 0, 0)


@pytest.mark.parametrize(("language", "extra"), [("ja", "ja"), ("ko", "ko"), ("jpn_Jpan", "ja")])
def test_without_mecab_characters_are_scored_and_it_is_said(
    language: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("ja_mecab", "ko_mecab"):
        monkeypatch.setattr(f"sacrebleu.tokenizers.tokenizer_{module}.MeCab", None)
    hypotheses, references = ["猫は山にいる", "犬は水"], ["猫が山にいる", "犬が水を見る"]
    found = score(hypotheses, references, language, resamples=0)
    assert found.bleu.score == BLEU(tokenize="char").corpus_score(hypotheses, [references]).score
    assert "tok:char|" in found.bleu.signature
    assert any(f"triptych[{extra}]" in note for note in found.notes)
    assert "pip install" in found.table()


@pytest.mark.parametrize(("language", "package"), [("ja", "MeCab"), ("ko", "mecab_ko")])
def test_with_mecab_words_are_scored(language: str, package: str) -> None:
    pytest.importorskip(package, reason=f"needs sacrebleu[{language}]")
    found = score(["山 水"], ["山 水"], language, resamples=0)
    assert f"tok:{language}-mecab" in found.bleu.signature and not any("pip" in n for n in found.notes)


def test_notes_of_doubt() -> None:
    assert any("rough guide" in n for n in score(["a"], ["a"], "en", resamples=2).notes)
    assert not score(*noisy(100), "en", resamples=2).notes
    assert any("raw text" in n for n in score(["a cat ."] * 100, ["a cat."] * 100, "en", resamples=2).notes)
    assert any("chrF++" in n for n in score(["a"], ["a"], "th", resamples=0).notes)


@pytest.mark.parametrize("scorer", [score, bleu])
@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], []), (["a"], ["a", "b"])])
def test_refusals(scorer, hypotheses: list[str], references: list[str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=r"no lines|hypotheses for"):
        scorer(hypotheses, references, "en")


def test_dict_is_json_and_table_has_all() -> None:
    found: Scores = score(*noisy(20), "en", resamples=40)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["bleu"]["score"] == found.bleu.score and data["exact"]["low"] == found.exact.low
    assert data["chrf"]["signature"].startswith("nrefs:1|bs:40|seed:12345|") and data["counts"]["lines"] == 20
    text = found.table()
    assert f"{found.bleu.score:.2f}" in text and f"{found.chrf.high:.2f}" in text
    assert found.bleu.signature in text and found.chrf.signature in text and found.notes[0] in text
    assert "…" not in score(["a"], ["a"], "en", resamples=0).table()


def test_a_thousand_lines_take_seconds() -> None:
    """A guard against another order of growth, not a benchmark: about a second is usual."""
    lines = noisy(1000)
    start = time.process_time()
    score(*lines, "en")
    assert time.process_time() - start < 20
