"""Greedy, beam and sampling over made-up models, against exhaustive enumeration and plain Python."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from triptych.config import DecodingConfig, ModelConfig, RunConfig
from triptych.data import pad
from triptych.decoding import Hypothesis, TranslationSteps, length_penalty, rows, search
from triptych.decoding.search import PIECE, _Beam, _Draws, largest
from triptych.model import EncoderDecoder, build

EOS, WORDS, V = 3, (1, 4, 5), 6  # pad 0 and bos 2 are never said
NEVER = float("-inf")
Prefix = tuple[int, ...]
Model = Callable[[int, Prefix], Tensor]  # (source, what was said) → logits_V

seeds = st.integers(0, 10_000)
alphas = st.sampled_from([-1.0, -0.3, 0.0, 0.6, 1.0, 2.0])
penalties = st.sampled_from(["gnmt", "power"])
limit_lists = st.lists(st.integers(0, 3), min_size=1, max_size=4)


def tree(seed: int, sharp: float = 2.0) -> Model:
    """Random logits for every source and prefix, in fp64: ties do not happen."""
    held: dict[tuple[int, Prefix], Tensor] = {}

    def model(source: int, prefix: Prefix) -> Tensor:
        key = (source, prefix)
        if key not in held:
            generator = torch.Generator().manual_seed(zlib.crc32(repr((seed, key)).encode()))
            held[key] = torch.randn(V, generator=generator, dtype=torch.float64) * sharp
        return held[key]

    return model


class Tree:
    """``Steps`` over such a model; checks what a search promises about rows and sources. Rows whose place is
    taken by a finished hypothesis may hold anything."""

    device = torch.device("cpu")

    def __init__(self, model: Model, sources: Sequence[int], beams: int) -> None:
        self.model, self.beams, self.calls = model, beams, 0
        self.sources = list(sources)
        self.rows: list[tuple[int, Prefix]] = [(n, ()) for n in sources for _ in range(beams)]

    def step(self, tokens_R: Tensor) -> Tensor:
        self.calls += 1
        self.rows = [(n, (*said, t)) for (n, said), t in zip(self.rows, tokens_R.tolist(), strict=True)]
        assert all(said[0] == 2 for _, said in self.rows)
        return torch.stack([self.model(n, said[1:]) for n, said in self.rows])

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        self.rows = [self.rows[r] for r in rows.tolist()]
        if sources is not None:
            self.sources = [self.sources[s] for s in sources.tolist()]
        assert [n for n, _ in self.rows] == [n for n in self.sources for _ in range(self.beams)]


def find(model: Model, limits: Sequence[int], sources: Sequence[int] | None = None, **settings: Any) -> Any:
    decoding = DecodingConfig(**settings)
    sources = sources if sources is not None else range(len(limits))
    return search(Tree(model, sources, rows(decoding)), limits, decoding, index=list(sources))


# -- an independent statement of what is searched


def distribution(model: Model, source: int, said: Prefix, settings: DecodingConfig) -> dict[int, float]:
    """Log-probabilities of what may be said next."""
    n, allowed = settings.no_repeat_ngram, set(WORDS)
    if n:
        grams = {said[i : i + n] for i in range(len(said) - n + 1)}
        allowed = {w for w in WORDS if (*said, w)[-n:] not in grams or len(said) + 1 < n}
    if len(said) >= settings.min_length:
        allowed.add(EOS)
    logits = model(source, said)[sorted(allowed)].double()
    return dict(zip(sorted(allowed), logits.log_softmax(0).tolist(), strict=True))


def hypothesis_of(
    model: Model, source: int, said: Prefix, logprob: float, limit: int, s: DecodingConfig
) -> Hypothesis:
    last = distribution(model, source, said, s)
    cut = len(said) == limit and max(last, key=last.__getitem__) != EOS
    score = logprob / length_penalty(s.penalty, s.alpha, len(said) + 1)
    return Hypothesis(said, logprob, score, "length" if cut else "eos")


def enumerate_all(model: Model, source: int, limit: int, settings: DecodingConfig) -> list[Hypothesis]:
    """Every hypothesis there is, best first."""
    out, open_ = [], [((), 0.0)]
    while open_:
        said, logprob = open_.pop()
        for token, p in distribution(model, source, said, settings).items():
            if token == EOS:
                out.append(hypothesis_of(model, source, said, logprob + p, limit, settings))
            elif len(said) < limit:
                open_.append(((*said, token), logprob + p))
    return sorted(out, key=lambda h: -h.score)


def plain_beam(model: Model, source: int, limit: int, s: DecodingConfig) -> list[Hypothesis]:
    """Beam search in lists, which never stops before all is finished."""
    live: list[tuple[Prefix, float]] = [((), 0.0)]
    done: list[Hypothesis] = []
    while live:
        grown = [
            (logprob + p, said, token)
            for said, logprob in live
            for token, p in distribution(model, source, said, s).items()
            if token == EOS or len(said) < limit
        ]
        best = sorted(grown, reverse=True)[: s.beam - len(done)]
        done += [hypothesis_of(model, source, said, p, limit, s) for p, said, token in best if token == EOS]
        live = [((*said, token), p) for p, said, token in best if token != EOS]
    return sorted(done, key=lambda h: -h.score)[: s.n_best]


def assert_same(got: list[Hypothesis], want: list[Hypothesis]) -> None:
    assert [(h.ids, h.reason) for h in got] == [(h.ids, h.reason) for h in want]
    for mine, other in zip(got, want, strict=True):
        assert mine.logprob == pytest.approx(other.logprob, abs=1e-9)
        assert mine.score == pytest.approx(other.score, abs=1e-9)


# -- beam search


@given(
    seeds, limit_lists, penalties, alphas, st.integers(1, 8), st.integers(0, 2), st.sampled_from([0, 1, 2])
)
def test_a_beam_that_holds_everything_is_exhaustive(
    seed: int, limits: list[int], penalty: str, alpha: float, n_best: int, min_length: int, ngram: int
) -> None:
    settings = {"penalty": penalty, "alpha": alpha, "n_best": n_best, "beam": 40, "no_repeat_ngram": ngram}
    least = min(min_length, *limits)
    found = find(tree(seed), limits, min_length=least, **settings)
    for n, limit in enumerate(limits):
        everything = enumerate_all(tree(seed), n, limit, DecodingConfig(min_length=least, **settings))
        assert len(everything) <= 40
        assert_same(found[n], everything[:n_best])


@given(
    st.lists(st.lists(st.integers(-4, 4), min_size=V, max_size=V), min_size=4, max_size=4),
    st.integers(0, 3),
    penalties,
    alphas,
)
def test_exhaustive_with_ties(table: list[list[int]], limit: int, penalty: str, alpha: float) -> None:
    """Logits by step, in whole numbers: which of tied hypotheses comes first is open."""
    logits = torch.tensor(table).double()
    settings = {"penalty": penalty, "alpha": alpha, "beam": 40, "n_best": 6}
    (found,) = find(lambda _, said: logits[len(said)], [limit], **settings)
    everything = enumerate_all(lambda _, said: logits[len(said)], 0, limit, DecodingConfig(**settings))
    assert [h.score for h in found] == pytest.approx([h.score for h in everything[:6]], abs=1e-9)
    assert len({h.ids for h in found}) == len(found)
    known = {h.ids: h.logprob for h in everything}
    assert all(h.logprob == pytest.approx(known[h.ids], abs=1e-9) for h in found)


@given(
    seeds,
    st.sampled_from([0.3, 2.0, 6.0]),
    st.lists(st.integers(0, 8), min_size=1, max_size=5),
    st.integers(1, 5),
    penalties,
    alphas,
    st.sampled_from([0, 1, 4]),
    st.sampled_from([0, 2, 3]),
    st.data(),
)
def test_narrow_beams_are_the_plain_ones(
    seed: int,
    sharp: float,
    limits: list[int],
    beam: int,
    penalty: str,
    alpha: float,
    least: int,
    n: int,
    data: Any,
) -> None:
    """Batches of sources with limits of their own, against lists that never stop early."""
    n_best = data.draw(st.integers(1, beam))
    settings = {"beam": beam, "penalty": penalty, "alpha": alpha, "n_best": n_best, "no_repeat_ngram": n}
    least = min(least, *limits)
    found = find(tree(seed, sharp), limits, min_length=least, **settings)
    for source, limit in enumerate(limits):
        want = plain_beam(tree(seed, sharp), source, limit, DecodingConfig(min_length=least, **settings))
        assert_same(found[source], want)


def test_early_stop_is_sound_and_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same results as without it, in fewer steps."""
    early = late = 0
    for seed in range(30):
        for alpha in (-1.0, 0.0, 0.6, 2.0):
            settings = DecodingConfig(beam=3, n_best=1 + seed % 3, alpha=alpha, penalty="power")
            limits = [7, 4, 9]
            with monkeypatch.context() as patch:
                steps = Tree(tree(seed), range(3), 3)
                found = search(steps, limits, settings)
                early += steps.calls
                patch.setattr(_Beam, "_settled", lambda *_: False)
                steps = Tree(tree(seed), range(3), 3)
                for got, want in zip(found, search(steps, limits, settings), strict=True):
                    assert_same(got, want)
                late += steps.calls
    assert early < 0.9 * late


