"""Settings chosen from the data, the budget and this machine, where the user has set none.

The rules are few and written out, and what they chose stands in the run's ``config.yaml``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from triptych.config import ModelConfig, TranslationObjective, load_config, merge
from triptych.config.model import MOST_DIM, MOST_LAYERS
from triptych.config.objectives import CausalObjective, ClassifyObjective, Form, Objective, Tuned, objectives
from triptych.engine import autocast
from triptych.model import cost
from triptych.training.machine import choose_precision, measure

# (model width, encoder layers, decoder layers), smallest first. Decoders are the shallower half: decoding's
# time is theirs.
SIZES = (
    (128, 2, 2),
    (192, 3, 2),
    (256, 3, 3),
    (384, 4, 3),
    (512, 6, 3),
    (512, 6, 6),
    (768, 8, 6),
    (1024, 8, 8),
)
# (model width, layers, 0) of the forms with one stack.
SINGLE = (
    (128, 2, 0),
    (192, 3, 0),
    (256, 4, 0),
    (320, 5, 0),
    (384, 6, 0),
    (512, 8, 0),
    (768, 12, 0),
    (1024, 16, 0),
)
# Fewer labels than this, one a text, are soon learned by heart: see ``_few``.
FEW = 20_000
# Passes after which nothing is gained: over few labels (SST-2: 80.5 % after 60 or 120, 79.8 % after 700), and
# over text that is foretold (a megabyte of plays: 1.546 nats a byte after 20, 1.557 after 30).
FEW_PASSES, TEXT_PASSES = 60, 20
# However small the data are, something is learned in so many steps.
LEAST_STEPS = 1000
# Passes over the data that a model should have time for.
EPOCHS = 16
# Share of the speed of large matrix products that training reaches (benchmarks/throughput.py).
SHARE = 0.4
# Padded tokens of a batch.
TOKENS = 2048
# Bytes of text a token stands for, about, and bytes of a side of a pair.
BYTES, PAIR = 4.0, 40
# Seconds of a step of the smallest model, about, on any machine.
STEP = 0.02
# Tokens of a row of running text.
LENGTH = 256
# Patches of an image, about.
PATCHES = 30


@dataclass(frozen=True)
class Facts:
    """What the choice rests on: pairs, bytes of both sides, seconds to train for, products a second."""

    pairs: int
    bytes: int
    seconds: float
    flops: float


LEAST = Facts(pairs=1, bytes=1, seconds=1.0, flops=1.0)


def matmul_speed(precision: str) -> float:
    """Floating-point operations a second of a training-sized matrix product here."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    a, b = torch.randn(2048, 512, device=device), torch.randn(512, 1024, device=device)

    def work() -> float:
        with autocast(precision, device):
            return float((a @ b)[0, 0])

    return 2 * 2048 * 512 * 1024 / measure(work)


def vocabulary(pairs: int) -> int:
    """Entries of the tokenizer: enough for whole words of a large corpus, few enough to be learned from a
    small one.

    Of running text too: a megabyte of plays, foretold after two minutes on one core, costs 1.83 nats a byte
    with 1,000 entries, 1.77 with 2,000, 1.74 with 4,000 in a minute and a half.
    """
    for least, size in ((1_000_000, 32000), (200_000, 16000), (15_000, 8000), (4_000, 4000), (1_000, 2000)):
        if pairs >= least:
            return size
    return 1000


