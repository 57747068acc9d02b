"""What a stack asks of anything that mixes along the sequence."""

from __future__ import annotations

from torch import Tensor, nn

from triptych.config import ModelConfig, Part
from triptych.model.registry import Context, Cost, Place, Shape
from triptych.model.visible import Visible


class Mixer(nn.Module):
    """``(x, context) → y``, constructed with its settings, the model's, and its place."""

    @classmethod
    def cost(cls, settings: Part, model: ModelConfig, place: Place, seen: Visible, shape: Shape) -> Cost:
        """Of one pass over ``shape``, in which tokens see ``seen``."""
        raise NotImplementedError

    @classmethod
    def kept(cls, settings: Part, model: ModelConfig, place: Place) -> tuple[int, int]:
        """Values a state holds: of each token in its slots, and of each row (the carry)."""
        raise NotImplementedError

    @classmethod
    def sees(cls, settings: Part, visible: Visible) -> int | None:
        """How many positions back what is kept of a token may be asked for; 0: nothing is kept of tokens;
        None: without limit."""
        return 0

    @classmethod
    def kept_of_source(cls, settings: Part, model: ModelConfig, place: Place) -> int:
        """Values a mixer that takes a source keeps of each of its tokens."""
        raise NotImplementedError

    def keys(self, source_NSC: Tensor) -> tuple[Tensor, ...]:
        """What is made of a source, once, by a mixer that takes one."""
        raise NotImplementedError

    def scaled(self) -> list[Tensor]:
        """The weights that DeepNorm begins smaller (Wang et al. 2022, section 4.1): all that carry values."""
        return [m.weight for m in self.modules() if isinstance(m, nn.Linear)]

    def forward(self, x_BTC: Tensor, context: Context) -> Tensor:
        """``[B, T, C]``. Padding neither moves other tokens nor breaks a sequence in two."""
        raise NotImplementedError
