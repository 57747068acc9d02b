"""Tokenizers: nothing is lost, nothing special is made from text, and what is saved is what was trained."""

from __future__ import annotations

import copy
import gzip
import itertools
import json
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import regex
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text import vocabulary
from triptych.text.bytelevel import ALPHABET
from triptych.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, train_tokenizer

KINDS = ("bpe", "unigram", "char", "byte", "bytebpe")
EUROPE = ("cat", "dog", "house", "river", "garden", "teacher", "letter", "morning", "Straße", "café", "été")
NOUNS = (*EUROPE, "кошка", "猫", "山", "水")
VERBS = (
    "sees",
    "finds",
    "likes",
    "paints",
    "follows",
    "remembers",
    "sieht",
    "trouve",
    "видит",
    "喜欢",
    "看见",
)
PROSE = [
    f"The {a} {verb} the {b}, {n * 7}." for n, a in enumerate(NOUNS) for verb in VERBS for b in NOUNS[::3]
]
MARKERS = ["<s> </s> <unk> <pad>", "<s><s>", "▁▁ ▁", "<0x41><0x42>", "\x1b_\x1b", "@@ [MASK] ##ing"]
SYMBOLS = ("<|user|>", "<|user|>x", "[MASK]", "Straße")

TRICKY = [
    "",
    " ",
    "  leading and trailing  ",
    "many     blanks",
    "\t tab \t",
    "a\u2028b\u0085c\x0cd\re",
    "\xa0nbsp\u202fnarrow\u3000wide",
    "zero\u200bwidth\u200d\ufeff",
    "😀👩‍👩‍👧🏽 🇩🇪",
    "\u0301lone mark e\u0301 é",
    "\0 nul \0",
    "▁",
    "a▁b ▁ ▁▁",
    "\x1b \x1b_ \x1b\x1b ▁\x1b",
    "<s> </s> <unk> <pad> <0x41> <mask> [MASK] [CLS] @@ ## <|user|>",
    "<s>",
    "</s>",
    "<unk>",
    "<0x0A>",
    "ＦＵＬＬ width，。！ ﬁ ½ ①",
    "\ufffd \ufffe \uffff \U0010ffff \ue000",
    "▅",
    "two\nlines\r\n",
]

any_text = st.text(st.characters(exclude_categories=["Cs"])) | st.lists(
    st.sampled_from([*TRICKY, *NOUNS, " ", "the"]) | st.text(max_size=3)
).map("".join)


def train(lines: Sequence[str] = PROSE, kind: Any = "bpe", size: int = 600, **settings: Any) -> Tokenizer:
    return train_tokenizer(lines, kind=kind, size=size, shrink=True, **settings)


TOKENIZERS = {
    **{kind: train(kind=kind) for kind in KINDS},
    **{f"{kind} symbols": train(kind=kind, symbols=SYMBOLS) for kind in KINDS},
    **{f"{kind} no prefix": train(kind=kind, dummy_prefix=False, split_digits=True) for kind in KINDS},
    # The text that is most likely to teach a piece that looks like a special one.
    **{f"{kind} markers": train(MARKERS * 30, kind) for kind in KINDS},
    # No blank in training: U+2581 is not in the vocabulary.
    **{f"{kind} no blank": train(["你好世界", "世界你好"], kind, dummy_prefix=False) for kind in KINDS},
}
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)
every_kind = pytest.mark.parametrize("kind", KINDS)


def is_plain(tokenizer: Tokenizer, ids: Sequence[int]) -> bool:
    """No special and no symbol."""
    return all(len(vocabulary.SPECIALS) <= n < tokenizer.size - len(tokenizer.symbols) for n in ids)


