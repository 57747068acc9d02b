"""Texts in, classes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from triptych.engine.lines import are_text
from triptych.engine.rows import Reader
from triptych.model import DecoderOnly, EncoderOnly
from triptych.text import Tokenizer
from triptych.text.characters import is_blank

Text = str | tuple[str, str]


@dataclass(frozen=True)
class Classified:
    """What a text was taken for.

    Attributes:
        label: the likeliest class; empty for a text of nothing to read.
        probability: of that class.
        probabilities: of every class, the likeliest first; empty for a text of nothing to read.
        cut: the end of the text was not read, since the model takes no more.
    """

    label: str
    probability: float
    probabilities: dict[str, float]
    cut: bool = False


BLANK = Classified("", 0.0, {})


class Classifier:
    """Tells classes with a model and its tokenizer. Result n is that of text n.

    Args:
        labels: names of the classes, in the order of the model's outputs.
        max_length: tokens of a text, or of the two texts of a pair together, that the model takes; what is
            beyond is cut, and the result says so.
    """

    def __init__(
        self,
        model: EncoderOnly | DecoderOnly,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        max_length: int = 256,
    ) -> None:
        self.reader, self.labels = Reader(model, tokenizer, max_length), tuple(labels)

    def classify(self, texts: Sequence[Text], first: int = 0) -> list[Classified]:
        """The class of each text, or of each pair of texts; of one that is blank, ``BLANK``.

        Args:
            first: number of the first text in the whole input, for messages.
        """
        are_text(texts if isinstance(texts, str) else (), first)
        for number, text in enumerate(texts, first):
            for part in _parts(text):
                are_text([part], number)
        seen = [i for i, text in enumerate(texts) if not all(map(is_blank, _parts(text)))]
        ids = iter(self.reader.tokenizer.encode_batch([part for i in seen for part in _parts(texts[i])]))
        rows = [self.reader.row([next(ids) for _ in _parts(texts[i])]) for i in seen]
        out = [BLANK] * len(texts)
        for n, logits_K in self.reader.read(rows):
            out[seen[n]] = told(self.labels, logits_K, rows[n].cut)
        return out


def told(labels: Sequence[str], logits_K: Tensor, cut: bool = False) -> Classified:
    """What the logits of classes of these names say."""
    p_K, order = logits_K.softmax(-1).sort(descending=True, stable=True)
    probabilities = dict(zip((labels[k] for k in order.tolist()), p_K.tolist(), strict=True))
    label = next(iter(probabilities))
    return Classified(label, probabilities[label], probabilities, cut)


def _parts(text: Text) -> Sequence[str]:
    assert not isinstance(text, tuple) or len(text) == 2, "one text or two"
    return text if isinstance(text, tuple) else (text,)
