"""What mixes information along the sequence."""

from __future__ import annotations

from typing import ClassVar, Literal

from triptych.config.settings import Part


class Mixer(Part):
    """What mixes information along the sequence.

    Attributes:
        stacks: the stacks it can stand in: causal ones, those that see both directions, or both.
        attends: it is softmax attention, to which model.heads, attention, and all of position apply.
    """

    section: ClassVar[str] = "model.mixer"
    stacks: ClassVar[frozenset[str]] = frozenset({"causal", "bidirectional"})
    attends: ClassVar[bool] = False


class AttentionMixer(Mixer):
    """Softmax attention (Vaswani et al. 2017, section 3.2)."""

    attends: ClassVar[bool] = True
    kind: Literal["attention"] = "attention"
