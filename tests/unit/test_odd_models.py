"""Models whose weights are in bf16 or fp16, whatever stands in padding, and sizes nobody has room for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from triptych.config import ModelConfig, choices, parts
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import build

SMALL: dict[str, Any] = {"form": "decoder", "vocab": 20, "dim": 16, "layers": 2, "heads": 2}
LAYOUT = Layout.padded([7, 4])
IDS = torch.randint(0, 20, (2, 7), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", [{"count": 2}, {"kind": "mla", "count": 2}])
@pytest.mark.parametrize("score", choices(parts.Score))
def test_scores_of_weights_in_low_precision(score: str, heads: dict[str, Any], dtype: torch.dtype) -> None:
    """Nearly those of fp32, with gradients in the weights' own type."""
    config = ModelConfig.parse({**SMALL, "heads": heads, "position": "alibi", "attention": {"score": score}})
    model: Any = build(config, seed=0).eval()
    want = model(IDS, LAYOUT)[LAYOUT.real]
    got = model.to(dtype)(IDS, LAYOUT)[LAYOUT.real]
    assert got.dtype == dtype
    assert (got.float() - want).abs().mean() < 0.05 * want.abs().mean()
    got.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == dtype for p in model.parameters())


@pytest.mark.parametrize("garbage", [-7, 10**6, 2**40])
@pytest.mark.parametrize(
    "settings",
    [
        {"position": {"kind": "learned", "max": 9}},
        {"attention": {"visible": {"kind": "random", "size": 2}}},
    ],
    ids=["learned", "random"],
)
def test_positions_of_padding_are_not_read(settings: dict[str, Any], garbage: int) -> None:
    model: Any = build(ModelConfig.parse({**SMALL, **settings}), seed=0).double().eval()
    odd = Layout(LAYOUT.position.masked_fill(~LAYOUT.real, garbage), LAYOUT.segment)
    got, want = model(IDS, odd)[LAYOUT.real], model(IDS, LAYOUT)[LAYOUT.real]
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {"ffn": {"kind": "relu", "dim": 2**31}},
        {"experts": {"count": 10**9}},
        {"heads": {"count": 2, "dim": 2**31}, "position": "rope"},
        {"mixer": {"kind": "lstm", "hidden": 2**31}},
        {"position": {"kind": "learned", "max": 2**31}},
    ],
    ids=["ffn", "experts", "heads", "mixer", "position"],
)
def test_a_size_nobody_has_room_for(settings: dict[str, Any]) -> None:
    """Said at once, with the number of parameters, and not by torch."""
    with pytest.raises(UserError, match=r"^model: a model of [\d,]{14,} parameters does not fit in memory"):
        build(ModelConfig.parse({**SMALL, "dim": 1024, **settings}))


def test_memory_that_runs_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("triptych.model.transformer.DecoderOnly", full)
    with pytest.raises(UserError, match="does not fit in memory"):
        build(ModelConfig.parse(SMALL), seed=1)


def test_other_errors_of_torch_are_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr("triptych.model.transformer.DecoderOnly", broken)
    with pytest.raises(RuntimeError, match="shapes"):
        build(ModelConfig.parse(SMALL))
