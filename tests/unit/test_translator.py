"""Lines in, lines out: what is no line, what is blank, and the draws of a line's parts."""

from __future__ import annotations

import pytest
import torch

from triptych.config import DecodingConfig, RunConfig
from triptych.engine import Bundle
from triptych.errors import UserError
from triptych.model import build
from triptych.text import Pairs, split_long, train_tokenizer
from triptych.training.tasks.translation import encode

LINE = "we have two cats. " * 6


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    """A model that has learned nothing, over a tokenizer of bytes: a line has 20 at most."""
    config = RunConfig.parse({"data": {"max_length": 20}, "text": {"tokenizer": "byte", "target": "en"}})
    tokenizer = train_tokenizer(["we have two cats."], kind="byte", size=260)
    data = {"vocab": tokenizer.size, "dim": 16, "layers": 1, "heads": 2, "ffn": {"dim": 16}, "tie": "all"}
    config = RunConfig.parse({**config.dump(), "model": data})
    return Bundle(config, tokenizer, build(config.model, seed=1).eval())


def test_a_text_is_no_list_of_lines(bundle: Bundle) -> None:
    with pytest.raises(UserError, match="letter by letter"):
        bundle.translate("I see")


@pytest.mark.parametrize(("line", "what"), [("a\ud83d", "character 2"), (3, "no text"), (b"x", "no text")])
def test_what_is_no_text_is_refused_by_line(bundle: Bundle, line: object, what: str) -> None:
    with pytest.raises(UserError, match=what) as caught:
        bundle.translate(["fine", line])  # type: ignore[list-item]
    assert caught.value.where == "line 2"


def test_lines_of_nothing_to_see_are_blank(bundle: Bundle) -> None:
    for line in ("", " \t", "\u200b", "\u200b \ufeff\u2060", "\u00ad"):
        (found,) = bundle.translate_full([line])
        assert (found.text, found.alternatives[0].reason) == ("", "blank")


def test_a_line_that_is_refused_leaves_the_model_as_it_was(bundle: Bundle) -> None:
    bundle.model.train()
    try:
        with pytest.raises(UserError, match="the model takes"):
            bundle.translator.translate(["two cats " * 9], DecodingConfig(), strict=True)
        assert bundle.model.training
    finally:
        bundle.model.eval()


def test_logits_are_of_an_encoder_decoder(bundle: Bundle) -> None:
    """Without dropout, on the model's device; of other forms there are none."""
    try:
        bundle.model.train()
        assert torch.equal(bundle.logits([5], [6]), bundle.logits([5], [6])) and bundle.model.training
    finally:
        bundle.model.eval()
    elsewhere = build(bundle.config.model, seed=1).to("meta")
    assert Bundle(bundle.config, bundle.tokenizer, elsewhere).logits([5], [6]).is_meta
    data = {"form": "decoder", "vocab": bundle.tokenizer.size, "dim": 16, "layers": 1, "heads": 2}
    config = RunConfig.parse({"model": data, "objective": {"kind": "causal"}})
    with pytest.raises(UserError, match="encoder–decoder"):
        Bundle(config, bundle.tokenizer, build(config.model, seed=1)).logits([5], [6])


def test_positions_limit_each_side() -> None:
    """A source no longer than the encoder takes; outputs as long as the decoder goes."""
    tokenizer = train_tokenizer(["we have two cats."], kind="byte", size=260)
    settings = {
        "vocab": tokenizer.size, "dim": 16, "layers": 1, "heads": 2,
        "encoder_mixer": {"kind": "linformer", "rank": 2, "max": 12},
    }  # fmt: skip
    config = RunConfig.parse({"text": {"tokenizer": "byte", "target": "en"}, "model": settings})
    translator = Bundle(config, tokenizer, build(config.model, seed=1).eval()).translator
    assert translator.max_length == 11
    (found,) = translator.translate([LINE], DecodingConfig(min_length=40, max_length=40))
    assert found.split > 1
    with pytest.raises(UserError, match="the model takes 11"):
        translator.translate([LINE], DecodingConfig(), strict=True)


def test_pairs_that_pass_the_positions_are_left_out() -> None:
    """By the key that the user has, as those longer than data.max_length are."""
    tokenizer = train_tokenizer(["we have two cats."], kind="byte", size=260)
    config = RunConfig.parse({"model": {"encoder_mixer": {"kind": "linformer", "max": 12}}})
    said: list[str] = []
    texts = ["we have two", "we have two cats"]
    pairs = Pairs(texts, texts, [("a.tsv", 1), ("a.tsv", 2)])
    assert len(encode(pairs, tokenizer, config, said.append, "training")) == 1
    assert said == ["1 training pairs are longer than 11 tokens and left out (a.tsv:2)"]
    with pytest.raises(UserError, match="no training pair") as caught:
        encode(Pairs(texts[1:], texts[1:], [("a.tsv", 2)]), tokenizer, config, said.append, "training")
    assert caught.value.where == "model.encoder_mixer.max"


def test_parts_of_a_line_draw_apart(bundle: Bundle) -> None:
    """Equal parts of one line differ; the first one, as a line that is not split, draws as the line does."""
    settings = DecodingConfig(strategy="sample", seed=5, min_length=8, max_length=8)
    text = split_long(LINE, lambda part: len(part) <= 20)[0]
    (alone,) = bundle.translate_full([text], settings)
    (split,) = bundle.translate_full([LINE], settings)
    assert split.split == 6
    pieces = split.alternatives[0].pieces
    said = [pieces[at : at + 8] for at in range(0, 48, 8)]
    assert len(set(said)) == 6
    assert said[0] == alone.alternatives[0].pieces
