"""torch.cuda is touched in one file: whatever else needs a GPU asks for it by the protocol."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import torch
from cuda_standin import StandIn

import nimble
from nimble.devices.cuda.api import Api
from nimble.devices.cuda.torch_cuda import TorchCuda

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


def test_what_it_uses_exists_in_this_pytorch_and_the_protocol_is_whole() -> None:
    found = 0
    stubs = (Path(torch.__file__).parent / "_C" / "__init__.pyi").read_text()
    for node in ast.walk(ast.parse(THERE.read_text())):
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith(
            ("torch.cuda.", "torch._C.")
        ):
            thing: object = torch
            for name in ast.unparse(node).split(".")[1:]:
                # A build for the CPU lacks some; PyTorch's own stubs name them all.
                assert hasattr(thing, name) or f"def {name}(" in stubs, ast.unparse(node)
                thing = getattr(thing, name, None)
            found += 1
    assert found > 15
    wanted = {name for name in vars(Api) if not name.startswith("_")} - {"place"}
    for api in (TorchCuda, StandIn):
        assert wanted <= vars(api).keys(), api
        for name in wanted:
            mine, theirs = (list(signature(vars(c)[name]).parameters) for c in (api, Api))
            assert mine == theirs, f"{api.__name__}.{name}"
