"""What cannot be combined, and why: the table behind ``ModelConfig.check`` and ``triptych parts``.

Rules are asked in the order in which they stand here, so that the reason that is told is the first one: the
form, then what is idle, then what does not go together.
"""

from triptych.config.rules import forms, idle, together  # isort: skip
from triptych.config.rules.table import MEANING, RULES, Refusal, Rule, refuses

__all__ = ["MEANING", "RULES", "Refusal", "Rule", "forms", "idle", "refuses", "together"]
