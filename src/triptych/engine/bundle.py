"""A run on disk as one thing that can be used: configuration, tokenizer, model.

RUN/config.yaml        every setting, as used
RUN/tokenizer/         the tokenizer; none where images are read
RUN/model.safetensors  the weights; its metadata names the tokenizer it belongs to
RUN/labels.json        the names of classes or tags, where the model tells some apart
RUN/checkpoints/ metrics.jsonl report.html data.json: from training
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from triptych.config import DecodingConfig, RunConfig, load_config, to_yaml
from triptych.config.load import standing
from triptych.data import translation_batch
from triptych.engine.classifier import Classifier
from triptych.engine.embedder import Embedder
from triptych.engine.filler import Filler
from triptych.engine.generator import Generator, longest, usual
from triptych.engine.labels import read_labels
from triptych.engine.precision import evaluating
from triptych.engine.tagger import Tagger
from triptych.engine.translator import Translation, Translator
from triptych.engine.viewer import Viewer
from triptych.errors import UserError
from triptych.model import DecoderOnly, EncoderDecoder, EncoderOnly, Model, build, tensors
from triptych.text import Tokenizer, write_bytes_atomic, write_text_atomic
from triptych.text.templates import IM_END

CONFIG, TOKENIZER, MODEL = "config.yaml", "tokenizer", "model.safetensors"


@dataclass(frozen=True)
class Bundle:
    """A model with all that belongs to it."""

    config: RunConfig
    words: Tokenizer | None
    model: Model
    folder: Path | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """That of a model that reads texts."""
        if self.words is None:
            raise self._misfit("this model reads images, and has no tokenizer")
        return self.words

    @cached_property
    def translator(self) -> Translator:
        """Lines in, lines out."""
        if not isinstance(self.model, EncoderDecoder):
            form = self.config.model.form
            raise self._misfit(f"only an encoder–decoder translates, and this model is of form {form}")
        return Translator(self.model, self.tokenizer, self.config.text.target, self.config.data.max_length)

    @cached_property
    def classifier(self) -> Classifier:
        """Texts in, classes out."""
        model, length = self._of_kind("classes"), self.config.data.max_length
        return Classifier(model, self.tokenizer, self._labels(), length)

    @cached_property
    def viewer(self) -> Viewer:
        """Images in, classes out."""
        if self.config.model.reads_ids:
            raise self._misfit("this model reads texts, and no images")
        return Viewer(self._of_kind("classes"), self._labels())

    @cached_property
    def tagger(self) -> Tagger:
        """Sentences in, a tag for each word out."""
        model, length = self._of_kind("tags"), self.config.data.max_length
        return Tagger(model, self.tokenizer, self._labels(), length)

    @cached_property
    def embedder(self) -> Embedder:
        """Texts in, vectors out."""
        return Embedder(self._of_kind("vector"), self.tokenizer, self.config.data.max_length)

    @cached_property
    def generator(self) -> Generator:
        """Prompts in, texts that go on with them out."""
        config = self.config
        if not isinstance(self.model, DecoderOnly):
            raise self._misfit(
                f"only a decoder goes on with a text, and this model is of form {config.model.form}"
            )
        self._of_kind("vocabulary")
        template = getattr(config.objective, "template", "")
        if template == "auto":
            template = "chatml" if IM_END in self.tokenizer.symbols else "alpaca"
        return Generator(
            self.model,
            self.tokenizer,
            "packed" if template else config.data.packing,
            usual(config.decoding),
            longest(config),
            template,
        )

    @cached_property
    def filler(self) -> Filler:
        """Texts with holes in, what may stand in them out."""
        form = self.config.model.form
        if not isinstance(self.model, EncoderOnly):
            raise self._misfit(f"only an encoder fills holes, and this model is of form {form}")
        self._of_kind("vocabulary")
        return Filler(self.model, self.tokenizer)

    @property
    def texts(self) -> int:
        """How many texts, 1 or 2, an example of its training had."""
        return 2 if self.folder and read_json(self.folder / "data.json").get("texts_each") == 2 else 1

    def _of_kind(self, kind: str) -> EncoderOnly | DecoderOnly:
        """The model, when its output is of this kind."""
        if self.config.model.output.kind != kind or isinstance(self.model, EncoderDecoder):
            raise self._misfit(
                f"the output of this model is {self.config.model.output.kind}, and {kind} is needed"
            )
        return self.model

    def _misfit(self, what: str) -> UserError:
        place = str(self.folder or "model.output")
        return UserError(what, place, f"use `triptych {command(self.config)}`, or another run")

    def _labels(self) -> tuple[str, ...]:
        assert self.folder is not None, "names of classes and tags lie in the run's folder"
        return read_labels(self.folder, getattr(self.config.model.output, "count", 0))

    def translate(self, lines: Sequence[str], **decoding: Any) -> list[str]:
        """One translation a line; keyword arguments are settings of ``DecodingConfig``."""
        settings = DecodingConfig.parse({**self.config.decoding.dump(), **decoding})
        return [t.text for t in self.translate_full(lines, settings)]

    def translate_full(
        self, lines: Sequence[str], settings: DecodingConfig | None = None
    ) -> list[Translation]:
        """Translations with scores, tokens and finish reasons."""
        return self.translator.translate(lines, settings or self.config.decoding)

    @torch.inference_mode()
    def logits(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> Tensor:
        """Logits ``[T + 1, V]`` for each next target token, teacher-forced. Ids come without specials."""
        model, device = self.translator.model, self.translator.device
        batch = translation_batch([source_ids], [target_ids], [0]).to(device)
        with evaluating(model):
            logits = model(*batch.given, batch.ids, batch.layout)
        return logits[0]  # type: ignore[no-any-return]

    def save(self, folder: Path) -> None:
        """Write the bundle; each file is whole or absent."""
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomic(folder / CONFIG, to_yaml(self.config))
        if self.words is not None:
            self.words.save(folder / TOKENIZER)
        save_weights(self.model, folder / MODEL, fingerprint(self.words))


def command(config: RunConfig) -> str:
    """The command that a run of these settings is for."""
    if config.objective.kind == "denoise":
        return "train FILE… --init"  # what was learned is to be built upon
    by_output = {"classes": "classify", "tags": "tag", "vector": "embed"}
    by_form = {"encoder_decoder": "translate", "decoder": "generate", "encoder": "fill"}
    return by_output.get(config.model.output.kind, by_form[config.model.form])


def fingerprint(tokenizer: Tokenizer | None) -> str:
    """That of a tokenizer; empty where there is none."""
    return tokenizer.fingerprint if tokenizer is not None else ""


def read_tokenizer(folder: Path, config: RunConfig) -> Tokenizer | None:
    """That of a run; none where images are read."""
    return Tokenizer.load(folder / TOKENIZER) if config.model.reads_ids else None


def save_weights(model: nn.Module, path: Path, tokenizer: str) -> None:
    """Parameters and buffers once (tied ones under their first name), with the tokenizer's fingerprint."""
    own = {name: p.detach().contiguous().cpu() for name, p in tensors(model).items()}
    # One entry: the library writes several in random order, and equal runs are to give equal files.
    write_bytes_atomic(path, to_bytes(own, {"tokenizer": tokenizer}))


