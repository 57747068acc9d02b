"""Faults planted in what is visible, in blocks and in caches that drop slots: each is found by its law."""

from __future__ import annotations

from typing import Any

import pytest

from laws.test_faults import ANY, CONFIGS, Fault, also, broken, check_fault, planted
from triptych import layout
from triptych.model import attention, blocks, sparse, state

TINY: dict[str, Any] = {"vocab": 30, "dim": 16, "layers": 1, "heads": {"count": 2, "kv": 1}, "tie": "none"}
VISIBLE: dict[str, dict[str, Any]] = {
    "window": {"kind": "window", "width": 4},
    "dilated": {"kind": "dilated", "width": 3, "step": 2},
    "blocks": {"kind": "blocks", "size": 3},
    "global": {"kind": "any", "of": [{"kind": "window", "width": 2}, {"kind": "global", "count": 2}]},
    "random": {"kind": "random", "size": 2, "seed": 3},
    "prefix": {"kind": "prefix", "length": 3},
    "near prefix": {"kind": "prefix", "length": 3, "beside": {"kind": "window", "width": 2}},
}
CONFIGS |= {
    f"{form} {name}": {**TINY, "form": form, "position": "rope", "attention": {"visible": seen}}
    for form in ("encoder", "decoder")
    for name, seen in VISIBLE.items()
}

F = Fault
FAULTS = [
    F("a block's window is one too narrow", 13, "decoder window", blocks.spans,
      "offset + start - back", "offset + start - back + 1"),
    F("a block does not look behind its border", 13, "decoder window", blocks.spans,
      "offset + start - back", "offset + start"),
    F("a block does not look ahead of its border", 13, "encoder window", blocks.spans,
      "offset + stop + ahead", "offset + stop"),
    F("later blocks forget the first keys", 13, "decoder global", blocks.spans,
      "last, head) if", "last) if"),
    F("later blocks forget the prefix", 13, "decoder near prefix", blocks.spans,
      "last, head) if", "last) if"),
    F("global queries see a block's keys only", 13, "encoder global", blocks.spans,
      "min(queries, max(0, wide - offset))", "0"),
    F("padding stands in the first slots", 13, "decoder global", layout.Layout._placed,
      "(self.position == slot) | ~self.real", "self.real | ~self.real"),
    F("a global token is not kept", 4, "decoder global", attention.SelfAttention.sees.__func__,  # type: ignore[attr-defined]
      "None if visible.reach.first else ", "", ANY),
    F("blocks that differ share a mask", 13, "decoder blocks", blocks.in_blocks,
      " and is_relative(visible)", ""),
    F("slots of blocks are dropped one too early", 4, "decoder blocks", state.Book._drop,
      "later < most", "later < most - 1", ANY),
    F("a cache reaches back one block too few", 4, "decoder blocks", sparse.Blocks.reach.fget,  # type: ignore[attr-defined]
      "self.neighbours + 1", "self.neighbours", ANY),
    F("blocks go by slots", 2, "encoder blocks", sparse.Blocks.__call__,
      "query.position // self.size, key.position // self.size",
      "*(torch.arange(x.length)[None] // self.size for x in (query, key))", ANY),
    F("a neighbour too many", 13, "encoder blocks", sparse.Blocks.__call__,
      "self.neighbours)", "self.neighbours + 1)"),
    F("gaps go by slots", 2, "decoder dilated", sparse.Dilated.__call__,
      "query.position[:, :, None] % self.step, key.position[:, None, :]",
      "query.position[:, :, None] % self.step, torch.arange(key.length)", ANY),
    F("a window without its gaps", 13, "decoder dilated", sparse.Dilated.__call__, " & (q == k)", ""),
    F("global tokens do not see all", 13, "encoder global", sparse.Global.__call__,
      "(query.position < self.count)[:, :, None] | ", ""),
    F("global tokens are not seen by all", 13, "decoder global", sparse.Global.__call__,
      " | (key.position < self.count)[:, None, :]", ""),
    F("global tokens are the first slots", 2, "decoder global", sparse.Global.__call__,
      "(key.position < self.count)", "(torch.arange(key.length)[None] < self.count)", ANY),
    F("random blocks are drawn by slot", 2, "decoder random", sparse.Random.__call__,
      "(x.position.masked_fill(~x.real, 0) // self.size for",
      "(torch.arange(x.length)[None] // self.size for", ANY),
    F("random blocks depend on the pass", 4, "decoder random", sparse.Random.__call__,
      "_drawn(self.seed,", "_drawn(self.seed + blocks,", also(1, 2, 3, 5, 6, 8, 13, 18)),
    F("random blocks have one seed", 13, "decoder random", sparse.Random.__call__, "self.seed,", "0,"),
    F("a prefix sees backwards only", 13, "decoder prefix", sparse._prefix,
      "beside | First(settings.length)", "beside"),
    F("a prefix is the first slots", 2, "decoder prefix", sparse.First.__call__,
      "(key.position < self.count)", "(torch.arange(key.length)[None] < self.count)", ANY),
    F("a prefix is one too long", 1, "decoder prefix", sparse._prefix,
      "First(settings.length)", "First(settings.length + 1)", ANY),
]  # fmt: skip


@planted(FAULTS)
def test_fault_is_found_by_its_law(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fault(fault, monkeypatch)


@pytest.mark.parametrize("name", sorted({fault.config for fault in FAULTS}))
def test_without_fault_all_hold(name: str) -> None:
    assert not broken(name)
