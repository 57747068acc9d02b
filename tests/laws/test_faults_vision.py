"""Faults in latents, in memory and on grids, and the laws or comparisons that find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from laws.test_faults import CONFIGS, Fault, also, broken, check_fault, plant, planted
from parity import test_memory, test_vision
from triptych.data import images
from triptych.layout import Layout
from triptych.model import embedding, grids
from triptych.model.mixers import bottleneck, channel, coattention, deformable, retrieval

ENCODER: dict[str, Any] = {
    "form": "encoder", "vocab": 30, "dim": 16, "layers": 2, "heads": 2, "norm": {"placement": "pre"},
    "tie": "none",
}  # fmt: skip
CONFIGS["latents"] = {**ENCODER, "mixer": {"kind": "bottleneck", "latents": 3}}
CONFIGS["two texts"] = {**ENCODER, "mixer": ["coattention", "attention"], "types": 2}
PATCHES = {"kind": "patches", "size": 4, "class_token": True}
CONFIGS["patches"] = {**ENCODER, "embedding": PATCHES, "output": {"kind": "classes", "count": 3}}
CONFIGS["deformable"] = {**ENCODER, "mixer": {"kind": "deformable", "width": 3, "points": 2}}
CONFIGS["gates"] = {**ENCODER, "mixer": [{"kind": "spatial", "width": 3, "size": 3}, "channel"]}
DECODER = {**ENCODER, "form": "decoder", "position": "rope"}
CONFIGS["memory"] = {**DECODER, "mixer": {"kind": "retrieval", "width": 3, "top": 3}}
CELLS = [{"kind": "cells", "width": 3, "size": 2, "shifted": shifted} for shifted in (False, True)]
CONFIGS["swin"] = {**DECODER, "attention": {"visible": CELLS}}

F = Fault
FAULTS = [
    F("the latents of a row are one sequence's", 5, "latents", bottleneck._latents,
      "slot // many", "slot // many * 0"),
    F("latents read the whole row", 5, "latents", bottleneck.Bottleneck.forward,
      "source_layout=layout", "source_layout=Layout(layout.position, layout.segment.clamp(max=0))"),
    F("latents read padding", 2, "latents", bottleneck.Bottleneck.forward,
      "source_layout=layout", "source_layout=Layout(layout.position, layout.segment.clamp(min=0))",
      also(3, 5, 8, 19)),
    F("latents are not counted", 17, "latents", bottleneck.Bottleneck.cost,
      " + Cost(L * model.dim)", ""),
    F("a text reads padding", 2, "two texts", coattention._texts,
      "segment.where(there, -1)", "segment.clamp(min=0).where(there, -1)", also(3, 5, 8, 19)),
    F("a text reads that of the sequence beside", 5, "two texts", coattention._texts,
      "segment.where(there, -1)", "segment.clamp(max=0).where(there, -1)"),
    F("one text's weights are not counted", 17, "two texts", coattention.CoAttention.cost.__func__,  # type: ignore[attr-defined]
      " * 2", " * 1"),
    F("one text's weights learn nothing", 10, "two texts", coattention.CoAttention.forward,
      "first, second)", "first, first)"),
    F("patches are read together", 2, "patches", embedding.Patches.forward,
      "self.map(patches[..., :-1])", "self.map(patches[..., :-1]).mean(1, keepdim=True)", also(3, 5, 8)),
    F("the class token learns nothing", 10, "patches", embedding.Patches.forward,
      "self.token, self.map", "self.token.detach(), self.map"),
    F("the class token is not counted", 17, "patches", embedding.Patches.cost.__func__,  # type: ignore[attr-defined]
      "model.dim * settings.class_token", "0"),
    F("memory is filled up with what may not be seen", 1, "memory", retrieval.Retrieval.best,
      "True) & mask.seen", "True)", also(2, 3, 4, 5, 6, 8, 13, 18, 19)),
    F("memory holds the sequences beside", 5, "memory", retrieval.Retrieval.forward,
      "(context.visible & Beyond(width)).lower", "Beyond(width).lower", also(2, 3, 4, 6, 8, 18, 19)),
    F("memory goes by slots", 4, "memory", retrieval.Beyond.__call__,
      "query.position[:, :, None] - key.position[:, None, :]",
      "(torch.arange(query.length)[:, None] - torch.arange(key.length)).expand(query.batch, -1, -1)",
      also(2, 3, 5, 6, 8, 18)),
    F("old keys are dropped", 4, "memory", retrieval.Retrieval.sees.__func__,  # type: ignore[attr-defined]
      "else visible.reach.back", "else 2", also(6, 17, 18)),
    F("gates learn nothing", 10, "memory", retrieval.Retrieval.forward,
      "self.gate.sigmoid()", "self.gate.detach().sigmoid()"),
    F("choosing is not counted", 17, "memory", retrieval.Retrieval.cost.__func__,  # type: ignore[attr-defined]
      "far = 2 * match", "far = match"),
    F("cells are shifted by one too much", 13, "swin", grids._cells,
      "settings.size // 2", "settings.size // 2 + 1"),
    F("a cell reaches a column less far", 13, "swin", grids.Cells.reach.fget,  # type: ignore[attr-defined]
      "(self.width + 1)", "self.width", also(4, 6, 18)),
    F("places are looked up in the first sequence", 5, "deformable", grids.slots,
      "inside, segment * size + place", "inside, place"),
    F("padding stands outside the grid", 2, "deformable", grids.slots,
      "table[:, -1] = layout.length", "pass", also(3, 5, 8, 19)),
    F("a grid's rows go by slots", 2, "deformable", deformable.Deformable.forward,
      "layout.position // width", "torch.arange(T).expand(B, T) // width", also(3, 5, 8)),
    F("four corners are counted as one", 17, "deformable", deformable.Deformable.cost.__func__,  # type: ignore[attr-defined]
      "2 * N * 4 *", "2 * N *"),
    F("a mean counts padding", 2, "gates", channel.Channel.forward,
      "real.to(x_BTC.dtype)", "(real | ~real).to(x_BTC.dtype)", also(3, 5, 8)),
    F("sequences of a row share their gates", 5, "gates", channel.Channel.forward,
      "segment.clamp(min=0)", "segment.clamp(0, 0)"),
    F("what is around is around the slot", 2, "gates", channel._around,
      "(layout.position % width)", "(torch.arange(layout.length).expand_as(layout.position) % width)",
      also(3, 5, 8)),
]  # fmt: skip


@planted(FAULTS)
def test_fault_is_found_by_its_law(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fault(fault, monkeypatch)


@pytest.mark.parametrize(
    "config", ["latents", "two texts", "patches", "memory", "swin", "deformable", "gates"]
)
def test_without_fault_all_hold(config: str) -> None:
    assert not broken(config)


# What no law can know of, because it is the same for all rows: found by comparison with others.
APART: list[tuple[str, Callable[..., Any], str, str, Callable[[], None]]] = [
    ("patches are in columns", images.patches, "permute(0, 2, 3, 1, 4, 5)", "permute(0, 3, 2, 1, 4, 5)",
     lambda: test_vision.test_patches_are_a_convolutions((8, 12))),
    ("patches are turned over", images.patches, "permute(0, 2, 3, 1, 4, 5)", "permute(0, 2, 3, 1, 5, 4)",
     lambda: test_vision.test_patches_are_a_convolutions((4, 4))),
    ("a text reads itself", coattention._texts, "(~first_BT, first_BT)", "(first_BT, ~first_BT)",
     lambda: test_memory.test_coattention_is_torchs(test_memory.SCATTERED)),
    ("rows for columns", deformable.Deformable.forward, "layout.position % width, layout.position // width",
     "layout.position // width, layout.position % width",
     lambda: test_vision.test_deformable_is_detrs((4, 5))),
    ("cells wrap around", grids.Cells.__call__, "(row - self.shift) // self.size",
     "(row - self.shift) % 4 // self.size",
     lambda: test_vision.test_cells_are_swins_windows(2, (2, 2), True)),
    ("the window is remembered too", retrieval.Beyond.__call__, ">= self.width", ">= self.width - 1",
     lambda: test_memory.test_retrieval_is_its_definition(2, "none", Layout.padded([7, 2]))),
]  # fmt: skip


@pytest.mark.parametrize(
    "name,function,old,new,comparison", APART, ids=[a[0].replace(" ", "_") for a in APART]
)
def test_fault_is_found_by_comparison(
    name: str,
    function: Callable[..., Any],
    old: str,
    new: str,
    comparison: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    comparison()
    plant(monkeypatch, function, old, new)
    with pytest.raises(AssertionError):
        comparison()
