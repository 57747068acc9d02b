"""What each choice of ``model.attention.visible`` lets see, as scalar rules written from the settings alone.

The law of weights compares masks with these, position by position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triptych.config import parts

# (settings, position of the query, position of the key, both directions) → seen, within one sequence.
Rule = Callable[[Any, int, int, bool], bool]


def _everything(settings: parts.SeeEverything, query: int, key: int, both: bool) -> bool:
    return both or key <= query


def _window(settings: parts.SeeWindow, query: int, key: int, both: bool) -> bool:
    return query - settings.width < key < query + (settings.width if both else 1)


SEEN: dict[type[parts.Sight], Rule] = {parts.SeeEverything: _everything, parts.SeeWindow: _window}
