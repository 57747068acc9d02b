"""Drawn shapes, told apart by an encoder of patches: accuracy on those held out, by the usual command.

    python benchmarks/images.py [section.key=value …]

Circles, squares, triangles and crosses of random colours, sizes and places, with noise: 500 of each, 32 × 32.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

EACH, SIDE, SEED, BUDGET = 500, 32, 1, "2m"
KINDS = ("circle", "square", "triangle", "cross")


def drawn(kind: str, rng: np.random.Generator) -> Image.Image:
    """One shape on a ground of another colour."""
    ground, colour = (tuple(map(int, rng.integers(0, 256, 3))) for _ in range(2))
    radius = rng.uniform(0.18, 0.35) * SIDE
    x, y = rng.uniform(radius, SIDE - radius, 2)
    left, right, top, bottom = x - radius, x + radius, y - radius, y + radius
    image = Image.new("RGB", (SIDE, SIDE), ground)
    pen = ImageDraw.Draw(image)
    if kind == "circle":
        pen.ellipse((left, top, right, bottom), fill=colour)
    elif kind == "square":
        pen.rectangle((left, top, right, bottom), fill=colour)
    elif kind == "triangle":
        pen.polygon([(x, top), (left, bottom), (right, bottom)], fill=colour)
    else:
        pen.line((left, y, right, y), fill=colour, width=SIDE // 9)
        pen.line((x, top, x, bottom), fill=colour, width=SIDE // 9)
    noisy = np.asarray(image, np.int64) + rng.integers(-20, 21, (SIDE, SIDE, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def main() -> None:
    rng = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as home:
        for kind in KINDS:
            folder = Path(home) / "shapes" / kind
            folder.mkdir(parents=True)
            for i in range(EACH):
                drawn(kind, rng).save(folder / f"{i:03d}.png")
        command = ["train", "shapes", "--objective", "classify", "--budget", BUDGET, "--out", "run"]
        command = [sys.executable, "-m", "triptych", *command, *sys.argv[1:]]
        done = subprocess.run(command, cwd=home, check=True, capture_output=True, text=True)
    wanted = ("model:", "data:", "kept:", "accuracy", "validation", *KINDS)
    for line in (done.stderr + done.stdout).splitlines():
        if line.startswith(wanted) or " images to train on" in line:
            print(line)


if __name__ == "__main__":
    main()
