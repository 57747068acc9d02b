"""How output is chosen: greedy, beam and sampling over one step interface; rules; penalties."""

from triptych.decoding.rules import keep_likely, length_penalty
from triptych.decoding.search import Chain, Hypothesis, Special, rows, search
from triptych.decoding.steps import PromptSteps, Steps, TranslationSteps

__all__ = [
    "Chain",
    "Hypothesis",
    "PromptSteps",
    "Special",
    "Steps",
    "TranslationSteps",
    "keep_likely",
    "length_penalty",
    "rows",
    "search",
]
