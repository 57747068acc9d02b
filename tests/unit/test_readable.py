"""What keeps ``triptych.model`` readable, measured on its source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import triptych.model

ROOM = Path(triptych.model.__file__).parent
FILES = sorted(ROOM.rglob("*.py"))
ATTENTION = ["attend", "attention", "blocks", "heads", "scores", "sparse", "visible", "positions/*"]


def lines(path: Path) -> int:
    """Lines that are not blank, comments and docstrings included."""
    return sum(bool(line.strip()) for line in path.read_text(encoding="utf-8").splitlines())


def test_the_room_is_small() -> None:
    assert sum(map(lines, FILES)) < 4000


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOM).as_posix())
def test_a_file_fits_a_head_and_a_constructor_a_line(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            assert len(node.args.args) + len(node.args.kwonlyargs) - 1 <= 12


def test_attention_branches_little() -> None:
    """Statements that branch: three in a hundred lines at most, on average."""
    paths = [path for name in ATTENTION for path in ROOM.glob(f"{name}.py")]
    assert len(paths) > 10
    texts = [path.read_text(encoding="utf-8") for path in paths]
    branches = sum(isinstance(node, ast.If) for text in texts for node in ast.walk(ast.parse(text)))
    total = sum(text.count("\n") for text in texts)
    assert 100 * branches <= 3 * total, f"{branches} in {total} lines"
