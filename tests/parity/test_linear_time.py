"""Mixers whose time grows with the length: against numpy written from the papers, and a Mamba.

In numpy, sequences are computed one token at a time and one row at a time, in the recurrent form of the paper
or, where it says so, in the parallel one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from parity.weights import Match, shaken
from triptych.config import ModelConfig, RunConfig
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import DecoderOnly, build, cost
from triptych.model.mixers import ssm, sums
from triptych.model.mixers.linear import Favor
from triptych.model.registry import Context, Place, part_of
from triptych.model.stack import sights

Array = np.ndarray
C = 12
LINEAR: dict[str, dict[str, Any]] = {
    "elu": {"kind": "linear"},
    "favor": {"kind": "linear", "map": "favor", "features": 10},
}
CAUSAL: dict[str, dict[str, Any]] = {
    **LINEAR,
    "retention": {"kind": "retention"},
    "ssm": {"kind": "ssm", "state": 3, "kernel": 3},
}


def config(mixer: dict[str, Any], form: str = "decoder", **model: Any) -> ModelConfig:
    base = {"vocab": 30, "dim": C, "layers": 1, "heads": 2, "position": "none", "dropout": 0.0}
    return RunConfig.parse({"model": {**base, "form": form, "mixer": mixer, **model}}).model


def mixed(mixer: dict[str, Any], causal: bool = True, **model: Any) -> tuple[Any, Callable[..., Tensor]]:
    """A mixer in float64, shaken, and how to run it on ``x_BTC`` and a layout."""
    m = config(mixer, "decoder" if causal else "encoder", **model)
    found = shaken(part_of(m.mixer)(m.mixer, m, Place.of(m, causal))).double()
    position = part_of(m.position)(m.position, m, Place.of(m, causal))

    def run(x: Tensor, layout: Layout) -> Tensor:
        y: Tensor = found(x, Context(layout, sights(m, causal)[0], position))
        return y

    return found, run


def linear(layer: Any, x: Array) -> Array:
    """An ``nn.Linear`` in numpy."""
    y: Array = x @ layer.weight.detach().numpy().T
    return y if layer.bias is None else y + layer.bias.detach().numpy()


def heads(x: Array, count: int) -> list[Array]:
    """``[T, H·D]`` → H times ``[T, D]``."""
    return list(x.reshape(len(x), count, -1).transpose(1, 0, 2))


def silu(x: Array) -> Array:
    y: Array = x / (1 + np.exp(-x))
    return y


# -- linear attention


def phi(mixer: Any, x: Array) -> Array:
    """Features of one head's vectors, ``[T, D]`` → ``[T, F]``."""
    if mixer.favor is None:
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))  # elu(x) + 1
    x = x / x.shape[1] ** 0.25
    y: Array = np.exp(x @ mixer.favor.omega.numpy().T - (x**2).sum(1, keepdims=True) / 2)
    return y


def linear_attention(mixer: Any, x: Array, causal: bool, recurrent: bool) -> Array:
    """Katharopoulos et al. 2020: equations 4 and 9 (all at once), or 16 to 20 (one after another)."""
    out = []
    for q, k, v in zip(*(heads(part, mixer.H) for part in np.split(linear(mixer.qkv, x), 3, 1)), strict=True):
        q, k = phi(mixer, q), phi(mixer, k)
        if recurrent:
            S, z, y = np.zeros((k.shape[1], v.shape[1])), np.zeros(k.shape[1]), []
            for t in range(len(q)):
                S, z = S + np.outer(k[t], v[t]), z + k[t]
                y.append(q[t] @ S / (q[t] @ z))
            out.append(np.stack(y))
        else:
            weights = np.tril(q @ k.T) if causal else q @ k.T
            out.append(weights / weights.sum(1, keepdims=True) @ v)
    return linear(mixer.out, np.concatenate(out, 1))


