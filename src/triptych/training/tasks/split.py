"""Examples into training, validation and test parts; those that share a text stay together."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Self, TypeVar

from triptych.config import RunConfig
from triptych.errors import UserError
from triptych.text import group_split


class Selectable(Protocol):
    """A list of examples of which some can be taken."""

    def __len__(self) -> int: ...

    def select(self, indices: Sequence[int]) -> Self: ...


S = TypeVar("S", bound=Selectable)


def parts(
    config: RunConfig,
    whole: S,
    texts: Sequence[Sequence[str]],
    read: Callable[[RunConfig, Sequence[str]], S],
    noun: str,
    least: int = 1,
) -> tuple[S, S, S | None]:
    """Training, validation and test part: of files of their own where there are any, else split off.

    Args:
        texts: of each example, one or two texts that may not stand in two parts.
        noun: what the examples are called.
        least: how many are split off at least where nothing says how many.
    """
    data = config.data
    given: dict[str, Any] = {"valid": data.valid, "test": data.test}
    own = {name: read(config, files) if files else None for name, files in given.items()}
    share = min(1000, max(least, len(whole) // 20))
    wanted = {"valid": data.valid_size, "test": data.test_size}
    want = {n: 0 if own[n] is not None else share if wanted[n] is None else wanted[n] for n in own}
    if own["valid"] is None and not want["valid"]:
        what = "there is nothing to validate on"
        raise UserError(what, "data.valid_size", "leave it out, or give data.valid")
    first, second = [t[0] for t in texts], [t[-1] for t in texts]
    split = group_split(first, second, want["valid"] or 0, want["test"] or 0, config.training.seed, noun)
    valid = own["valid"] if own["valid"] is not None else whole.select(split.valid)
    test = own["test"] if own["test"] is not None else whole.select(split.test)
    return whole.select(split.train), valid, test if len(test) else None


def texts_digest(texts: Iterable[str]) -> str:
    """SHA-256 over texts, in order."""
    h = hashlib.sha256()
    for text in texts:
        h.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return h.hexdigest()
