"""Shared by every test: one thread, fixed seeds, the data folder, hypothesis profiles.

Real data: tests that want it take the ``data_folder`` fixture, or read ``TRIPTYCH_DATA`` themselves,
and skip with a reason without it. ``HYPOTHESIS_PROFILE=explore`` looks further, with fresh examples.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

SEED = 1706

# Workers share the cores: one thread for each, and for the commands that tests start.
torch.set_num_threads(1)
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


class _TorchRandom:
    """Torch's global generator in the shape of ``random.Random``, so that hypothesis resets it for each
    example; otherwise a failing example would not replay."""

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def getstate(self) -> torch.Tensor:
        return torch.get_rng_state()

    def setstate(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


_torch_random = _TorchRandom()  # hypothesis keeps a weak reference only
hypothesis.register_random(_torch_random)

hypothesis.settings.register_profile(
    "ci",
    deadline=None,  # a shared machine makes any deadline a coin toss
    derandomize=True,
    database=None,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Each test starts from the same random state, whatever ran before it in this worker."""
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder with the real data sets, ``TRIPTYCH_DATA``. Skips when it is not set; a path that is
    set but wrong fails, since a skip would hide it."""
    named = os.environ.get("TRIPTYCH_DATA")
    if not named:
        pytest.skip("needs real data: set TRIPTYCH_DATA to the folder with the data sets")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"TRIPTYCH_DATA={named} is not a folder", pytrace=False)
    return folder
