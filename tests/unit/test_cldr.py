"""The phrase corpus: any two locales, no leak between its parts, every word of a test phrase in train."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from babel import Locale
from babel.dates import format_date
from babel.numbers import format_decimal
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text import cldr
from triptych.text.cldr import PhraseCorpus
from triptych.text.cldr import corpus as building
from triptych.text.cldr.phrases import FAMILIES, NAMES

PAIRS = [
    ("en", "zh"),
    ("en", "de"),
    ("en", "ar"),
    ("zh", "en"),
    ("zh_Hant", "pt-BR"),
    ("fa", "hi"),
    ("ja", "ko"),
    ("am", "my"),
    ("ru", "cy"),
    ("he", "ur"),
    ("sr_Latn", "sr"),
    ("th", "yo"),
    ("fi", "si"),
    ("es_MX", "fr_CA"),
    ("kln", "jbo"),
    ("ii", "gv"),
    ("en", "en_GB"),
    ("vo", "mgo"),
]
every_pair = pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda code: code)


@pytest.fixture(scope="module")
def corpora() -> Callable[[str, str], PhraseCorpus]:
    """Corpora of a thousand pairs, each built once."""
    built: dict[tuple[str, str], PhraseCorpus] = {}

    def get(source: str, target: str) -> PhraseCorpus:
        if (source, target) not in built:
            built[source, target] = cldr.build(source, target, size=1_000)
        return built[source, target]

    return get


@pytest.fixture(scope="module")
def whole() -> PhraseCorpus:
    """The corpus as a first run meets it."""
    return cldr.build("en", "de")


Corpora = Callable[[str, str], PhraseCorpus]


def parts(corpus: PhraseCorpus) -> list[list[tuple[str, str]]]:
    return [corpus.train, corpus.valid, corpus.test]


def assert_sound(corpus: PhraseCorpus) -> None:
    pairs = [pair for part in parts(corpus) for pair in part]
    assert len({source for source, _ in pairs}) == len(pairs), "a source stands twice"
    for side in (0, 1):
        texts = [{pair[side] for pair in part} for part in parts(corpus)]
        assert not (texts[0] & texts[1] or texts[0] & texts[2] or texts[1] & texts[2]), "parts share a text"
    for text in (text for pair in pairs for text in pair):
        assert text and text == text.strip() and "\n" not in text and "\t" not in text
    for part, kinds in zip(
        parts(corpus), (corpus.train_kinds, corpus.valid_kinds, corpus.test_kinds), strict=True
    ):
        assert len(part) == len(kinds)
        assert set(kinds) <= {*FAMILIES, "name"}
        assert not set(kinds) & set(corpus.skipped)
    assert "name" not in corpus.valid_kinds + corpus.test_kinds


@every_pair
def test_any_two_locales_give_a_sound_corpus(corpora: Corpora, source: str, target: str) -> None:
    corpus = corpora(source, target)
    assert_sound(corpus)
    assert 950 < len(corpus.train) < 1_070
    assert 20 < len(corpus.test) <= 35 and 20 < len(corpus.valid) <= 35


def test_the_whole_corpus_is_sound_and_of_the_stated_size(whole: PhraseCorpus) -> None:
    assert_sound(whole)
    assert len(whole.train) == pytest.approx(30_000, rel=0.01)
    for held_out, kinds in ((whole.valid, whole.valid_kinds), (whole.test, whole.test_kinds)):
        assert len(held_out) == pytest.approx(1_000, rel=0.01)
        counts = Counter(kinds)
        for kind, (share, _) in FAMILIES.items():
            assert counts[kind] / len(kinds) == pytest.approx(share, abs=0.01), kind
    assert sum(share for share, _ in FAMILIES.values()) == pytest.approx(1.0)
    assert whole.train_kinds.count("name") > 0.9 * len(NAMES)
    assert whole.skipped == ()


def test_every_word_of_a_held_out_phrase_is_in_train(whole: PhraseCorpus, corpora: Corpora) -> None:
    def words(texts: list[str]) -> Counter[str]:
        return Counter(word for text in texts for word in set(re.findall(r"[^\W\d_]+", text)))

    for corpus, least in ((whole, 3), (corpora("es_MX", "fr_CA"), 1), (corpora("ru", "cy"), 1)):
        for side in (0, 1):
            known = words([pair[side] for pair in corpus.train])
            for pair in corpus.valid + corpus.test:
                assert all(known[word] >= least for word in words([pair[side]])), pair


def test_held_out_lists_are_new_combinations_of_known_names(whole: PhraseCorpus) -> None:
    english = Locale("en")
    known = {
        source for (source, _), kind in zip(whole.train, whole.train_kinds, strict=True) if kind == "name"
    }
    lists = [
        source
        for (source, _), kind in zip(whole.test, whole.test_kinds, strict=True)
        if kind in ("territories", "languages")
    ]
    assert len(lists) > 100
    names = sorted({*english.territories.values(), *english.languages.values()}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, names)))
    for text in lists:
        found = pattern.findall(text)
        assert 2 <= len(found) <= 3 and set(found) <= known, text


def test_what_babel_writes_is_kept_as_it_is(whole: PhraseCorpus, corpora: Corpora) -> None:
    sources, targets = zip(*whole.train, strict=True)
    assert any("\u202f" in text for text in sources)  # "3:04 PM" has a narrow no-break space
    assert any("\xa0" in text for text in targets)
    assert any("\u200f" in target for _, target in corpora("en", "ar").train)
    numbers = [pair for pair, kind in zip(whole.train, whole.train_kinds, strict=True) if kind == "number"]
    for source, target in numbers[:200]:
        assert "." in source or target == format_decimal(int(source.replace(",", "")), locale="de")


def test_what_a_source_means_does_not_depend_on_chance() -> None:
    # Chinese writes long and medium dates alike; the long one is kept, always.
    corpus = cldr.build("zh", "en", size=4_000)
    dates = [pair for pair in corpus.train + corpus.test if re.fullmatch(r"\d+年\d+月\d+日", pair[0])]
    assert len(dates) > 50
    for source, target in dates:
        year, month, day = map(int, re.findall(r"\d+", source))
        assert target == format_date(dt.date(year, month, day), "long", locale="en")


def test_a_source_with_two_meanings_is_dropped() -> None:
    sundanese = Locale("su")  # calls the country and the language alike
    assert sundanese.territories["IT"] == sundanese.languages["it"] == "Italia"
    sources = {source for source, _ in cldr.build("su", "en", size=1_500).train}
    assert "Italia" not in sources
    assert {"Jérman", "Basa Inggris"} & sources


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(["one", "two", "name"]), st.integers(0, 5)), max_size=60
    ),
    held_out=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_a_split_loses_nothing_and_leaves_every_atom_in_train(
    rows: list[tuple[int, str, int]], held_out: int, seed: int
) -> None:
    kinds = {target: kind for target, kind, _ in rows}  # as built: a group with a name is led by it
    entries = [
        building._Entry(f"s{n}", f"t{target}", kinds[target], frozenset([("atom", atom)]))
        for n, (target, _, atom) in enumerate(rows)
    ]
    train, valid, test = building._split(entries, held_out, Random(seed))
    assert sorted(train + valid + test) == sorted(entries)
    assert not {e.target for e in train} & {e.target for e in valid + test}
    assert not {e.target for e in valid} & {e.target for e in test}
    atoms = Counter(atom for entry in train for atom in entry.atoms)
    for entry in valid + test:
        assert entry.kind != "name"
        assert all(atoms[atom] >= building.MIN_EXPOSURE for atom in entry.atoms)


def test_kinds_without_data_are_skipped_and_named(corpora: Corpora) -> None:
    corpus = corpora("vo", "mgo")
    assert set(corpus.skipped) == {"territories", "languages"}
    assert set(corpus.train_kinds) - {"name"} == set(FAMILIES) - set(corpus.skipped)


def test_the_same_arguments_give_the_same_corpus_in_any_process() -> None:
    one = cldr.build("en", "fr", seed=5, size=300)
    assert cldr.build("en", "fr", seed=5, size=300) == one
    code = "from triptych.text.cldr import build; print(ascii(build('en', 'fr', seed=5, size=300).test))"
    path = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "77"}
    other = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == ascii(one.test)


def test_seeds_and_codes_matter_as_far_as_they_mean_something_else() -> None:
    one = cldr.build("en", "pt_BR", size=200)
    assert cldr.build("en", "pt-br", size=200) == one
    assert cldr.build("en", "pt_BR", size=200, seed=1).train != one.train
    simplified, traditional = (cldr.build("en", code, size=200).train for code in ("zh", "zh_Hant"))
    assert {target for _, target in simplified} != {target for _, target in traditional}


@pytest.mark.parametrize("size", [1, 2, 10, 100])
def test_small_sizes_work(size: int) -> None:
    corpus = cldr.build("en", "zh", size=size)
    assert_sound(corpus)
    assert corpus.skipped == ()
    assert size <= len(corpus.train) <= 1.1 * size + 2


@pytest.mark.parametrize(
    ("code", "near"),
    [
        ("xx", ""),
        ("", "en"),
        ("german", "de"),
        ("Chinese", "zh"),
        ("pt_B", "pt_BR"),
        ("zh-Hand", "zh_Hans"),
        ("root", ""),
        ("und", ""),
        ("../en", ""),
        ("日本語", "en"),
        ("en\0", "en"),
    ],
)
def test_an_unknown_locale_is_refused_with_its_neighbours(code: str, near: str) -> None:
    for source, target, where in ((code, "en", "source"), ("en", code, "target")):
        with pytest.raises(UserError, match="no locale") as caught:
            cldr.build(source, target, size=10)
        assert caught.value.where == where
        assert near in caught.value.mend.removeprefix("near it: ").split(", ") or not near


def test_two_alike_locales_are_refused() -> None:
    for code in ("en", "zh_Hant"):
        with pytest.raises(UserError, match="the same locale"):
            cldr.build(code, code.replace("_", "-").upper(), size=50)
    with pytest.raises(UserError, match="nothing to translate"):
        cldr.build("zh", "zh_Hans", size=50)


@pytest.mark.parametrize("size", [0, -1])
def test_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(UserError, match="cannot be built"):
        cldr.build("en", "de", size=size)


def test_babel_is_not_imported_before_a_corpus_is_built() -> None:
    code = "import sys, triptych.text.cldr; sys.exit('babel' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=True)
