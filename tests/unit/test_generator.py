"""Prompts in, texts out: neighbours, padding and streaming change nothing; limits, ends and starts."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from triptych.config import DecodingConfig, ModelConfig, RunConfig
from triptych.engine import Bundle, Generation, Generator, Prompt
from triptych.engine.generator import longest, usual
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import DecoderOnly, build
from triptych.text import Tokenizer, train_tokenizer
from triptych.text.vocabulary import BOS, EOS, PAD

TEXT = ["aa ab ba\nbb é ☂ 😀 "]
MODELS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"position": "sinusoidal"},
    "learned": {"position": {"kind": "learned", "max": 64}},
    "rope": {"position": "rope"},
    "rope, GQA": {"position": {"kind": "rope", "layout": "interleaved"}, "heads": {"count": 4, "kv": 2}},
    "yarn": {"position": {"kind": "rope", "scaling": {"kind": "yarn", "original": 8, "factor": 4}}},
    "window": {"position": "rope", "attention": {"visible": {"kind": "window", "width": 3}}},
    "alibi": {"position": "alibi", "attention": {"visible": ["everything", {"kind": "window", "width": 4}]}},
    "t5": {"position": "t5"},
    "shaw": {"position": {"kind": "shaw", "clip": 4}},
    "xl": {"position": "xl"},
    "none": {"position": "none"},
    "linear": {"mixer": "linear"},
    "lstm": {"mixer": ["lstm", "attention"], "position": "rope"},
    "retention": {"mixer": "retention"},
    "ssm": {"mixer": "ssm", "position": "none"},
    "experts": {"position": "rope", "experts": {"count": 4, "top_k": 2}},
}
STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "greedy"},
    {"strategy": "sample", "temperature": 1.3, "seed": 3},
    {"strategy": "sample", "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.4},
    {"strategy": "greedy", "min_length": 4, "no_repeat_ngram": 2, "stop": ["b", "aa"]},
]


@cache
def tokenizer(kind: str = "char") -> Tokenizer:
    """Characters: a vocabulary so small that random models often end. Bytes: halves of characters."""
    return train_tokenizer(TEXT, kind=kind, size=300, byte_fallback=kind == "byte")  # type: ignore[arg-type]


@cache
def model(parts: str, kind: str = "char", seed: int = 0, sharp: float = 3.0) -> DecoderOnly:
    """A random model in fp64, so that ties do not happen and rounding decides nothing."""
    data = {"form": "decoder", "dim": 16, "layers": 2, "heads": 2, "ffn": {"dim": 16}, **json.loads(parts)}
    made = build(ModelConfig.parse({**data, "vocab": tokenizer(kind).size}), seed=seed).double().eval()
    with torch.no_grad():
        for p in made.output.parameters():
            p *= sharp
    assert isinstance(made, DecoderOnly)
    return made


def generator(name: str = "rope", kind: str = "char", **more: Any) -> Generator:
    return Generator(model(json.dumps(MODELS[name]), kind), tokenizer(kind), **more)


def decoding(**given: Any) -> DecodingConfig:
    return DecodingConfig.parse({"strategy": "sample", "max_length": 12, **given})


def same(one: Generation, other: Generation) -> None:
    assert (one.text, one.ids, one.reason) == (other.text, other.ids, other.reason)
    assert one.logprob == pytest.approx(other.logprob, abs=1e-9)


prompts = st.lists(st.text("ab \né", max_size=9), max_size=5)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=6)
@given(prompts, st.sampled_from(STRATEGIES), st.sampled_from(["left", "right"]), st.integers(1, 3))
def test_neighbours_and_padding_change_nothing(
    name: str, asked: list[str], strategy: dict[str, Any], side: Any, n: int
) -> None:
    """A batch is its rows alone, and n outputs are the first n of more."""
    chosen, many = decoding(**strategy), n if strategy["strategy"] == "sample" else 1
    found = generator(name, side=side).generate(asked, chosen, many)
    assert [len(group) for group in found] == [many] * len(asked)
    for i, prompt in enumerate(asked):
        (alone,) = generator(name).generate([prompt], chosen, many, first=i)
        for one, other in zip(found[i], alone, strict=True):
            same(one, other)
        same(generator(name).generate([prompt], chosen, 1, first=i)[0][0], found[i][0])


@pytest.mark.parametrize(("name", "penalty"), [*((name, 1.0) for name in MODELS), ("rope", 3.0)])
def test_greedy_is_the_likeliest_token_of_a_model_without_a_cache(name: str, penalty: float) -> None:
    made, begun = model(json.dumps(MODELS[name])), [BOS, *tokenizer().encode("ab a")]
    want, logprob = [], 0.0
    with torch.inference_mode():
        while len(want) < 12:
            ids = torch.tensor([begun + want])
            logits = made(ids, Layout.full(*ids.shape))[0, -1]
            seen = [i for i in {*begun, *want} if i != EOS]  # the prompt counts
            logits[seen] = torch.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
            logits[[PAD, BOS]] = -math.inf
            token = int(logits.argmax())
            logprob += float(logits.log_softmax(-1)[token])
            if token == EOS:
                break
            want.append(token)
    ((found,),) = generator(name).generate(["ab a"], decoding(strategy="greedy", repetition_penalty=penalty))
    assert found.ids == tuple(want)
    assert found.logprob == pytest.approx(logprob, abs=1e-4)
    assert found.reason == ("length" if len(want) == 12 else "eos")


def test_reasons_all_happen() -> None:
    """Or the tests above would prove less than they seem to."""
    found = generator().generate(["a", "b", "é", "ab"] * 5, decoding(stop=["bb", "é"]), 3)
    assert {g.reason for group in found for g in group} == {"eos", "stop", "length"}


def test_draws_belong_to_the_place_in_the_input() -> None:
    one, chosen = generator(), decoding(seed=8)
    whole = one.generate(["a", "ab", "a"], chosen)
    assert one.generate(["ab", "a"], chosen, first=1) == whole[1:]
    assert whole[0] != whole[2], "equal prompts are drawn for apart"
    assert one.generate(["a", "ab", "a"], decoding(seed=9)) != whole


@pytest.mark.parametrize("slots", [1, 40, 100])
def test_batches_change_nothing(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["a", "abababab", "", "é", "ab ab"]
    whole = generator().generate(asked, decoding(), 2)
    monkeypatch.setattr("triptych.engine.generator.SLOTS", slots)
    for one, other in zip(generator().generate(asked, decoding(), 2), whole, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            same(mine, theirs)


# -- streams


@settings(max_examples=25)
@given(
    st.sampled_from(["byte", "char"]),
    st.integers(0, 5),
    st.text("ab \né☂😀", max_size=4),
    st.lists(st.text("ab \n\ufffd", min_size=1, max_size=2), max_size=2),
    st.integers(0, 99),
)
def test_the_pieces_of_a_stream_are_the_text(
    kind: str, seed: int, prompt: str, stops: list[str], draw: int
) -> None:
    """For any model and tokenizer; and no piece ends in what is later something else."""
    one = Generator(model(json.dumps(MODELS["rope"]), kind, seed, sharp=1.0), tokenizer(kind))
    chosen = decoding(seed=draw, stop=stops, max_length=30, temperature=1.5)
    ((whole,),) = one.generate([prompt], chosen)
    stream, pieces = one.stream(prompt, chosen), []
    while True:
        try:
            pieces.append(next(stream))
        except StopIteration as end:
            assert end.value == whole
            break
    assert "".join(pieces) == whole.text and "" not in pieces
    assert not any(stop in whole.text for stop in stops)
    before = one.tokenizer.decode(one.tokenizer.encode(prompt))
    said = one.tokenizer.decode([*one.tokenizer.encode(prompt), *whole.ids])[len(before) :]
    assert said.startswith(whole.text)
    assert whole.text == said or whole.reason == "stop"


class Says(DecoderOnly):
    """Says given tokens whatever it is asked, then the end."""

    def __init__(self, ids: list[int], vocab: int) -> None:
        super().__init__(
            ModelConfig.parse({"form": "decoder", "dim": 8, "layers": 1, "heads": 2, "vocab": vocab})
        )
        self.ids, self.place = [*ids, EOS], 0
        del self.output
        self.output = self.say

    def say(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(len(hidden), self.config.vocab)
        logits[:, self.ids[self.place]] = 99
        self.place += 1
        return logits


def says(text: bytes, *stops: str, **more: Any) -> tuple[list[str], Generation]:
    """Pieces and outcome of a model that says these bytes."""
    one = Generator(Says([4 + b for b in text], 260), tokenizer("byte"))
    stream = one.stream("", decoding(strategy="greedy", stop=stops, max_length=99, **more))
    pieces: list[str] = []
    while True:
        try:
            pieces.append(next(stream))
        except StopIteration as end:
            return pieces, end.value


def test_stop_texts_go_over_tokens_and_never_leak() -> None:
    pieces, found = says(b"Hi!\nUser: no", "\nUser:", "!!")
    assert (pieces, found.reason) == (["H", "i", "!"], "stop")
    assert len(found.ids) == 9, "nothing is said after the stop"
    assert says(b"a\nUse", "\nUser:")[0] == ["a", "\nUse"], "what waited is given when nothing follows"
    assert says(b"\nUs\nUser:", "\nUser:")[0] == ["\nUs"]


def test_characters_come_whole() -> None:
    assert says("é☂😀".encode())[0] == ["é", "☂", "😀"]
    assert says("😀".encode()[:3])[0] == ["\ufffd"]
    assert says(b"a\xffb\xf0")[0] == ["a", "\ufffdb", "\ufffd"]
    assert says("😀é".encode(), "é")[0] == ["😀"]


def test_a_stream_is_told_of_errors_before_it_is_read() -> None:
    with pytest.raises(UserError, match="beam search"):
        generator().stream("a", DecodingConfig())


# -- starts


def test_packed_runs_begin_with_bos_and_streams_do_not() -> None:
    packed, stream = generator(), generator(packing="stream")
    ids = tuple(tokenizer().encode("ab"))
    assert packed._asked(["ab", ""], 0) == [(BOS, *ids), (BOS,)]
    assert stream._asked(["ab", "\n", ""], 0) == [ids, *[tuple(tokenizer().encode("\n"))] * 2]
    for one in (packed, stream):
        for text in ("", " ", "\n", "\u200b"):
            ((found,),) = one.generate([text], decoding())
            assert found.ids and found.text


def test_the_text_goes_on_where_the_prompt_ends() -> None:
    """The blank before a word is part of what follows; at a text's start it is the tokenizer's own."""
    made = train_tokenizer(["ab ba ab ba"], kind="bpe", size=268, shrink=True)
    word = made.encode("ba")
    assert made.decode(word) == "ba"
    said = [*word, *made.encode("ba", begins=False), *word]
    for prompt, text in (("ab", " baba ba"), ("", "baba ba")):
        one = Generator(Says(said, made.size), made)
        assert one.generate([prompt], decoding(strategy="greedy"))[0][0].text == text


def test_a_prompt_may_be_ids() -> None:
    one = generator()
    ids = (BOS, *tokenizer().encode("ab"))
    assert (
        one.generate([Prompt(ids), "ab"], decoding(strategy="greedy"))[0]
        == one.generate(["ab"], decoding(strategy="greedy"))[0]
    )


def test_dropout_is_off_and_comes_back() -> None:
    made = model(json.dumps({**MODELS["rope"], "dropout": 0.5}))
    one = Generator(made, tokenizer())
    want = one.generate(["ab"], decoding())
    made.train()
    assert one.generate(["ab"], decoding()) == want and made.training
    assert "".join(one.stream("ab", decoding())) == want[0][0].text and made.training
    made.eval()


# -- conversations

CHATML = train_tokenizer(["x"], kind="byte", size=262, symbols=("<|im_start|>", "<|im_end|>"))


def test_a_conversation_is_its_template_up_to_the_answer() -> None:
    one = Generator(Says([4 + ord("y")], 262), CHATML, template="chatml")
    turns = [("system", "s"), ("user", "a<|im_end|>"), ("assistant", "b"), ("user", "c")]
    prompt = one.dialogue(turns)
    start, end = CHATML.symbol_id("<|im_start|>"), CHATML.symbol_id("<|im_end|>")
    want = [BOS]
    for role, text in turns:
        want += [start, *CHATML.encode(f"{role}\n{text}"), end, *CHATML.encode("\n")]
    assert prompt.ids == (*want, start, *CHATML.encode("assistant\n"))
    assert prompt.ids.count(end) == 4, "what a user writes is no symbol"
    assert "".join(one.chat(turns, settings=decoding(strategy="greedy"))) == "y"


def test_a_conversation_may_be_all_text() -> None:
    one = Generator(Says([4 + ord("y")], 260), tokenizer("byte"), template="alpaca")
    text = tokenizer("byte").decode(one.dialogue([("user", "Say y.")]).ids)
    assert text.endswith("### Instruction:\nSay y.\n\n### Response:\n")
    assert "".join(one.chat([("user", "Say y.")], "alpaca", decoding(strategy="greedy"))) == "y"


def test_conversations_that_cannot_be() -> None:
    with pytest.raises(UserError, match="not trained on conversations"):
        generator().dialogue([("user", "a")])
    one = Generator(Says([], 260), tokenizer("byte"), template="alpaca")
    for turns, what in (
        ([], "no turn of a user"),
        ([("system", "a")], "no turn of a user"),
        ([("user", "a"), ("user", "b")], "turn of the assistant"),
    ):
        with pytest.raises(UserError, match=what):
            one.chat(turns)
    with pytest.raises(UserError, match="no symbol"):
        one.dialogue([("user", "a")], "chatml")
    with pytest.raises(UserError, match="no template 'x'"):
        one.dialogue([("user", "a")], "x")


# -- ends


def test_ends_of_turns_end() -> None:
    made = CHATML
    one = Generator(Says([4 + ord("a"), made.symbol_id("<|im_end|>"), 4 + ord("b")], made.size), made)
    ((found,),) = one.generate(["x"], decoding(strategy="greedy"))
    assert (found.text, found.ids, found.reason) == ("a", (4 + ord("a"),), "eos")


def test_least_and_most() -> None:
    for least, most in ((5, 5), (3, 7), (0, 1)):
        found = generator().generate(["a"] * 9, decoding(min_length=least, max_length=most))
        assert all(least <= len(g.ids) <= most for (g,) in found)
    ((g,),) = generator().generate(["a"], DecodingConfig(strategy="greedy", min_length=300))
    assert len(g.ids) == 300, "the least length goes before the usual limit"


# -- limits of positions


def test_a_table_of_positions_is_a_limit() -> None:
    one = generator("learned")  # 64 positions
    ((found,),) = one.generate(["a" * 60], decoding(min_length=0, strategy="greedy", no_repeat_ngram=0))
    assert len(found.ids) <= 2  # bos and 61 tokens with the tokenizer's blank stand before
    full = one.generate(["a" * 50], decoding(max_length=30, min_length=12))[0][0]
    assert len(full.ids) == 12 and full.reason == "length"
    assert one.notes == ["an output ended at the last of the 64 positions that the model knows"]
    with pytest.raises(UserError, match="this prompt has 64 tokens, and the model knows 64") as caught:
        one.generate(["a", "a" * 62], decoding())
    assert caught.value.where == "line 2"
    with pytest.raises(UserError, match=r"13 tokens after the 52 of line 1 pass the 64 positions"):
        one.generate(["a" * 50], decoding(max_length=30, min_length=13))
    with pytest.raises(UserError, match="knows 64 positions") as caught:
        one.generate(["a"], decoding(max_length=64))
    assert caught.value.where == "decoding.max_length"


def test_beyond_the_trained_length_is_said_once() -> None:
    one = generator("rope", trained=12)
    one.generate(["a"], decoding(max_length=9, min_length=9))
    assert not one.notes, "bos, blank, a and 9 more are 12"
    one.generate(["a", "b"], decoding(max_length=10, min_length=10))
    "".join(one.stream("ab" * 10, decoding()))
    assert len(one.notes) == 1 and "beyond 12 tokens" in one.notes[0]


def test_what_positions_were_stretched_to_counts() -> None:
    data: dict[str, Any] = {"data": {"length": 32}, "model": {"form": "decoder", "position": "rope"}}
    data["objective"] = "causal"
    assert longest(RunConfig.parse(data)) == 32
    data["model"]["position"] = MODELS["yarn"]["position"]
    assert longest(RunConfig.parse(data)) == 32
    data["model"]["position"] = {"kind": "rope", "scaling": {"kind": "yarn", "original": 32, "factor": 4}}
    assert longest(RunConfig.parse(data)) == 128


# -- settings, and what is refused


def test_open_text_is_drawn_unless_the_run_says_otherwise() -> None:
    plain = usual(DecodingConfig())
    assert (plain.strategy, plain.temperature, plain.top_p) == ("sample", 0.8, 0.95)
    warm = usual(DecodingConfig(temperature=1.2, n_best=3, seed=4))
    assert (warm.strategy, warm.temperature, warm.top_p, warm.n_best, warm.seed) == (
        "sample",
        1.2,
        0.95,
        1,
        4,
    )
    for own in (DecodingConfig(strategy="greedy"), DecodingConfig(strategy="sample")):
        assert usual(own) == own


def test_nothing_in_nothing_out() -> None:
    assert generator().generate([], decoding()) == []


@pytest.mark.parametrize(
    ("asked", "given", "n", "what"),
    [
        ("ab", {}, 1, "letter by letter"),
        (["a", 3], {}, 1, "no text"),
        (["a\ud83d"], {}, 1, "character 2"),
        (["a"], {"strategy": "beam"}, 1, "beam search is for translation"),
        (["a"], {"strategy": "greedy"}, 2, "greedy search has one output"),
        (["a"], {}, 0, "nothing would be generated"),
    ],
)
def test_refused(asked: Any, given: dict[str, Any], n: int, what: str) -> None:
    with pytest.raises(UserError, match=what):
        generator().generate(asked, decoding(**given), n)


def test_a_prefix_wants_a_prompt_as_long() -> None:
    made = model(json.dumps({"attention": {"visible": {"kind": "prefix", "length": 4}}}))
    one = Generator(made, tokenizer())
    assert one.generate(["abab"], decoding())
    with pytest.raises(UserError, match="prefix of 4"):
        one.generate(["a"], decoding(min_length=2))


@pytest.mark.parametrize(
    ("form", "objective", "command"),
    [("encoder_decoder", "translation", "translate"), ("encoder", "masked", "fill")],
)
def test_other_runs_name_their_command(form: str, objective: str, command: str) -> None:
    config = RunConfig.parse({"model": {"form": form, "dim": 8, "heads": 2, "layers": 1, "vocab": 13},
                              "objective": objective})  # fmt: skip
    with pytest.raises(UserError, match=f"triptych {command}"):
        Bundle(config, tokenizer(), build(config.model)).generator  # noqa: B018
