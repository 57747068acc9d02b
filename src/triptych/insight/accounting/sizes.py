"""How much is computed: what the accounts of a model are drawn up for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from triptych.config import ModelConfig
from triptych.errors import UserError

Dtype = Literal["fp32", "bf16", "fp16"]
WIDTH: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}  # bytes a value
USUAL = 128  # tokens, where nothing else is said


@dataclass(frozen=True)
class Sizes:
    """Sizes of a pass.

    Attributes:
        batch: rows.
        target: tokens of a row: of the decoder, or of the only stack.
        source: tokens of a source; 0 in a form without one.
        generate: tokens generated one at a time, from none; 0 in a form without a decoder.
        dtype: type of weights and cache, and of products in training (weights are then fp32).
    """

    batch: int
    target: int
    source: int
    generate: int
    dtype: Dtype

    @property
    def width(self) -> int:
        """Bytes a value."""
        return WIDTH[self.dtype]


def sizes(
    model: ModelConfig,
    batch: int = 1,
    target: int | None = None,
    source: int | None = None,
    generate: int | None = None,
    dtype: str = "fp32",
) -> Sizes:
    """Sizes for a model, where not given the usual ones. Raises UserError when the form or a part has no use
    for them."""
    known, key = longest(model)
    usual = int(min(USUAL, known))
    if dtype not in get_args(Dtype):
        raise UserError(f"{dtype!r} is no type", "--dtype", f"known: {', '.join(get_args(Dtype))}")
    if source is not None and model.form != "encoder_decoder":
        raise UserError(
            f"a model of form {model.form} reads no source", "--source", "give its length by --target"
        )
    if generate and model.form == "encoder":
        raise UserError("an encoder generates nothing", "--generate", "leave it out, or use another form")
    if generate and not model.says_words:
        what = f"a model whose output is {model.output.kind} generates nothing"
        raise UserError(what, "--generate", "leave it out, or set model.output=vocabulary")
    if batch < 1:
        raise UserError(f"{batch} is no size", "--batch", "give 1 or more")
    for name, value, least in (("target", target, 1), ("source", source, 1), ("generate", generate, 0)):
        if value is not None and value < least:
            raise UserError(f"{value} is no size", f"--{name}", f"give {least} or more")
        if value is not None and value > known:
            what = f"{value} tokens are more than the {known} that {key} allows"
            raise UserError(what, f"--{name}", f"give fewer, or set {key}")
    both, decodes = model.form == "encoder_decoder", model.form != "encoder" and model.says_words
    target = (getattr(model.embedding, "tokens", 0) or usual) if target is None else target
    return Sizes(
        batch,
        target,
        (usual if source is None else source) if both else 0,
        (target if generate is None else generate) if decodes else 0,
        dtype,  # type: ignore[arg-type]
    )


def longest(model: ModelConfig) -> tuple[float, str]:
    """Tokens of the longest sequence that all parts take, and the key that says so."""
    return min(((most, key) for key, most in model.limits().items()), default=(math.inf, ""))
