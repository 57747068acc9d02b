"""Faults in positions, and the laws that find them; and those that no law can know of, and parity finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from laws.test_faults import ANY, CONFIGS, Fault, also, broken, check_fault, plant, planted
from parity import test_positions as parity
from triptych.model import attention
from triptych.model.positions import absolute, base, biases, relative, rotary

SMALL: dict[str, Any] = {"form": "decoder", "vocab": 30, "dim": 16, "layers": 2, "heads": 2}
CONFIGS |= {
    "offset": {**SMALL, "position": {"kind": "sinusoidal", "layout": "halves", "offset": 3}},
    "partial": {**SMALL, "position": {"kind": "rope", "layout": "interleaved", "share": 0.75}},
    "yarn": {**SMALL, "position": {"kind": "rope", "scaling": {"kind": "yarn", "factor": 4, "original": 8}}},
    "alibi": {**SMALL, "heads": 4, "position": "alibi"},
    "t5": {**SMALL, "position": {"kind": "t5", "buckets": 8, "distance": 7}, "attention": {"score": "dot"}},
    "shaw": {**SMALL, "position": {"kind": "shaw", "clip": 2}},
    "xl": {**SMALL, "position": "xl"},
}

F = Fault
FAULTS = [
    F("an offset is lost step by step", 4, "offset", base.waves,
      "+ offset)", "+ offset * (layout.length > 1))", also(3, 6, 18)),
    F("sinusoids count from the chunk", 4, "offset", base.waves,
      "(layout.position[:, :, None] + offset)",
      "(layout.position[:, :, None] - layout.position[:, :1, None] + offset)", also(2, 3, 5, 6, 18)),
    F("pairs of halves are turned as neighbours", 16, "partial", rotary.Rope._turn,
      "self.axis == -2", "self.axis == -1", also(15)),
    F("keys turn as halves, queries as neighbours", 15, "partial", rotary.Rope.rotate,
      "self._turn(k_BGTD, cos, sin)",
      "self._turn(k_BGTD.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2), cos, sin)"
      ".unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)",
      also(16)),
    F("what should stay is turned round", 16, "partial", rotary.Rope._turn,
      "torch.cat((turned, still), -1)", "torch.cat((turned, -still), -1)"),
    F("scores are not sharpened", 16, "yarn", rotary.Rope.rotate,
      "self.settings.scaling.stretch * x", "x"),
    F("ALiBi is zero step by step", 4, "alibi", biases.Alibi.bias,
      "far_BTS.abs()[:, None]", "far_BTS.abs()[:, None] * (query.length > 1)", also(3, 6, 18)),
    F("differences are of slots", 4, "alibi", base.between,
      "k.position[:, None, :] - q.position[:, :, None]",
      "(torch.arange(k.length)[None, None] - torch.arange(q.length)[None, :, None]).expand(q.batch, -1, -1)",
      also(2, 3, 5, 6, 18)),
    F("differences are of slots, of buckets", 4, "t5", base.between,
      "k.position[:, None, :] - q.position[:, :, None]",
      "(torch.arange(k.length)[None, None] - torch.arange(q.length)[None, :, None]).expand(q.batch, -1, -1)",
      also(2, 3, 5, 6, 18)),
    F("a table is shared with another's rows", 3, "t5", base.between,
      "query.alike and key.alike", "True", ANY),
    F("the clip is one too far", 2, "shaw", relative.Shaw.relation,
      "clamp(-self.back, self.ahead)", "clamp(-self.back - 1, self.ahead)", ANY),
    F("relations of values are those of slots", 4, "shaw", relative.Shaw.values,
      "self.relation(query, key)", "self.relation(query, query)", ANY),
    F("values have no relations", 10, "shaw", relative.Shaw.values, "return brought", "return None",
      also(17)),
    F("all layers have the map of the first", 10, "xl", attention.Attention.meet, "self.layer)", "0)"),
    F("queries turn the other way", 15, "xl", relative.TransformerXL.bias,
      "c * sin - s * cos, s * sin + c * cos", "s * cos - c * sin, s * sin + c * cos"),
    F("products with sinusoids are not counted", 17, "xl", relative.TransformerXL.cost,
      "tokens * D + met", "tokens * D"),
]  # fmt: skip


@planted(FAULTS)
def test_fault_is_found_by_its_law(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fault(fault, monkeypatch)


@pytest.mark.parametrize("config", ["offset", "partial", "yarn", "alibi", "t5", "shaw", "xl"])
def test_without_fault_all_hold(config: str) -> None:
    assert not broken(config)


Case = tuple[Callable[..., Any], str, str, Callable[[], None]]
UNKNOWN_TO_LAWS: dict[str, Case] = {
    "an offset is lost": (
        absolute.Sinusoidal.embed, "self.offset", "0", parity.test_halves_with_an_offset_are_fairseqs
    ),
    "halves are interleaved": (
        absolute.Sinusoidal.embed, "self.axis", "-1", parity.test_halves_are_marians
    ),
    "neighbours are halves": (
        rotary.Rope.__init__, '-2 if settings.layout == "halves" else -1', "-2",
        lambda: parity.test_interleaved_is_gpt_js(1.0),
    ),
    "a decoder's buckets go both ways": (
        biases.T5Buckets.bucket, "if not self.causal", "if True",
        lambda: parity.test_buckets_are_t5s(32, 128, causal=True),
    ),
    "a clip is one too near": (
        relative.Shaw.relation, "-self.back, self.ahead", "1 - self.back, self.ahead",
        lambda: parity.test_shaw_is_its_formula(2, "scaled_dot", causal=True),
    ),
    "relations to keys are not scaled": (
        relative.Shaw.bias, "* self.scale", "",
        lambda: parity.test_shaw_is_its_formula(2, "scaled_dot", causal=True),
    ),
    "ALiBi goes up one way": (
        biases.Alibi.bias, "far_BTS.abs()", "-far_BTS", parity.test_alibi_is_its_formula_both_ways
    ),
    "u is forgotten": (
        relative.TransformerXL.rotate, "q_BHTD + self.u.to(q_BHTD.dtype)[:, None]", "q_BHTD",
        lambda: parity.test_transformer_xl_is_its_formula("scaled_dot", causal=True),
    ),
    "sinusoids are of j - i": (
        relative.TransformerXL.bias, "c * sin - s * cos", "s * cos - c * sin",
        lambda: parity.test_transformer_xl_is_its_formula("scaled_dot", causal=False),
    ),
    "v is u": (
        relative.TransformerXL.bias, "(self.v - self.u)", "(self.v - self.v)",
        lambda: parity.test_transformer_xl_is_its_formula("scaled_dot", causal=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN_TO_LAWS, ids=lambda name: name.replace(" ", "_"))
def test_fault_is_found_by_parity(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, old, new, check = UNKNOWN_TO_LAWS[name]
    check()
    plant(monkeypatch, function, old, new)
    with pytest.raises(AssertionError):
        check()
