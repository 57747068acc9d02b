"""ids → batches: padding, token budgets, packing, hiding, the order of reading and its cursor."""

from triptych.data.batches import IGNORE, Batch, Cursor, Dataset, ParallelData, pad, translation_batch
from triptych.data.frames import Frame
from triptych.data.instruction import InstructionData
from triptych.data.labelled import ClassData, PairData, TagData
from triptych.data.masking import Facts, MaskedData
from triptych.data.running import PackedData, StreamData
from triptych.data.show import show
from triptych.data.spans import SpanData, sentinel_ids
from triptych.data.store import Encoded, TokenStore
from triptych.text.vocabulary import BOS, EOS, PAD, UNK

__all__ = [
    "BOS",
    "EOS",
    "IGNORE",
    "PAD",
    "UNK",
    "Batch",
    "ClassData",
    "Cursor",
    "Dataset",
    "Encoded",
    "Facts",
    "Frame",
    "InstructionData",
    "MaskedData",
    "PackedData",
    "PairData",
    "ParallelData",
    "SpanData",
    "StreamData",
    "TagData",
    "TokenStore",
    "pad",
    "sentinel_ids",
    "show",
    "translation_batch",
]