@given(seeds, st.lists(st.integers(0, 6), min_size=2, max_size=5), st.integers(1, 4), alphas)
def test_neighbours_do_not_matter(seed: int, limits: list[int], beam: int, alpha: float) -> None:
    """A source alone, in a batch, and in the batch turned round."""
    model, settings = tree(seed), {"beam": beam, "alpha": alpha, "n_best": beam}
    together = find(model, limits, **settings)
    backwards = find(model, limits[::-1], range(len(limits))[::-1], **settings)[::-1]
    for n, limit in enumerate(limits):
        (alone,) = find(model, [limit], [n], **settings)
        assert_same(together[n], alone)
        assert_same(backwards[n], alone)


@given(seeds, st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 3))
def test_beam_of_one_is_greedy(seed: int, limits: list[int], least: int, ngram: int) -> None:
    settings = {"min_length": min(least, *limits), "no_repeat_ngram": ngram, "alpha": 0.6}
    beam = find(tree(seed), limits, beam=1, **settings)
    greedy = find(tree(seed), limits, strategy="greedy", **settings)
    for one, other in zip(beam, greedy, strict=True):
        assert_same(one, other)
    for n, limit in enumerate(limits):  # and greedy is the largest, again and again
        said: Prefix = ()
        while len(said) < limit:
            p = distribution(tree(seed), n, said, DecodingConfig(**settings))
            word = max(p, key=p.__getitem__)
            if word == EOS:
                break
            said = (*said, word)
        assert greedy[n][0].ids == said


