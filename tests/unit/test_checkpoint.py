"""Checkpoints: whole or absent, able to say that they are damaged, as many as asked, averaged in fp64."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from triptych.errors import UserError
from triptych.text import files
from triptych.training.checkpoint import average, list_checkpoints, newest, save_checkpoint


def _state(mark: float = 0.0) -> dict[str, Any]:
    """What a trainer keeps: tensors of several types, nested plain data."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))], lr=0.1)
    return {
        "model": {"w": torch.full((2, 3), mark), "half": torch.ones(2, dtype=torch.bfloat16)},
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "best": [float("inf"), 0],
        "cursor": {"epoch": 1, "index": 2},
    }


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def _steps(folder: Path) -> list[int]:
    return [c.step for c in list_checkpoints(folder)]


def test_round_trip(tmp_path: Path) -> None:
    state = _state(1.5)
    saved = save_checkpoint(tmp_path / "new" / "folder", 12, state, keep=3)
    read = saved.read()
    assert torch.equal(read["model"]["w"], state["model"]["w"])
    assert read["model"]["half"].dtype == torch.bfloat16
    assert torch.equal(read["rng"], state["rng"])
    assert read["best"] == state["best"] and read["cursor"] == state["cursor"]
    assert read["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
    assert list_checkpoints(tmp_path / "new" / "folder") == [saved]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("good"), 7, _state(), keep=1).path


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 7))
def test_a_flipped_bit_is_seen(good: Path, place: float, bit: int) -> None:
    """Anywhere in the file."""
    data = bytearray(good.read_bytes())
    data[int(place * len(data))] ^= 1 << bit
    _refuse(good, bytes(data))


@given(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=3))
def test_a_cut_or_grown_file_is_seen(good: Path, share: float, more: bytes) -> None:
    data = good.read_bytes()
    _refuse(good, data[: int(share * len(data))])
    _refuse(good, data + more)


def _refuse(good: Path, damaged: bytes) -> None:
    folder = good.parent / "damaged"
    folder.mkdir(exist_ok=True)
    (folder / good.name).write_bytes(damaged)
    (found,) = list_checkpoints(folder)
    with pytest.raises(UserError, match="damaged") as caught:
        found.read()
    assert caught.value.where == str(folder / good.name)
    assert newest(folder)[0] is None


def test_newest_passes_over_the_damaged(tmp_path: Path) -> None:
    """And says which; none at all when none is whole."""
    saved = [save_checkpoint(tmp_path, step, _state(step), keep=9) for step in (1, 2, 3, 10)]
    found, state, passed = newest(tmp_path)
    assert found == saved[3] and state is not None and passed == []
    assert float(state["model"]["w"][0, 0]) == 10
    saved[3].path.write_bytes(saved[3].path.read_bytes()[:-1])
    saved[2].path.write_bytes(b"")
    found, state, passed = newest(tmp_path)
    assert found == saved[1] and state is not None and float(state["model"]["w"][0, 0]) == 2
    assert len(passed) == 2 and saved[3].path.name in passed[0] and saved[2].path.name in passed[1]
    for c in saved[:2]:
        c.path.write_bytes(b"?")
    found, state, passed = newest(tmp_path)
    assert found is state is None and len(passed) == 4


def test_no_folder() -> None:
    assert newest(Path("no/such/folder")) == (None, None, [])


def test_what_is_no_checkpoint_is_passed_over(tmp_path: Path) -> None:
    saved = save_checkpoint(tmp_path, 5, _state(), keep=1)
    for name in (".1234.tmp", "step-000009.pt", "step-9-0123.pt", f"{saved.path.name}.bak", "notes.txt"):
        (tmp_path / name).write_text("x")
    assert list_checkpoints(tmp_path) == [saved]
    save_checkpoint(tmp_path, 6, _state(), keep=1)
    assert "notes.txt" in _names(tmp_path) and _steps(tmp_path) == [6]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.lists(st.integers(0, 2_000_000), min_size=1, max_size=8, unique=True), st.integers(1, 4))