@pytest.mark.parametrize("recurrent", [True, False])
@pytest.mark.parametrize("kind", LINEAR)
def test_causal_linear_attention(kind: str, recurrent: bool) -> None:
    mixer, run = mixed(LINEAR[kind])
    x = torch.randn(2, 9, C, dtype=torch.float64)
    for row, got in zip(x, run(x, Layout.full(2, 9)), strict=True):
        want = linear_attention(mixer, row.numpy(), True, recurrent)
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", LINEAR)
def test_linear_attention_in_both_directions(kind: str) -> None:
    mixer, run = mixed(LINEAR[kind], causal=False)
    x, layout = torch.randn(3, 7, C, dtype=torch.float64), Layout.padded([7, 1, 4], "left")
    got = run(x, layout)
    for b in range(3):
        want = linear_attention(mixer, x[b][layout.real[b]].numpy(), False, False)
        np.testing.assert_allclose(got[b][layout.real[b]].detach().numpy(), want, rtol=1e-9, atol=1e-12)


def test_random_features_are_orthogonal_and_as_long_as_normal_ones() -> None:
    mixer, _ = mixed({"kind": "linear", "map": "favor", "features": 640, "seed": 3}, dim=64, heads=1)
    omega = mixer.favor.omega.numpy()
    for block in omega.reshape(10, 64, 64):
        unit = block / np.linalg.norm(block, axis=1, keepdims=True)
        np.testing.assert_allclose(unit @ unit.T, np.eye(64), atol=1e-6)
    length = (omega**2).sum(1)  # χ² with 64 degrees of freedom: 64 on average, variance 128
    assert length.mean() == pytest.approx(64, abs=4 * (128 / 640) ** 0.5)
    assert length.var() == pytest.approx(128, rel=0.4)


def test_random_features_are_drawn_by_their_seed_and_saved() -> None:
    settings = {"kind": "linear", "map": "favor", "features": 12}
    one, same, other = (
        mixed({**settings, "seed": seed}, heads=1)[0].favor.state_dict()["omega"] for seed in (1, 1, 2)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)
    layers = build(config(settings, layers=2)).decoder.blocks
    assert not torch.equal(layers[0].mixer.favor.omega, layers[1].mixer.favor.omega)  # type: ignore[union-attr]


def test_random_features_estimate_the_softmax_kernel() -> None:
    """Without bias, over many draws; orthogonal ones with less variance than independent ones."""
    D, many = 8, 1000
    q, k = (torch.randn(6, D, dtype=torch.float64) / 2 for _ in "qk")
    mixer, _ = mixed({"kind": "linear", "map": "favor", "features": D}, dim=D, heads=1)
    found, free = [], []
    for seed in range(many):
        m = config({"kind": "linear", "map": "favor", "features": D, "seed": seed}, dim=D, heads=1)
        for omega, estimates in ((Favor(m.mixer, m, Place(True)).omega, found), (torch.randn(D, D), free)):
            mixer.favor.omega = omega.double()
            estimates.append(torch.from_numpy(phi(mixer, q.numpy()) @ phi(mixer, k.numpy()).T / D))
    got = torch.stack(found)
    error = (got.mean(0) - (q @ k.T / D**0.5).exp()) / (got.std(0) / many**0.5)
    assert error.abs().max() < 4.5
    assert got.var(0).mean() < torch.stack(free).var(0).mean()


def test_queries_may_be_large() -> None:
    """A factor of all features of a query cancels: it never overflows or vanishes."""
    _, run = mixed(LINEAR["favor"])
    x = torch.randn(1, 5, C, dtype=torch.float64)
    assert run(100 * x, Layout.full(1, 5)).isfinite().all()


# -- retention


