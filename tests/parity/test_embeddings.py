"""Factorised embeddings against the table that their factors make, and against ALBERT's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from triptych.config import ModelConfig
from triptych.layout import Layout
from triptych.model import Model, build
from triptych.model.embedding import Embedding, Factorised, Table
from triptych.model.registry import part_of

V, C, E = 20, 12, 5
FORMS = ("encoder_decoder", "decoder", "encoder")


def _model(form: str, tie: str, embedding: Any, scaled: bool = True) -> ModelConfig:
    return ModelConfig.parse(
        {
            "form": form,
            "tie": tie,
            "embedding": embedding,
            "scale_embedding": scaled,
            "vocab": V,
            "dim": C,
            "layers": 1,
            "heads": 2,
            "dropout": 0.0,
        }
    )


def _embeddings(model: nn.Module) -> list[Any]:
    return [m for m in model.modules() if isinstance(m, Embedding)]


def _logits(model: Model) -> Tensor:
    ids, layout = torch.arange(8).view(2, 4), Layout.full(2, 4)
    both = model.config.form == "encoder_decoder"
    out: Tensor = model(ids + 8, layout, ids, layout) if both else model(ids, layout)
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
def test_factorised_is_a_table_that_is_a_product(form: str, tie: str) -> None:
    """The whole model: what goes in, and what comes out, tied two ways, three ways or not at all."""
    factored = build(_model(form, tie, {"kind": "factorised", "dim": E}), seed=1).double()
    whole = build(_model(form, tie, "table"), seed=2).double()
    state = {n: p for n, p in factored.state_dict().items() if "embedding" not in n and "output" not in n}
    missing = whole.load_state_dict(state, strict=False)
    assert all("embedding" in n or "output" in n for n in missing.missing_keys)
    assert not missing.unexpected_keys
    ours, tables = _embeddings(factored), _embeddings(whole)
    assert len(ours) == len(tables) == (2 if form == "encoder_decoder" and tie != "all" else 1)
    with torch.no_grad():
        for mine, table in zip(ours, tables, strict=True):
            table.weight.copy_(mine.weight @ mine.expand.weight.t())
        if tie == "none":
            whole.output.weight.copy_(factored.output.weight @ factored.output.reduce.weight)  # type: ignore[operator]
    torch.testing.assert_close(_logits(factored), _logits(whole), rtol=1e-10, atol=1e-12)

    # d loss / d table goes into both factors, from both ends.
    for model in (factored, whole):
        _logits(model).pow(2).sum().backward()
    for mine, table in zip(ours, tables, strict=True):
        torch.testing.assert_close(mine.weight.grad, table.weight.grad @ mine.expand.weight)
        torch.testing.assert_close(mine.expand.weight.grad, table.weight.grad.t() @ mine.weight)


def test_factorised_is_alberts() -> None:
    from transformers import AlbertConfig, AlbertModel

    config = AlbertConfig(
        vocab_size=V, embedding_size=E, hidden_size=C, num_attention_heads=2, intermediate_size=8
    )
    theirs: Any = AlbertModel(config)
    model = _model("encoder", "all", {"kind": "factorised", "dim": E})
    ours: Any = part_of(model.embedding)(model.embedding, model)
    with torch.no_grad():
        ours.weight.copy_(theirs.embeddings.word_embeddings.weight)
        ours.expand.weight.copy_(theirs.encoder.embedding_hidden_mapping_in.weight)
        theirs.encoder.embedding_hidden_mapping_in.bias.zero_()
    ids = torch.randint(0, V, (3, 6))
    want = theirs.encoder.embedding_hidden_mapping_in(theirs.embeddings.word_embeddings(ids))
    torch.testing.assert_close(ours(ids), want)


@pytest.mark.parametrize("tie", ["none", "source", "decoder", "all"])
def test_what_is_tied_is_one(tie: str) -> None:
    model: Any = build(_model("encoder_decoder", tie, {"kind": "factorised", "dim": E}), seed=1)
    tied = tie in ("decoder", "all")
    assert (model.output.weight is model.target_embedding.weight) == tied
    assert (model.output.reduce.weight is model.target_embedding.expand.weight) == tied
    assert (model.source_embedding is model.target_embedding) == (tie in ("source", "all"))


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("width", [64, 256, 400])
def test_factorised_has_a_tables_scale(scaled: bool, width: int) -> None:
    """Of what is embedded and of logits, untied. Tied and scaled, of logits of embeddings themselves, made of
    unit variance: those are what a fresh model reads."""
    settings = {"vocab": 4000, "dim": 256, "heads": 4, "scale_embedding": scaled, "tie": "none"}

    def made(**more: Any) -> Any:
        model = ModelConfig.parse({**settings, **more})
        return part_of(model.embedding)(model.embedding, model)

    def said(table: Any, tie: str = "none") -> Any:
        model = ModelConfig.parse({**settings, "embedding": {"kind": "factorised", "dim": width}, "tie": tie})
        return part_of(model.output)(model.output, model, table)

    torch.manual_seed(0)
    ids = torch.arange(4000)
    table, factored = made(), made(embedding={"kind": "factorised", "dim": width})
    assert isinstance(table, Table) and isinstance(factored, Factorised)
    assert factored(ids).std().item() / table(ids).std().item() == pytest.approx(1, abs=0.1)
    out = said(factored)(torch.randn(50, 256)).std().item()
    assert out == pytest.approx(1, abs=0.1)
    if scaled:
        tied = made(embedding={"kind": "factorised", "dim": width}, tie="all")
        read = tied(ids[:2000])
        other = said(tied, tie="all")(read / read.std())[:, 2000:]  # of other words
        assert other.std().item() == pytest.approx(1, abs=0.1)