@every_tokenizer
@pytest.mark.parametrize("text", TRICKY, ids=ascii)
def test_tricky_text_comes_back_without_specials(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert is_plain(tokenizer, ids)


@every_tokenizer
@given(text=any_text, seed=st.integers(0, 2**40))
def test_any_text_comes_back_without_specials(name: str, text: str, seed: int) -> None:
    tokenizer = TOKENIZERS[name]
    for ids in (
        tokenizer.encode(text),
        tokenizer.sample(text, 0.3, seed),
        tokenizer.encode_batch(["x", text])[1],
    ):
        assert tokenizer.decode(ids) == text
        assert is_plain(tokenizer, ids)


@every_kind
@given(parts=st.lists(st.sampled_from([*SYMBOLS, " ", "Straß", "[MASK", "▁", "猫"]) | st.text(max_size=2)))
def test_symbols_count_only_when_allowed(kind: str, parts: list[str]) -> None:
    tokenizer, text = TOKENIZERS[f"{kind} symbols"], "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    ids = tokenizer.encode(text, allow_symbols=True)
    assert tokenizer.decode(ids) == text
    found = [
        tokenizer.symbols[n - tokenizer.size + len(SYMBOLS)] for n in ids if not is_plain(tokenizer, [n])
    ]
    # An independent reading: from the left, the longest name that stands there.
    wanted, place = [], 0
    while place < len(text):
        here = max((s for s in SYMBOLS if text.startswith(s, place)), key=len, default="")
        wanted += [here] if here else []
        place += len(here) or 1
    assert found == wanted
    assert tokenizer.encode_batch([text], allow_symbols=True) == [ids]
    assert is_plain(tokenizer, tokenizer.encode(text))


def test_symbols_have_the_last_ids_in_their_order() -> None:
    for kind in KINDS:
        tokenizer = TOKENIZERS[f"{kind} symbols"]
        ids = [tokenizer.symbol_id(symbol) for symbol in SYMBOLS]
        assert ids == list(range(tokenizer.size - len(SYMBOLS), tokenizer.size))
        assert tokenizer.pieces(ids) == list(SYMBOLS)
        assert tokenizer.decode(ids) == "".join(SYMBOLS)
    with pytest.raises(UserError, match=r"no symbol '\[CLS\]'"):
        tokenizer.symbol_id("[CLS]")


def test_only_the_start_of_a_text_gets_the_prefix() -> None:
    tokenizer = TOKENIZERS["bpe symbols"]
    whole, mask = (
        tokenizer.encode("the cat [MASK] the dog", allow_symbols=True),
        tokenizer.symbol_id("[MASK]"),
    )
    place = whole.index(mask)
    assert tokenizer.pieces(whole)[place + 1] == "▁the"
    assert tokenizer.encode("[MASK] the dog", allow_symbols=True) == whole[place:]


@pytest.mark.parametrize("symbols", [["a", "a"], [""], ["<s>"], ["<unk>"], ["a\nb"], ["\ud800"]])
def test_impossible_symbols_are_refused(symbols: list[str]) -> None:
    with pytest.raises(UserError, match="cannot be a symbol"):
        train(symbols=symbols)


@every_tokenizer
@given(data=st.data())
def test_any_ids_decode(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(-200, tokenizer.size + 50)))
    text = tokenizer.decode(ids)
    text.encode("utf-8")
    assert len(tokenizer.pieces(ids)) == len(ids)
    kept = [n for n in ids if n not in (PAD, BOS, EOS)]
    assert tokenizer.decode(kept) == text


