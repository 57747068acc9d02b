"""Instruction tuning: dialogues, of which the assistant's turns and their ends are learned.

dialogues ─ template ─ runs of text, learned or not ─ ids and flags ─ rows, packed without cutting
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from triptych.config import RunConfig
from triptych.config.objectives import InstructionObjective
from triptych.data import Dataset
from triptych.data.instruction import InstructionData
from triptych.engine import Bundle
from triptych.engine.generator import Prompt
from triptych.errors import UserError
from triptych.evaluation import Result, Sample
from triptych.text import Tokenizer, write_lines_atomic
from triptych.text.dialogues import Dialogue, Dialogues, read_dialogues
from triptych.text.templates import AUTO, SYMBOLS, Symbol, Template, encode_runs, prompt, render
from triptych.training.tasks.base import MINIMUM, Corpus, Say, Task, silent
from triptych.training.tasks.running import pieces, scored
from triptych.training.tasks.split import parts, texts_digest

TEST = "test.jsonl"


@dataclass(frozen=True)
class Rendered:
    """Dialogues, and the template they are written in."""

    dialogues: Dialogues
    template: Template

    def __len__(self) -> int:
        return len(self.dialogues)

    def select(self, indices: Sequence[int]) -> Rendered:
        """These dialogues."""
        return Rendered(self.dialogues.select(indices), self.template)


class InstructionTask(Task[Rendered]):
    """Instructions and chats (``objective.kind: instruction``)."""

    noun: ClassVar[str] = "dialogues"
    packed: ClassVar[str] = "rows of dialogues"

    def load(self, config: RunConfig, say: Say) -> Corpus[Rendered]:
        """Those that ask the same stay in one part."""
        whole = self.given(config, config.data.train)
        say(f"{len(whole):,} dialogues, template {whole.template}")
        if len(whole) < MINIMUM:
            what = f"{len(whole)} dialogues, and training needs at least {MINIMUM}"
            raise UserError(what, config.data.train[0], "add dialogues")
        asked = [[question(dialogue)] for dialogue in whole.dialogues]
        train, valid, test = parts(config, whole, asked, self.given, self.noun)
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in self.texts(train))
        digest = texts_digest([*self.texts(train), *self.texts(valid)])
        sizes = {"training": len(train), "validation": len(valid), "test": len(test) if test else 0}
        facts = {"dialogues": sizes, "template": whole.template}
        return Corpus(train, valid, test, len(train), size, digest, tuple(doubts(whole.dialogues)), facts)

    def given(self, config: RunConfig, files: Sequence[str]) -> Rendered:
        """Files of dialogues."""
        assert isinstance(config.objective, InstructionObjective)
        found = read_dialogues([Path(f) for f in files])
        if len(found.empty) == len(found):
            what = "every answer is empty: nothing can be learned of them but to say nothing"
            raise UserError(what, files[0], "check that it was written completely")
        wanted = config.objective.template
        return Rendered(found, AUTO[found.shape] if wanted == "auto" else wanted)

    def texts(self, part: Rendered) -> Iterable[str]:
        """Each dialogue as its template writes it, without symbols."""
        for dialogue in part.dialogues:
            yield "".join(t for t, _ in render(dialogue, part.template) if not isinstance(t, Symbol))

    def symbols(self, config: RunConfig, corpus: Corpus[Rendered]) -> tuple[str, ...]:
        """What the template writes beside text."""
        return tuple(SYMBOLS[corpus.train.template])

    def decided(self, config: RunConfig, corpus: Corpus[Rendered]) -> dict[str, Any]:
        """The template that ``auto`` stood for: what is asked of the run later is written in it."""
        return {"objective": {"template": corpus.train.template}}

    def encode(
        self, config: RunConfig, part: Rendered, tokenizer: Tokenizer, folder: Path, name: str, say: Say
    ) -> Dataset:
        """Dialogues of more than ``data.length`` tokens are left out, and the user is told."""
        rows = list(self.fitting(config, part, tokenizer, name, say).values())
        return InstructionData(rows, config.data.length, config.data.tokens, config.training.seed)

    def fitting(
        self, config: RunConfig, part: Rendered, tokenizer: Tokenizer, name: str, say: Say
    ) -> dict[int, tuple[list[int], list[bool]]]:
        """Ids of the dialogues that are short enough, and what is learned of them, by their numbers."""
        rows, long = {}, []
        for i, dialogue in enumerate(part.dialogues):
            ids, learned = encode_runs(render(dialogue, part.template), tokenizer)
            if len(ids) <= config.data.length + 1:  # the last token is only said
                rows[i] = (ids, learned)
            else:
                long.append(i)
        if long:
            places = ", ".join(part.dialogues.place(i) for i in long[:3]) + (", …" if len(long) > 3 else "")
            size = config.data.length
            say(f"{len(long)} {name} dialogues are longer than {size} tokens and left out ({places})")
        if not rows:
            what = f"no {name} dialogue is at most {config.data.length} tokens long"
            raise UserError(what, "data.length", "raise it")
        return rows

    def keep(self, config: RunConfig, corpus: Corpus[Rendered], folder: Path) -> None:
        """The test dialogues, in the shape they came in."""
        if corpus.test is None:
            return
        lines = (record(dialogue, corpus.test.dialogues.shape) for dialogue in corpus.test.dialogues)
        write_lines_atomic(folder / "data" / TEST, (json.dumps(r, ensure_ascii=False) + "\n" for r in lines))

    def held_out(self, config: RunConfig, folder: Path) -> Rendered | None:
        """The test dialogues."""
        path = folder / "data" / TEST
        return self.given(config, [str(path)]) if path.exists() else None

    def evaluate(self, bundle: Bundle, part: Rendered, say: Say) -> Result:
        """Perplexity of the responses, and some of them beside the model's own."""
        data = self.encode(bundle.config, part, bundle.tokenizer, Path(), "test", say)
        kept = self.fitting(bundle.config, part, bundle.tokenizer, "test", silent)
        part = part.select(list(kept))  # bytes are counted of what is scored
        found = pieces(bundle, data)
        said = (text for d in part.dialogues for role, text in d.turns if role == "assistant")
        return Result(scored(found, sum(len(text.encode()) for text in said)), self.samples(bundle, part))

    def samples(self, bundle: Bundle, part: Rendered) -> list[Sample]:
        """What the model answers to some of the instructions."""
        known = bundle.generator.known or sys.maxsize
        answers = [d for d in part.dialogues if [r for r, _ in d.turns[-2:]] == ["user", "assistant"]]
        prompts = ((d, encode_runs(prompt(d, part.template), bundle.tokenizer)[0]) for d in answers)
        some = list(itertools.islice(((d, ids) for d, ids in prompts if len(ids) < known), 4))
        update = {"strategy": "greedy", "min_length": 0, "max_length": min(80, known - 1)}
        settings = bundle.config.decoding.model_copy(update=update)
        said = bundle.generator.generate([Prompt(tuple(ids)) for _, ids in some], settings)
        return [
            Sample(d.turns[-2][1], d.turns[-1][1], g.text) for (d, _), (g,) in zip(some, said, strict=True)
        ]


def question(dialogue: Dialogue) -> str:
    """All that stands before the first answer."""
    before = itertools.takewhile(lambda turn: turn[0] != "assistant", dialogue.turns)
    return "\n".join([*(text for _, text in before), dialogue.input])


def record(dialogue: Dialogue, shape: str) -> dict[str, Any]:
    """A dialogue as a record of a file."""
    if shape == "messages":
        return {"messages": [{"role": role, "content": text} for role, text in dialogue.turns]}
    (_, asked), (_, said) = dialogue.turns
    return {"instruction": asked, "input": dialogue.input, "output": said}


def doubts(dialogues: Dialogues) -> Iterator[str]:
    """What is odd about them."""
    if empty := dialogues.empty:
        places = ", ".join(map(dialogues.place, empty[:3])) + (", …" if len(empty) > 3 else "")
        yield f"{len(empty)} dialogues have an empty answer, from which ending at once is learned ({places})"
    if dialogues.ignored:
        yield f"keys that were not read: {', '.join(dialogues.ignored)}"
