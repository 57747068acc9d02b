"""One more token after a long context: time and bytes of the state, linear-time mixers beside attention.

Figures are of one row, side by side in one run: milliseconds a token (median), ratios to attention with a
cache at the same context, and bytes of the state. Attention's cache is filled with random keys and values:
what it costs to read them does not depend on what they are.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable

import torch

from triptych.config import RunConfig
from triptych.layout import Layout
from triptych.model import DecoderOnly, State, build

CONTEXTS = (1024, 8192, 32768)
KINDS = ("attention", "linear", "retention", "ssm")
MODEL = {"form": "decoder", "vocab": 1000, "dim": 256, "layers": 2, "heads": 4, "position": "none"}
PASS = 1024  # tokens that are read at a time


def after(model: DecoderOnly, context: int) -> State:
    """The state after so many tokens."""
    state, layout = model.start(), Layout.full(1, context)
    if model.config.attends:
        state.advance(layout)
        for held in state.layers:
            shape = 1, model.config.kv_heads, context, model.config.head_dim
            held.append(torch.randn(shape), torch.randn(shape))
        return state
    for start in range(0, context, PASS):
        ids = torch.randint(4, model.config.vocab, (1, PASS))
        model.decode(ids, layout.narrow(start, start + PASS), state)
    return state


def stepper(model: DecoderOnly, state: State) -> Callable[[], None]:
    """One more token, then another."""

    def step() -> None:
        token = torch.randint(4, model.config.vocab, (1, 1))
        model.output(model.decode(token, state.next(), state))

    return step


@torch.inference_mode()
def main(steps: int = 40) -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {MODEL}")
    models = {
        kind: build(RunConfig.parse({"model": {**MODEL, "mixer": kind}}).model).eval() for kind in KINDS
    }
    states = {(kind, n): after(model, n) for n in CONTEXTS for kind, model in models.items()}
    runs = {key: stepper(models[key[0]], state) for key, state in states.items()}
    taken: dict[tuple[str, int], list[float]] = {key: [] for key in runs}
    for i in range(steps + 3):
        for key in random.sample(list(runs), len(runs)):  # in turn, so that all meet the same machine
            start = time.perf_counter()
            runs[key]()
            if i >= 3:
                taken[key].append((time.perf_counter() - start) * 1e3)
    ms = {key: statistics.median(times) for key, times in taken.items()}
    for kind in KINDS:
        for n in CONTEXTS:
            ratio, held = ms["attention", n] / ms[kind, n], states[kind, n].bytes()
            share = states["attention", n].bytes() / held
            print(
                f"{kind:>10} after {n:6,d}: {ms[kind, n]:7.2f} ms a token, {ratio:6.2f}× attention's speed; "
                f"state {held / 1024:9,.0f} KiB, {share:7.1f}× smaller"
            )


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
