"""Laws of learning: accumulation, dropout, gradients, the first loss, and a batch learned by heart."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from triptych.config import parts
from triptych.insight.laws.reduced import LARGE, smaller
from triptych.insight.laws.registry import law
from triptych.insight.laws.subject import SPECIALS, Rows, Subject, alone, apart, still
from triptych.insight.laws.verdict import SINGLE, Compared, Skip, close, differ, true
from triptych.model import Model, build, cost
from triptych.model.attention import Attention
from triptych.model.experts import counting, routers
from triptych.model.heads import GroupedHeads
from triptych.objectives import Loss

LOSS = "src/triptych/objectives/loss.py"
TRANSFORMER = "src/triptych/model/transformer.py"
# Nats beside ln V. Logits of unit variance cost half a nat; tied embeddings make the word just read likelier
# than others, which costs up to as much in a small model; and a small batch strays by a few tenths.
NEAR = 1.5
LEARNED = 0.1  # nats a token
# The first loss of a small model depends on the few weights that were drawn: it is the mean of so many draws.
SMALL, DRAWS = 100_000, 4
BIGGEST = 300_000_000  # parameters that the first loss is still looked at for


@law(
    8,
    "accumulation equals one batch",
    "a loss is a mean, or is divided by the count of its own micro-batch",
    LOSS,
)
def accumulation(s: Subject) -> Iterator[Compared | str]:
    """Micro-batches of any sizes give the gradients, the sum and the count of one batch."""
    if s.config.experts is not None:
        yield "capacity and the losses of loads are of a batch as a whole, and are left out"
    rows = s.rows(5)
    whole = [list(range(5))]
    want, loss = gradients(s, rows, whole)
    unit = want.abs().max()
    for split in ([[0], [1, 2], [3, 4]], [[4, 1, 2], [0, 3]], [[i] for i in range(5)]):
        got, total = gradients(s, rows, split)
        sizes = "+".join(str(len(part)) for part in split)
        yield true(f"tokens of {sizes} rows", total.count == loss.count, f"{total.count} and {loss.count}")
        ones, others = (torch.tensor([float(x.sum), x.nll]) for x in (total, loss))
        yield close(f"loss of {sizes} rows", ones, others, SINGLE)
        # In units of the largest gradient: gradients of a mean are small, and the loss is in fp32.
        yield close(f"gradients of {sizes} rows", got / unit, want / unit, SINGLE)


def gradients(s: Subject, rows: Rows, split: list[list[int]]) -> tuple[Tensor, Loss]:
    """All gradients as one vector, and the loss, of micro-batches summed."""
    model = s.learner()
    with torch.enable_grad():
        parts = [s.loss(model, rows.pick(part), smoothing=0.1) for part in split]
        total = sum(parts[1:], parts[0])
        (total.sum / total.count).backward()  # type: ignore[no-untyped-call]
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return found, Loss(total.sum.detach(), total.count, total.nll)


@law(
    9,
    "evaluation is deterministic",
    "dropout does not follow train() and eval(): a function that knows no mode, or a mode set once for ever",
    "src/triptych/model/dropout.py",
)
def modes(s: Subject) -> Iterator[Compared | str]:
    """Evaluation gives the same twice; training does not when there is dropout, also after an evaluation."""
    rows = s.rows(3)

    def run(model: Model) -> Tensor:
        return torch.cat(s.answers(rows, model=model))

    model = copy.deepcopy(s.model)
    if apart(model):
        yield "without a capacity of experts, which acts in training only"
    first = run(model.eval())
    yield true("two evaluations are equal", torch.equal(first, run(model)), "bit by bit")
    bare = copy.deepcopy(model)
    still(bare)
    yield close("an evaluation is one without dropout", first, run(bare.train()))
    weighs = any(isinstance(m, Attention) for m in model.modules())
    kinds = {
        "attention": s.config.attention.dropout if weighs else 0.0,
        "residual and embedding": s.config.dropout,
    }
    if not any(kinds.values()):
        yield true(
            "training without dropout is evaluation", torch.equal(first, run(model.train())), "bit by bit"
        )
    for name, p in kinds.items():
        if not p:
            yield f"no {name} dropout in these settings"
            continue
        model = copy.deepcopy(s.model)
        apart(model)
        still(model, attention=name != "attention", elsewhere=name == "attention")
        off = f"{name} dropout is off in training"
        model.train()
        yield differ(f"two training passes with {name} dropout", run(model), run(model), off)
        model.eval()
        yield true(f"{name} dropout is off in evaluation", torch.equal(run(model), first), "bit by bit")
        model.train()
        yield differ(f"two training passes after an evaluation, {name} dropout", run(model), run(model), off)


@law(
    10,
    "every parameter learns",
    "a parameter is not used, is detached, or is not registered where it is used",
    TRANSFORMER,
)
def learns(s: Subject) -> Iterator[Compared | str]:
    """Every parameter gets a finite gradient that is not zero; so does each part of a fused map."""
    model, experts = s.learner(), s.config.experts
    many = 8 * (experts.count // experts.top_k) if experts is not None else 4
    spare = idle_tokens(s, many)
    load: dict[str, Tensor] = {}
    with torch.enable_grad(), counting(routers(model), load):
        loss = s.loss(model, s.rows(many))
        (loss.sum / loss.count).backward()  # type: ignore[no-untyped-call]
    found = {name: p.grad for name, p in model.named_parameters()}
    for name, module in model.named_modules():
        # One visible key has weight 1 whatever queries and keys are: then they have no gradient.
        if not isinstance(module, GroupedHeads):
            continue
        keys = module.G * module.D
        if hasattr(module, "kv"):
            found |= sections(name + ".kv", module.kv.weight.grad, [keys] * 2, "kv")
        elif not alone(s.config):
            found |= sections(name + ".qkv", module.qkv.weight.grad, [module.width, keys, keys], "qkv")
    without = [n for n, g in found.items() if g is None]
    endless = [n for n, g in found.items() if g is not None and not bool(g.isfinite().all())]
    zero = [n for n, g in found.items() if g is not None and not bool(g.any())]
    if alone(s.config):
        yield "queries and keys are not looked at: with one visible key they do not matter"
        zero = [
            n for n in zero if not any(part in n for part in (".mixer.heads.", ".mixer.score.", ".position."))
        ]
    few = {name: (n <= spare).nonzero()[:, 0].tolist() for name, n in load.items()}
    if idle := tuple(f"{name}.ffn.experts.{i}." for name, which in few.items() for i in which):
        yield f"experts that no token with a target need have gone to are not looked at: {len(idle)}"
        zero = [n for n in zero if not n.startswith(idle)]
    for what, names in (("without gradient", without), ("not finite", endless), ("zero everywhere", zero)):
        yield true(
            f"gradients {what}",
            not names,
            f"{names[:3]} of {len(found)}" if names else f"none of {len(found)}",
        )


def idle_tokens(s: Subject, rows: int) -> int:
    """Tokens of ``rows`` rows that nothing need be learned of: of a row that is read at one place all others,
    of a decoder's the last, and those within a prefix."""
    if s.config.output.whole and s.config.pool != "mean":
        return rows * s.longest
    return rows * max(1, s.ahead) if s.config.form == "decoder" and s.config.says_words else 0