def retention(mixer: Any, x: Array, position: Array, recurrent: bool, turns: bool = False) -> Array:
    """Sun et al. 2023: equation 6 or 5 in each head, then equation 8. With a rotation queries and keys are
    complex numbers, times exp(i n θ) and its conjugate; what they meet in is the real part."""
    *qkv, gate = np.split(linear(mixer.inner, x), 4, 1)
    out = []
    for h, (q, k, v) in enumerate(zip(*(heads(part, mixer.H) for part in qkv), strict=True)):
        gamma, k = 1 - 2.0 ** (-5 - h), k / np.sqrt(k.shape[1])
        if turns:
            angle = position[:, None] * 10000.0 ** (-np.arange(0, k.shape[1], 2) / k.shape[1])
            q, k = ((x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * angle) for x in (q, k))
            k = k.conj()
        if recurrent:
            S, y = np.zeros((k.shape[1], v.shape[1]), k.dtype), []
            for t in range(len(q)):
                S = gamma ** (position[t] - position[max(t - 1, 0)]) * S + np.outer(k[t], v[t])
                y.append(q[t] @ S)
            head = np.stack(y)
        else:
            away = position[:, None] - position
            head = (q @ k.T * np.where(away >= 0, gamma ** np.maximum(away, 0), 0)) @ v
        head = head.real
        centred = head - head.mean(1, keepdims=True)
        out.append(centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5))
    normed = np.concatenate(out, 1) * mixer.norm.weight.detach().numpy() + mixer.norm.bias.detach().numpy()
    return linear(mixer.out, silu(gate) * normed)


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("recurrent", [True, False])
def test_retention(recurrent: bool, gaps: bool, turns: bool) -> None:
    """Decay, and turns, go by positions: also by those that a sequence leaves out."""
    rope = {"position": {"kind": "rope", "layout": "interleaved"}} if turns else {}
    mixer, run = mixed(CAUSAL["retention"], **rope)
    x = torch.randn(1, 9, C, dtype=torch.float64)
    position = torch.arange(9)[None] * (7 if gaps else 1) + (torch.arange(9)[None] ** 2 if gaps else 0)
    got = run(x, Layout(position, torch.zeros_like(position)))[0].detach().numpy()
    want = retention(mixer, x[0].numpy(), position[0].numpy(), recurrent, turns)
    # Angles are in fp32 whatever the model's precision.
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-6 if turns else 1e-11)


# -- selective state space


def mamba(kernel: int) -> tuple[Any, Any, Match]:
    """A mixer of ``transformers`` and ours with equal weights."""
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    theirs: Any = shaken(
        MambaMixer(
            MambaConfig(
                hidden_size=C,
                state_size=5,
                conv_kernel=kernel,
                expand=2,
                time_step_rank=3,
                num_hidden_layers=1,
            ),
            0,
        )
    ).double()
    ours, _ = mixed({"kind": "ssm", "state": 5, "kernel": kernel, "rank": 3})
    match = Match()
    match.layer(ours.inner, theirs.in_proj)
    match.put(ours.select.weight, theirs.x_proj.weight)
    match.layer(ours.step, theirs.dt_proj)
    match.put(ours.step_bias, theirs.dt_proj.bias)
    match.put(ours.A_log, theirs.A_log)
    match.put(ours.D, theirs.D)
    match.layer(ours.out, theirs.out_proj)
    match.put(ours.taps_bias, theirs.conv1d.bias)
    return theirs, ours, match


def taps(theirs: Any) -> Tensor:
    """The convolution's weights in our order."""
    weight: Tensor = theirs.conv1d.weight
    return weight[:, 0].t()


@pytest.mark.parametrize("kernel", [2, 4])
def test_ssm_is_mamba(kernel: int) -> None:
    theirs, ours, match = mamba(kernel)
    with torch.no_grad():
        ours.taps_KE.copy_(taps(theirs))
    x = torch.randn(3, 11, C, dtype=torch.float64, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    m = config({"kind": "ssm"})
    context = Context(Layout.full(3, 11), sights(m, True)[0], part_of(m.position)(m.position, m, Place(True)))
    got, want = ours(x, context), theirs(y)
    # Theirs carries the decay in float32 somewhere: float64 agrees to float32's rounding.
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)
    weight = torch.randn(want.shape, dtype=torch.float64)
    (got * weight).sum().backward()
    (want * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.taps_KE.grad, taps_grad(theirs), rtol=1e-5, atol=1e-6)
    for mine, place, rows in match.pairs:
        assert mine.grad is not None and rows.parameter.grad is not None
        torch.testing.assert_close(mine.grad[place], rows.of(rows.parameter.grad), rtol=1e-5, atol=1e-6)
    named = {id(mine) for mine, _, _ in match.pairs} | {id(ours.taps_KE)}
    assert named == {id(p) for p in ours.parameters()}


