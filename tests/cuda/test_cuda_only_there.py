"""torch.cuda is touched in one file: whatever else needs a GPU asks for it by the protocol."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import nimble

SOURCE = Path(nimble.__file__).parent
THERE = SOURCE / "devices" / "cuda" / "torch_cuda.py"


def touches(tree: ast.AST) -> Iterator[int]:
    """Lines with `torch.cuda`, `import torch.cuda`, `from torch import cuda` and the like."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "cuda":
            if isinstance(node.value, ast.Name) and node.value.id == "torch":
                yield node.lineno
        elif isinstance(node, ast.Import):
            if any(alias.name.startswith("torch.cuda") for alias in node.names):
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {alias.name for alias in node.names}
            if node.module.startswith("torch.cuda") or (node.module == "torch" and "cuda" in names):
                yield node.lineno


def test_only_one_file_touches_torch_cuda() -> None:
    found = {
        path: lines
        for path in SOURCE.rglob("*.py")
        if (lines := list(touches(ast.parse(path.read_text()))))
    }
    assert found.pop(THERE), "the one that may"
    assert not found


def test_the_search_finds_every_spelling() -> None:
    for text in ("torch.cuda.Stream()", "import torch.cuda", "from torch import cuda",
                 "from torch.cuda import Stream"):  # fmt: skip
        assert list(touches(ast.parse(text)))
    assert not list(touches(ast.parse("import torch\ntorch.cpu.Stream()")))
