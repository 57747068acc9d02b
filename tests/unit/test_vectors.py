"""Embeddings that begin with vectors learned elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from triptych.config import RunConfig, VectorsConfig, load_config
from triptych.data import ParallelData
from triptych.errors import UserError
from triptych.model import EncoderDecoder, build
from triptych.text import Tokenizer, train_tokenizer
from triptych.training.loop import Trainer
from triptych.training.monitor import Monitor
from triptych.training.vectors import check_width, fill

TEXT = ["the cat sees the dog", "a dog sees a cat", "the cat and the dog"] * 4
WORDS = {"the": [3.0, 0.0, 0.0, 4.0], "cat": [0.0, 1.0, 0.0, 0.0], "zebra": [9.0, 9.0, 9.0, 9.0]}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXT, kind="bpe", size=60, shrink=True, byte_fallback=False)


def write(folder: Path, words: dict[str, list[float]]) -> VectorsConfig:
    path = folder / "v.txt"
    path.write_text("".join(f"{w} {' '.join(map(str, row))}\n" for w, row in words.items()), encoding="utf-8")
    return VectorsConfig(file=str(path))


def run_config(vectors: VectorsConfig, vocab: int, **model: Any) -> RunConfig:
    settings = {"dim": 4, "heads": 1, "layers": 1, "vocab": vocab, "dropout": 0.0, **model}
    data = {"tokens": 64}
    training = {"steps": 4, "precision": "fp32", "optimizer": {"weight_decay": 0.1}}
    return load_config(
        {"model": settings, "text": {"vectors": vectors.dump()}, "data": data, "training": training}
    )


@pytest.mark.parametrize("tie", ["none", "decoder", "all"])
@pytest.mark.parametrize("embedding", ["table", {"kind": "factorised", "dim": 4}])
def test_rows_are_the_files_up_to_one_factor(
    tmp_path: Path, tokenizer: Tokenizer, tie: str, embedding: Any
) -> None:
    vectors = write(tmp_path, WORDS)
    model: Any = build(run_config(vectors, tokenizer.size, tie=tie, embedding=embedding).model, seed=1)
    before = {id(m): m.weight.detach().clone() for m in (model.source_embedding, model.target_embedding)}
    said: list[str] = []
    fill(model, vectors, tokenizer, TEXT, said.append)
    pieces = tokenizer.pieces(range(tokenizer.size))
    known = [i for i, piece in enumerate(pieces) if piece.removeprefix("▁") in WORDS]
    rows = torch.tensor([WORDS[pieces[i].removeprefix("▁")] for i in known])
    assert len(known) >= 2
    for m in (model.source_embedding, model.target_embedding):
        old, weight = before[id(m)], m.weight.detach()
        scale = (old.square().mean() / rows.square().mean()).sqrt()
        torch.testing.assert_close(weight[known], scale * rows)
        others = [i for i in range(tokenizer.size) if i not in known]
        assert torch.equal(weight[others], old[others]) and m.weight.requires_grad
    ids = [i for row in tokenizer.encode_batch(TEXT) for i in row]
    share = sum(i in known for i in ids) / len(ids)
    assert 0.3 < share < 0.8
    assert said == [f"vectors: {len(known)} of {tokenizer.size} entries, {share:.1%} of running tokens"]


def test_frozen_rows_stay(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """No gradient, no decay; all else learns, the output map too."""
    vectors = write(tmp_path, WORDS).model_copy(update={"frozen": True})
    config = run_config(vectors, tokenizer.size, tie="none")
    model = build(config.model, seed=1)
    assert isinstance(model, EncoderDecoder)
    ids, said = tokenizer.encode_batch(TEXT), list[str]()
    data = ParallelData(ids, ids, 64)
    fill(model, vectors, tokenizer, TEXT, said.append)
    assert "frozen" in said[0]
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    trainer = Trainer(config, model, data, data, tmp_path, Monitor(tmp_path, quiet=True))
    trainer.run()
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    still = {"source_embedding.weight", "target_embedding.weight"}
    assert set(before) - moved == still and "output.weight" in moved


def test_a_frozen_output_is_refused(tmp_path: Path) -> None:
    vectors = {"file": "v.txt", "frozen": True}
    for tie in ("all", "decoder"):
        with pytest.raises(UserError) as caught:
            load_config({"model": {"tie": tie}, "text": {"vectors": vectors}})
        assert caught.value.where == "text.vectors.frozen" and "tie=none" in caught.value.mend
    load_config({"model": {"tie": "none"}, "text": {"vectors": vectors}})


def test_another_width_is_refused(tmp_path: Path) -> None:
    vectors = write(tmp_path, WORDS)
    with pytest.raises(UserError, match="vectors of 4 values do not fit embeddings of 8") as caught:
        check_width(run_config(vectors, 60, dim=8))
    assert caught.value.where == "text.vectors.file"
    assert "model.dim=4" in caught.value.mend and "factorised, dim: 4" in caught.value.mend
    with pytest.raises(UserError, match="do not fit") as caught:
        check_width(run_config(vectors, 60, dim=8, embedding={"kind": "factorised", "dim": 6}))
    assert caught.value.mend == "set model.embedding.dim=4"
    check_width(run_config(vectors, 60, dim=8, embedding={"kind": "factorised", "dim": 4}))
    check_width(RunConfig())


def test_vectors_of_nothing_we_know_are_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    vectors = write(tmp_path, {"zebra": [1.0, 2.0, 3.0, 4.0]})
    model = build(run_config(vectors, tokenizer.size).model, seed=1)
    with pytest.raises(UserError, match="none of the"):
        fill(model, vectors, tokenizer, TEXT, print)
