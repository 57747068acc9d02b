"""What ``triptych inspect`` says, against the papers' formulas and against measurement."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from laws.test_walk import AXES, ROWS, label, settings
from triptych.config import ModelConfig, load_config, parts, preset
from triptych.errors import UserError
from triptych.insight.accounting import Account, account, sizes, table
from triptych.insight.accounting.generation import Work, generation
from triptych.insight.accounting.memory import BLOCK, activations
from triptych.insight.accounting.passes import backward, crossover, written_out
from triptych.insight.accounting.text import short, size
from triptych.layout import Layout
from triptych.model import DecoderOnly, EncoderDecoder, EncoderOnly, Model, build, cache_bytes
from triptych.model.experts import routers
from triptych.model.registry import Cost
from triptych.model.transformer import costs

Placed = tuple[Tensor, Layout]


def config(**model: Any) -> ModelConfig:
    """A small model."""
    return ModelConfig.parse({"vocab": 50, "dim": 16, "layers": 2, "heads": 4, **model})


# -- formulas of the literature ----------------------------------------------------------------------------


@pytest.mark.parametrize(("C", "H", "inner"), [(512, 8, 2048), (512, 1, 2048), (96, 4, 200)])
@pytest.mark.parametrize("T", [1, 7, 64])
def test_generation_is_the_table_of_the_textbooks(C: int, H: int, inner: int, T: int) -> None:
    """One layer; a multiply-add counts two; d model width, S tokens of source, T generated ones."""
    S = 11
    model = ModelConfig.parse(
        {"vocab": 100, "dim": C, "layers": 1, "heads": {"count": H, "bias": False}, "ffn": {"dim": inner}}
    )
    found = {work.part: work for work in generation(model, 1, T, S)}
    want = {
        # queries, keys, values and output: 8 n d² without, 8 d² with a cache
        "mixers: projections": (8 * T * C**2, 8 * C**2, 4 * C**2 * T * (T + 1), 8 * T * C**2),
        # scores and weighted values: 4 n² d without, 4 n d with
        "mixers: attention": (
            4 * T**2 * C,
            4 * T * C,
            2 * C * T * (T + 1) * (2 * T + 1) // 3,
            2 * C * T * (T + 1),
        ),
        "cross-attention: projections": (4 * T * C**2, 4 * C**2, 2 * C**2 * T * (T + 1), 4 * T * C**2),
        "cross-attention: attention": (
            4 * T * S * C,
            4 * S * C,
            2 * S * C * T * (T + 1),
            4 * S * C * T,
        ),
        "cross-attention: keys and values": (4 * S * C**2, 0, 4 * T * S * C**2, 4 * S * C**2),
        "feed-forward": (
            4 * T * C * inner,
            4 * C * inner,
            2 * C * inner * T * (T + 1),
            4 * T * C * inner,
        ),
        "output": (200 * C, 200 * C, 200 * C * T, 200 * C * T),
    }
    assert {name: (w.step, w.step_cached, w.total, w.total_cached) for name, w in found.items()} == want
    # What a cache saves of all steps: (T + 1) / 2; of attention (2 T + 1) / 3; of the source's keys T.
    saved = {name: w.total / w.total_cached for name, w in found.items()}
    assert saved["feed-forward"] == saved["mixers: projections"] == (T + 1) / 2
    assert saved["mixers: attention"] == pytest.approx((2 * T + 1) / 3)
    assert saved["cross-attention: keys and values"] == T


def test_parameters_do_not_grow_with_heads() -> None:
    """4 C² for attention and 2 C · C_ff for the feed-forward network, whatever the number of heads."""
    for heads in (1, 4, 16):
        model = ModelConfig.parse(
            {
                "form": "decoder", "vocab": 10, "dim": 64, "layers": 1,
                "heads": {"count": heads, "bias": False}, "ffn": {"dim": 256, "bias": False},
            }
        )  # fmt: skip
        parts = costs(model, 1, 1)
        assert parts["decoder mixers"].parameters == 4 * 64**2
        assert parts["decoder feed-forward"].parameters == 8 * 64**2


LLAMA = {
    "form": "decoder",
    "vocab": 32000,
    "dim": 4096,
    "layers": 32,
    "heads": {"count": 32, "bias": False},
    "ffn": {"dim": 16384, "bias": False},
    "position": "rope",
}


def test_attention_against_feed_forward_at_7b() -> None:
    """16 n d² and 4 n² d: n / 4 d, 1 at 16k tokens and 8 at 128k."""
    model = ModelConfig.parse(LLAMA)
    found = crossover(model, "decoder")
    assert found is not None and found.found == 16384 and found.formula == 16384
    n = 128 * 1024
    parts = costs(model, 1, n)
    assert parts["decoder mixers"].meeting == 32 * 4 * n**2 * 4096
    assert parts["decoder feed-forward"].flops == 32 * 16 * n * 4096**2
    assert parts["decoder mixers"].meeting == 8 * parts["decoder feed-forward"].flops


@pytest.mark.parametrize(("tokens", "said"), [(2, "8 MiB"), (32, "2 GiB"), (128, "32 GiB"), (1024, "2 TiB")])
def test_weights_of_one_head_in_half_precision(tokens: int, said: str) -> None:
    """n² values of two bytes."""
    model = config(form="decoder", heads=1)
    assert size(written_out(model, "decoder", 1, tokens * 1024, 2)) == said


def test_cache_of_32_layers() -> None:
    """2 · L · T · H_kv · D · bytes: 512 MiB for 32 layers, 4,096 tokens, 8 key/value heads of 128, BF16."""
    model = ModelConfig.parse({**LLAMA, "heads": {"count": 32, "kv": 8, "bias": False}})
    found = account(model, sizes(model, target=16, generate=4096, dtype="bf16"))
    assert sum(found.cache.values()) == 536_870_912 == 512 * 2**20
    assert found.grows == 2 * 32 * 8 * 128 * 2
    assert "512 MiB (536,870,912 bytes)" in table(found)
    whole = ModelConfig.parse(LLAMA)  # multi-head: half a MiB a token, 64 GiB at 128k
    assert cache_bytes(whole, 1, [1], 0, 0, 2) == 512 * 1024
    assert cache_bytes(whole, 1, [128 * 1024], 0, 0, 2) == 64 * 2**30


# -- where attention overtakes -----------------------------------------------------------------------------

CROSSING: list[dict[str, Any]] = [
    {},
    {"form": "decoder"},
    {"form": "encoder", "ffn": {"kind": "swiglu", "dim": 20}},
    {"form": "decoder", "heads": {"count": 4, "kv": 1}},
    {"form": "decoder", "heads": {"kind": "mla", "count": 2, "latent": 6}, "position": "rope"},
    {"form": "decoder", "position": "shaw"},
    {"form": "decoder", "mixer": ["attention", "lstm", "lstm"], "layers": 3},
    {"form": "decoder", "attention": {"visible": [{"kind": "window", "width": 3}, "everything"]}},
]


@pytest.mark.parametrize("model", CROSSING, ids=str)
def test_crossover_is_the_first_length(model: dict[str, Any]) -> None:
    """By search and, where products grow with the square of the length, by formula."""
    c = config(**model)
    for side in c.stacks:

        def over(n: int, side: str = side) -> bool:
            parts = costs(c, 1, n, n)
            return parts[f"{side} mixers"].meeting >= parts[f"{side} feed-forward"].flops

        found = crossover(c, side)
        assert found is not None and found.found is not None
        first = next(n for n in itertools.count(1) if over(n))
        assert found.found == first
        if found.formula is not None:
            assert first - 1 < found.formula <= first
    windows = "window" in str(model)
    assert (found.formula is None) == windows  # type: ignore[union-attr]


def test_no_crossover() -> None:
    window = config(form="decoder", attention={"visible": {"kind": "window", "width": 3}}, ffn={"dim": 640})
    assert crossover(window, "decoder") == crossover(window, "decoder")
    found = crossover(window, "decoder")
    assert found is not None and found.found is None and found.formula is None
    assert "stays below" in table(account(window, sizes(window)))
    recurrent = config(form="decoder", mixer="gru", position="none")
    assert crossover(recurrent, "decoder") is None
    assert "meet in no products" in table(account(recurrent, sizes(recurrent)))


# -- measurement -------------------------------------------------------------------------------------------


def ids(model: ModelConfig, batch: int, length: int) -> Placed:
    """Full rows."""
    layout = Layout.full(batch, length)
    if isinstance(model.embedding, parts.PatchEmbedding):
        return torch.randn(batch, length, model.embedding.values), layout
    return torch.randint(4, model.vocab, (batch, length)), layout


def counted(run: Callable[[], Any]) -> tuple[int, Any]:
    """Operations of the matrix products in a call, and what it gives."""
    with FlopCounterMode(display=False) as counter:
        out = run()
    return counter.get_total_flops(), out


def kept(model: nn.Module, run: Callable[[], Any]) -> int:
    """Bytes of the storages that autograd keeps, weights left out."""
    own = {x.untyped_storage().data_ptr() for x in (*model.parameters(), *model.buffers())}
    held: dict[int, Any] = {}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        out = run()
    assert out is not None
    return sum(storage.nbytes() for storage in held.values())


class Measured:
    """A model that is built, and the account that was drawn up without."""

    def __init__(self, model: ModelConfig, B: int = 2, T: int = 9, S: int = 6, N: int = 7) -> None:
        both = model.form == "encoder_decoder"
        steps = None if model.form == "encoder" else N
        self.account: Account = account(model, sizes(model, B, T, S if both else None, steps))
        self.model: Model = build(model, 1).train()
        self.B, self.N = B, N
        self.main = ids(model, B, T)
        self.source = ids(model, B, S) if both else ()

    def run(self) -> Tensor:
        logits: Tensor = self.model(*self.source, *self.main)
        return logits

    def decoding(self) -> None:
        """Step by step without a cache and with one: operations of the last step and of all, and bytes."""
        m, work = self.model.eval(), self.account.generation
        assert isinstance(m, EncoderDecoder | DecoderOnly)
        said = [sum(getattr(w, n) for w in work) for n in ("step", "total", "step_cached", "total_cached")]
        row, whole = ids(m.config, self.B, self.N)
        with torch.inference_mode():
            encoding, memory = counted(lambda: m.encode(*self.source) if self.source else None)  # type: ignore[union-attr]
            given = {"memory": memory} if memory else {}
            steps = []
            for n in range(1, self.N + 1):
                layout = Layout.full(self.B, n)
                hidden = lambda n=n, layout=layout: m.decode(row[:, :n], layout, **given)  # noqa: E731
                steps.append(counted(lambda f=hidden: m.output(f()[:, -1:]))[0])
            assert [steps[-1], sum(steps)] == said[:2]
            made, state = counted(lambda: m.start(memory) if memory else m.start())
            steps = [made]
            for n in range(self.N):
                one = whole.narrow(n, n + 1)
                run = lambda n=n, one=one: m.output(m.decode(row[:, n : n + 1], one, state=state))  # noqa: E731
                steps.append(counted(run)[0])
            assert [steps[-1], sum(steps)] == said[2:]
        assert encoding == self.account.encoding
        assert state.bytes() == sum(self.account.cache.values())


# Each idea once, with what sits beside it.
CONFIGS: dict[str, dict[str, Any]] = {
    "base": {},
    "grouped, pre, gated": {
        "form": "decoder",
        "heads": {"count": 4, "kv": 2, "qk_norm": True},
        "position": "rope",
        "norm": {"kind": "rmsnorm", "placement": "pre"},
        "ffn": "swiglu",
        "tie": "none",
        "embedding": {"kind": "factorised", "dim": 6},
    },
    "latent": {
        "form": "decoder",
        "heads": {"kind": "mla", "count": 2, "query": 6},
        "position": "rope",
        "norm": {"placement": "parallel"},
    },
    "latent over a source": {"heads": {"kind": "mla", "count": 2}, "norm": {"placement": "sandwich"}},
    "window": {"form": "decoder", "attention": {"visible": {"kind": "window", "width": 3}}},
    "pattern": {
        "form": "decoder",
        "layers": 3,
        "attention": {"visible": [{"kind": "window", "width": 2}, "everything"]},
        "mixer": ["attention", "lstm"],
    },
    "recurrent over a source": {"encoder_mixer": "gru", "decoder_mixer": "bahdanau", "position": "none"},
    "input feeding": {
        "encoder_mixer": "lstm",
        "decoder_mixer": {"kind": "luong", "input_feeding": True},
        "position": "none",
    },
    "late reset over a source": {
        "encoder_mixer": {"kind": "gru", "reset": "after"},
        "decoder_mixer": {"kind": "bahdanau", "reset": "after"},
        "position": "none",
    },
    "sums": {"form": "decoder", "mixer": ["linear", "retention"], "position": "none"},
    "random features": {
        "encoder_mixer": {"kind": "linear", "map": "favor"},
        "decoder_mixer": ["attention", {"kind": "linear", "map": "favor", "features": 7}],
    },
    "encoder": {"form": "encoder", "position": {"kind": "learned", "max": 80}, "dropout": 0.0},
    "encoder window": {"form": "encoder", "attention": {"visible": {"kind": "window", "width": 2}}},
    "shaped": {
        "form": "decoder",
        "attention": {"score": "additive", "sinks": True, "softcap": 3.0, "dropout": 0.1},
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_pass_and_its_gradients(name: str) -> None:
    """Operations forward and back, and what is kept between, part by part."""
    m = Measured(config(**CONFIGS[name]))
    with FlopCounterMode(display=False, depth=9) as counter:
        logits = m.run()
    by_part = Counter[str]()
    for module, found in counter.get_flop_counts().items():
        _, *path = module.split(".")
        if path[1:2] == ["blocks"] and len(path) == 4 and path[3] in BLOCK:  # side.blocks.i.part
            by_part[f"{path[0]} {BLOCK[path[3]]}"] += sum(found.values())
        elif path in (["output"], ["embedding"], ["source_embedding"]):  # target and source share a table
            by_part[path[0].removeprefix("source_")] += sum(found.values())
    parts = m.account.parts
    assert by_part.total() == m.account.total.flops
    assert {n: f for n, f in by_part.items() if f} == {n: c.flops for n, c in parts.items() if c.flops}
    assert counted(lambda: logits.sum().backward())[0] == backward(m.account.total)
    assert isinstance(m.account.activations, dict)
    assert sum(m.account.activations.values()) == kept(m.model, m.run)


@pytest.mark.parametrize("name", [n for n, c in CONFIGS.items() if c.get("form") != "encoder"])
def test_generation_and_its_state(name: str) -> None:
    Measured(config(**CONFIGS[name])).decoding()


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_by_part(name: str) -> None:
    c = config(**CONFIGS[name])
    built = build(c, 1)
    found = Counter[str]()
    for path, p in built.named_parameters():
        first, *steps = path.split(".")
        if first in ("encoder", "decoder"):
            name = steps[2] if steps[0] == "blocks" else steps[0]
            part = {**BLOCK, "position": "positions"}.get(name, "norms")
            found[f"{first} {part}"] += p.numel()
        else:
            found["output" if first == "output" else "embedding"] += p.numel()
    said = {name: cost.parameters for name, cost in costs(c).items() if cost.parameters}
    assert dict(found) == said


def covering() -> list[dict[str, Any]]:
    """Rows of the walk in which every choice of every axis stands once at least."""
    left = {(axis, str(value)) for axis, values in AXES.items() for value in values}
    out = []
    for row in ROWS:
        if new := left & {(axis, str(row[axis])) for axis in AXES}:
            left -= new
            out.append(row)
    return out


@pytest.mark.parametrize("row", covering(), ids=label)
def test_every_choice(row: dict[str, Any]) -> None:
    """Whatever a model is made of: operations of both passes, of generating, and memory."""
    model = ModelConfig.parse(settings(row))
    m = Measured(model) if model.says_words else Measured(model, N=0)
    full = "capacity" in str(row.get("experts"))
    remains = kept(m.model, m.run)
    if full:  # in training tokens may pass by full experts: less is computed
        m.model.eval()
    forward, logits = counted(m.run)
    assert forward == m.account.total.flops
    assert counted(lambda: logits.sum().backward())[0] == backward(m.account.total)
    assert isinstance(m.account.activations, dict)
    said = sum(m.account.activations.values())
    # A part may ask about values; then what it keeps can hang on the answer.
    assert said == pytest.approx(remains, rel=2e-3) or (full and said > remains)
    if m.N and not isinstance(m.model, EncoderOnly) and "prefix" not in str(row["visible"]):
        m.decoding()


@pytest.mark.parametrize("model", [{"form": "decoder"}, {}], ids=str)
def test_long_sequences(model: dict[str, Any]) -> None:
    """Past the length up to which attention is computed by products that the counter sees: with dropout on
    the weights it is products still, and the fused kernel keeps no weights."""
    c = config(**model, attention={"dropout": 0.1})
    m = Measured(c, B=1, T=300, S=280, N=3)
    forward, logits = counted(m.run)
    assert forward == m.account.total.flops
    assert counted(lambda: logits.sum().backward())[0] == backward(m.account.total)
    assert sum(m.account.activations.values()) == kept(m.model, m.run)  # type: ignore[union-attr]
    fused = Measured(config(**model), B=1, T=300, S=280, N=3)
    found = sum(fused.account.activations.values())  # type: ignore[union-attr]
    assert found == kept(fused.model, fused.run)
    assert found < sum(m.account.activations.values()) / 2  # type: ignore[union-attr]


LONGFORMER = {"kind": "any", "of": [{"kind": "window", "width": 9}, {"kind": "global", "count": 3}]}
PREFIX = {"kind": "prefix", "length": 6, "beside": {"kind": "window", "width": 9}}


@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
@pytest.mark.parametrize(
    ("form", "visible"), [("encoder", LONGFORMER), ("decoder", LONGFORMER), ("decoder", PREFIX)]
)
def test_blocks_that_see_the_first_keys_too(form: str, visible: Any, score: str) -> None:
    """Operations of both passes and what is kept between; of a decoder, of all steps over a state that is
    longer than what a token sees."""
    c = config(form=form, layers=1, attention={"visible": visible, "score": score, "dropout": 0.1})
    m = Measured(c, B=1, T=300, N=170)
    forward, logits = counted(m.run)
    assert forward == m.account.total.flops
    assert counted(lambda: logits.sum().backward())[0] == backward(m.account.total)
    assert sum(m.account.activations.values()) == kept(m.model, m.run)  # type: ignore[union-attr]
    assert m.account.total.meeting < 0.7 * costs_at_once(c).meeting
    if visible is LONGFORMER and form == "decoder":  # a prefix is never given step by step
        m.decoding()


def costs_at_once(c: ModelConfig) -> Cost:
    """Of 300 tokens that see everything."""
    seen = c.attention.model_copy(update={"visible": parts.SeeEverything()})
    return sum(costs(c.model_copy(update={"attention": seen}), 1, 300).values(), Cost())


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_what_training_in_low_precision_keeps(dtype: str) -> None:
    c = config(position="rope", norm={"placement": "pre"}, dropout=0.1)
    found = activations(c, sizes(c, 2, 9, 6, dtype=dtype))
    m = Measured(c)
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    with torch.autocast("cpu", low):
        assert sum(found.values()) == kept(m.model, m.run)  # type: ignore[union-attr]


def test_counting_leaves_no_trace() -> None:
    """Neither random state nor anything a later pass could stumble over."""
    c = config(form="decoder", attention={"visible": {"kind": "random", "size": 2}})
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert isinstance(activations(c, sizes(c, 2, 9)), dict)
    assert torch.equal(torch.get_rng_state(), before)
    model = build(c, 1)
    logits = model(*ids(c, 2, 9))
    assert type(logits) is Tensor and bool(logits.isfinite().all())
    logits.sum().backward()


def by_turns(model: nn.Module, offset: int = 0) -> None:
    """From now on tokens go to one expert after another, or all to the same when ``offset`` is 0."""
    for router in routers(model).values():

        def route(logits: Tensor, real: Any = router.route, K: int = router.k) -> Any:
            N, E = logits.shape
            first = torch.arange(N)[:, None] * offset
            return real(logits)._replace(chosen=(first + torch.arange(K)) % E)

        router.route = route  # type: ignore[method-assign]


EXPERTS: list[dict[str, Any]] = [
    {"form": "decoder", "experts": {"count": 4}},
    {"experts": {"count": 4, "top_k": 1, "router": "softmax", "shared": 1, "every": 2}, "ffn": "swiglu"},
    {"form": "encoder", "experts": {"count": 3, "capacity": 2.0, "router": "sigmoid"}},
    {"form": "decoder", "experts": {"count": 4, "capacity": 1.0}},
    {"form": "decoder", "experts": {"count": 4, "capacity": 0.5}},
]


@pytest.mark.parametrize("model", EXPERTS, ids=str)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_what_experts_keep(model: dict[str, Any], dtype: str) -> None:
    """Exactly what is said at even load; at any other as much, or less where they have no room for more."""
    c = config(**model)
    both = c.form == "encoder_decoder"
    found = account(c, sizes(c, 2, 12, 12 if both else None, dtype=dtype))
    said = sum(found.activations.values())  # type: ignore[union-attr]
    m = Measured(c, B=2, T=12, S=12)
    scarce = c.experts is not None and (c.experts.capacity or c.experts.count) < c.experts.count
    for offset in (c.experts.top_k, 0):  # type: ignore[union-attr]
        by_turns(m.model, offset)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            measured = kept(m.model, m.run)
        assert measured == said or (scarce and not offset and measured < said)
    assert "even load" in table(found) and "even load" in found.to_dict()["activations_note"]
    assert ("keep less" in found.note) == (c.experts.capacity is not None)  # type: ignore[union-attr]
    assert found.to_dict()["activations_bytes"] == said and "?" not in table(found)


def test_where_no_layer_has_experts_nothing_is_said_of_them() -> None:
    c = config(form="decoder")
    assert account(c, sizes(c)).note == "" and "even load" not in table(account(c, sizes(c)))


def test_what_cannot_be_counted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of someone's own may ask for values; figures from formulas stand."""
    from triptych.model.experts import Experts

    monkeypatch.setattr(Experts, "mix", lambda self, x, routed: x * float(x.sum().numpy()))
    c = config(form="decoder", experts={"count": 4})
    found = account(c, sizes(c))
    assert found.activations == found.note == "depends on values"
    assert "depends on values" in table(found) and found.to_dict()["activations_bytes"] is None


