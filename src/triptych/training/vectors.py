"""Embeddings that begin with vectors learned elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import nn

from triptych.config import RunConfig, VectorsConfig
from triptych.errors import UserError
from triptych.model.embedding import Embedding
from triptych.text import Tokenizer, piece_vectors, vector_width


def check_width(config: RunConfig) -> None:
    """Refuse vectors that are not as wide as the embedding: before any work is done."""
    if config.text.vectors is None:
        return
    width, needed = vector_width(Path(config.text.vectors.file)), config.model.embedding_dim
    if width != needed:
        own = config.model.embedding.kind == "factorised"
        mend = f"set model.embedding.dim={width}" if own else f"set model.dim={width}, or model.embedding="
        raise UserError(
            f"vectors of {width} values do not fit embeddings of {needed}",
            "text.vectors.file",
            mend if own else f"{mend}{{kind: factorised, dim: {width}}}",
        )


def fill(
    model: nn.Module,
    settings: VectorsConfig,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    say: Callable[[str], None],
) -> None:
    """Give the rows of all embeddings the vectors that the file has for their pieces, and say for how many.

    All vectors are scaled by one factor, to the mean square of the rows they replace: what the model was made
    for stays true, and angles and ratios of lengths are the file's.
    """
    found = piece_vectors(Path(settings.file), tokenizer.pieces(range(tokenizer.size)))
    if not found:
        what = f"none of the {tokenizer.size:,} entries of the vocabulary is in this file"
        raise UserError(what, settings.file, "give vectors of the language, for words or pieces of words")
    place = torch.tensor(list(found))
    rows = torch.from_numpy(np.stack(list(found.values())))
    for weight in _weights(model):
        with torch.no_grad():
            scale = (weight.square().mean() / rows.square().mean()).sqrt()
            weight[place] = (rows.to(weight) * scale).to(weight)
    freeze(model, settings)
    ids = chain.from_iterable(tokenizer.encode_batch(list(texts)))
    running = np.bincount(np.fromiter(ids, np.int64), minlength=tokenizer.size)
    share = running[list(found)].sum() / running.sum()
    end = "; the embedding is frozen" if settings.frozen else ""
    say(f"vectors: {len(found):,} of {tokenizer.size:,} entries, {share:.1%} of running tokens{end}")


def freeze(model: nn.Module, settings: VectorsConfig) -> None:
    """Keep the embeddings as they are, if the settings say so."""
    for weight in _weights(model) if settings.frozen else ():
        weight.requires_grad_(False)


def _weights(model: nn.Module) -> list[nn.Parameter]:
    """Of all embeddings."""
    return [m.weight for m in model.modules() if isinstance(m, Embedding)]
