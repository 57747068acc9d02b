"""ids → batches: padding, token budgets, the order of reading and its cursor."""

from triptych.data.batches import Cursor, ParallelData, TranslationBatch, pad, translation_batch
from triptych.text.vocabulary import BOS, EOS, PAD, UNK

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Cursor",
    "ParallelData",
    "TranslationBatch",
    "pad",
    "translation_batch",
]
