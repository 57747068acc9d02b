"""Text: files, pairs, the audit, group-disjoint splits, tokenizers, sentence splitting, the CLDR corpus."""

from triptych.text.audit import REPORT_ONLY, Audit, Cleaning, clean
from triptych.text.files import (
    iter_lines,
    read_lines,
    write_bytes_atomic,
    write_lines_atomic,
    write_text_atomic,
)
from triptych.text.pairs import Pairs, read_aligned, read_pairs
from triptych.text.sentences import join, split_long
from triptych.text.split import Overlap, Split, group_split, overlap
from triptych.text.tokenizer import Tokenizer, train_tokenizer
from triptych.text.vectors import piece_vectors, vector_width

__all__ = [
    "REPORT_ONLY",
    "Audit",
    "Cleaning",
    "Overlap",
    "Pairs",
    "Split",
    "Tokenizer",
    "clean",
    "group_split",
    "iter_lines",
    "join",
    "overlap",
    "piece_vectors",
    "read_aligned",
    "read_lines",
    "read_pairs",
    "split_long",
    "train_tokenizer",
    "vector_width",
    "write_bytes_atomic",
    "write_lines_atomic",
    "write_text_atomic",
]