def sections(name: str, grad: Tensor | None, widths: list[int], letters: str) -> dict[str, Tensor | None]:
    """The gradients of a fused map's parts."""
    parts = torch.split(grad, widths) if grad is not None else [None] * len(widths)
    return {f"{name} ({letter})": part for letter, part in zip(letters, parts, strict=True)}


@law(
    11,
    "first loss is ln V",
    "the output map's scale is off, or tied embeddings make the model begin by copying its input",
    TRANSFORMER,
    whole=True,
)
def first(s: Subject) -> Iterator[Compared | str]:
    """Before training all words are about equally likely."""
    if s.given is not None:
        raise Skip("this model is given, not fresh")
    if isinstance(s.config.output, parts.VectorOutput):
        raise Skip("a vector says nothing that could be likely")
    if cost(s.asked).parameters > BIGGEST:
        raise Skip(f"the whole model of {cost(s.asked).parameters:,} parameters is not built for this")
    # The whole model, not a smaller one: depth and vocabulary are what this law is about.
    model = build(s.asked, s.seed).eval() if s.reduced else s.model
    rows = s.rows(16)
    drawn = [s.loss(model, rows)]
    if cost(s.config).parameters < SMALL:
        drawn += [s.loss(build(s.config, s.seed + k).eval(), rows) for k in range(1, DRAWS)]
    among = model.config.vocab if s.config.says_words else s.among
    mean, guess = sum(loss.nll / loss.count for loss in drawn) / len(drawn), math.log(among)
    figure = f"{mean:.2f} nats each, ln {among} is {guess:.2f}, tolerance {NEAR:g}"
    yield true("the first loss", abs(mean - guess) < NEAR, figure)


@law(
    12,
    "a tiny batch is overfitted",
    "gradients do not reach what must learn, or targets cannot be known from the input",
    "src/triptych/model/stack.py",
)
def overfit(s: Subject) -> Iterator[Compared | str]:
    """Without dropout and smoothing, a few sentences are learned by heart."""
    config, start = s.config, s.model
    if cost(config).parameters > LARGE:  # only a given model can be as large: fresh ones were made smaller
        config, notes = smaller(config)
        start = build(config, s.seed)
        yield f"a fresh model of these settings with {', '.join(notes) or 'all its layers'}"
    rows = distinct(s, config.vocab)
    tried = []
    for peak, steps in ((3e-3, 120), (1e-3, 240), (3e-4, 480)):
        rate = peak * (128 / config.dim) ** 0.5
        model = copy.deepcopy(start).float()
        still(model)
        mean, took = by_heart(s, model, rows, rate, steps)
        tried.append(f"{mean:.3f} nats a token after {took} steps at rate {rate:.1e}")
        if mean < LEARNED:
            break
    yield true("the loss of a tiny batch", mean < LEARNED, "; ".join(tried) + f"; {LEARNED} is enough")


def distinct(s: Subject, vocab: int) -> Rows:
    """Rows in which no token comes twice: what follows can be known from any window."""
    words = (torch.randperm(vocab - SPECIALS, generator=s.rng)[:12] + SPECIALS).tolist()
    third = len(words) // 3
    main = [words[: third + 1], words[third + 1 : 2 * third], words[2 * third :]]
    main = [row for row in main if row]
    return Rows(main, [row[::-1] for row in main] if s.config.form == "encoder_decoder" else [])


@torch.enable_grad()
def by_heart(s: Subject, model: Model, rows: Rows, rate: float, steps: int) -> tuple[float, int]:
    """Train on one batch until it is learned; nats a token, and steps taken."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / 10)
        loss = s.loss(model, rows)
        mean = loss.nll / loss.count
        if mean < LEARNED or not math.isfinite(mean):
            break
        optimizer.zero_grad(set_to_none=True)
        (loss.sum / loss.count).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return mean, step
