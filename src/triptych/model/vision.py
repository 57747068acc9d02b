"""Images through the same encoder: a sequence of patches (ViT; Dosovitskiy et al. 2021, section 3.1).

    image ─ cut in patches, row by row ─ one linear map ─┬─ + positions ─ encoder ─ pool ─ head → logits
                                  (class token at the end) ┘
B images, Z channels, P side of a patch, N patches, C model width.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from triptych.config import ModelConfig, parts
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import grids as grids  # registers them
from triptych.model.dropout import Dropout
from triptych.model.registry import Cost, Shape, linear_cost
from triptych.model.stack import Stack, fresh, stack_costs


def patches(image_BZHW: Tensor, side: int) -> Tensor:
    """``[B, N, Z·P·P]``: patches row by row, each channel by channel and row by row."""
    cut = image_BZHW.unfold(2, side, side).unfold(3, side, side)  # [B, Z, rows, columns, P, P]
    return cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


class ImageClassifier(nn.Module):
    """An encoder over patches at positions row · columns + column. It ends in the mean of its outputs, or in
    that of a class token, which stands behind the last patch and belongs to no grid.

    Args:
        model: of form encoder; ``vocab`` does not matter.
        patch: side of a patch in pixels. size: height and width of an image.
    """

    def __init__(
        self,
        model: ModelConfig,
        patch: int,
        size: tuple[int, int],
        classes: int,
        channels: int = 3,
        pool: Literal["class", "mean"] = "class",
    ) -> None:
        super().__init__()
        rows, columns = (pixels // patch for pixels in size)
        _check(model, patch, size, pool)
        self.patch, self.tokens = patch, rows * columns + (pool == "class")
        self.embed = nn.Linear(channels * patch * patch, model.dim)
        self.token = nn.Parameter(torch.randn(model.dim) * 0.02) if pool == "class" else None
        self.dropout = Dropout(model.dropout)
        self.encoder = Stack(model, causal=False)
        self.head = nn.Linear(model.dim, classes)
        fresh(self.embed)
        fresh(self.head)
        self.config = model

    def cost(self, batch: int = 1) -> Cost:
        """Parameters, and operations of the matrix products for ``batch`` images."""
        N = self.tokens - (self.token is not None)
        total = linear_cost(batch * N, self.embed.in_features, self.embed.out_features, True)
        total += Cost(0 if self.token is None else self.config.dim)
        total += linear_cost(batch, self.config.dim, self.head.out_features, True)
        shape = Shape(batch, self.tokens, self.tokens)
        return sum(stack_costs(self.config, False, shape).values(), total)

    def forward(self, image_BZHW: Tensor, aux: list[Tensor] | None = None) -> Tensor:
        """Logits ``[B, classes]``. ``aux``: where parts put what is to be added to the loss."""
        x = self.embed(patches(image_BZHW, self.patch))
        if self.token is not None:
            x = torch.cat((x, self.token.expand(len(x), 1, -1)), 1)
        layout = Layout.full(len(x), x.shape[1], x.device)
        x = self.dropout(self.encoder.position.embed(x, layout))
        y = self.encoder(x, layout, aux=aux)
        logits: Tensor = self.head(y.mean(1) if self.token is None else y[:, -1])
        return logits


def _check(model: ModelConfig, patch: int, size: tuple[int, int], pool: str) -> None:
    """Refuse what does not fit together."""
    if model.form != "encoder":
        raise UserError(f"{model.form} reads no images", "model.form", "use encoder")
    if size[0] % patch or size[1] % patch:
        what = f"{size[0]} × {size[1]} pixels are no whole patches of {patch}"
        raise UserError(what, "size", "crop or pad images, or choose another patch")
    columns = size[1] // patch
    for part in _grids((*model.mixers("encoder"), *model.sights("encoder"))):
        if part.width != columns:
            what = f"a grid of {part.width} columns, and the image has {columns}"
            raise UserError(what, part.section, f"set width: {columns}")
        if pool == "class":
            raise UserError("a class token stands on no grid", "pool", "use pool='mean'")


def _grids(choices: Iterable[Any]) -> Iterator[parts.Grid]:
    """Those of the choices that go by rows and columns, and those within them."""
    for part in choices:
        if isinstance(part, parts.Grid):
            yield part
        yield from _grids(getattr(part, "of", ()))
        yield from _grids([part.beside] if hasattr(part, "beside") else ())
