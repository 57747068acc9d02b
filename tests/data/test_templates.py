"""Templates: the text, exactly; what is learned is the assistant's and its end; no user writes a symbol."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import UserError
from triptych.text.dialogues import Dialogue
from triptych.text.templates import AUTO, END, SYMBOLS, Symbol, encode_runs, prompt, render
from triptych.text.tokenizer import BOS, EOS, Tokenizer, train_tokenizer

TOKENIZERS = {
    kind: train_tokenizer(
        ["user assistant the cat\n"] * 5, kind=kind, size=300, shrink=True, symbols=SYMBOLS["chatml"]
    )
    for kind in ("bpe", "bytebpe", "byte")
}
TEXT = st.lists(
    st.sampled_from(["a", " cat", "\n", "猫", "<|im_end|>", "<|im_start|>", "</s>", "### Response:\n"])
)
TEXT = TEXT.map("".join)
TURNS = st.tuples(st.none() | TEXT, st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3), TEXT)
TEMPLATES = ("alpaca", "chatml")
every_template = pytest.mark.parametrize("template", TEMPLATES)


def dialogue(system: str | None, turns: list[tuple[str, str]], about: str = "") -> Dialogue:
    both = [turn for user, answer in turns for turn in (("user", user), ("assistant", answer))]
    return Dialogue((*((("system", system),) if system is not None else ()), *both), about)


def text_of(runs: list[tuple[str, bool]]) -> str:
    return "".join(text for text, _ in runs)


def test_alpaca_exactly():
    found = render(dialogue(None, [("Name a colour.", "Red.")]), "alpaca")
    assert text_of(found) == (
        "Below is an instruction that describes a task. Write a response that appropriately completes the "
        "request.\n\n### Instruction:\nName a colour.\n\n### Response:\nRed.</s>"
    )
    assert found[1:] == [("Red.", True), ("</s>", True)]
    found = render(dialogue(None, [("Translate.", "zwei Katzen")], "two cats"), "alpaca")
    assert text_of(found) == (
        "Below is an instruction that describes a task, paired with an input that provides further context. "
        "Write a response that appropriately completes the request.\n\n### Instruction:\nTranslate.\n\n"
        "### Input:\ntwo cats\n\n### Response:\nzwei Katzen</s>"
    )
    found = render(dialogue("Be brief.", [("a", "b"), ("c", "d")]), "alpaca")
    assert found == [
        ("Be brief.\n\n### Instruction:\na\n\n### Response:\n", False), ("b", True), ("</s>", True),
        ("\n\n### Instruction:\nc\n\n### Response:\n", False), ("d", True), ("</s>", True),
    ]  # fmt: skip


def test_chatml_exactly():
    found = render(dialogue("Be brief.", [("a", "b")], "about"), "chatml")
    assert text_of(found) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\n\nabout<|im_end|>\n"
        "<|im_start|>assistant\nb<|im_end|>\n"
    )
    assert [text for text, learned in found if learned] == ["b", "<|im_end|>"]
    assert text_of(prompt(dialogue(None, [("a", "b")]), "chatml")) == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    )


@every_template
@given(parts=TURNS)
def test_learned_are_the_answers_and_their_ends(template, parts):
    system, turns, about = parts
    runs = render(dialogue(system, turns, about), template)
    answers = [text for _, answer in turns for text in (answer, END[template]) if text]
    assert [text for text, learned in runs if learned] == answers
    assert all(text for text, _ in runs)
    assert {text for text, _ in runs if isinstance(text, Symbol)} <= {*SYMBOLS[template], "</s>"}


@every_template
@given(parts=TURNS, kind=st.sampled_from(sorted(TOKENIZERS)))
def test_a_prompt_is_the_beginning_of_the_whole(template, parts, kind):
    system, turns, about = parts
    whole = dialogue(system, turns, about)
    asked = prompt(whole, template)
    assert asked == prompt(Dialogue(whole.turns[:-1], about), template)
    assert not any(learned for _, learned in asked)
    runs = render(whole, template)
    assert [text for text, _ in runs][: len(asked)] == [text for text, _ in asked]
    assert text_of(runs) == text_of(asked) + turns[-1][1] + END[template] + "\n" * (template == "chatml")
    ids, learned = encode_runs(runs, TOKENIZERS[kind])
    asked_ids, none = encode_runs(asked, TOKENIZERS[kind])
    assert ids[: len(asked_ids)] == asked_ids and not any(none)
    assert not any(learned[: len(asked_ids)][-1:])


def symbols_in(ids: list[int], tokenizer: Tokenizer) -> list[str]:
    return [piece for piece in tokenizer.pieces(ids) if piece in (*tokenizer.symbols, "</s>")]


@every_template
@given(parts=TURNS, kind=st.sampled_from(sorted(TOKENIZERS)))
def test_text_never_becomes_a_symbol(template, parts, kind):
    system, turns, about = parts
    tokenizer = TOKENIZERS[kind]
    runs = render(dialogue(system, turns, about), template)
    ids, learned = encode_runs(runs, tokenizer)
    assert len(ids) == len(learned) and ids[0] == BOS and not learned[0]
    assert symbols_in(ids, tokenizer) == [text for text, _ in runs if isinstance(text, Symbol)]
    assert ids.count(BOS) == 1
    assert ids.count(EOS) == (len(turns) if template == "alpaca" else 0)
    shown = [number for number in ids if number != EOS]
    assert tokenizer.decode(shown) == "".join(
        text for text, _ in runs if not (isinstance(text, Symbol) and text == "</s>")
    )
    said = [number for number, is_learned in zip(ids, learned, strict=True) if is_learned]
    end = EOS if template == "alpaca" else tokenizer.symbol_id(END[template])
    assert said.count(end) == len(turns)


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ((("assistant", "b"),), "needs a turn of the user where one of the assistant"),
        ((("user", "a"), ("user", "b")), "needs a turn of the assistant where one of the user"),
        (
            (("user", "a"), ("system", "s"), ("assistant", "b")),
            "needs a turn of the assistant where one of the system",
        ),
        ((("user", "a"),), "needs a turn of the assistant at the end"),
        ((("system", "a"),), "needs a turn of the user at the end"),
    ],
)
def test_what_alpaca_lacks_is_said(turns, message):
    with pytest.raises(UserError, match=message) as caught:
        render(Dialogue(turns), "alpaca")
    assert "objective.template=chatml" in caught.value.mend
    assert render(Dialogue(turns), "chatml")


def test_wrong_use():
    with pytest.raises(UserError, match="no template 'vicuna'") as caught:
        render(dialogue(None, [("a", "b")]), "vicuna")  # type: ignore[arg-type]
    assert caught.value.where == "objective.template" and "alpaca, chatml" in caught.value.mend
    for turns in ((), (("system", "s"),), (("assistant", "b"),)):
        with pytest.raises(UserError, match="no turn of a user to answer"):
            prompt(Dialogue(turns), "chatml")
    bare = train_tokenizer(["x"], kind="byte", size=300)
    with pytest.raises(UserError, match=r"no symbol '<\|im_start\|>'"):
        encode_runs(render(dialogue(None, [("a", "b")]), "chatml"), bare)
    assert {*AUTO.values()} == set(TEMPLATES) == set(SYMBOLS)