# -- shape of the account ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["transformer-base", "transformer-big", "small", "student"])
def test_presets(name: str) -> None:
    model = load_config(preset(name), ["model.vocab=9000"]).model
    a = account(model, sizes(model, batch=4, generate=20))
    assert sum(a.shares.values()) == a.total.flops
    assert a.total == sum(a.parts.values(), Cost())
    assert f"{a.total.parameters:,} parameters" in table(a)
    data = a.to_dict()
    assert data["parameters"] == sum(part["parameters"] for part in data["parts"].values())
    assert data["cache_bytes"] == sum(data["cache"].values())


def test_sizes() -> None:
    both, decoder, encoder = config(), config(form="decoder"), config(form="encoder")
    few = config(position={"kind": "learned", "max": 20})
    summed = config(encoder_mixer={"kind": "linformer", "max": 8}, position="none")
    assert (sizes(both).source, sizes(both).target, sizes(both).generate) == (128, 128, 128)
    assert sizes(decoder).source == 0 and sizes(decoder, target=9).generate == 9
    assert sizes(encoder).generate == 0 == sizes(decoder, generate=0).generate
    assert sizes(few).target == 20
    for model, given, words in (
        (encoder, {"generate": 3}, "generates nothing"),
        (decoder.model_copy(update={"output": parts.VectorOutput()}), {"generate": 3}, "output is vector"),
        (decoder, {"source": 3}, "reads no source"),
        (both, {"batch": 0}, "no size"),
        (both, {"target": -1}, "no size"),
        (both, {"generate": -1}, "no size"),
        (both, {"dtype": "int4"}, "known: fp32"),
        (few, {"target": 21}, "model.position.max"),
        (summed, {"source": 9}, "8 that model.encoder_mixer.max"),
    ):
        with pytest.raises(UserError, match=words):
            sizes(model, **given)  # type: ignore[arg-type]


def test_numbers_in_words() -> None:
    assert [short(n) for n in (0, 9999, 10_000, 1_234_567, 5.6e10)] == [
        "0",
        "9,999",
        "10.0 K",
        "1,234.6 K",
        "56.0 G",
    ]
    assert [size(n) for n in (0, 1023, 1024, 1536, 2**40 * 3000)] == [
        "0 B",
        "1,023 B",
        "1 KiB",
        "1.5 KiB",
        "3,000 TiB",
    ]


def test_work_adds() -> None:
    assert Work("a", 1, 2, 3, 4) + Work("b", 1, 1, 1, 1) == Work("a", 2, 3, 4, 5)
