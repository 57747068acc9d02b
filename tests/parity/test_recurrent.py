"""Recurrent and convolutional mixers against ``torch.nn``, and against numpy written from the papers."""

from __future__ import annotations

import copy
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from parity.weights import Match, Rows, model_of, shaken
from triptych.config import ModelConfig
from triptych.engine.translator import Translator
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import EncoderDecoder
from triptych.model.mixers.runs import begins, changes, pace
from triptych.model.registry import Context, Place, part_of
from triptych.model.state import State
from triptych.model.visible import SameSegment

C, H = 6, 5


def _mixer(kind: str, causal: bool, source: bool = False, **settings: Any) -> Any:
    form = "encoder_decoder" if source or not causal else "decoder"
    model = ModelConfig.parse({"form": form, "dim": C, "heads": 1, "mixer": {"kind": kind, **settings}})
    torch.manual_seed(0)
    mixer = part_of(model.mixer)(model.mixer, model, Place(causal, source))
    return shaken(mixer).double()


def _context(layout: Layout, **more: Any) -> Context:
    return Context(layout, SameSegment(), cast(Any, None), **more)


def _x(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def _packed(*rows: list[tuple[int, int]]) -> Layout:
    """Rows of (segment, position)."""
    both = torch.tensor(rows)
    return Layout(both[..., 1].contiguous(), both[..., 0].contiguous())


# Padding before, within and after; sequences that follow each other at once, and one that begins at no 0.
PAD = (-1, 3)
ODD = _packed(
    [PAD, (0, 0), (0, 1), PAD, PAD, (0, 2), (1, 0), (1, 1), PAD],
    [(3, 7), (3, 8), (1, 9), (2, 0), PAD, (2, 1), (2, 2), (2, 3), (5, 0)],
)
# Which slots belong to which sequence.
SEQUENCES = [(0, [1, 2, 5]), (0, [6, 7]), (1, [0, 1]), (1, [2]), (1, [3, 5, 6, 7]), (1, [8])]


# -- where sequences begin


def test_begins() -> None:
    want = torch.zeros(2, 9, dtype=torch.bool)
    for row, slots in SEQUENCES:
        want[row, slots[0]] = True
    assert torch.equal(begins(ODD), want)
    back = torch.zeros(2, 9, dtype=torch.bool)
    for row, slots in SEQUENCES:
        back[row, slots[-1]] = True
    steps = pace(_context(ODD), backwards=True)
    found = [torch.zeros(2, 1, dtype=torch.bool) if b is None else b for b in steps.begins]
    assert torch.equal(torch.cat(found, 1).flip(1), back)


def test_one_segment_begins_anew_at_position_0() -> None:
    layout = _packed([(0, 0), (0, 1), (0, 0), (0, 1)])
    assert begins(layout).tolist() == [[True, False, True, False]]
    assert not changes(torch.ones(1, 3), torch.zeros(1, 3, dtype=torch.bool)).any()


def test_no_work_for_plain_layouts() -> None:
    steps = pace(_context(Layout.full(2, 3)))
    assert steps.begins == steps.real == [None] * 3


# -- LSTM and GRU


def _pair(match: Match, kind: str, ours: Any, theirs: Any, end: str) -> None:
    """One direction. Torch's gates are i f g o, ours i f o g; two biases that are added are one of ours."""
    order = (0, 1, 3, 2) if kind == "lstm" else (0, 1, 2)
    for mine, name in (
        (ours.input.weight, "weight_ih"),
        (ours.hidden.weight, "weight_hh"),
        (ours.input.bias, "bias_ih"),
        (ours.hidden.bias, "bias_hh"),
    ):
        parameter = getattr(theirs, f"{name}_l0{end}")
        if mine is None:
            parameter.requires_grad_(False).zero_()
            continue
        match.put(mine, *(Rows(parameter, i * H, (i + 1) * H) for i in order))


def _twins(kind: str, both: bool) -> tuple[Any, nn.Module, Any, Match]:
    late = {"reset": "after"} if kind == "gru" else {}
    ours = _mixer(kind, causal=not both, hidden=H, **late)
    cls = nn.LSTM if kind == "lstm" else nn.GRU
    theirs: Any = shaken(cls(C, H, batch_first=True, bidirectional=both)).double()
    match, cells = Match(), nn.ModuleList([ours.ahead])
    _pair(match, kind, ours.ahead, theirs, "")
    if both:
        cells.append(ours.back)
        _pair(match, kind, ours.back, theirs, "_reverse")
    return ours, cells, theirs, match


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_ragged_rows_are_torchs_packed_sequences(kind: str, both: bool, side: Any) -> None:
    ours, cells, theirs, match = _twins(kind, both)
    lengths = [7, 3, 1, 5]
    layout = Layout.padded(lengths, side)
    x, weight = _x(4, 7, C), torch.randn(4, 7, H * (2 if both else 1), dtype=torch.float64)
    got = ours.run(x, _context(layout))
    y = torch.zeros(4, 7, C, dtype=torch.float64)
    for row, n in enumerate(lengths):
        y[row, :n] = x.detach()[row][layout.real[row]]
    y.requires_grad_()
    packed = pack_padded_sequence(y, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    want = pad_packed_sequence(theirs(packed)[0], batch_first=True)[0]
    loss = torch.zeros((), dtype=torch.float64)
    for row, n in enumerate(lengths):
        torch.testing.assert_close(got[row][layout.real[row]], want[row, :n], rtol=1e-9, atol=1e-12)
        loss = loss + (got[row][layout.real[row]] * weight[row, :n]).sum()
    loss.backward()
    sum((want[row, :n] * weight[row, :n]).sum() for row, n in enumerate(lengths)).backward()
    match.assert_gradients(cells, theirs, rtol=1e-8, atol=1e-11)
    assert x.grad is not None and y.grad is not None
    for row, n in enumerate(lengths):
        torch.testing.assert_close(x.grad[row][layout.real[row]], y.grad[row, :n], rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_sequences_in_odd_slots_are_torchs(kind: str, both: bool) -> None:
    ours, _, theirs, _ = _twins(kind, both)
    x = _x(2, 9, C)
    got = ours.run(x, _context(ODD))
    for row, slots in SEQUENCES:
        want = theirs(x[row, slots][None])[0][0]
        torch.testing.assert_close(got[row, slots], want, rtol=1e-9, atol=1e-12)


def _gru(p: dict[str, Tensor], read: Tensor, into: Tensor, h: Tensor) -> Tensor:
    """z and r = σ(W x + U h + b), h~ = tanh(W x + U (r h) + b), h' = z h + (1 - z) h~: a step of the GRU, the
    gates of which stand as r, z, h~ in the weights, in the notation of Cho et al. 2014, equations 5 to 8."""
    (W_r, W_z, W), (U_r, U_z, U) = into.chunk(3), p["ahead.hidden.weight"].chunk(3)
    b_r, b_z, b = p["ahead.input.bias"].chunk(3)
    r, z = (W_r @ read + U_r @ h + b_r).sigmoid(), (W_z @ read + U_z @ h + b_z).sigmoid()
    return z * h + (1 - z) * (W @ read + U @ (r * h) + b).tanh()


@pytest.mark.parametrize("both", [False, True])
def test_gru_is_its_equations(both: bool) -> None:
    mixer, x = _mixer("gru", causal=not both, hidden=H), _x(2, 9, C)
    cells = {"ahead": 1, "back": -1} if both else {"ahead": 1}
    p, want = _leaves(mixer), {}
    for row, slots in SEQUENCES:
        found = []
        for name, way in cells.items():
            h, own = torch.zeros(H, dtype=torch.float64), {}
            mine = {key.replace(f"{name}.", "ahead."): w for key, w in p.items() if key.startswith(name)}
            for slot in slots[::way]:
                own[slot] = h = _gru(mine, x[row, slot], mine["ahead.input.weight"], h)
            found.append(own)
        for slot in slots:
            want[row, slot] = p["out.weight"] @ torch.cat([own[slot] for own in found]) + p["out.bias"]
    _compare(mixer, p, mixer(x, _context(ODD)), want)


def test_a_state_is_not_changed_by_padding() -> None:
    ours, _, theirs, _ = _twins("lstm", False)
    state, x = State([1]), _x(1, 5, C)
    layout = _packed([(0, 0), (0, 1), PAD, PAD, (0, 2)])
    for start, stop in ((0, 2), (2, 4), (4, 5)):
        part = layout.narrow(start, stop)
        state.advance(part)
        got = ours.run(x[:, start:stop], _context(part, held=state.layers[0]))
    torch.testing.assert_close(got[0, 0], theirs(x[:, [0, 1, 4]])[0][0, -1])


# -- Bahdanau and Luong


def _leaves(mixer: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone().requires_grad_() for name, p in mixer.named_parameters()}


def _source(case: str) -> tuple[Layout, Layout]:
    if case == "padded":
        return Layout.padded([4, 2], "left"), Layout.padded([3, 5])
    return _packed([(0, 0), (0, 1), PAD, (1, 0), (1, 1)]), _packed([(1, 0), (1, 1), (0, 0), PAD, (0, 1)])


def _seen(target: Layout, source: Layout, row: int, slot: int) -> list[int]:
    return [j for j in range(source.length) if source.segment[row, j] == target.segment[row, slot]]


def _begun(target: Layout, row: int, slot: int) -> bool:
    return bool(target.position[row, slot] == 0)


def _compare(mixer: Any, leaves: dict[str, Tensor], got: Tensor, want: dict[tuple[int, int], Tensor]) -> None:
    weight = torch.randn(got.shape, dtype=torch.float64)
    for at, y in want.items():
        torch.testing.assert_close(got[at], y, rtol=1e-9, atol=1e-12)
    sum((got[at] * weight[at]).sum() for at in want).backward()
    sum((y * weight[at]).sum() for at, y in want.items()).backward()
    for name, p in mixer.named_parameters():
        torch.testing.assert_close(p.grad, leaves[name].grad, rtol=1e-8, atol=1e-11, msg=name)


@pytest.mark.parametrize("case", ["padded", "packed"])
@pytest.mark.parametrize("reset", ["before", "after"])
def test_bahdanau_is_its_equations(reset: str, case: str) -> None:
    """Token by token: e_j = v·tanh(W s + U h_j), α = softmax(e), c = Σ α_j h_j, s = GRU([x; c], s)."""
    mixer = _mixer("bahdanau", causal=True, source=True, hidden=H, align=4, reset=reset)
    target, source = _source(case)
    x, h = _x(target.batch, target.length, C), _x(source.batch, source.length, C)
    p = _leaves(mixer)
    want = {}
    for row in range(target.batch):
        s = torch.zeros(H, dtype=torch.float64)
        for t in target.real[row].nonzero()[:, 0].tolist():
            s = torch.zeros(H, dtype=torch.float64) if _begun(target, row, t) else s
            near = h[row, _seen(target, source, row, t)]
            met = (near @ p["key.weight"].T + p["query.weight"] @ s).tanh()
            e = met @ p["attention.v"][:, 0]
            c = e.softmax(0) @ near
            read, into = torch.cat((x[row, t], c)), torch.cat((p["ahead.input.weight"], p["told.weight"]), 1)
            if reset == "before":
                s = _gru(p, read, into, s)
            else:
                hidden, bias = p["ahead.hidden.weight"], p["ahead.input.bias"]
                s = torch.gru_cell(read[None], s[None], into, hidden, bias, p["ahead.hidden.bias"])[0]
            want[row, t] = p["out.weight"] @ s + p["out.bias"]
    got = mixer(x, _context(target, source=h, source_layout=source))
    _compare(mixer, p, got, want)


@pytest.mark.parametrize("case", ["padded", "packed"])
@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("score", ["dot", "general"])
def test_luong_is_its_equations(score: str, feeding: bool, case: str) -> None:
    """Token by token: h = LSTM([x; h~], h), a = softmax(h·W h_j), c = Σ a_j h_j, h~ = tanh(W [c; h])."""
    width = C if score == "dot" else H
    mixer = _mixer("luong", causal=True, source=True, hidden=width, score=score, input_feeding=feeding)
    target, source = _source(case)
    x, memory = _x(target.batch, target.length, C), _x(source.batch, source.length, C)
    p = _leaves(mixer)

    def torchs(name: str) -> Tensor:  # i f o g → i f g o
        i, f, o, g = p[name].chunk(4)
        return torch.cat((i, f, g, o))

    want = {}
    for row in range(target.batch):
        for t in target.real[row].nonzero()[:, 0].tolist():
            if _begun(target, row, t):
                h, c = (torch.zeros(1, width, dtype=torch.float64) for _ in "hc")
                fed = torch.zeros(C, dtype=torch.float64)
            read, into = x[row, t], torchs("ahead.input.weight")
            if feeding:
                read, into = torch.cat((read, fed)), torch.cat((into, torchs("feed.weight")), 1)
            bias = torchs("ahead.input.bias")
            h, c = torch.lstm_cell(
                read[None], (h, c), into, torchs("ahead.hidden.weight"), bias, torch.zeros_like(bias)
            )
            near = memory[row, _seen(target, source, row, t)]
            keys = near if score == "dot" else near @ p["key.weight"].T
            told = (keys @ h[0]).softmax(0) @ near
            fed = (p["out.weight"] @ torch.cat((told, h[0])) + p["out.bias"]).tanh()
            want[row, t] = fed
    got = mixer(x, _context(target, source=memory, source_layout=source))
    _compare(mixer, p, got, want)


@pytest.mark.parametrize("kind", ["bahdanau", "luong"])
def test_encoders_that_read_nothing_are_bidirectional(kind: str) -> None:
    plain = "gru" if kind == "bahdanau" else "lstm"
    ours, theirs = _mixer(kind, causal=False), _mixer(plain, causal=False)
    theirs.load_state_dict(ours.state_dict())
    x, layout = _x(2, 4, C), Layout.padded([4, 2])
    torch.testing.assert_close(ours(x, _context(layout)), theirs(x, _context(layout)))


def _looking(model: EncoderDecoder) -> Translator:
    return Translator(model, cast(Any, None), "en", 10)


@pytest.mark.parametrize("mixer", ["bahdanau", "luong", {"kind": "luong", "input_feeding": True}])
def test_what_decoders_read_can_be_looked_at(mixer: Any) -> None:
    model = model_of({"vocab": 12, "dim": 8, "heads": 2, "layers": 2, "mixer": mixer}).eval()
    assert isinstance(model, EncoderDecoder)
    weights = _looking(model).attention([5, 6, 7], [8, 9])
    assert weights.shape == (3, 4)
    torch.testing.assert_close(weights.sum(1), torch.ones(3))


def test_mixed_decoders_can_be_looked_at() -> None:
    """Layers of different numbers of heads."""
    model = model_of({"vocab": 12, "dim": 8, "heads": 4, "layers": 2, "mixer": ["bahdanau", "attention"]})
    assert isinstance(model, EncoderDecoder)
    weights = _looking(model.eval()).attention([5, 6, 7], [8, 9])
    torch.testing.assert_close(weights.sum(1), torch.ones(3))


@pytest.mark.parametrize("kind", ["bahdanau", "luong"])
@pytest.mark.parametrize("form", ["decoder", "encoder"])
def test_without_a_source_there_is_nothing_to_read(kind: str, form: str) -> None:
    with pytest.raises(UserError, match="reads a source"):
        ModelConfig.parse({"form": form, "mixer": kind})


def test_dot_needs_equal_widths() -> None:
    with pytest.raises(UserError, match="no dot product"):
        ModelConfig.parse({"mixer": {"kind": "luong", "score": "dot", "hidden": 7}})


def test_heads_do_not_matter_where_no_layer_has_them() -> None:
    assert ModelConfig.parse({"dim": 10, "mixer": "bahdanau"}).dim == 10
    with pytest.raises(UserError, match="not divisible"):
        ModelConfig.parse({"dim": 10, "mixer": "gru"})  # with cross-attention


# -- convolution


def _filters(mixer: Any, kernel: int) -> tuple[Tensor, Tensor]:
    """``[2C, C, k]``, and the bias."""
    weight = mixer.taps.weight.detach().view(2 * C, kernel, C).transpose(1, 2)
    return weight.contiguous().requires_grad_(), mixer.taps.bias.detach().clone().requires_grad_()


@pytest.mark.parametrize("layout", [Layout.full(3, 7), Layout.padded([7, 4, 2])], ids=["plain", "ragged"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
def test_convolution_is_torchs(kernel: int, causal: bool, layout: Layout) -> None:
    mixer = _mixer("conv", causal, kernel=kernel)
    x = _x(3, 7, C)
    y = x.detach().clone().requires_grad_()
    weight, bias = _filters(mixer, kernel)
    clean = y.masked_fill(~layout.real[:, :, None], 0).transpose(1, 2)
    if causal:
        full = F.conv1d(F.pad(clean, (kernel - 1, 0)), weight, bias)
    else:
        full = F.conv1d(F.pad(clean, ((kernel - 1) // 2, kernel // 2)), weight, bias)
    want = F.glu(full, 1).transpose(1, 2)[layout.real]
    got = mixer(x, _context(layout))[layout.real]
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
    (got**3).sum().backward()
    (want**3).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-8, atol=1e-11)
    mine = mixer.taps.weight.grad.view(2 * C, kernel, C).transpose(1, 2)
    torch.testing.assert_close(mine, weight.grad, rtol=1e-8, atol=1e-11)
    torch.testing.assert_close(mixer.taps.bias.grad, bias.grad, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("causal", [True, False])
def test_taps_go_by_position_wherever_tokens_are(causal: bool) -> None:
    """Against a loop over tokens: also where the tokens of a sequence stand in no order."""
    mixer, k = _mixer("conv", causal, kernel=3), 3
    layout = _packed([(0, 2), PAD, (1, 0), (0, 0), (0, 1), (1, 2), (1, 1), (0, 4)])
    x = _x(1, 8, C)
    got = mixer(x, _context(layout)).detach().numpy()[0]
    w, b, a = mixer.taps.weight.detach().numpy(), mixer.taps.bias.detach().numpy(), x.detach().numpy()[0]
    where = {(int(layout.segment[0, i]), int(layout.position[0, i])): i for i in range(8)}
    for (segment, position), slot in where.items():
        if segment < 0:
            continue
        z = b.copy()
        for j in range(k):
            near = where.get((segment, position + j - (k - 1 if causal else (k - 1) // 2)))
            if near is not None:
                z += w[:, j * C : (j + 1) * C] @ a[near]
        np.testing.assert_allclose(got[slot], z[:C] / (1 + np.exp(-z[C:])), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mixer", ["lstm", "gru", "bahdanau", "luong", "conv"])
def test_low_precision_stays_near(mixer: str) -> None:
    """Training in bf16 gives nearly what training in fp32 gives."""
    model = model_of({"vocab": 12, "dim": 16, "heads": 2, "layers": 1, "mixer": mixer})
    assert isinstance(model, EncoderDecoder)
    ids, layout = torch.randint(4, 12, (3, 6)), Layout.padded([6, 4, 2])
    want = copy.deepcopy(model)(ids, layout, ids, layout)
    with torch.autocast("cpu", torch.bfloat16):
        got = model(ids, layout, ids, layout)
    got[layout.real].float().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())
    torch.testing.assert_close(got.float()[layout.real], want[layout.real], rtol=0.1, atol=0.1)
