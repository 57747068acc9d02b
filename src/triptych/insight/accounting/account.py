"""All figures of a model at some sizes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from triptych.config import ModelConfig
from triptych.config.model import Side
from triptych.insight.accounting.generation import Work, encoding, generation
from triptych.insight.accounting.memory import activations
from triptych.insight.accounting.passes import Crossover, backward, crossover, written_out
from triptych.insight.accounting.sizes import Sizes
from triptych.model.registry import Cost
from triptych.model.stack import kept_by_kind
from triptych.model.transformer import costs


@dataclass(frozen=True)
class Account:
    """What a model costs.

    Attributes:
        model, sizes: of what, and for how much.
        parts: parameters and operations of one training pass, by part.
        crossovers: by stack; None where tokens never meet in products.
        written_out: bytes of one layer's attention weights if a pass writes them out, by stack.
        activations: bytes kept for the backward pass, by part; or why they are not known.
        generation: operations of generating, by part; empty without a decoder.
        encoding: operations of encoding the sources, once.
        cache: bytes of the state after the last step, by kind (see ``kept_by_kind``).
        grows: bytes that a token of each row adds to it in the layers that keep all tokens.
    """

    model: ModelConfig
    sizes: Sizes
    parts: dict[str, Cost]
    crossovers: dict[Side, Crossover | None]
    written_out: dict[Side, int]
    activations: dict[str, int] | str
    generation: list[Work]
    encoding: int
    cache: dict[str, int]
    grows: int

    @property
    def total(self) -> Cost:
        """Of all parts."""
        return sum(self.parts.values(), Cost())

    @property
    def note(self) -> str:
        """On what activations depend, if on anything beside sizes."""
        if isinstance(self.activations, str):
            return self.activations
        if not any(self.model.routed(i) for side in self.model.stacks for i in range(self.model.depth(side))):
            return ""
        assert self.model.experts is not None
        if self.model.experts.capacity is None:
            return "of experts at even load; other loads keep as much in all"
        return "of experts at even load within their capacity; other loads keep less"

    @property
    def shares(self) -> dict[str, int]:
        """Operations of a forward pass by what they do: attention's products, other products of mixers and of
        cross-attention (and of an image's patches), feed-forward, the vocabulary."""
        out = {"attention": 0, "projections": 0, "feed-forward": 0, "vocabulary": 0}
        for name, cost in self.parts.items():
            kind = name.split(" ", 1)[-1]
            of_words = {"output": "vocabulary", "embedding": "vocabulary"} if self.model.reads_ids else {}
            kind = {"feed-forward": kind, **of_words}.get(kind, "projections")
            out["attention"] += cost.meeting
            out[kind] += cost.flops - cost.meeting
        return out

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON; bytes and operations as whole numbers."""
        known = isinstance(self.activations, dict)
        return {
            "form": self.model.form,
            "sizes": asdict(self.sizes),
            "parameters": self.total.parameters,
            "forward": self.total.flops,
            "backward": backward(self.total),
            "weights_bytes": self.total.parameters * self.sizes.width,
            "parts": {
                name: {
                    "parameters": cost.parameters,
                    "forward": cost.flops,
                    "backward": backward(cost),
                    "attention": cost.meeting,
                    "activations_bytes": self.activations.get(name, 0) if known else None,  # type: ignore[union-attr]
                }
                for name, cost in self.parts.items()
            },
            "activations_bytes": sum(self.activations.values()) if known else None,  # type: ignore[union-attr]
            "activations_note": self.note,
            "shares": self.shares,
            "crossover": {s: asdict(c) if c else None for s, c in self.crossovers.items()},
            "attention_weights_bytes": dict(self.written_out),
            "generation": [asdict(work) for work in self.generation],
            "encoding": self.encoding,
            "cache_bytes": sum(self.cache.values()),
            "cache": self.cache,
            "cache_bytes_a_token": self.grows,
        }


def account(model: ModelConfig, sizes: Sizes) -> Account:
    """The account of a model, its vocabulary set."""
    B, T, S, N = sizes.batch, sizes.target, sizes.source, sizes.generate
    lengths: dict[Side, int] = {side: S if side == "encoder" and S else T for side in model.stacks}

    def cache(tokens: int) -> dict[str, int]:
        if not N:
            return {}
        kept = kept_by_kind(model, B, [1] * tokens, B if S else 0, S)
        return {kind: values * sizes.width for kind, values in kept.items()}

    held, before = cache(N), cache(N - 1)
    return Account(
        model=model,
        sizes=sizes,
        parts=costs(model, B, T, S),
        crossovers={side: crossover(model, side) for side in model.stacks},
        written_out={side: written_out(model, side, B, n, sizes.width) for side, n in lengths.items()},
        activations=activations(model, sizes),
        generation=generation(model, B, N, S) if N else [],
        encoding=encoding(model, B, S) if N and S else 0,
        cache=held,
        grows=held["tokens"] - before["tokens"] if N else 0,
    )
