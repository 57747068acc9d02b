"""What the laws are about: a model in float64, and random ragged batches for it.

Shapes: B rows, T tokens, V vocabulary. ``Placed`` is ids ``[B, T]`` with their layout.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from triptych.config import ModelConfig, TranslationObjective, parts
from triptych.config.objectives import ClassifyObjective, MaskedObjective, TagObjective
from triptych.data import IGNORE, PAD, Batch, translation_batch
from triptych.errors import UserError
from triptych.insight.laws.reduced import narrower, smaller
from triptych.insight.laws.sights import SEEN
from triptych.layout import Layout
from triptych.model import DecoderOnly, EncoderDecoder, Model, State, build
from triptych.model.attention import Attention
from triptych.model.blocks import spans
from triptych.model.dropout import Dropout
from triptych.model.experts import Experts
from triptych.model.stack import Stack
from triptych.model.visible import sight
from triptych.objectives import ClassLoss, Loss, NextSentenceLoss, TagLoss, TokenLoss, run
from triptych.objectives.labels import chosen

SPECIALS = 4  # pad, unk, bos, eos: the lowest ids
VOCAB = 48  # when the configuration leaves the size to the tokenizer
CHOICES = 5  # classes or tags when it leaves their number to the data; directions that a vector is read in
PATCH = 2  # pixels, when their number is left to the data
NARROW = 8  # a narrower model may be unable to learn what the laws give it
LONGEST = 9  # tokens in a sequence
LONG = 200  # tokens that attention cuts into blocks, some of them alike, when it sees only near ones

Side = Literal["left", "right"]
SIDES: tuple[Literal["left", "right"], ...] = ("right", "left")
Placed = tuple[Tensor, Layout]


@dataclass(frozen=True)
class Rows:
    """Sequences of ids: those whose tokens get logits, and their sources (none without an encoder beside
    a decoder)."""

    main: list[list[int]]
    source: list[list[int]]

    def pick(self, rows: Sequence[int]) -> Rows:
        """These rows, in this order."""
        return Rows([self.main[i] for i in rows], [self.source[i] for i in rows] if self.source else [])


@dataclass(frozen=True)
class Pads:
    """How rows are padded: side, slots beyond the longest row, and whether padding holds random ids and
    random positions."""

    side: Side = "right"
    extra: int = 0
    noise: bool = False


class Subject:
    """A configuration and its model, as the laws see them.

    Attributes:
        asked: the configuration as given, its vocabulary set.
        config: that of ``model``, which may be smaller; ``reduced`` says in which way.
        model: a copy in float64, in evaluation mode.
        given: the caller's own model, never changed; None when ``model`` is fresh.
        longest: tokens of the longest sequence.
        ahead: the first so many tokens of a sequence see each other in a decoder (a prefix): sequences are
            longer, and nothing is cut or changed among them.
    """

    def __init__(self, config: ModelConfig, model: Model | None, seed: int) -> None:
        vocab = config.vocab or (model.config.vocab if model is not None else VOCAB)
        if vocab < 2 * SPECIALS:
            raise UserError(
                f"a vocabulary of {vocab} leaves too few words beside the {SPECIALS} specials to check a law",
                "model.vocab",
                f"give at least {2 * SPECIALS}",
            )
        if config.dim < NARROW:
            raise UserError(
                f"a width of {config.dim} is too small to check a law", "model.dim", f"give at least {NARROW}"
            )
        for where, most in config.limits().items():
            if most < LONGEST + 3:
                raise UserError(
                    f"{most} positions are too few to check a law", where, f"give {LONGEST + 3} or more"
                )
        output = config.output if model is None else model.config.output
        embedding = config.embedding
        if isinstance(embedding, parts.PatchEmbedding) and not embedding.size:
            embedding = embedding.model_copy(update={"size": PATCH})
        if getattr(output, "count", None) == 0:
            output = output.model_copy(update={"count": CHOICES})
        self.asked = config.model_copy(update={"vocab": vocab, "output": output, "embedding": embedding})
        self.config, notes = (self.asked, []) if model is not None else smaller(self.asked)
        self.config, note = narrower(self.config)
        self.reduced = "checked with " + ", ".join(notes + note) if notes + note else ""
        self.given, self.seed = model, seed
        self.V, self.longest, self.ahead = self.config.vocab, LONGEST, self.config.lookahead
        self.rng = torch.Generator()
        own = copy.deepcopy(model) if model is not None else build(self.config, seed)
        self.model: Model = own.to("cpu", torch.float64).eval()
        if model is not None and note:
            for name in ("encoder", "decoder"):
                if isinstance(stack := getattr(self.model, name, None), Stack):
                    stack.look(self.config, causal=name == "decoder")
                    for block, mixer in zip(stack.blocks, self.config.mixers(name), strict=True):
                        block.mixer.settings = mixer  # type: ignore[union-attr]

    def reseed(self, number: int) -> None:
        """Random draws from here on depend on the seed and ``number`` alone."""
        self.rng.manual_seed((self.seed * 1009 + number) % 2**63)

    # -- batches -------------------------------------------------------------------------------------------

    def integers(self, low: int, high: int, count: int) -> list[int]:
        """``count`` integers from ``low`` to ``high`` - 1."""
        drawn: list[int] = torch.randint(low, high, (count,), generator=self.rng).tolist()
        return drawn

    def words(self, count: int) -> list[int]:
        """Ids that are no specials."""
        return self.integers(SPECIALS, self.V, count)

    def rows(self, count: int, lengths: Sequence[int] | None = None) -> Rows:
        """Random rows; unless ``lengths`` says otherwise ragged, with a longest and a shortest among them."""
        least = max(2, self.ahead + 1)
        own = lengths or [self.longest, least, *self.integers(least, self.longest + 1, count)][:count]
        other = [3, self.longest, *self.integers(1, self.longest + 1, count)][:count]
        source = [self.words(n) for n in other] if self.config.form == "encoder_decoder" else []
        return Rows([self.words(n) for n in own], source)

    def lay(self, rows: Sequence[Sequence[int]], pads: Pads | None = None) -> Placed:
        """Rows as ids and a layout."""
        pads = pads or Pads()
        lengths = [len(row) for row in rows]
        layout = Layout.padded(lengths, pads.side, max(lengths) + pads.extra)
        real = layout.real
        ids = torch.full(real.shape, PAD)
        if pads.noise:
            ids = torch.randint(0, self.V, real.shape, generator=self.rng)
            place = torch.randint(0, self.longest, real.shape, generator=self.rng)
            layout = Layout(torch.where(real, layout.position, place), layout.segment)
        ids[real] = torch.tensor([token for row in rows for token in row])
        return ids, layout

    def source(self, rows: Rows, pads: Pads | None = None) -> Placed | None:
        """The sources of ``rows``, if there are any."""
        return self.lay(rows.source, pads) if rows.source else None

    # -- running -------------------------------------------------------------------------------------------

    def forward(
        self, main: Placed, source: Placed | None, model: Model | None = None, typed: bool = True
    ) -> Tensor:
        """What is said of each token, without a cache: logits ``[B, T, V]``, or hidden states where the model
        speaks of whole rows only."""
        return self.read(self.hidden(main, source, model, typed), model)

    def hidden(
        self, main: Placed, source: Placed | None, model: Model | None = None, typed: bool = True
    ) -> Tensor:
        """Hidden states ``[B, T, C]``."""
        model = model or self.model
        ids, layout = main
        batch = Batch(self.shown(ids), layout, torch.empty(0), (), *(source or (None, None)))
        return run(model, replace(batch, types=self.types(ids) if typed else None))

    def shown(self, ids: Tensor) -> Tensor:
        """Ids ``[B, T]`` as the model reads them: of images, to each belongs a random patch ``[B, T, K]``,
        to some a class token; the answers of these are alike."""
        image = self.config.embedding
        if not isinstance(image, parts.PatchEmbedding):
            return ids
        drawn = torch.randn(self.V, image.values, generator=torch.Generator().manual_seed(self.seed))
        if image.class_token:
            drawn[:, -1] = torch.arange(self.V) % self.among == SPECIALS % self.among
        return drawn.double()[ids]

    def types(self, ids: Tensor) -> Tensor | None:
        """A type for each token, which follows it wherever it stands; None where the model has none."""
        return ids % self.config.types if self.config.types else None

    def read(self, hidden: Tensor, model: Model | None = None) -> Tensor:
        """What hidden states say of their tokens."""
        said: Tensor = hidden if self.config.output.whole else (model or self.model).output(hidden)
        return said

    def logits(
        self,
        rows: Rows,
        main: Pads | None = None,
        source: Pads | None = None,
        model: Model | None = None,
        typed: bool = True,
    ) -> list[Tensor]:
        """What is said of every row's own tokens, ``[length, V]``; unless ``typed``, of tokens of type 0."""
        placed = self.lay(rows.main, main)
        return take(self.forward(placed, self.source(rows, source), model, typed), placed[1])

    def answers(
        self, rows: Rows, main: Pads | None = None, source: Pads | None = None, model: Model | None = None
    ) -> list[Tensor]:
        """All that is said of every row: of its tokens, and of it as a whole."""
        placed, model = self.lay(rows.main, main), model or self.model
        hidden = self.hidden(placed, self.source(rows, source), model)
        whole = model.output if self.config.output.whole else getattr(model.output, "pair", None)
        found = take(self.read(hidden, model), placed[1])
        if whole is None:
            return found
        rowwise = zip(found, whole(hidden, placed[1]), strict=True)
        return [torch.cat((tokens.flatten(), row)) for tokens, row in rowwise]

    def start(self, source: Placed | None, beams: int = 1, back: int = 0) -> State:
        """An empty state of the decoder; with a source, ``beams`` rows for each of its rows."""
        if isinstance(self.model, EncoderDecoder):
            assert source is not None
            return self.model.start(self.model.encode(*source), beams, back)
        assert isinstance(self.model, DecoderOnly)
        return self.model.start(back)

    def step(self, state: State, ids: Tensor, layout: Layout) -> Tensor:
        """What is said of new tokens over a state, ``[B, T, V]``."""
        if isinstance(self.model, EncoderDecoder):
            return self.read(self.model.decode(ids, layout, state=state))
        assert isinstance(self.model, DecoderOnly)
        return self.read(self.model.decode(self.shown(ids), layout, state, self.types(ids)))

    def chunked(self, main: Placed, state: State, cuts: Sequence[int]) -> Tensor:
        """Logits ``[B, T, V]`` of ``main`` fed to a state in pieces that end at ``cuts``."""
        (ids, layout), out = main, []
        for start, stop in zip([0, *cuts], [*cuts, ids.shape[1]], strict=True):
            out.append(self.step(state, ids[:, start:stop], layout.narrow(start, stop)))
        return torch.cat(out, 1)

    def places(self, layout: Layout) -> list[int]:
        """Where rows may be cut: not where a prefix has begun."""
        within = layout.real & (layout.position > 0) & (layout.position < self.ahead)
        return [i for i, cut in enumerate(within.any(0).tolist()) if i and not cut]

    @property
    def in_blocks(self) -> bool:
        """Whether a sequence of ``LONG`` tokens is cut into blocks somewhere, and positions do not end."""
        most = self.config.max_positions() or LONG
        seen = {
            sight(one, side == "decoder") for side in self.config.stacks for one in self.config.sights(side)
        }
        return most >= LONG and any(len(spans(one.reach, LONG, LONG)) > 1 for one in seen)

    def middle(self, layout: Layout) -> int:
        """The place nearest to the middle."""
        return min(self.places(layout), key=lambda place: abs(place - layout.length // 2))

    def cuts(self, layout: Layout) -> list[int]:
        """Random places at which to cut rows."""
        drawn = self.integers(0, 2, layout.length)
        return [i for i in self.places(layout) if drawn[i]]

    # -- learning ------------------------------------------------------------------------------------------

    def learner(self) -> Model:
        """A copy to train whose gradients are a function of each row by itself: without dropout, and without
        what experts do to a whole batch (see ``apart``)."""
        model = copy.deepcopy(self.model)
        still(model)
        apart(model)
        return model.train()

    def batch(self, rows: Rows) -> Batch:
        """These rows, and something to be learned of them. A decoder predicts each next token; an encoder, at
        each token's own place, the token whose id is one higher; tags and classes go by ids."""
        if rows.source:
            return translation_batch(rows.source, rows.main, range(len(rows.main)))
        ids, layout = self.lay(rows.main)
        classes = 2 if self.config.says_words else min(self.among, CHOICES)
        labels = torch.tensor([sum(row) % classes for row in rows.main])
        real, targets = layout.real, (ids + 1) % self.V
        if not self.config.says_words:
            targets = ids % self.among
        elif self.config.form == "decoder":
            real, targets = real & layout.real.roll(-1, 1), ids.roll(-1, 1)
            real[:, -1] = False
        targets = targets.masked_fill(~real, IGNORE)
        types, index = self.types(ids), tuple(range(len(ids)))
        return Batch(self.shown(ids), layout, targets, index, types=types, labels=labels)

    def loss(self, model: Model, rows: Rows, smoothing: float = 0.0) -> Loss:
        """The objective's loss of these rows."""
        batch, output = self.batch(rows), self.config.output
        if isinstance(output, parts.ClassesOutput):
            return ClassLoss(ClassifyObjective(label_smoothing=smoothing)).loss(model, batch)
        if isinstance(output, parts.TagsOutput):
            return TagLoss(TagObjective(label_smoothing=smoothing)).loss(model, batch)
        if isinstance(output, parts.VectorOutput):
            return self.directed(model, batch, smoothing)
        if getattr(output, "next_sentence", False):
            pairs = MaskedObjective(label_smoothing=smoothing)
            return NextSentenceLoss(pairs, self.longest).loss(model, batch)
        return TokenLoss(TranslationObjective(label_smoothing=smoothing)).loss(model, batch)

    def directed(self, model: Model, batch: Batch, smoothing: float) -> Loss:
        """That of vectors read in fixed directions, as classes: their own is of a batch as a whole."""
        assert batch.labels is not None
        aux: list[Tensor] | None = [] if model.training else None
        vector = model.output(run(model, batch, aux), batch.layout)
        drawn = torch.randn(self.config.dim, CHOICES, generator=torch.Generator().manual_seed(self.seed))
        said = vector @ (drawn.to(vector) * self.config.dim**-0.5)
        return chosen(said, batch.labels, smoothing if model.training else 0.0).plus(aux or ())

    @property
    def among(self) -> int:
        """Of how many one is right: words, classes or tags."""
        return self.V if self.config.says_words else getattr(self.config.output, "count", CHOICES)


def take(out_BTV: Tensor, layout: Layout) -> list[Tensor]:
    """What belongs to real tokens, row by row."""
    return [x[real] for x, real in zip(out_BTV, layout.real, strict=True)]


def still(model: Model, attention: bool = True, elsewhere: bool = True) -> None:
    """Switch dropout off: that of attention weights, and all other."""
    for module in model.modules():
        if (attention and isinstance(module, Attention)) or (elsewhere and isinstance(module, Dropout)):
            module.p = 0.0


def apart(model: Model) -> bool:
    """Switch off what experts do to a whole batch in training: their capacity and the losses of their loads.
    Whether there are any."""
    found = [m for m in model.modules() if isinstance(m, Experts)]
    for experts in found:
        experts.capacity, experts.router.balance, experts.router.z = None, 0.0, 0.0
    return bool(found)


def alone(config: ModelConfig) -> bool:
    """Whether there is a layer in which no token sees two."""
    places = range(LONGEST)

    def most(seen: parts.Sight, both: bool) -> int:
        return max(sum(SEEN[type(seen)](seen, at, to, both) for to in places) for at in places)

    return any(most(seen, side == "encoder") < 2 for side in config.stacks for seen in config.sights(side))
