"""Networks in bfloat16: Nimble beside PyTorch, eager and compiled. `make bfloat16`.

Writes its table into docs/performance.md. Each network is a factory of this file, as in
`nimble bench --models bench/bfloat16.py:resnet50`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from nimble import zoo
from nimble.bench import Result, Settings

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
MODELS = ["lstm", "resnet50", "bert_tiny", "bert_base", "vit_tiny", "gpt2_step"]
"""Without those whose answers in bfloat16 are too far off for a wrong one to be seen, and without
densenet121, which torch.compile takes minutes for."""
PEERS = {"eager": "eager", "compile": "torch.compile"}
"""ONNX Runtime has no kernels for bfloat16 on a CPU."""


def _made(name: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    model, args = zoo.build(name)
    narrow = (a.to(torch.bfloat16) if a.is_floating_point() else a for a in args)
    return model.to(torch.bfloat16), tuple(narrow)


def __getattr__(name: str) -> Callable[[], tuple[torch.nn.Module, tuple[Any, ...]]]:
    if name in zoo.names():
        return partial(_made, name)
    raise AttributeError(name)


def main(
    out: Annotated[Path, typer.Option(help="where the JSON goes")] = Path("build/bfloat16.json"),
    models: Annotated[str, typer.Option(help="the set")] = ",".join(MODELS),
    seconds: Annotated[float, typer.Option(help="for the rounds of a network")] = 15,
) -> None:
    """Measure, and rewrite the table."""
    from marks import rewrite
    from versus import raced

    settings = Settings(tuple(PEERS), seconds=seconds, timeout=900)
    targets = [f"{__file__}:{name}" for name in models.split(",")]
    rewrite(PAGE, "bfloat16", list(rows(raced(targets, settings, out))))


def rows(result: Result) -> Iterator[str]:
    from performance import where
    from versus import versus

    yield (
        f"{where(result)} Model and inputs in bfloat16. Median milliseconds, each at its better "
        "number of threads. Bold: PyTorch wins, or may win."
    )
    yield ""
    yield from versus(result, PEERS, {model: model.rpartition(":")[2] for model in result.models})


if __name__ == "__main__":
    typer.run(main)
