"""Images in, classes out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from triptych.config.parts import PatchEmbedding
from triptych.data.images import Pixels, read_image, tokens
from triptych.engine.classifier import Classified, told
from triptych.engine.precision import evaluating
from triptych.engine.rows import TOKENS
from triptych.errors import UserError
from triptych.layout import Layout
from triptych.model import DecoderOnly, EncoderOnly


class Viewer:
    """Tells classes of images with a model that reads patches. Result n is that of image n.

    Args:
        labels: names of the classes, in the order of the model's outputs.
    """

    def __init__(self, model: EncoderOnly | DecoderOnly, labels: Sequence[str]) -> None:
        assert isinstance(model.config.embedding, PatchEmbedding)
        self.model, self.labels, self.settings = model, tuple(labels), model.config.embedding
        self.size = (self.settings.height, self.settings.width, self.settings.channels)

    def read(self, files: Sequence[Path]) -> Pixels:
        """``[N, H, W, Z]`` of image files, at the size the model takes. Raises UserError for one that cannot
        be read."""
        read = [read_image(file, self.settings) for file in files]
        return np.array(read, np.uint8).reshape(-1, *self.size)

    @torch.inference_mode()
    def classify(self, pixels_NHWZ: Pixels) -> list[Classified]:
        """The class of each image, of pixels from 0 to 255."""
        if pixels_NHWZ.shape[1:] != self.size:
            what = f"images of {pixels_NHWZ.shape[1:]}, and the model reads {self.size}"
            raise UserError(what, "height, width, channels", "read them with Viewer.read")
        device = next(self.model.parameters()).device
        count, out = max(1, TOKENS // self.settings.tokens), list[Classified]()
        for begin in range(0, len(pixels_NHWZ), count):
            some = torch.from_numpy(pixels_NHWZ[begin : begin + count]).to(device)
            shown = tokens(some, self.settings)
            layout = Layout.full(len(shown), shown.shape[1], device)
            with evaluating(self.model):
                said = self.model(shown, layout).float().cpu()
            out += [told(self.labels, logits_K) for logits_K in said]
        return out