def test_beam_of_one_is_greedy_among_ties() -> None:
    """Logits of low precision tie often: both take the lower id."""
    for ids in ([4, 5], [1, 5], [1, 4, 5], [3, 4]):
        logits = torch.zeros(V)
        logits[ids] = 1.0
        (beam,), (greedy,) = (
            find(lambda _, said, x=logits: x.clone(), [3], **s) for s in ({"beam": 1}, {"strategy": "greedy"})
        )
        assert beam[0].ids == greedy[0].ids


@pytest.mark.parametrize("strategy", ["beam", "greedy", "sample"])
def test_reasons(strategy: str) -> None:
    """``length`` where it would have gone on, ``eos`` where it ended, at the limit too; the end's own
    log-probability counts in both cases."""
    talkative = torch.tensor([0.0, 0, 0, 0, 9, 0]).double()
    brief = torch.tensor([0.0, 0, 0, 9, 0, 0]).double()
    for limit in (0, 1, 4):
        ((cut,),) = find(lambda _, said: talkative.clone(), [limit], strategy=strategy, top_k=1)
        assert (cut.ids, cut.reason) == ((4,) * limit, "length")
        spread = talkative[[1, 3, 4, 5]].log_softmax(0)
        assert cut.logprob == pytest.approx(float(limit * spread[2] + spread[1]))
        ((ended,),) = find(
            lambda _, said, n=limit: (talkative if len(said) < n else brief).clone(),
            [limit],
            strategy=strategy,
            top_k=1,
        )
        assert (ended.ids, ended.reason) == ((4,) * limit, "eos")


@pytest.mark.parametrize(
    "settings", [{"beam": 4}, {"strategy": "greedy"}, {"strategy": "sample", "n_best": 3}]
)
def test_a_shortest_length_above_the_limit_is_met(settings: dict[str, Any]) -> None:
    """What a user asks for outright wins over a limit derived from the source."""
    found = find(tree(1), [2, 0, 6], min_length=4, **settings)
    for group, limit in zip(found, (4, 4, 6), strict=True):
        assert group
        for h in group:
            assert 4 <= len(h.ids) <= limit and h.logprob > NEVER


