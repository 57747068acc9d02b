"""Text: files, pairs, documents, labelled and tagged text, conversations, the audit, splits, tokenizers."""

from triptych.text.audit import REPORT_ONLY, Audit, Cleaning, clean
from triptych.text.conll import Tagged, check_bio, read_conll
from triptych.text.dialogues import Dialogue, Dialogues, read_dialogues
from triptych.text.documents import Chunk, Documents, encode_documents, read_documents
from triptych.text.files import (
    iter_lines,
    read_lines,
    write_bytes_atomic,
    write_lines_atomic,
    write_text_atomic,
)
from triptych.text.labelled import Labelled, read_labelled
from triptych.text.pairs import Pairs, read_aligned, read_pairs
from triptych.text.sentences import join, split_long
from triptych.text.split import Overlap, Split, group_split, overlap
from triptych.text.tokenizer import Tokenizer, train_tokenizer
from triptych.text.vectors import piece_vectors, vector_width

__all__ = [
    "REPORT_ONLY",
    "Audit",
    "Chunk",
    "Cleaning",
    "Dialogue",
    "Dialogues",
    "Documents",
    "Labelled",
    "Overlap",
    "Pairs",
    "Split",
    "Tagged",
    "Tokenizer",
    "check_bio",
    "clean",
    "encode_documents",
    "group_split",
    "iter_lines",
    "join",
    "overlap",
    "piece_vectors",
    "read_aligned",
    "read_conll",
    "read_dialogues",
    "read_documents",
    "read_labelled",
    "read_lines",
    "read_pairs",
    "split_long",
    "train_tokenizer",
    "vector_width",
    "write_bytes_atomic",
    "write_lines_atomic",
    "write_text_atomic",
]
