"""Memory: what autograd keeps for a backward pass, counted on tensors without values.

The model is built and run as in training, on the CPU, with tensors that have shapes and no values: nothing is
computed and no memory is used, and what is kept is what training keeps, whatever the parts are. Counted are
storages, each once, that are no weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from triptych.config import ModelConfig
from triptych.config.parts import PatchEmbedding
from triptych.insight.accounting.sizes import Sizes
from triptych.layout import Layout
from triptych.model import EncoderDecoder, Model, build
from triptych.model.experts import Experts, Routed
from triptych.model.stack import Stack

LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Ordinary(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Where a pass asks about values, nothing is out of the ordinary: what is asked of all values holds, what
    is asked of any does not, and numbers are 0."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.holds: dict[int, Tensor] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return id(args[0]) in self.holds if args[0].dtype == torch.bool else 0
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten.all:
            self.holds[id(out)] = out  # held, so that its number is not given to another
        return out


def even(experts: Experts, routed: Routed) -> tuple[Tensor, list[int]]:
    """In place of ``Experts.deal``: as many tokens for each expert, or all that it has room for."""
    choices, E = routed.chosen.numel(), routed.logits.shape[1]
    room = choices if experts.capacity is None else math.ceil(experts.capacity * choices / E)
    sizes = [min(choices // E + (e < choices % E), room) for e in range(E)]
    order = torch.arange(choices)
    return order[: sum(sizes)].clone() if sum(sizes) < choices else order, sizes


@contextmanager
def owners(model: nn.Module) -> Iterator[list[str]]:
    """Names of the parts that are at work, the innermost last, as ``model.costs`` has them."""
    named: dict[nn.Module, str] = {}
    for side in ("encoder", "decoder"):
        if isinstance(stack := getattr(model, side, None), Stack):
            named[stack] = f"{side} norms"  # and residuals
            for block in stack.blocks:
                for attribute, name in BLOCK.items():
                    if (part := getattr(block, attribute)) is not None:
                        named[part] = f"{side} {name}"
    named[model.output] = "output"  # type: ignore[index]
    at_work = ["embedding"]
    handles = []
    for module, name in named.items():
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: at_work.append(name)))
        handles.append(module.register_forward_hook(lambda *_: at_work.pop() and None))
    yield at_work
    for handle in handles:
        handle.remove()


BLOCK = {"mixer": "mixers", "cross": "cross-attention", "ffn": "feed-forward"}


def kept_for_backward(model: Model, run: Any) -> Counter[str]:
    """Bytes that autograd keeps while ``run()`` runs the model, by part."""
    own = {x.untyped_storage()._cdata for x in (*model.parameters(), *model.buffers())}
    kept: dict[int, Any] = {}
    total: Counter[str] = Counter()
    with owners(model) as at_work:

        def pack(x: Tensor) -> Tensor:
            storage = x.untyped_storage()
            if storage._cdata not in own and storage._cdata not in kept:
                kept[storage._cdata] = storage  # held, so that its number is not given to another
                total[at_work[-1]] += storage.nbytes()
            return x

        with saved_tensors_hooks(pack, lambda x: x):
            run()
    return total


def activations(model: ModelConfig, sizes: Sizes) -> dict[str, int] | str:
    """Bytes kept of one training pass, from ids to logits, by part, experts evenly loaded; or why they cannot
    be counted."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    low = LOW.get(sizes.dtype)
    try:
        with FakeTensorMode(), Ordinary():
            built = build(model).train()
            for module in built.modules():
                if isinstance(module, Experts):
                    module.deal = partial(even, module)  # type: ignore[method-assign]
            main = placed(sizes.batch, sizes.target, model)
            other = placed(sizes.batch, sizes.source, model) if isinstance(built, EncoderDecoder) else ()
            with torch.autocast("cpu", low, enabled=low is not None):
                return dict(kept_for_backward(built, lambda: built(*other, *main)))
    except Exception:  # a part may do with values what cannot be done without them
        return "depends on values"


def placed(batch: int, length: int, model: ModelConfig) -> tuple[Tensor, Layout]:
    """Ids, or patches, and layout of full rows."""
    layout = Layout.full(batch, length)
    if isinstance(model.embedding, PatchEmbedding):
        return torch.zeros(batch, length, model.embedding.values), layout
    return torch.zeros(batch, length, dtype=torch.int64), layout