def test_keeps_the_newest(tmp_path_factory: pytest.TempPathFactory, steps: list[int], keep: int) -> None:
    """Steps of more digits than the name has room for, too."""
    folder = tmp_path_factory.mktemp("kept")
    for step in sorted(steps):
        save_checkpoint(folder, step, {"step": step}, keep)
        assert newest(folder)[1] == {"step": step}
    assert _steps(folder) == sorted(steps)[-keep:]


def test_keeps_the_best_beside(tmp_path: Path) -> None:
    for step in range(1, 7):
        save_checkpoint(tmp_path, step, _state(), keep=2, best=min(step, 2))
    assert _steps(tmp_path) == [2, 5, 6]
    save_checkpoint(tmp_path, 7, _state(), keep=2, best=7)
    assert _steps(tmp_path) == [6, 7]


def test_a_step_saved_again_replaces(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 4, _state(1), keep=3)
    again = save_checkpoint(tmp_path, 4, _state(2), keep=3)
    assert list_checkpoints(tmp_path) == [again]


def test_a_damaged_later_one_does_not_push_out_the_new(tmp_path: Path) -> None:
    """A run that went back past a damaged checkpoint keeps what it saves from then on."""
    save_checkpoint(tmp_path, 100, _state(), keep=1)
    late = save_checkpoint(tmp_path, 500, _state(), keep=2)
    late.path.write_bytes(b"cut")
    for step in (200, 300):
        saved = save_checkpoint(tmp_path, step, _state(step), keep=1)
        assert saved.path.exists() and newest(tmp_path)[0] == saved
    assert 100 not in _steps(tmp_path) and 200 not in _steps(tmp_path)


def test_saving_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: the old one stays and is whole, and nothing half is left behind."""
    old = save_checkpoint(tmp_path, 1, _state(), keep=1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UserError, match="No space left"):
        save_checkpoint(tmp_path, 2, _state(), keep=1)
    assert _names(tmp_path) == [old.path.name]
    old.read()


def test_old_ones_go_only_after_the_new_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at any moment, a whole checkpoint is on disk."""
    save_checkpoint(tmp_path, 1, _state(), keep=1)
    seen: list[list[int]] = []
    unlink = Path.unlink

    def watched(path: Path, missing_ok: bool = False) -> None:
        seen.append(_steps(tmp_path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", watched)
    save_checkpoint(tmp_path, 2, _state(), keep=1)
    assert seen and all(2 in steps for steps in seen)


def test_nothing_but_data_is_loaded(tmp_path: Path) -> None:
    """A checkpoint from elsewhere cannot run code; it is passed over like a damaged one."""
    import hashlib
    import io

    class Harm:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "harm"),))

    buffer = io.BytesIO()
    torch.save({"model": Harm()}, buffer)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()[:16]
    (tmp_path / f"step-000001-{digest}.pt").write_bytes(buffer.getvalue())
    found, state, passed = newest(tmp_path)
    assert found is state is None and len(passed) == 1
    assert not (tmp_path / "harm").exists()


# -- averaging


@given(st.integers(1, 5), st.integers(0, 1000))
def test_average(count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    states = [
        {"a": torch.randn(3, 2, generator=generator), "b": torch.randn(4, generator=generator)}
        for _ in range(count)
    ]
    mean = average(states)
    for name in ("a", "b"):
        exact = torch.stack([s[name].double() for s in states]).mean(0)
        assert mean[name].dtype == torch.float32
        assert torch.equal(mean[name], exact.float())


def test_average_is_in_fp64() -> None:
    """Summed in fp32 or bf16, small differences would be lost."""

    def one(*values: float, dtype: torch.dtype = torch.float32) -> list[dict[str, Tensor]]:
        return [{"w": torch.tensor([v], dtype=dtype)} for v in values]

    assert float(average(one(1e8, 1.0, -1e8, 3.0))["w"]) == 1.0
    low = average(one(256.0, 1.0, 1.0, 1.0, 1.0, dtype=torch.bfloat16))["w"]
    assert low.dtype == torch.bfloat16 and float(low) == 52.0


def test_average_leaves_its_input_alone() -> None:
    states = [{"w": torch.tensor([1.0])}, {"w": torch.tensor([3.0])}]
    assert float(average(states)["w"]) == 2.0
    assert [float(s["w"]) for s in states] == [1.0, 3.0]
