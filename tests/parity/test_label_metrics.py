"""Scores of classes, tags, vectors and language models, against independent programs and figures by hand."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.evaluation import (
    score_classes,
    score_language,
    score_retrieval,
    score_tags,
)
from triptych.evaluation.bootstrap import Measure, resampled, within
from triptych.evaluation.retrieval import ranks
from triptych.text.bio import is_bio, repaired, spans

# -- classes -----------------------------------------------------------------------------------------------

CLASSES = st.sampled_from("abcd")
EXAMPLES = st.lists(st.tuples(CLASSES, CLASSES), min_size=1, max_size=40)


@given(EXAMPLES)
def test_classes_are_counted_one_by_one(examples: list[tuple[str, str]]) -> None:
    """Each class from its definition, example by example."""
    said, right = [s for s, _ in examples], [r for _, r in examples]
    found = score_classes(said, right, "abcd", resamples=0)
    assert found.accuracy.score == pytest.approx(100 * sum(map(str.__eq__, said, right)) / len(right))
    f1s = []
    for c, own in zip("abcd", found.classes, strict=True):
        tp = sum(s == c == r for s, r in examples)
        fp = sum(s == c != r for s, r in examples)
        fn = sum(r == c != s for s, r in examples)
        assert (own.label, own.right, own.said) == (c, tp + fn, tp + fp)
        assert own.precision == pytest.approx(100 * tp / (tp + fp) if tp + fp else 0)
        assert own.recall == pytest.approx(100 * tp / (tp + fn) if tp + fn else 0)
        if tp + fp + fn:
            p, r = tp / (tp + fp) if tp + fp else 0, tp / (tp + fn) if tp + fn else 0
            f1s.append(100 * 2 * p * r / (p + r) if p + r else 0)
            assert own.f1.score == pytest.approx(f1s[-1])
        else:
            assert math.isnan(own.f1.score)
    assert found.macro_f1.score == pytest.approx(sum(f1s) / len(f1s))
    for i, r in enumerate("abcd"):
        assert list(found.confusion[i]) == [examples.count((s, r)) for s in "abcd"]


def test_classes_by_hand() -> None:
    """The matrix in the docstring of evaluation/classes.py."""
    cells = {("a", "a"): 9, ("a", "b"): 1, ("b", "a"): 2, ("b", "b"): 7, ("b", "c"): 1, ("c", "c"): 5}
    right = [r for (r, _), n in cells.items() for _ in range(n)]
    said = [s for (_, s), n in cells.items() for _ in range(n)]
    found = score_classes(said, right, resamples=0)
    b = found.classes[1]
    assert found.accuracy.score == pytest.approx(84)
    assert (b.precision, b.recall, b.f1.score) == pytest.approx((87.5, 70, 1400 / 18))
    assert found.confusion == ((9, 1, 0), (2, 7, 1), (0, 0, 5))


def test_intervals_of_classes_are_those_of_resampled_examples() -> None:
    """Drawing cells of the matrix against drawing examples, one by one, with another generator."""
    rng = random.Random(1)
    right = [rng.choice("aaab") for _ in range(150)]
    said = [r if rng.random() < 0.8 else rng.choice("ab") for r in right]
    found = score_classes(said, right, "ab")
    accuracies, f1s = [], []
    for _ in range(2000):
        at = [rng.randrange(150) for _ in range(150)]
        accuracies.append(100 * sum(said[i] == right[i] for i in at) / 150)
        one = []
        for c in "ab":
            hit = sum(said[i] == c == right[i] for i in at)
            one.append(200 * hit / (sum(said[i] == c for i in at) + sum(right[i] == c for i in at)))
        f1s.append(sum(one) / 2)
    for measure, draws in ((found.accuracy, accuracies), (found.macro_f1, f1s)):
        low, high = np.quantile(draws, [0.025, 0.975])
        assert measure.low == pytest.approx(low, abs=1.0) and measure.high == pytest.approx(high, abs=1.0)


def test_an_interval_covers_what_is_true() -> None:
    """Of many test sets with a true accuracy of 80 %, about 95 % have an interval that holds it."""
    rng, held = random.Random(7), 0
    for _ in range(200):
        said = ["a" if rng.random() < 0.8 else "b" for _ in range(300)]
        measure = score_classes(said, ["a"] * 300, "ab", resamples=200).accuracy
        assert measure.low is not None and measure.high is not None
        held += measure.low <= 80 <= measure.high
    assert 180 <= held <= 199


def test_what_is_odd_about_classes_is_said() -> None:
    found = score_classes(["a", "b", "a"], ["a", "new", "b"], ["a", "b", "c", "d"])
    assert any("no example of c, d" in note for note in found.notes)
    assert any("examples of a class that was not trained: 1 (new)" in note for note in found.notes)
    assert any("rough guide" in note for note in found.notes)
    assert found.labels == ("a", "b", "c", "d", "new")
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["classes"][2]["f1"]["score"] is None
    assert "macro-F1" in found.table() and "–" in found.table()


@pytest.mark.parametrize(
    ("score", "args", "what"),
    [
        (score_classes, (["a"], ["a", "b"]), "1 classes for 2"),
        (score_classes, ([], []), "nothing to score"),
        (score_tags, ([], []), "nothing to score"),
        (score_tags, ([[]], [[]]), "nothing to score"),
        (score_tags, ([["O"]], [["O", "O"]]), "1 tags for 2 words"),
        (score_language, ([], [], []), "nothing to score"),
        (score_language, ([1.0], [0], [0]), "nothing to score"),
        (score_language, ([1.0], [2], [3, 4]), "2 byte counts for 1"),
    ],
)
def test_what_cannot_be_scored_is_refused(score: Any, args: Any, what: str) -> None:
    with pytest.raises(UserError, match=what):
        score(*args)


# -- tags --------------------------------------------------------------------------------------------------


def conlleval(sentences: list[tuple[list[str], list[str]]]) -> tuple[int, int, int, Counter[str]]:
    """The shared task's scorer as a machine over one tag after another, from its description: borders by the
    pair of neighbouring tags, a hit where right and said begin and end together with one type.

    Returns: spans that are right, said, both; and both by type.
    """

    def split(tag: str) -> tuple[str, str]:
        return (tag, "") if "-" not in tag else (tag[: tag.index("-")], tag[tag.index("-") + 1 :])

    def ended(p: str, t: str, pk: str, tk: str) -> bool:
        return (p in "BI" and t in "BO") or (p != "O" and pk != tk)

    def started(p: str, t: str, pk: str, tk: str) -> bool:
        return t == "B" or (p == "O" and t == "I") or (t != "O" and pk != tk)

    hits: Counter[str] = Counter()
    n_right = n_said = 0
    inside = False
    before_r = before_s = ("O", "")
    lines = [(r, s) for right, said in sentences for r, s in [*zip(right, said, strict=True), ("O", "O")]]
    for r_tag, s_tag in lines:
        r, s = split(r_tag), split(s_tag)
        r_end, s_end = (
            ended(before_r[0], r[0], before_r[1], r[1]),
            ended(before_s[0], s[0], before_s[1], s[1]),
        )
        r_new, s_new = (
            started(before_r[0], r[0], before_r[1], r[1]),
            started(before_s[0], s[0], before_s[1], s[1]),
        )
        if inside:
            if r_end and s_end and before_r[1] == before_s[1]:
                inside = False
                hits[before_r[1]] += 1
            elif r_end != s_end or r[1] != s[1]:
                inside = False
        if r_new and s_new and r[1] == s[1]:
            inside = True
        n_right, n_said = n_right + r_new, n_said + s_new
        before_r, before_s = r, s
    return n_right, n_said, hits.total(), hits


TAG = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "I-X-Y"])
SENTENCES = st.lists(st.lists(st.tuples(TAG, TAG), min_size=1, max_size=9), min_size=1, max_size=6)


@given(SENTENCES)
def test_spans_are_conllevals(sentences: list[list[tuple[str, str]]]) -> None:
    """Malformed tags on both sides included."""
    right, said = [[r for r, _ in x] for x in sentences], [[s for _, s in x] for x in sentences]
    if not is_bio({tag for tags in (*right, *said) for tag in tags}):
        right.append(["B-PER"])
        said.append(["O"])
    found = score_tags(said, right, resamples=0)
    n_right, n_said, n_hit, hits = conlleval(list(zip(right, said, strict=True)))
    assert found.spans is not None
    assert (found.spans.right, found.spans.said, found.spans.hit) == (n_right, n_said, n_hit)
    assert {t.kind: t.hit for t in found.types if t.hit} == dict(hits)
    for own in (found.spans, *found.types):
        assert own.f1.score == pytest.approx(200 * own.hit / (own.right + own.said))
    equal = sum(r == s for x in sentences for r, s in x)
    assert found.accuracy.score == pytest.approx(100 * equal / sum(map(len, right)))


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("I-PER I-PER O", [("PER", 0, 2)]),  # begins with I
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),  # another type
        ("I-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),  # IOB1
        ("O I-X O I-X", [("X", 1, 2), ("X", 3, 4)]),
        ("B-X B-X", [("X", 0, 1), ("X", 1, 2)]),
        ("B-X I-X E-X S-X", [("X", 0, 3), ("X", 3, 4)]),  # IOBES
        ("S-X S-X I-X", [("X", 0, 1), ("X", 1, 2), ("X", 2, 3)]),
        ("I-A-B I-A-C", [("A-B", 0, 1), ("A-C", 1, 2)]),  # the type may have hyphens
        ("O I I B", [("", 1, 3), ("", 3, 4)]),  # without types
        ("O O", []),
        ("", []),
    ],
)
def test_spans_by_hand(tags: str, wanted: list[tuple[str, int, int]]) -> None:
    assert spans(tags.split()) == wanted


def test_tags_by_hand() -> None:
    """The sentence in the docstring of evaluation/entities.py."""
    found = score_tags(
        [["B-PER", "I-PER", "B-LOC", "B-LOC"]], [["B-PER", "I-PER", "O", "B-LOC"]], resamples=0
    )
    assert found.spans is not None
    assert (found.spans.precision, found.spans.recall) == pytest.approx((200 / 3, 100))
    assert (found.spans.f1.score, found.accuracy.score) == pytest.approx((80, 75))
    assert [(t.kind, t.right, t.said, t.hit) for t in found.types] == [("LOC", 1, 2, 1), ("PER", 1, 1, 1)]


@given(st.lists(TAG, max_size=12))
def test_repaired_tags_are_well_formed_and_mean_the_same(tags: list[str]) -> None:
    mended = repaired(tags)
    assert spans(mended) == spans(tags) and repaired(mended) == mended and len(mended) == len(tags)
    for before, now in zip(["O", *mended], mended, strict=False):
        assert not now.startswith("I-") or before in (now, f"B-{now[2:]}")


def test_tags_that_mark_no_spans() -> None:
    """Parts of speech, and an O alone: accuracy is all there is."""
    for right in ([["NOUN", "VERB"]], [["O", "O"]], [["X-Y", "B-Z"]]):
        found = score_tags(right, right, resamples=10)
        assert found.spans is None and found.types == () and found.accuracy.score == 100
        assert json.loads(json.dumps(found.to_dict()))["spans"] is None and "words" in found.table()


def test_tags_that_were_not_trained_are_counted() -> None:
    """In the right tags, not in those said; a word each time; a few of their names."""
    right = [["NOUN", "X", "VERB"], ["X", "Y"]]
    known = ["NOUN", "VERB", "ADJ"]
    said = [["NOUN"] * 3, ["ADJ"] * 2]
    (note,) = (n for n in score_tags(said, right, known).notes if "trained" in n)
    assert note == "words of a tag that was not trained: 3 (X, Y)"
    many = [[f"T{i}" for i in range(7)]]
    assert any("7 (T0, T1, T2, T3, T4, …)" in n for n in score_tags(many, many, known).notes)
    for quiet in (score_tags(said, right), score_tags(said, right, ["X", "Y", *known])):
        assert not any("trained" in n for n in quiet.notes)


def test_intervals_of_spans_are_over_sentences() -> None:
    """A hundred sentences of which a half is all right and a half all wrong, whatever their length."""
    right = [["B-X"] * 20] * 100
    said = [["B-X"] * 20 if i % 2 else ["O"] * 20 for i in range(100)]
    found = score_tags(said, right)
    assert found.accuracy.low is not None and found.accuracy.high is not None
    assert found.accuracy.high - found.accuracy.low == pytest.approx(2 * 1.96 * 5, rel=0.15)
    assert (
        found.spans is not None
        and found.spans.f1.low is not None
        and found.spans.f1.low < 66 < found.spans.f1.high
    )  # type: ignore[operator]
    assert found.types[0].f1 == Measure(
        "F1, %", found.spans.f1.score, found.spans.f1.low, found.spans.f1.high
    )


# -- retrieval ---------------------------------------------------------------------------------------------


def unit(rows: int, width: int, seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    x = np.random.default_rng(seed).normal(size=(rows, width))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 99))
def test_ranks_are_places_in_a_sorted_list(queries: int, texts: int, seed: int) -> None:
    q, t = unit(queries, 6, seed), unit(texts, 6, seed + 1000)
    right = np.random.default_rng(seed).integers(0, texts, queries).tolist()
    wanted = [int(np.flatnonzero(np.argsort(-(t @ q[i])) == right[i])[0]) + 1 for i in range(queries)]
    assert ranks(q, t, right).tolist() == wanted
    found = score_retrieval(q, t, right, resamples=0)
    for k, measure in zip((1, 5, 10), found.recall, strict=True):
        assert measure.score == pytest.approx(100 * sum(w <= k for w in wanted) / queries)
    assert found.mrr.score == pytest.approx(sum(1 / w for w in wanted) / queries)


def test_blocks_of_queries_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    q, t, right = unit(17, 5, 1), unit(9, 5, 2), [i % 9 for i in range(17)]
    whole = ranks(q, t, right)
    monkeypatch.setattr("triptych.evaluation.retrieval.BLOCK", 20)
    assert ranks(q, t, right).tolist() == whole.tolist()


def test_equal_vectors_find_nothing() -> None:
    """A model that says the same of every text: the right one stands last, not first."""
    same = np.tile(unit(1, 5, 1), (50, 1))
    found = score_retrieval(same[:20], same, list(range(20)))
    assert [m.score for m in found.recall] == [0, 0, 0] and found.mrr.score == pytest.approx(1 / 50)
    assert found.queries == 20 and "20 queries among 50 texts" in found.table()
    assert json.loads(json.dumps(found.to_dict()))["recall"][2]["name"] == "recall@10, %"


# -- language ----------------------------------------------------------------------------------------------


def test_language_by_hand() -> None:
    """8 tokens of 4 bits each, over 16 bytes: perplexity 16 a token, 4 a byte, 2 bits a byte."""
    found = score_language([8 * 4 * math.log(2)], [8], [16])
    assert (found.perplexity.score, found.byte_perplexity.score) == pytest.approx((16, 4))
    assert found.bits.score == pytest.approx(2) and found.perplexity.low is None
    assert (found.tokens, found.bytes, found.notes) == (8, 16, ())


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(1, 50), st.integers(1, 200)), min_size=2, max_size=9)
)
def test_language_is_of_sums(pieces: list[tuple[float, int, int]]) -> None:
    """Not a mean over pieces of text; the interval holds the point."""
    nll, tokens, bytes_ = (list(x) for x in zip(*pieces, strict=True))
    found = score_language(nll, tokens, bytes_, resamples=50)
    assert found.perplexity.score == pytest.approx(math.exp(sum(nll) / sum(tokens)))
    assert found.byte_perplexity.score == pytest.approx(2**found.bits.score)
    assert found.bits.score == pytest.approx(sum(nll) / sum(bytes_) / math.log(2))
    for m in (found.perplexity, found.byte_perplexity, found.bits):
        assert m.low is not None and m.high is not None and m.low <= m.score <= m.high


def test_a_perplexity_too_large_for_a_number() -> None:
    found = score_language([1e6], [1], [1000])
    assert found.perplexity.score == math.inf
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["perplexity"]["score"] is None
    assert "inf" in found.table()


# -- bootstrap ---------------------------------------------------------------------------------------------


def test_resamples_are_sums_of_drawn_rows() -> None:
    """One row drawn N times; the mean over draws is the whole; no resamples give none."""
    table = np.arange(12, dtype=np.float64).reshape(6, 2)
    (sums,) = resampled([table], 4000, 1)
    assert sums.shape == (4000, 2) and np.allclose(sums.mean(0), table.sum(0), rtol=0.02)
    assert all((s[1] - s[0]) == 6 for s in sums)
    assert [x.shape for x in resampled([table, table[:, :1]], 0, 1)] == [(0, 2), (0, 1)]


def test_resamples_without_a_score_are_left_out() -> None:
    assert within("x", 1.0, [math.nan, 0.5, 2.0]) == Measure("x", 1.0, 0.5, 2.0)
    assert within("x", 1.0, [math.nan]).low is None