@every_kind
@given(text=any_text, data=st.data())
def test_specials_anywhere_change_nothing(kind: str, text: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    for special in data.draw(st.lists(st.sampled_from([PAD, BOS, EOS]), max_size=5)):
        ids.insert(data.draw(st.integers(0, len(ids))), special)
    assert tokenizer.decode(ids) == text


@given(st.binary())
def test_broken_bytes_decode_as_python_decodes_them(raw: bytes) -> None:
    wanted = raw.decode("utf-8", errors="replace")
    assert TOKENIZERS["byte"].decode([4 + value for value in raw]) == wanted


def test_broken_bytes_and_foreign_ids_are_replacement_characters() -> None:
    tokenizer = TOKENIZERS["bpe"]
    first_of_three = 4 + 0xE4
    letter = tokenizer.encode("z")[-1]
    assert tokenizer.pieces([first_of_three, PAD, UNK, BOS, EOS, -1, 10**6]) == (
        ["<0xE4>", "<pad>", "<unk>", "<s>", "</s>", "<?-1>", "<?1000000>"]
    )
    assert tokenizer.decode([letter, first_of_three, letter]).count("\ufffd") == 1
    for number in (UNK, -100, tokenizer.size):
        assert tokenizer.decode([letter, number, letter]) == "z\ufffdz"


@every_kind
def test_a_lone_surrogate_is_named(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    for use in (
        lambda: tokenizer.encode("ab\ud800"),
        lambda: tokenizer.encode_batch(["fine", "ab\ud800"]),
        lambda: tokenizer.sample("ab\ud800", 0.1, 0),
    ):
        with pytest.raises(UserError, match=r"character 3 .* U\+D800"):
            use()
    if kind != "byte":
        with pytest.raises(UserError, match="line 2"):
            train(["fine", "ab\udfff"], kind)


@every_kind
def test_a_batch_is_its_texts(kind: str) -> None:
    texts = [*TRICKY, *PROSE[:50]]
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch([]) == []


def test_sampling_follows_its_seed_in_every_thread() -> None:
    text = PROSE[100]
    for kind in ("bpe", "unigram", "bytebpe"):
        tokenizer = TOKENIZERS[kind]
        wanted = [tokenizer.sample(text, 0.2, seed) for seed in range(30)]
        assert len(set(map(tuple, wanted))) > 5
        seen: list[list[list[int]]] = []

        def again(tokenizer: Tokenizer = tokenizer, seen: list[list[list[int]]] = seen) -> None:
            seen.append([tokenizer.sample(text, 0.2, seed) for seed in range(30)])

        threads = [threading.Thread(target=again) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [wanted] * 4


def test_sampling_strength() -> None:
    text = "The teacher remembers the garden"
    for bpe in (TOKENIZERS["bpe"], TOKENIZERS["bytebpe"]):
        assert bpe.sample(text, 0.0, 3) == bpe.encode(text)
        assert bpe.pieces(bpe.sample(text, 1.0, 3)) == list("▁" + text.replace(" ", "▁"))
        few, many = (sum(len(bpe.sample(text, a, seed)) for seed in range(40)) for a in (0.1, 0.5))
        assert 40 * len(bpe.encode(text)) < few < many < 40 * (len(text) + 1)
    unigram = TOKENIZERS["unigram"]
    lengths = [sum(len(unigram.sample(text, alpha, seed)) for seed in range(40)) for alpha in (0.05, 0.5)]
    assert lengths[0] > lengths[1] >= 40 * len(unigram.encode(text))
    for kind in ("char", "byte"):
        assert TOKENIZERS[kind].sample(text, 0.5, 3) == TOKENIZERS[kind].encode(text)


def test_nothing_is_normalised() -> None:
    for kind in KINDS:
        tokenizer = TOKENIZERS[kind]
        for one, other in (
            ("，", ","),
            ("é", "e\u0301"),
            ("Ａ", "A"),
            ("a b", "a  b"),
            (" a", "a"),
            ("ﬁ", "fi"),
        ):
            assert tokenizer.encode(one) != tokenizer.encode(other)


def test_without_byte_fallback_a_foreign_character_is_unk() -> None:
    for kind in ("bpe", "unigram", "char"):
        tokenizer = train(["abc abd"] * 5, kind, byte_fallback=False)
        assert tokenizer.decode(tokenizer.encode("ab c")) == "ab c"
        assert UNK in tokenizer.encode("a語b")
        assert tokenizer.decode(tokenizer.encode("a語b")) == "a\ufffdb"
        assert tokenizer.size < 20


@every_tokenizer
def test_saved_pickled_and_copied_are_the_same(name: str, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[name]
    tokenizer.save(tmp_path / "run" / "tokenizer")
    for other in (
        Tokenizer.load(tmp_path / "run" / "tokenizer"),
        pickle.loads(pickle.dumps(tokenizer)),
        copy.deepcopy(tokenizer),
    ):
        assert other.fingerprint == tokenizer.fingerprint
        assert (other.kind, other.size, other.symbols) == (tokenizer.kind, tokenizer.size, tokenizer.symbols)
        texts = [*TRICKY, *PROSE[:20]]
        assert other.encode_batch(texts, allow_symbols=True) == tokenizer.encode_batch(
            texts, allow_symbols=True
        )
        assert other.sample(PROSE[0], 0.5, 1) == tokenizer.sample(PROSE[0], 0.5, 1)


def test_the_saved_model_means_the_same_to_sentencepiece_alone(tmp_path: Path) -> None:
    for name in ("bpe", "unigram", "char", "bpe no prefix"):
        TOKENIZERS[name].save(tmp_path / name)
        processor = sentencepiece.SentencePieceProcessor(
            model_file=str(tmp_path / name / "sentencepiece.model")
        )
        texts = [text for text in [*TRICKY, *PROSE[:50]] if "▁" not in text and "\x1b" not in text]
        assert processor.encode(texts) == TOKENIZERS[name].encode_batch(texts)
        assert [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()] == [
            0,
            1,
            2,
            3,
        ]


@pytest.mark.parametrize(("kind", "model"), [("bpe", "sentencepiece.model"), ("bytebpe", "merges.txt")])
def test_a_missing_or_altered_file_is_named(tmp_path: Path, kind: str, model: str) -> None:
    TOKENIZERS[f"{kind} symbols"].save(tmp_path)
    for name in ("tokenizer.json", model):
        path = tmp_path / name
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(UserError, match=name):
            Tokenizer.load(tmp_path)
        middle = len(whole) // 2
        for altered in (
            b"",
            b"[]",
            whole[:middle],
            whole[:middle] + b"~" + whole[middle + 1 :],
            whole + b"}",
        ):
            path.write_bytes(altered)
            with pytest.raises(UserError, match=name):
                Tokenizer.load(tmp_path)
        path.write_bytes(whole)
    Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"symbols": ["[MASK]"]},
        {"format": 99},
        {"settings": {"kind": "bpe", "dummy_prefix": False}},
        {"settings": {"kind": "wordpiece"}},
        {"settings": {"kind": "byte"}},
        {"settings": {"kind": "bytebpe"}},
        {"settings": {"kind": "bpe", "colour": "red"}},
        {"settings": None},
        {"symbols": [1]},
        {"fingerprint": "0" * 64},
        {"model": None},
    ],
    ids=str,
)
def test_an_altered_setting_is_an_error(tmp_path: Path, change: dict[str, Any]) -> None:
    TOKENIZERS["bpe symbols"].save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")
    with pytest.raises(UserError) as caught:
        Tokenizer.load(tmp_path)
    assert str(tmp_path) in caught.value.where


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"):
        TOKENIZERS["byte"].save(tmp_path / "file" / "tokenizer")


@every_kind
@given(text=any_text, data=st.data())
def test_the_first_ids_of_a_text_are_a_beginning_of_it(kind: str, text: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[data.draw(st.sampled_from([kind, f"{kind} no blank"]))]
    ids = tokenizer.encode(text)
    begun = tokenizer.decode(ids[: data.draw(st.integers(0, len(ids)))])
    assert text.startswith(begun.rstrip("\ufffd"))
    assert len(begun) - len(begun.rstrip("\ufffd")) <= 3 or "\ufffd" in text


@every_kind
@given(parts=st.lists(any_text, min_size=1, max_size=4))
def test_text_that_goes_on_gets_no_prefix(kind: str, parts: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    ids: list[int] = []
    for part in parts:
        ids += tokenizer.encode(part, begins=not ids)
    assert tokenizer.decode(ids) == "".join(parts)


@every_kind
def test_further_symbols_come_at_the_end(kind: str) -> None:
    tokenizer = TOKENIZERS[f"{kind} symbols"]
    more = tokenizer.with_symbols(["[CLS]", "[MASK]", "[SEP]", "[CLS]"])
    assert more.symbols == (*SYMBOLS, "[CLS]", "[SEP]")
    assert more.pieces(range(tokenizer.size)) == tokenizer.pieces(range(tokenizer.size))
    assert [more.symbol_id("[CLS]"), more.symbol_id("[SEP]")] == [tokenizer.size, tokenizer.size + 1]
    assert more.encode_batch(PROSE) == tokenizer.encode_batch(PROSE)
    assert more.encode("x[SEP][MASK]y", allow_symbols=True)[-3:-1] == (
        [tokenizer.size + 1, tokenizer.symbol_id("[MASK]")]
    )
    assert is_plain(more, more.encode("x[SEP][MASK]y"))
    assert more.fingerprint != tokenizer.fingerprint == tokenizer.with_symbols(SYMBOLS[:2]).fingerprint
    with pytest.raises(UserError, match="cannot be a symbol"):
        tokenizer.with_symbols(["<s>"])


WORDS = regex.compile(r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""")


def merged(word: str, merges: list[list[str]]) -> list[bytes]:
    """BPE as the paper tells it: merge every place of the earliest merge there is, and again."""
    pieces = [ALPHABET[byte] for byte in word.encode()]
    while candidates := [m for m in merges if any([a, b] == m for a, b in itertools.pairwise(pieces))]:
        (left, right), out = candidates[0], []
        for piece in pieces:
            if out and piece == right and out[-1] == left:
                out[-1] = left + right
            else:
                out.append(piece)
        pieces = out
    return [bytes(ALPHABET.index(letter) for letter in piece) for piece in pieces]


@given(text=any_text | st.text(st.sampled_from("the catsr n 1\n'’猫")))
def test_byte_level_pieces_are_those_of_the_paper(text: str) -> None:
    tokenizer = TOKENIZERS["bytebpe markers" if "<" in text else "bytebpe"]
    merges = [line.split(" ") for line in tokenizer.model.decode().split("\n")[1:-1]]
    spelled = [tokenizer._vocabulary.spell(number) for number in tokenizer.encode(text, begins=False)]
    words = WORDS.findall(text)
    assert "".join(words) == text
    assert spelled == [piece for word in words for piece in merged(word, merges)]


def test_byte_level_merges_are_the_most_frequent_pairs() -> None:
    tokenizer = train(["aab aab aab ab"], "bytebpe", 263, dummy_prefix=False)
    assert tokenizer.pieces(range(260, 263)) == ["ab", "aab", "▁aab"]
    with pytest.raises(UserError, match="largest it gives is 263"):
        train_tokenizer(["aab aab aab ab"], kind="bytebpe", size=270, dummy_prefix=False)
    assert train(["猫"], "bytebpe", 260).size == 260
    for size in (259, 100):
        with pytest.raises(UserError, match="need 260"):
            train(PROSE, "bytebpe", size)
    with pytest.raises(UserError, match="no text to learn"):
        train([""], "bytebpe")


def test_a_long_word_is_sampled_in_no_time() -> None:
    # Quadratic steps would take minutes.
    text = "кошка" * 4_000
    tokenizer = TOKENIZERS["bytebpe"]
    assert tokenizer.decode(tokenizer.sample(text, 0.1, 1)) == text
    assert tokenizer.sample(text, 0.0, 1) == tokenizer.encode(text)


def test_real_text_comes_back(data_folder: Path) -> None:
    with gzip.open(data_folder / "tatoeba_eng_fra" / "fra.txt.gz", "rt", encoding="utf-8") as stream:
        lines = [line for line in stream.read().split("\n")[::40] if line]
    for kind in ("bpe", "unigram", "bytebpe"):
        tokenizer = train(lines, kind, 2_000)
        batch = tokenizer.encode_batch(lines)
        assert tokenizer.size == 2_000
        assert [tokenizer.decode(ids) for ids in batch] == lines
        assert sum(map(len, batch)) < 0.5 * sum(map(len, lines))


@pytest.mark.parametrize("kind", ["char", "bpe", "unigram"])
def test_line_ends_are_learned_where_bytes_are_not_at_hand(kind: Any) -> None:
    lines = ["ab cd\n", "cd ab\n", "\n", "abcd abc\n"] * 20
    tokenizer = train_tokenizer(lines, kind=kind, size=20, byte_fallback=False, coverage=1.0, shrink=True)
    text = "ab\n\n cd"
    ids = tokenizer.encode(text)
    assert UNK not in ids and tokenizer.decode(ids) == text
    assert tokenizer.pieces(ids).count("\n") == 2
