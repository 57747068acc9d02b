"""What hidden states become: pooling by its definition, what heads begin with, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from triptych.config import ModelConfig, load_config
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import build, cost
from triptych.model.output import pooled

SMALL: dict[str, Any] = {"form": "encoder", "vocab": 30, "dim": 16, "layers": 1, "heads": 2}
# A row with padding before, between and after its tokens; one padded on the left, one on the right, one full.
LAYOUT = Layout(
    torch.tensor([[0, 0, 1, 0, 2, 0], [0, 0, 0, 1, 2, 3], [0, 1, 0, 0, 0, 0], [0, 1, 2, 3, 4, 5]]),
    torch.tensor([[-1, 0, 0, -1, 0, -1], [-1, -1, 0, 0, 0, 0], [0, 0, -1, -1, -1, -1], [0] * 6]),
)


def _model(**settings: Any) -> Any:
    return build(ModelConfig.parse({**SMALL, **settings}), seed=1).eval()


def _by_hand(how: str, tokens: Tensor) -> Tensor:
    """Of one row's own tokens."""
    by = {"first": lambda x: x[0], "last": lambda x: x[-1], "mean": lambda x: x.sum(0) / len(x)}
    return by[how](tokens) if how in by else tokens.max(0).values


@pytest.mark.parametrize("how", ["first", "last", "mean", "max"])
@pytest.mark.parametrize("junk", [1e6, -1e6, math.nan, math.inf])
def test_pools_are_of_real_tokens(how: str, junk: float) -> None:
    """Whatever stands in padding, NaN too, and wherever padding stands; so are their gradients."""
    own = torch.randn(4, 6, 5, dtype=torch.float64)
    hidden = own.masked_fill(~LAYOUT.real[:, :, None], junk).requires_grad_()
    got = pooled(how, hidden, LAYOUT)
    want = torch.stack([_by_hand(how, x[real]) for x, real in zip(own, LAYOUT.real, strict=True)])
    torch.testing.assert_close(got, want, rtol=1e-14, atol=0)
    got.sum().backward()
    assert hidden.grad is not None
    assert not hidden.grad[~LAYOUT.real].any() and hidden.grad[LAYOUT.real].any()


@pytest.mark.parametrize(
    ("form", "kind", "how"),
    [
        ("encoder", "classes", "first"),
        ("decoder", "classes", "last"),
        ("encoder", "vector", "mean"),
        ("decoder", "vector", "last"),
    ],
)
def test_what_is_pooled_unless_said(form: str, kind: str, how: str) -> None:
    output = {"kind": kind, **({"count": 3} if kind == "classes" else {})}
    model = _model(form=form, output=output)
    assert model.output.how == model.config.pool == how
    other = _model(form=form, output=output | {"pool": "max"})
    assert other.output.how == other.config.pool == "max"


def test_a_vector_is_what_is_pooled() -> None:
    model = _model(output="vector")
    ids = torch.randint(4, 30, LAYOUT.position.shape)
    hidden = model.encode(ids, LAYOUT)
    assert torch.equal(model(ids, LAYOUT), pooled("mean", hidden, LAYOUT))
    assert not list(model.output.parameters())


@pytest.mark.parametrize("output", [{"kind": "classes", "count": 7}, {"kind": "tags", "count": 7}])
@pytest.mark.parametrize("dim", [16, 256])
def test_choices_begin_alike(output: dict[str, Any], dim: int) -> None:
    """The first loss is ln K, at any width."""
    model = _model(output=output, dim=dim)
    ids = torch.randint(4, 30, (8, 9))
    logp = model(ids, Layout.full(8, 9)).log_softmax(-1)
    assert float((logp.detach() + math.log(7)).abs().max()) < 1.5
    assert float(-logp.detach().mean()) == pytest.approx(math.log(7), abs=0.1)