def test_steps_stop_with_the_last_source() -> None:
    """No step is spent when all have ended."""
    ends = torch.tensor([0.0, 0, 0, 50, 0, 0]).double()
    for strategy in ("beam", "greedy", "sample"):
        decoding = DecodingConfig(strategy=strategy, beam=1)
        steps = Tree(lambda _, said: ends.clone(), range(3), rows(decoding))
        assert search(steps, [9, 5, 7], decoding)[0][0].ids == ()
        assert steps.calls == 1


# -- sampling


@given(seeds, st.lists(st.integers(0, 8), min_size=2, max_size=5), st.integers(1, 3), st.integers(-3, 3))
def test_draws_do_not_depend_on_the_batch(seed: int, limits: list[int], n_best: int, draw: int) -> None:
    model, settings = tree(seed), {"strategy": "sample", "n_best": n_best, "seed": draw, "top_p": 0.95}
    together = find(model, limits, **settings)
    backwards = find(model, limits[::-1], range(len(limits))[::-1], **settings)[::-1]
    for n, limit in enumerate(limits):
        (alone,) = find(model, [limit], [n], **settings)
        assert_same(together[n], alone)
        assert_same(backwards[n], alone)


def test_seeds_sources_and_samples_draw_apart() -> None:
    """One model for all: seed, place in the input and number of the sample each change what is drawn."""
    flat = tree(0, sharp=0.1)

    def said(source: int, seed: int, n_best: int = 4) -> Counter[Prefix]:
        decoding = DecodingConfig(strategy="sample", n_best=n_best, seed=seed, min_length=12)
        found = search(Tree(lambda _, p: flat(0, p), [0], n_best), [12], decoding, index=[source])
        return Counter(h.ids for h in found[0])

    base = said(0, 1)
    assert base == said(0, 1) and len(base) == 4
    assert not base & said(0, 2) and not base & said(1, 1)
    assert said(0, 1, n_best=2) < base, "more samples are more of the same"


def test_draws_come_in_pieces_of_one_stream() -> None:
    """What is drawn for a step is the same however the numbers are cut, and whoever is still there."""
    draws = _Draws(3, [7, 2], 2, torch.device("cpu"))
    rows = torch.arange(4)
    got = torch.stack([draws.at(t, rows) for t in range(2 * PIECE + 5)], 1)
    for row, (i, sample) in enumerate(((7, 0), (7, 1), (2, 0), (2, 1))):
        one = torch.Generator().manual_seed((3 * 1_000_003 + i) * 1_000_003 + sample)
        assert torch.equal(got[row], torch.rand(got.shape[1], generator=one, dtype=torch.float64))
    again = _Draws(3, [7, 2], 2, torch.device("cpu"))
    assert torch.equal(again.at(0, rows[1:3]), got[1:3, 0])


@pytest.mark.parametrize("strategy", ["beam", "greedy", "sample"])
@pytest.mark.parametrize("limit", [10**12, 10**30])
def test_a_limit_far_above_any_output_costs_nothing(strategy: str, limit: int) -> None:
    def model(source: int, said: Prefix) -> Tensor:
        return torch.tensor([0.0, 0, 0, 50.0 * (len(said) > PIECE), 0, 0]).double()

    for group in find(model, [limit, 5], strategy=strategy, min_length=3):
        assert len(group[0].ids) <= PIECE + 1
    settings = {"strategy": "sample", "seed": 4}
    assert find(tree(1), [9, limit], **settings)[0] == find(tree(1), [9, 3], **settings)[0]


def test_whole_outputs_follow_their_law() -> None:
    """χ² over outputs of up to two words: the product of what each step allows."""
    model, draws = tree(5, sharp=1.0), 3000
    decoding = DecodingConfig(strategy="sample")
    want = {h.ids: h.logprob for h in enumerate_all(model, 0, 1, decoding)}
    first = distribution(model, 0, (), decoding)
    steps = Tree(lambda _, said: model(0, said), range(draws), 1)
    seen = Counter(h.ids for (h,) in search(steps, [2] * draws, decoding))
    p = {(): first[EOS]}
    for a in WORDS:
        second = distribution(model, 0, (a,), decoding)
        p[(a,)] = first[a] + second[EOS]
        p |= {(a, b): first[a] + second[b] for b in WORDS}
    assert p[()] == pytest.approx(want[()])
    expected = {ids: draws * torch.tensor(x).exp().item() for ids, x in p.items()}
    assert sum(expected.values()) == pytest.approx(draws)
    statistic = sum((seen[ids] - e) ** 2 / e for ids, e in expected.items())
    assert statistic < 32.9  # 0.999 of χ² with 12 degrees of freedom


