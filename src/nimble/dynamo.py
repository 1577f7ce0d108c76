"""The other front door: a backend for `torch.compile`.

AOTAutograd hands over functional ATen graphs: one for inference, or a forward and a backward one.
Each becomes an engine that takes its tensors as inputs, parameters included, so nothing is stale.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._ops import OpOverload
from torch.fx.passes.split_module import split_module

from nimble.capture.operators import why_refused
from nimble.capture.trace import Target
from nimble.engine import Engine
from nimble.plan import Settings

_numbers = itertools.count()


class Backend:
    """Compiles what Dynamo captured between two graph breaks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, module: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        compiler = aot_autograd(
            fw_compiler=self._compile, bw_compiler=self._compile, inference_compiler=self._compile
        )
        compiled: Callable[..., Any] = compiler(module, example_inputs)
        return compiled

    def _compile(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        run: Callable[..., Any]
        if any(_refused(node) for node in module.graph.nodes):
            run = self._split(module)
        else:
            run = self._engine(module)

        def boxed(args: list[Any]) -> Any:
            given = list(args)
            args.clear()
            return run(*given)

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    def _engine(self, module: fx.GraphModule) -> Callable[..., Any]:
        name = f"graph{next(_numbers)}"
        # No module behind it: parameters are inputs here. Plans are made at the first call, when
        # sizes that Dynamo left symbolic are known.
        engine = Engine(Target(module.forward, {}), name, self._settings, max_plans=64)

        def run(*args: Any) -> Any:
            with torch.no_grad():
                return engine(*(_plain(arg) for arg in args))

        return run

    def _split(self, module: fx.GraphModule) -> fx.GraphModule:
        """Run operators that no replay can call eagerly, and engines between them."""
        part, eager = 0, False
        parts: dict[fx.Node, int] = {}
        for node in module.graph.nodes:
            if node.op != "call_function":
                continue
            if node.target is operator.getitem and node.args[0] in parts:
                parts[node] = parts[node.args[0]]
                continue
            if _refused(node) != eager:
                part, eager = part + 1, not eager
            parts[node] = part
        split = split_module(module, None, lambda node: parts[node])  # type: ignore[arg-type]
        for name, child in list(split.named_children()):
            if isinstance(child, fx.GraphModule) and not any(map(_refused, child.graph.nodes)):
                setattr(split, name, _Part(self._engine(child)))
        return split


class _Part(torch.nn.Module):
    """An engine in the place of a submodule."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self._run = run

    def forward(self, *args: Any) -> Any:
        return self._run(*args)


def _refused(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and why_refused(node.target) is not None


def _plain(arg: Any) -> Any:
    """Parameters without what makes them parameters: the engine computes no gradients."""
    return arg.detach() if isinstance(arg, torch.Tensor) and arg.requires_grad else arg
