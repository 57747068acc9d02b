"""A conversation as one text: how it is written, and which parts of it are learned.

    alpaca   Below is an instruction … ### Instruction: … ### Response:⏎ zwei Katzen ■
                                                                         ───────────── learned; ■ is eos
    chatml   <|im_start|>user⏎two cats<|im_end|>⏎<|im_start|>assistant⏎zwei Katzen<|im_end|>⏎
                                                                        ────────────────────── learned

Alpaca: Taori et al. 2023; the line end after ``### Response:`` is that of later users of it. ChatML: OpenAI
2023. What a template writes as a symbol is a ``Symbol``; a user's text that looks like one stays text. In
Alpaca all is text: a user who writes ``### Response:`` writes what the template does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Literal

from triptych.errors import UserError
from triptych.text.dialogues import Dialogue, Shape
from triptych.text.tokenizer import BOS, EOS, Tokenizer

__all__ = ["AUTO", "END", "SYMBOLS", "Run", "Symbol", "Template", "encode_runs", "prompt", "render"]

Template = Literal["alpaca", "chatml"]
Turns = tuple[tuple[str, str], ...]
AUTO: dict[Shape, Template] = {"alpaca": "alpaca", "messages": "chatml"}
"""The usual template of a shape of file."""


class Symbol(str):
    """The name of a symbol, where a template writes one."""

    __slots__ = ()


Run = tuple[str, bool]
"""A stretch of text, or a ``Symbol``, and whether it is learned."""

IM_START, IM_END = Symbol("<|im_start|>"), Symbol("<|im_end|>")
EOS_SYMBOL = Symbol("</s>")
SYMBOLS: dict[Template, tuple[Symbol, ...]] = {"alpaca": (), "chatml": (IM_START, IM_END)}
"""What a tokenizer must have, beside eos."""
END: dict[Template, Symbol] = {"alpaca": EOS_SYMBOL, "chatml": IM_END}
"""What an assistant's turn ends with."""

ASKED = "Write a response that appropriately completes the request."
PLAIN = f"Below is an instruction that describes a task. {ASKED}"
WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    f"{ASKED}"
)


def render(dialogue: Dialogue, template: Template) -> list[Run]:
    """The whole conversation; learned are the texts of the assistant and their ends.

    Joined, the runs are the text. Neighbours differ in what is learned, or one of them is a symbol.

    Raises:
        UserError: an unknown template, or turns that it cannot write.
    """
    return _joined(_writer(template)(dialogue.turns, dialogue.input))


def prompt(dialogue: Dialogue, template: Template) -> list[Run]:
    """What stands before the next turn of the assistant: the beginning of ``render`` up to there. A last turn
    that is the assistant's is left out, as the one to be said.

    Raises:
        UserError: as ``render``; no turn to answer.
    """
    turns = dialogue.turns[:-1] if dialogue.turns and dialogue.turns[-1][0] == "assistant" else dialogue.turns
    if not turns or turns[-1][0] != "user":
        raise UserError("there is no turn of a user to answer", mend="end the prompt with one")
    runs = _joined(_writer(template)((*turns, ("assistant", "")), dialogue.input))
    last = max(place for place, (_, learned) in enumerate(runs) if learned)
    return [(text, False) for text, _ in runs[:last]]


def encode_runs(runs: Iterable[Run], tokenizer: Tokenizer) -> tuple[list[int], list[bool]]:
    """The ids of runs, bos before them, and whether each is learned. Runs are encoded one by one, so that a
    prompt has the same ids with and without what follows.

    Raises:
        UserError: a symbol that the tokenizer lacks.
    """
    ids, learned = [BOS], [False]
    for text, learn in runs:
        if isinstance(text, Symbol):
            found = [EOS if text == EOS_SYMBOL else tokenizer.symbol_id(text)]
        else:
            found = tokenizer.encode(text, begins=len(ids) == 1)
        ids += found
        learned += [learn] * len(found)
    return ids, learned


def _writer(template: str) -> Callable[[Turns, str], Iterator[Run]]:
    writers = {"alpaca": _alpaca, "chatml": _chatml}
    if template not in writers:
        known = ", ".join(writers)
        raise UserError(f"no template {template!r}", "objective.template", f"choose one of {known}")
    return writers[template]


def _alpaca(turns: Turns, about: str) -> Iterator[Run]:
    """One preamble, or a system's turn in its place; then instruction and response by turns."""
    preamble = WITH_INPUT if about else PLAIN
    if turns and turns[0][0] == "system":
        preamble, turns = turns[0][1], turns[1:]
    yield preamble, False
    for place, (role, text) in enumerate(turns):
        wanted = ("user", "assistant")[place % 2]
        if role != wanted:
            what = f"the template alpaca needs a turn of the {wanted} where one of the {role} stands"
            raise UserError(what, mend=f"write the {wanted}'s turn, or set objective.template=chatml")
        if role == "user":
            yield f"\n\n### Instruction:\n{text}", False
            yield f"\n\n### Input:\n{about}" if about and place == 0 else "", False
            yield "\n\n### Response:\n", False
        else:
            yield text, True
            yield END["alpaca"], True
    if len(turns) % 2 or not turns:
        what = f"the template alpaca needs a turn of the {'assistant' if turns else 'user'} at the end"
        raise UserError(what, mend="write it, or set objective.template=chatml")


def _chatml(turns: Turns, about: str) -> Iterator[Run]:
    """Every turn between the same marks; an input follows the first user's turn after an empty line."""
    first = next((place for place, (role, _) in enumerate(turns) if role == "user"), None)
    for place, (role, text) in enumerate(turns):
        learned = role == "assistant"
        yield IM_START, False
        yield f"{role}\n", False
        yield text + (f"\n\n{about}" if about and place == first else ""), learned
        yield IM_END, learned
        yield "\n", False


def _joined(runs: Iterator[Run]) -> list[Run]:
    """Neighbours that are text and alike in what is learned as one; no empty ones."""
    out: list[Run] = []
    for (symbol, learned), group in groupby(runs, lambda run: (isinstance(run[0], Symbol), run[1])):
        texts = [text for text, _ in group]
        out += [(text, learned) for text in (texts if symbol else ["".join(texts)]) if text]
    return out