@given(seeds, st.lists(st.integers(0, 6), min_size=1, max_size=3))
def test_cold_sampling_is_greedy(seed: int, limits: list[int]) -> None:
    greedy = find(tree(seed), limits, strategy="greedy")
    for cold in ({"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-6}):
        for got, want in zip(find(tree(seed), limits, strategy="sample", **cold), greedy, strict=True):
            assert_same(got, want)


@given(seeds, st.integers(1, 3), st.sampled_from(["greedy", "sample", "beam"]))
def test_no_ngram_twice(seed: int, n: int, strategy: str) -> None:
    for group in find(tree(seed, 3.0), [12, 5], strategy=strategy, no_repeat_ngram=n):
        for h in group:
            grams = [h.ids[i : i + n] for i in range(len(h.ids) - n + 1)]
            assert len(grams) == len(set(grams))


# -- a real model


@pytest.mark.parametrize("position", ["rope", "sinusoidal"])
def test_a_models_own_probabilities(position: str) -> None:
    """Cached, reordered steps of a Transformer score as one uncached pass does; ranks are by score."""
    data = {"vocab": 12, "dim": 16, "layers": 2, "heads": {"count": 2, "kv": 1}, "position": position}
    model: Any = build(RunConfig.parse({"model": {**data, "ffn": {"dim": 32}}}).model, seed=3).eval()
    with torch.inference_mode():
        for p in model.parameters():
            p.mul_(2.0)
        source, layout = pad([[5, 6, 7, 3], [8, 3], [9, 9, 4, 5, 6, 3]])
        settings = DecodingConfig(beam=4, n_best=4)
        memory = model.encode(source, layout)
        found = search(TranslationSteps(model, memory, 4), [9, 5, 2], settings)
        for n, group in enumerate(found):
            assert all(a.score >= b.score for a, b in pairwise(group))
            assert len({h.ids for h in group}) == len(group) == 4
            for h in group:
                target, target_layout = pad([[2, *h.ids]])
                one, one_layout = pad([source[n][layout.real[n]].tolist()])
                logits = model(one, one_layout, target, target_layout)[0].clone()
                logits[:, [0, 2]] = NEVER
                logp = logits.log_softmax(-1)
                want = sum(float(logp[t, i]) for t, i in enumerate([*h.ids, 3]))
                assert h.logprob == pytest.approx(want, abs=1e-4)


@given(st.integers(1, 700), st.integers(1, 8), st.integers(0, 10_000), st.booleans())
def test_largest_is_topk(vocab: int, k: int, seed: int, barred: bool) -> None:
    """Whatever the length of the row, also when most of it is barred; of ties, any."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-50, 50, (3, vocab), generator=generator).double()
    if barred:
        x = x.masked_fill(torch.rand(3, vocab, generator=generator) < 0.9, NEVER)
    k = min(k, vocab)
    top, place = largest(x, k)
    assert torch.equal(top, x.topk(k, -1).values)
    assert torch.equal(x.gather(1, place), top)
    assert all(len(set(row)) == k for row in place.tolist())


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_all_tensors_are_made_where_the_model_is(strategy: str) -> None:
    """With another default device, whatever is made without saying where does not fit to the model's own."""
    config = ModelConfig.parse({"vocab": 200, "dim": 8, "heads": 2, "layers": 1})
    model = build(config, seed=2).eval()
    source, layout = pad([[5, 6, 3], [7, 3]])
    settings = DecodingConfig.parse(
        {"strategy": strategy, "beam": 2, "n_best": 2 if strategy != "greedy" else 1}
    )

    def run() -> list[list[Hypothesis]]:
        assert isinstance(model, EncoderDecoder)
        steps = TranslationSteps(model, model.encode(source, layout), rows(settings))
        return search(steps, [4, 9], settings)

    with torch.no_grad():
        want = run()
        with torch.device("meta"):
            assert run() == want