def load_weights(model: nn.Module, path: Path) -> str:
    """Fill every parameter and buffer from a file; the fingerprint of its tokenizer. Raises UserError when
    what is in the file is not exactly the model's."""
    own = tensors(model)
    try:
        with safe_open(str(path), framework="pt") as file:
            names = set(file.keys())
            if names != set(own):
                off = sorted(names ^ set(own))
                more = f" and {len(off) - 4} more" if len(off) > 4 else ""
                what = f"parameters do not match the configuration: {', '.join(off[:4])}{more}"
                raise UserError(what, str(path), "config.yaml and model.safetensors are not of one run")
            for name, p in own.items():
                value = file.get_tensor(name)
                if value.shape != p.shape:
                    what = f"{name} is {tuple(value.shape)} in the file, {tuple(p.shape)} by config.yaml"
                    raise UserError(what, str(path), "config.yaml and model.safetensors are not of one run")
                with torch.no_grad():
                    p.copy_(value)
            return str((file.metadata() or {}).get("tokenizer", ""))
    except (SafetensorError, OSError) as error:
        raise UserError(f"cannot be read as weights: {error}", str(path), "copy the run again") from None


def load(run: str | Path) -> Bundle:
    """The bundle of a run folder. Raises UserError naming what is missing or does not fit."""
    folder = Path(run)
    if standing(folder) != "folder":
        raise UserError("this is no run folder", str(folder), "give the folder that `triptych train` wrote")
    config = load_config(folder / CONFIG) if standing(folder / CONFIG) else None
    texts = config is None or config.model.reads_ids
    needed = (CONFIG, *((TOKENIZER,) if texts else ()), MODEL)
    missing = [name for name in needed if not standing(folder / name)]
    if missing or config is None:
        mend = "copy the whole folder"
        if standing(folder / "checkpoints") == "folder" and missing == [MODEL]:
            mend = f"training has not ended; go on with `triptych train {folder} --resume`"
        raise UserError(f"the run lacks {', '.join(missing)}", str(folder), mend)
    tokenizer = read_tokenizer(folder, config)
    if tokenizer is not None and tokenizer.size != config.model.vocab:
        raise UserError(
            f"the tokenizer has {tokenizer.size} entries, the model {config.model.vocab}",
            str(folder),
            "tokenizer/ and config.yaml are not of one run",
        )
    model = build(config.model, seed=0)
    belongs = load_weights(model, folder / MODEL)
    if belongs and belongs != fingerprint(tokenizer):
        raise UserError("the tokenizer is not the one the model was trained with", str(folder / TOKENIZER))
    model.eval()
    return Bundle(config, tokenizer, model, folder)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a run's file; empty when there is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
