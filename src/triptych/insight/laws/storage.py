"""The law of saving and loading."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from triptych.config import parts
from triptych.engine.bundle import load_weights, save_weights
from triptych.insight.laws.registry import law
from triptych.insight.laws.subject import Subject
from triptych.insight.laws.verdict import Compared, true
from triptych.model import Model, build

MODEL = "src/triptych/model/transformer.py"
LOST = "something that moves the logits is neither a parameter nor a buffer, or is not saved"


@law(7, "save and load", LOST, MODEL)
def storage(s: Subject) -> Iterator[Compared | str]:
    """A model that was written and read is the same: every parameter, its dtype, what is tied, the logits."""
    shared = ties(s.model)
    want = expected(s)
    yield true(
        "what is tied, as model.tie says",
        shared == want,
        f"tied {show(shared)}, settings say {show(want)}",
        "two maps that should be one are two, or two that should differ are one",
    )
    roads = {"a state dict": by_state_dict, "a run folder": by_run_folder}
    rows = s.rows(3)
    for name, road in roads.items():
        for dtype in (torch.float64, torch.bfloat16):
            model = s.model if dtype is torch.float64 else s.learner().to(dtype).eval()
            fresh = build(s.config, s.seed + 1).to(dtype).eval()
            for stack in ("encoder", "decoder"):
                if hasattr(model, stack):
                    getattr(fresh, stack).visible = getattr(model, stack).visible
            read = road(model, fresh)
            yield from alike(f"{name}, {dtype}".replace("torch.", ""), model, read)
            if dtype is torch.float64:
                same = all(map(torch.equal, s.answers(rows, model=read), s.answers(rows, model=model)))
                yield true(f"{name}: logits", same, "" if same else "they differ")


def alike(name: str, model: Model, read: Model) -> Iterator[Compared]:
    """Parameters, dtypes and ties of a model that was read."""
    ours, theirs = tensors(model), tensors(read)
    same = set(ours) == set(theirs)
    yield true(
        f"{name}: names", same, "" if same else f"only on one side: {sorted(set(ours) ^ set(theirs))[:3]}"
    )
    if not same:
        return
    wrong = [n for n in ours if ours[n].dtype != theirs[n].dtype]
    yield true(f"{name}: dtypes", not wrong, f"{wrong[:3]}" if wrong else "")
    moved = [n for n in ours if not torch.equal(ours[n], theirs[n])]
    yield true(
        f"{name}: values", not moved, f"{moved[:3]} changed" if moved else f"{len(ours)} tensors equal"
    )
    cause = "tied weights came back as copies: they were assigned and not copied into place"
    a, b = ties(model), ties(read)
    yield true(f"{name}: tied weights", a == b, f"tied {show(a)}, read {show(b)}", cause)


def by_state_dict(model: Model, fresh: Model) -> Model:
    """Through ``torch.save`` of the state dict, in which a tied weight stands under each of its names."""
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    return fresh


def by_run_folder(model: Model, fresh: Model) -> Model:
    """Through the file of a run folder, in which a tied weight stands once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_weights(model, path, tokenizer="")
        load_weights(fresh, path)
    return fresh


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, tied ones once."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def ties(model: nn.Module) -> set[frozenset[str]]:
    """Groups of parameters that are one tensor."""
    groups: dict[int, set[str]] = {}
    for name, p in model.named_parameters(remove_duplicate=False):
        groups.setdefault(p.data_ptr(), set()).add(name)
    return {frozenset(names) for names in groups.values() if len(names) > 1}


def expected(s: Subject) -> set[frozenset[str]]:
    """What ``model.tie`` says is one tensor."""
    maps = {"weight": "weight"}  # of an embedding, and what it is in the output
    if isinstance(s.config.embedding, parts.FactorisedEmbedding):
        maps["expand.weight"] = "reduce.weight"
    tie, both = s.config.tie, s.config.form == "encoder_decoder"
    sides = (
        (["source_embedding"] * (tie in ("all", "source")) + ["target_embedding"]) if both else ["embedding"]
    )
    out = s.config.says_words and tie in ("all", "decoder")
    groups = (
        {f"{side}.{name}" for side in sides} | ({f"output.{back}"} if out else set())
        for name, back in maps.items()
    )
    return {frozenset(group) for group in groups if len(group) > 1}


def show(groups: set[frozenset[str]]) -> str:
    """Groups of names, as text."""
    return "; ".join(" = ".join(sorted(group)) for group in sorted(groups, key=sorted)) or "nothing"