@pytest.mark.parametrize("embedding", ["table", {"kind": "factorised", "dim": 400}])
@pytest.mark.parametrize("tie", ["none", "all"])
def test_an_output_over_the_root_of_the_width(tie: str, embedding: Any) -> None:
    """What is said begins with unit variance, and so does what is embedded with the same weights."""
    settings = {"dim": 256, "vocab": 4000, "output": {"scale": True}, "scale_embedding": tie == "none"}
    settings |= {"tie": tie, "embedding": embedding}
    model = _model(**settings, norm={"placement": "pre"})
    ids = torch.randint(4, 4000, (4, 9))
    read = model.embed(model.embedding, ids).detach()
    said = model.output(torch.randn(64, 256)).detach()
    if embedding == "table" or tie == "none":
        assert float(read.std()) == pytest.approx(1.0, rel=0.1)
        assert float(said.std()) == pytest.approx(1.0, rel=0.1)
    else:  # what is embedded lies in few dimensions: less, so that its products are no larger
        assert 0.5 < float(read.std()) < 1 and 0.5 < float(said.std()) < 1.1


def test_types_are_added() -> None:
    """A vector for each type, to the embeddings; token by token."""
    model = _model(types=3, dropout=0.0)
    ids, layout = torch.randint(4, 30, (2, 5)), Layout.full(2, 5)
    types = torch.tensor([[0, 1, 2, 0, 1], [0, 0, 0, 0, 0]])
    plain, typed = model(ids, layout), model(ids, layout, types)
    assert not torch.allclose(plain[0], typed[0]) and torch.equal(plain[1], typed[1])
    with torch.no_grad():
        model.types.weight.zero_()
    torch.testing.assert_close(model(ids, layout, types), _untyped(model, ids, layout))


def _untyped(model: Any, ids: Tensor, layout: Layout) -> Tensor:
    model.types = None
    said: Tensor = model(ids, layout)
    return said


def test_types_of_a_model_without_them_change_nothing() -> None:
    model = _model()
    ids, layout = torch.randint(4, 30, (2, 5)), Layout.full(2, 5)
    assert torch.equal(model(ids, layout), model(ids, layout, torch.ones_like(ids)))


def test_names_of_weights_are_those_of_before() -> None:
    """Runs that were saved can be read: an untied output map is ``output.weight``, and a tied one is the
    embedding."""
    for tie, output in (("none", {"output.weight"}), ("all", set())):
        names = {n for n, _ in _model(form="decoder", tie=tie).named_parameters()}
        assert {n for n in names if n.startswith(("output", "embedding", "types"))} == {
            "embedding.weight"
        } | output
    own = _model(form="decoder", tie="none", embedding={"kind": "factorised", "dim": 6})
    assert {"output.weight", "output.reduce.weight"} <= set(own.state_dict())


@pytest.mark.parametrize(
    ("settings", "where", "words"),
    [
        ({"output": {"kind": "classes", "count": 1}}, "model.output.count", "no choice"),
        ({"output": {"kind": "classes", "count": 3, "pool": "middle"}}, "model.output.pool", "'middle'"),
        ({"output": "sentiment"}, "model.output.kind", "known: vocabulary, classes, tags, vector"),
        ({"form": "encoder_decoder", "output": "vector"}, "model.output.kind", "says words"),
        ({"form": "encoder_decoder", "types": 2}, "model.types", "no types"),
        ({"form": "decoder", "output": {"kind": "vector", "pool": "first"}}, "model.output.pool", "no other"),
        ({"output": {"scale": True}}, "model.output.scale", "too small to learn"),
        ({"form": "decoder", "output": {"next_sentence": True}}, "model.output.next_sentence", "no other"),
        (
            {"norm": {"placement": "deep"}, "scale_embedding": False, "output": {"scale": True}},
            "model.output.scale",
            "repeating its input",
        ),
    ],
)
def test_refused(settings: dict[str, Any], where: str, words: str) -> None:
    with pytest.raises(UserError) as refused:
        load_config({"model": {**SMALL, **settings}})
    assert refused.value.where == where and words in str(refused.value)
    assert refused.value.mend or "known" in str(refused.value) or "choice" in str(refused.value)


def test_a_number_of_classes_is_needed_to_build() -> None:
    config = ModelConfig.parse({**SMALL, "output": "classes"})
    assert cost(config).parameters > 0  # inspected before the data are known
    with pytest.raises(UserError, match="how many there are") as refused:
        build(config)
    assert refused.value.where == "model.output.count"