def choose(facts: Facts, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A configuration, as plain data, for this much data and time. What is ``given`` stands, and what
    depends on it follows from it."""
    given = given or {}
    what = _objective(given)
    asked = _section(given, "model").get("form")
    form: Form = asked if asked in what.forms else what.forms[0]
    both = form == "encoder_decoder"
    images = embedding_kind(given) == "patches"
    few = what is ClassifyObjective and facts.pairs < FEW and not _begun(given) and not images
    sizes = SIZES if both else ((64, 1, 0),) if few else SINGLE
    # Short texts are in one language and as many as one side of so many pairs.
    sides = 1 if issubclass(what, Tuned) else 2
    pairs = facts.pairs if what is TranslationObjective else facts.bytes // (sides * PAIR)
    vocab = _whole(given, "text.tokenizer.size") or vocabulary(pairs)
    # What a pass over the data gives to learn from: of pairs one side, of running text all of it.
    tokens = facts.bytes / BYTES / (2 if what is TranslationObjective else 1)
    length = LENGTH if what.readout == "vocabulary" and what is not TranslationObjective else 20
    if images:
        tokens, length = facts.pairs * PATCHES, PATCHES
    shape = _Shape(form, vocab, length, what.readout, "patches" if images else "table")
    running = length == LENGTH  # foretold token by token, it is learned by heart the soonest
    end = _whole(given, "training.steps")
    batch_tokens = (_whole(given, "training.accumulate") or 1) * (_whole(given, "data.tokens") or TOKENS)
    best = sizes[0]
    for size in sizes:
        one = cost(shape.model(size), batch=1, length=length, source=length)
        if one.parameters > (20 if running else 40) * tokens:
            break  # more parameters than the data can fill
        # A corpus too large for many passes in the time still teaches a model a token a parameter.
        need = min(EPOCHS * tokens, one.parameters)
        seconds = 3 * one.flops / length * need / (SHARE * facts.flops)  # backward costs twice forward
        if need > end * batch_tokens if end else seconds > facts.seconds:
            break
        best = size
    useful = FEW_PASSES if few or images else TEXT_PASSES if what is CausalObjective else math.inf
    a_pass = max(1.0, tokens / batch_tokens)  # in steps
    epochs = _epochs(given, max(useful, math.ceil(LEAST_STEPS / a_pass)))
    chosen = _settings(facts, given, shape, best, tokens, batch_tokens, epochs * a_pass)
    if epochs < math.inf:
        chosen["training"]["epochs"] = epochs
    if images:
        # Moved by an eighth, no two epochs are alike: of 100 shapes, after 1,800 to learn from, 90 were
        # told apart, and 80 without (benchmarks/images.py).
        del chosen["text"]
        return merge(chosen, {"model": {"dropout": 0.1}, "data": {"shift": 0.125}})
    if not few:
        return chosen
    steps = min(epochs * a_pass, end or facts.seconds / STEP)
    return merge(chosen, _few(chosen["training"]["schedule"]["peak"], steps, a_pass))


def _epochs(given: Mapping[str, Any], most: float) -> float:
    """The passes that end a run: those that are given; without a number of steps ``most``."""
    training = _section(given, "training")
    epochs = training.get("epochs")
    if isinstance(epochs, int | float) and epochs > 0:
        return epochs
    return math.inf if training.get("steps") or "epochs" in training else most


def _few(peak: float, steps: float, a_pass: float) -> dict[str, Any]:
    """What is other where a few thousand texts with one label each are all there is, for a run of so many
    steps and so many a pass.

    Bags of words are hard to beat there, and what reads more learns its texts by heart within ten passes. So
    the model is small, half of what it reads and of what it computes is hidden (Iyyer et al. 2015), all
    tokens have a say in the class, and the way that the weights go in all, rate times steps, is as long as
    that of ten passes, and of 800 steps at least, however long the run is; which is no longer than it is of
    use. The average of most of the run is as good as its end.
    """
    return {
        "model": {"dropout": 0.5},
        "objective": {"label_smoothing": 0.1, "word_dropout": 0.5, "pool": "mean"},
        "training": {
            "keep": 8,
            "optimizer": {"weight_decay": 0.1},
            "schedule": {"peak": peak / 4 * min(1.0, max(10 * a_pass, 800) / steps)},
        },
    }


@dataclass(frozen=True)
class _Shape:
    """What the models that are compared have in common."""

    form: Form
    vocab: int
    length: int
    readout: str
    embedding: str = "table"

    def model(self, size: tuple[int, int, int]) -> ModelConfig:
        dim, encoder, decoder = size
        depths = {"encoder_layers": encoder or None, "decoder_layers": decoder or None}
        if self.form != "encoder_decoder":
            depths = {"layers": encoder + decoder}
        settings = {"form": self.form, "vocab": self.vocab, "dim": dim, "heads": heads(dim), **depths}
        # As many classes as there may be: their map is small beside all else.
        output = {"kind": self.readout, **({"count": 2} if self.readout in ("classes", "tags") else {})}
        embedding = {"kind": self.embedding}
        return ModelConfig.parse({**settings, "position": "none", "output": output, "embedding": embedding})


def _settings(
    facts: Facts,
    given: Mapping[str, Any],
    shape: _Shape,
    best: tuple[int, int, int],
    tokens: float,
    batch_tokens: int,
    most: float,
) -> dict[str, Any]:
    """All settings around a size. ``most``: steps that end the run, however much time there is."""
    model, begun = _section(given, "model"), _begun(given)
    kind = _section(given, "training", "schedule").get("kind", "linear")
    end, both = _whole(given, "training.steps"), shape.form == "encoder_decoder"
    dim, encoder, decoder = _whole(given, "model.dim") or best[0], *best[1:]
    layers = _whole(given, "model.layers")
    depths: dict[str, Any] = {"encoder_layers": encoder, "decoder_layers": decoder}
    if not both:
        depths = {"layers": encoder + decoder}
    if "layers" in model or model.get("form", shape.form) != shape.form:
        depths = {}
        encoder, decoder = (layers or encoder, layers or decoder) if both else (layers or encoder, 0)
    rows = max(1, batch_tokens // shape.length)
    batch = cost(shape.model((dim, encoder, decoder)), batch=rows, length=shape.length, source=shape.length)
    steps = min(most, end or facts.seconds * SHARE * facts.flops / (3 * batch.flops))
    # The more often an example is seen, the more is to be done against learning it by heart.
    passes = steps * batch_tokens / max(tokens, 1)
    dropout = 0.3 if passes >= 25 else 0.2 if passes >= 8 else 0.1
    # Where a text is read as a whole its first word is a word like all others; a text that goes on is not.
    whole = shape.form != "decoder" or issubclass(_objective(given), Tuned)
    # What was learned before is not to be lost in the first steps.
    peak = (3e-4 if begun else 2e-3) * (256 / dim) ** 0.5
    chosen = objective_kind(given)
    return {
        "model": {
            "form": shape.form,
            "dim": dim,
            **depths,
            # Biases add nothing measurable beside norms, and their gradients cost a pass each.
            "heads": {"count": heads(dim), "bias": False},
            # Of an image every place is another, however far from others.
            "position": {"kind": "rope" if shape.embedding == "table" else "sinusoidal"},
            "norm": {"kind": "layernorm", "placement": "pre"},
            "ffn": {"kind": "relu", "dim": 4 * dim, "bias": False},
            "tie": "all",
            # Scaled, a stack of its own with tied embeddings begins by repeating its input.
            "scale_embedding": both,
            "dropout": dropout,
        },
        "text": {"tokenizer": {"kind": "bpe", "size": shape.vocab, "shrink": True, "dummy_prefix": whole}},
        "data": {"tokens": TOKENS},
        "objective": {"kind": chosen, **({"label_smoothing": 0.1} if chosen == "translation" else {})},
        "decoding": {"beam": 6} if both else {"strategy": "sample", "temperature": 0.8, "top_p": 0.95},
        "training": {
            "schedule": {
                "kind": kind,
                # That of noam is a factor, and its peak is its width's and warm-up's.
                "peak": 1.0 if kind == "noam" else peak,
                "warmup": int(max(min(20, steps), min(400, steps / 12))),
            },
        },
    }


def objective_kind(given: Mapping[str, Any]) -> str:
    """The objective that plain settings ask for."""
    asked = given.get("objective")
    kind = asked.get("kind", "translation") if isinstance(asked, Mapping) else asked or "translation"
    return str(kind)


def embedding_kind(given: Mapping[str, Any]) -> str:
    """The kind of embedding that plain settings ask for; empty where they ask for none."""
    asked = _section(given, "model").get("embedding")
    return str(asked.get("kind", "") if isinstance(asked, Mapping) else asked or "")


def _begun(given: Mapping[str, Any]) -> bool:
    """Whether the run begins with the weights of another."""
    return bool(_section(given, "training").get("init"))


def _objective(given: Mapping[str, Any]) -> type[Objective]:
    """What is learned; translation where there is no such objective, which will be refused."""
    return objectives().get(objective_kind(given), TranslationObjective)


def heads(dim: int) -> int:
    """Heads of about 64 values, at least two where that can be; each of an even number, for rotation."""
    return next((n for n in range(max(2, dim // 64), 0, -1) if dim % (2 * n) == 0), 1)


def fill(given: Mapping[str, Any], pairs: int, size: int, seconds: float) -> dict[str, Any]:
    """``given`` with every open choice made: for so many ``pairs`` of ``size`` bytes in all."""
    precision = choose_precision("auto", torch.device("cuda" if torch.cuda.is_available() else "cpu"), 256)
    return settle(given, Facts(pairs, size, seconds, matmul_speed(precision)))


def settle(given: Mapping[str, Any], facts: Facts = LEAST) -> dict[str, Any]:
    """``given`` with every open choice made for ``facts``: those of the smallest model when not given."""
    chosen = choose(facts, given)
    asked = load_config(merge(merge(chosen, {"model": {"position": "none"}}), given)).model
    # Rotary positions need something in every stack in which they can act.
    if not all(asked.attending(side, turning=True) for side in asked.stacks):
        chosen = merge(chosen, {"model": {"position": {"kind": "sinusoidal"}}})
    return merge(chosen, given)


def _section(given: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """A section of plain settings that nobody has looked at yet; empty when it is none."""
    found: Any = given
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _whole(given: Mapping[str, Any], key: str) -> int | None:
    """A number that was given; None for one that will be refused, too."""
    *path, last = key.split(".")
    most = {"dim": MOST_DIM, "layers": MOST_LAYERS}.get(last, 1 << 62)
    value = _section(given, *path).get(last)
    return value if type(value) is int and 0 < value <= most else None
