"""Who can take part. A contestant is a function

    load(model, args, kwargs, threads) -> run;   run(tensors) -> results

`args` and `kwargs` are example arguments; `run` takes their tensors, flat and in order. Results are
tensors or NumPy arrays in the model's order, nested as the contestant likes. Modules here import
their peer at the top: what is missing shows before anything is timed, and no import is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import torch

from nimble.errors import InputError
from nimble.targets import find

NIMBLE = "nimble"
KNOWN = ("eager", "torchscript", "compile", "aoti", "onnxruntime", "openvino", "tvm")
TRAINERS = ("eager", "compile")
"""Those of them that can be timed on whole training steps."""
ON_GPU = ("eager", "compile")
"""Those of them that can be timed on a GPU."""
_TRAINERS = "nimble.bench.trainers"
EXTRA = "pip install '.[bench]'"

Run = Callable[[list[torch.Tensor]], Any]


class Load(Protocol):
    def __call__(
        self,
        model: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        threads: int,
    ) -> Run: ...


class MissingError(Exception):
    """A contestant's package is not installed."""


def contestant(name: str, training: bool = False) -> Load:
    """The contestant of that name; `file.py:function` and `module:function` name one's own."""
    if ":" in name:
        own: Load = find(name)
        return own
    if training and name not in (NIMBLE, *TRAINERS):
        raise MissingError("it does not train")
    package = _TRAINERS if training else __name__
    try:
        module = importlib.import_module(f"{package}.{name}")
    except ModuleNotFoundError as error:
        raise MissingError(f"not installed: {error.name} ({EXTRA})") from error
    return cast(Load, module.load)


def check_names(names: Sequence[str]) -> None:
    for name in names:
        if ":" not in name and name not in (NIMBLE, *KNOWN):
            raise InputError(
                f"no contestant {name!r}; expected some of {', '.join(KNOWN)} or file.py:function"
            )
