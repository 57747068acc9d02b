"""Training throughput: ours against a Marian-shaped transformers model, same width, depth and batches.

Both run bf16 autocast and fused AdamW on the same token-budget batches. They take turns of some seconds each,
so that both meet the same machine; the ratio is what counts.

usage: throughput.py TRAIN.tsv [--seconds 60] [--turns 3]
"""

from __future__ import annotations

import os

os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from triptych.config import load_config, preset
from triptych.data import Batch, Cursor, ParallelData
from triptych.model import build
from triptych.objectives import TokenLoss
from triptych.text import read_pairs, train_tokenizer
from triptych.training.machine import keep_memory, prefer_fast_fp32


def step_of(model: nn.Module, loss_of: Callable[[Batch], torch.Tensor]) -> Callable[[Batch], None]:
    """One training step of a model."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, weight_decay=0, fused=True
    )

    def step(batch: Batch) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def ours(vocab: int) -> Callable[[Batch], None]:
    config = load_config(preset("small"), [f"model.vocab={vocab}"])
    model = build(config.model, seed=1)
    objective = TokenLoss(config.objective)
    assert sum(1 for _ in model.parameters())

    def loss(batch: Batch) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            found = objective.loss(model, batch)  # type: ignore[arg-type]
        return found.sum / found.count

    return step_of(model.train(), loss)


def marian(vocab: int) -> Callable[[Batch], None]:
    from transformers import MarianConfig, MarianMTModel

    model = MarianMTModel(
        MarianConfig(
            vocab_size=vocab, d_model=256, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, pad_token_id=0,
            eos_token_id=3, decoder_start_token_id=2, bos_token_id=2, activation_function="relu", dropout=0.1,
            attention_dropout=0.0, scale_embedding=True, max_position_embeddings=512,
            forced_eos_token_id=None,
        )
    )  # fmt: skip

    def loss(batch: Batch) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(
                input_ids=batch.source,
                attention_mask=batch.source_layout.real.long(),
                decoder_input_ids=batch.ids,
            ).logits
        total = F.cross_entropy(
            logits.float().flatten(0, 1),
            batch.targets.flatten(),
            ignore_index=0,
            label_smoothing=0.1,
            reduction="sum",
        )
        return total / batch.layout.real.sum()

    return step_of(model.train(), loss)


def main() -> None:
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("train", type=Path)
    parse.add_argument("--seconds", type=float, default=60)
    parse.add_argument("--turns", type=int, default=3)
    given = parse.parse_args()
    keep_memory()
    prefer_fast_fp32()
    pairs = read_pairs([given.train])
    tokenizer = train_tokenizer([*pairs.source, *pairs.target], kind="bpe", size=8000)
    data = ParallelData(tokenizer.encode_batch(pairs.source), tokenizer.encode_batch(pairs.target), 2048)
    print(
        f"{len(data):,} pairs, padding {data.padding():.1%}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads"
    )
    contestants = {"triptych": ours(tokenizer.size), "transformers": marian(tokenizer.size)}
    tokens, seconds = dict.fromkeys(contestants, 0), dict.fromkeys(contestants, 0.0)
    for turn, (name, step) in itertools.product(range(given.turns), contestants.items()):
        batches = data.read(Cursor(epoch=turn))
        for _ in range(3):
            step(next(batches)[0])
        start = time.perf_counter()
        while time.perf_counter() - start < given.seconds / given.turns:
            batch, _ = next(batches)
            step(batch)
            tokens[name] += int(batch.layout.real.sum())
        seconds[name] += time.perf_counter() - start
    speed = {name: tokens[name] / seconds[name] for name in contestants}
    for name, each in speed.items():
        print(f"{name:>13}  {each:7,.0f} target tokens a second")
    print(f"ratio {speed['triptych'] / speed['transformers']:.2f}")


if __name__ == "__main__":
    main()
