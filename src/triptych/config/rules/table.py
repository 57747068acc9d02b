"""The table of what cannot be combined, and what its rules share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from triptych.config.settings import Settings

if TYPE_CHECKING:
    from triptych.config.model import ModelConfig, Side

Because = Literal["mathematics", "pointless", "harmful", "unbuilt"]
MEANING: dict[Because, str] = {
    "mathematics": "there is no such thing",
    "pointless": "it would change nothing",
    "harmful": "it would break a law",
    "unbuilt": "it could be, and is not here",
}
# Reason, key under ``model``, and what would work.
Refusal = tuple[str, str, str]


@dataclass(frozen=True)
class Rule:
    """Something that is refused.

    Attributes:
        of: the choice, the axis or the key under ``model`` that cannot be combined.
        other: with what, in a few words.
        because: of what, as ``MEANING`` has it.
        check: the refusal when a configuration breaks the rule, else None.
    """

    of: type[Settings] | str
    other: str
    because: Because
    check: Callable[[ModelConfig], Refusal | None]


RULES: list[Rule] = []


def refuses(
    of: type[Settings] | str, other: str, because: Because = "mathematics"
) -> Callable[[Callable[[ModelConfig], Refusal | None]], Callable[[ModelConfig], Refusal | None]]:
    """Decorator: this function finds configurations that break a rule of ``of``."""

    def register(check: Callable[[ModelConfig], Refusal | None]) -> Callable[[ModelConfig], Refusal | None]:
        RULES.append(Rule(of, other, because, check))
        return check

    return register


def key_of(m: ModelConfig, side: Side) -> str:
    """The key, under ``model``, that says what mixes in a stack."""
    return m.mixer_key(side).removeprefix("model.")


def attention_or(m: ModelConfig, instead: str, side: Side | None = None) -> str:
    """What works where no layer (of a stack) is softmax attention."""
    key = key_of(m, side or m.stacks[-1])
    return f"{instead}, or let model.{key} be attention, or a list with attention in it"
