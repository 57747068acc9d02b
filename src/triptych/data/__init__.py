"""ids → batches: padding, token budgets, the order of reading and its cursor."""

from triptych.data.batches import IGNORE, Batch, Cursor, Dataset, ParallelData, pad, translation_batch
from triptych.text.vocabulary import BOS, EOS, PAD, UNK

__all__ = [
    "BOS",
    "EOS",
    "IGNORE",
    "PAD",
    "UNK",
    "Batch",
    "Cursor",
    "Dataset",
    "ParallelData",
    "pad",
    "translation_batch",
]