def taps_grad(theirs: Any) -> Tensor:
    grad: Tensor = theirs.conv1d.weight.grad
    return grad[:, 0].t()


def test_ssm_is_its_formula() -> None:
    """Gu and Dao 2023, algorithm 2 and section 3.4, one token and channel at a time."""
    mixer, run = mixed(CAUSAL["ssm"])
    x = torch.randn(1, 8, C, dtype=torch.float64)
    w = {name: p.detach().numpy() for name, p in mixer.named_parameters()}
    u, gate = np.split(linear(mixer.inner, x[0].numpy()), 2, 1)
    E, N, K = u.shape[1], w["A_log"].shape[1], len(w["taps_KE"])
    before = np.concatenate((np.zeros((K - 1, E)), u))
    u = silu(np.stack([(before[t : t + K] * w["taps_KE"]).sum(0) for t in range(8)]) + w["taps_bias"])
    rank, B, C_ = np.split(linear(mixer.select, u), [len(w["step.weight"][0]), -N], 1)
    delta = np.log1p(np.exp(linear(mixer.step, rank) + w["step_bias"]))
    h, y = np.zeros((E, N)), np.zeros((8, E))
    for t in range(8):
        for e in range(E):
            for n in range(N):
                decay = np.exp(delta[t, e] * -np.exp(w["A_log"][e, n]))
                h[e, n] = decay * h[e, n] + delta[t, e] * B[t, n] * u[t, e]
            y[t, e] = C_[t] @ h[e] + w["D"][e] * u[t, e]
    want = linear(mixer.out, y * silu(gate))
    np.testing.assert_allclose(run(x, Layout.full(1, 8))[0].detach().numpy(), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("T", [1, 2, 3, 7, 16, 18])
def test_scan_is_token_by_token(T: int) -> None:
    """In chunks as one after the other, and its gradients as autograd's; decays may be 0, and 1."""
    decay = torch.rand(2, T, 5, dtype=torch.float64)
    decay[0, T // 2], decay[1, T // 3] = 0, 1
    given = [x.requires_grad_() for x in (decay, torch.randn(2, T, 5).double(), torch.randn(2, 5).double())]
    (decay, add, h), want = given, []
    for t in range(T):
        h = decay[:, t] * h + add[:, t]
        want.append(h)
    weight = torch.randn(2, T, 5, dtype=torch.float64)
    got = ssm.Scan.apply(*given)
    torch.testing.assert_close(got, torch.stack(want, 1), rtol=1e-12, atol=1e-12)
    grads = torch.autograd.grad((torch.stack(want, 1) * weight).sum(), given)
    for mine, theirs in zip(torch.autograd.grad((got * weight).sum(), given), grads, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


def test_first_steps_are_those_of_the_paper() -> None:
    mixer = part_of(config(CAUSAL["ssm"]).mixer)(
        config(CAUSAL["ssm"]).mixer, config(CAUSAL["ssm"]), Place(True)
    )
    first = torch.nn.functional.softplus(mixer.step_bias)
    assert ((first >= 0.99e-3) & (first <= 1.01e-1)).all() and first.std() > 1e-3
    torch.testing.assert_close(mixer.A_log.exp(), torch.arange(1.0, 4).expand(24, 3))


# -- linformer


def test_linformer() -> None:
    """Wang et al. 2020, equation 7, one sequence and head at a time."""
    mixer, run = mixed({"kind": "linformer", "rank": 3, "max": 9}, causal=False)
    x, layout = torch.randn(3, 7, C, dtype=torch.float64), Layout.padded([7, 2, 5], "left")
    got = run(x, layout)
    E, F = np.split(mixer.summary.detach().numpy().T, 2)
    for b in range(3):
        row = x[b][layout.real[b]].numpy()
        q, k, v = np.split(linear(mixer.qkv, row), 3, 1)
        k, v = E[:, : len(row)] @ k, F[:, : len(row)] @ v
        out = []
        for q_, k_, v_ in zip(heads(q, 2), heads(k, 2), heads(v, 2), strict=True):
            weights = np.exp(q_ @ k_.T / np.sqrt(q_.shape[1]))
            out.append(weights / weights.sum(1, keepdims=True) @ v_)
        want = linear(mixer.out, np.concatenate(out, 1))
        np.testing.assert_allclose(got[b][layout.real[b]].detach().numpy(), want, rtol=1e-9, atol=1e-12)


def test_linformer_ends_where_its_positions_do() -> None:
    _, run = mixed({"kind": "linformer", "rank": 3, "max": 6}, causal=False)
    x = torch.randn(1, 8, C, dtype=torch.float64)
    wild = Layout(torch.tensor([[0, 1, 2, 3, 4, 5, 99, 7]]), torch.tensor([[0] * 6 + [-1] * 2]))
    assert run(x, wild).isfinite().all()  # where padding stands does not matter
    with pytest.raises(UserError, match=r"model.mixer.max: a sequence is longer than the 6 positions"):
        run(x, Layout.full(1, 8))


# -- all forms are one


@st.composite
def packs(draw: st.DrawFn) -> tuple[list[list[int]], Layout, list[int]]:
    """Lengths of the sequences of each row; them in slots with padding anywhere; where passes are cut."""
    rows = draw(st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=3), min_size=1, max_size=3))
    slots = []
    for row in rows:
        line: list[tuple[int, int]] = []
        for number, length in enumerate(row):
            for place in range(length):
                line += [(draw(st.integers(0, 50)), -1)] * draw(st.integers(0, 2)) + [(place, number)]
        slots.append(line)
    width = max(map(len, slots)) + draw(st.integers(0, 2))
    both = torch.tensor([line + [(9, -1)] * (width - len(line)) for line in slots])
    cuts = draw(st.lists(st.booleans(), min_size=width, max_size=width))
    return rows, Layout(*both.unbind(-1)), [i for i, cut in enumerate(cuts) if cut and i]


def alone(model: DecoderOnly, ids: Tensor) -> Tensor:
    """Of one sequence, at once."""
    return model.decode(ids[None], Layout.full(1, len(ids)))[0]


@pytest.mark.parametrize("kind", CAUSAL)
@settings(max_examples=15)
@given(packs(), st.sampled_from([1, 2, 5, 64]))
def test_parallel_recurrent_and_chunked_are_one(
    kind: str, packed: tuple[list[list[int]], Layout, list[int]], size: int
) -> None:
    """One sequence at once in one chunk, against rows of several with padding anywhere, in chunks of any size
    and passes of any lengths (of one token each: the recurrent form)."""
    rows, layout, cuts = packed
    model = build(config(CAUSAL[kind], layers=2), seed=0).double().eval()
    assert isinstance(model, DecoderOnly)
    ids = torch.randint(4, 30, layout.position.shape)
    with torch.no_grad():
        want = [
            [alone(model, ids[b][layout.segment[b] == n]) for n in range(len(row))]
            for b, row in enumerate(rows)
        ]
        before, sums.CHUNK = sums.CHUNK, size
        try:
            whole, state = model.decode(ids, layout), model.start()
            ends = [0, *cuts, layout.length]
            passes = [
                model.decode(ids[:, a:b], layout.narrow(a, b), state) for a, b in itertools.pairwise(ends)
            ]
        finally:
            sums.CHUNK = before
    for got in (whole, torch.cat(passes, 1)):
        for b, row in enumerate(want):
            for n, one in enumerate(row):
                torch.testing.assert_close(got[b][layout.segment[b] == n], one, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", CAUSAL)
def test_a_new_sequence_forgets_the_last_pass(kind: str) -> None:
    """Also when padding stands between, and when only position 0 says that it is new."""
    model = build(config(CAUSAL[kind]), seed=0).double().eval()
    assert isinstance(model, DecoderOnly)
    ids = torch.randint(4, 30, (1, 9))
    for segment in ([0, 0, 0, -1, -1, 1, 1, 1, 1], [0, 0, 0, -1, -1, 0, 0, 0, 0]):
        layout = Layout(torch.tensor([[0, 1, 2, 7, 7, 0, 1, 2, 3]]), torch.tensor([segment]))
        with torch.no_grad():
            state = model.start()
            model.decode(ids[:, :5], layout.narrow(0, 5), state)
            got = model.decode(ids[:, 5:], layout.narrow(5, 9), state)[0]
            torch.testing.assert_close(got, alone(model, ids[0, 5:]), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", ["elu", "favor", "retention"])
def test_chunks_have_the_gradients_of_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mixer, run = mixed(CAUSAL[kind])
    x, weight = torch.randn(2, 11, C, dtype=torch.float64), torch.randn(2, 11, C, dtype=torch.float64)

    def gradients() -> list[Tensor]:
        mixer.zero_grad()
        (run(x, Layout.full(2, 11)) * weight).sum().backward()
        return [p.grad.clone() for p in mixer.parameters()]

    want = gradients()
    monkeypatch.setattr(sums, "CHUNK", 4)
    for got, one in zip(gradients(), want, strict=True):
        torch.testing.assert_close(got, one, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("length", [64, 65, 150])
@pytest.mark.parametrize("kind", CAUSAL)
def test_products_over_chunks_are_counted(kind: str, length: int) -> None:
    m = config(CAUSAL[kind])
    model, layout = build(m), Layout.full(2, length)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.randint(4, 30, (2, length)), layout)
    assert counter.get_total_flops() == cost(m, 2, length).flops


# -- numerics


@pytest.mark.parametrize("kind", CAUSAL)
def test_long_sequences_in_float32(kind: str) -> None:
    """4,096 tokens in float32 are those of float64, to a few roundings; gradients are finite."""
    mixer, run = mixed(CAUSAL[kind])
    x, layout = torch.randn(1, 4096, C, dtype=torch.float64), Layout.full(1, 4096)
    with torch.no_grad():
        want = run(x, layout)
    mixer.float()
    got = run(x.float(), layout)
    # Relative to each token's own size.
    unit = want.abs().amax(-1, keepdim=True).clamp(min=1e-3)
    assert ((got - want).abs() / unit).max() < 2e-4
    got.square().mean().backward()
    assert all(p.grad.isfinite().all() for p in mixer.parameters())


@pytest.mark.parametrize("kind", CAUSAL)
def test_sums_are_float32_under_autocast(kind: str) -> None:
    mixer, run = mixed(CAUSAL[kind])
    mixer.float()
    x, layout = torch.randn(2, 200, C), Layout.full(2, 200)
    with torch.no_grad():
        want = run(x, layout)
        with torch.autocast("cpu", torch.bfloat16):
            got = run(x, layout)
    # As far off as one rounding to bfloat16 of what goes in and out, not as sums in bfloat16 would be.
    assert (got.float() - want).abs().mean() < 0.02 * want.abs().mean()


# -- what cannot be


@pytest.mark.parametrize(
    ("model", "where"),
    [
        ({"form": "encoder", "mixer": "retention"}, "model.mixer"),
        ({"form": "encoder", "mixer": "ssm"}, "model.mixer"),
        ({"form": "decoder", "mixer": "linformer"}, "model.mixer"),
        ({"form": "decoder", "mixer": "linear", "heads": 5}, "model.heads.count"),
        ({"form": "decoder", "mixer": "retention", "heads": C}, "model.heads.count"),
        ({"form": "decoder", "mixer": {"kind": "linear", "features": 5}}, "model.mixer.features"),
        ({"form": "decoder", "mixer": "linear", "position": "rope"}, "model.position.kind"),
    ],
)
def test_refused(model: dict[str, Any], where: str) -> None:
    with pytest.raises(UserError) as error:
        ModelConfig.parse({"dim": C, "heads": 2, "position": "none", **model})
    assert error.value.where == where
