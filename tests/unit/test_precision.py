"""Number formats: measured, exact where they must be, and put back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from triptych.config import RunConfig, TranslationObjective
from triptych.data import translation_batch
from triptych.engine import autocast
from triptych.model import build
from triptych.objectives import TokenLoss
from triptych.training import machine
from triptych.training.machine import EXACT, choose_precision, measure, prefer_fast_fp32

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    old = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(old)


def test_fast_fp32_is_taken_only_where_it_is_exact() -> None:
    """After the choice, products are as exact as fp32 should be, whatever this machine offers."""
    taken = prefer_fast_fp32()
    assert torch.get_float32_matmul_precision() == ("medium" if taken else "highest")
    a, b = torch.randn(200, 300), torch.randn(300, 100)
    exact = a.double() @ b.double()
    assert ((a @ b).double() - exact).abs().max() < 2 * EXACT * exact.abs().max()


def test_inexact_products_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the fast kernels round to bf16 the setting is put back as it was."""
    product = torch.Tensor.__matmul__

    def rounded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if a.dtype == torch.float32 and torch.get_float32_matmul_precision() == "medium":
            return product(a.bfloat16(), b.bfloat16()).float()
        return product(a, b)

    torch.set_float32_matmul_precision("high")
    monkeypatch.setattr(torch.Tensor, "__matmul__", rounded)
    assert not prefer_fast_fp32()
    assert torch.get_float32_matmul_precision() == "high"


def test_products_on_a_gpu_stay_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is one for all devices, and on a GPU it is TF32: ten bits of a fraction."""
    assert not torch.backends.cuda.matmul.allow_tf32
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert not prefer_fast_fp32()
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.get_float32_matmul_precision() == "highest"


def test_probing_spends_no_randomness() -> None:
    """The kernels are tried with numbers of their own: the seed decides the run alone."""
    state = torch.get_rng_state()
    prefer_fast_fp32()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("wanted", ["fp32", "bf16", "fp16"])
def test_as_wanted(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice of the user's is not measured."""
    monkeypatch.setattr(machine, "measure", lambda *_: pytest.fail("measured"))
    assert choose_precision(wanted, CPU, 16) == wanted


@pytest.mark.parametrize(
    ("low", "high", "chosen"), [(0.5, 1.0, "bf16"), (0.79, 1.0, "bf16"), (0.9, 1.0, "fp32")]
)
def test_auto_takes_bf16_only_where_it_wins_clearly(
    low: float, high: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([low, high])
    monkeypatch.setattr(machine, "measure", lambda *_: next(times))
    assert choose_precision("auto", CPU, 16) == chosen


def test_auto_really_measures() -> None:
    assert choose_precision("auto", CPU, 16) in ("fp32", "bf16")


def test_measure_is_the_shortest_after_a_first_try() -> None:
    calls: list[int] = []
    assert 0 <= measure(lambda: calls.append(1), times=3) < 1
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_autocast(precision: str, dtype: torch.dtype) -> None:
    """Products are in the format; what stands outside is as before."""
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    with autocast(precision, CPU):
        assert torch.nn.functional.linear(x, w).dtype == dtype
    assert torch.nn.functional.linear(x, w).dtype == torch.float32


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("position", ["rope", "sinusoidal", "learned"])
def test_a_model_in_bf16_is_near_itself(position: str, placement: str) -> None:
    """The loss to a hundredth; gradients of the weights' own type that point the same way."""
    data = {"vocab": 20, "dim": 32, "layers": 2, "heads": {"count": 4, "kv": 2}, "dropout": 0.0}
    more = {"position": position, "norm": {"placement": placement}, "ffn": {"dim": 64}}
    model = build(RunConfig.parse({"model": {**data, **more}}).model, seed=0)
    batch = translation_batch([[5, 6, 7], [8]], [[9, 10], [4, 5, 6, 11]], (0, 1))
    objective, grads, losses = TokenLoss(TranslationObjective()), [], []
    for precision in ("fp32", "bf16"):
        model.zero_grad()
        with autocast(precision, CPU):
            loss = objective.loss(model, batch)  # type: ignore[arg-type]
        (loss.sum / loss.count).backward()
        losses.append(loss.mean)
        for p in model.parameters():
            assert p.grad is not None and p.grad.dtype == p.dtype == torch.float32
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)
    assert torch.nn.functional.cosine_similarity(grads[0], grads[1], 0) > 0.99
