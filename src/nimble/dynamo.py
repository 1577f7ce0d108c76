"""The other front door: a backend for `torch.compile`.

AOTAutograd hands over functional ATen graphs: one for inference, or a forward and a backward one.
Each becomes an engine that takes its tensors as inputs, parameters included, so nothing is stale.
"""

from __future__ import annotations

import itertools
import logging
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._guards import TracingContext
from torch._ops import OpOverload
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.passes.split_module import split_module
from torch.utils._pytree import tree_leaves

from nimble.capture import Place, Target
from nimble.capture.dtypes import FROM_TORCH
from nimble.capture.operators import why_refused
from nimble.capture.trace import OTHER_DOOR
from nimble.devices import Device
from nimble.engine import Engine
from nimble.errors import MemoryLimitError, NimbleError
from nimble.settings import Settings
from nimble.train.arithmetic import arithmetic

_log = logging.getLogger("nimble")
_numbers = itertools.count()
_NUMBERS = (bool, int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool, type(None))


class Backend:
    """Compiles what Dynamo captured between two graph breaks."""

    def __init__(self, settings: Settings, device: Device) -> None:
        self._settings = settings
        self._device = device
        self._place = Place(device.place, device.runs_python)

    def __call__(self, module: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        compiler = aot_autograd(
            fw_compiler=self._compile,
            bw_compiler=self._compile_backward,
            inference_compiler=self._compile,
            decompositions=arithmetic() if self._device.fuses else {},
        )
        compiled: Callable[..., Any] = compiler(module, example_inputs)
        return compiled

    def _compile_backward(
        self, module: fx.GraphModule, inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        # An engine overwrites nothing that it is given, so backward may come again (retain_graph).
        context = TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            context.fw_metadata.bw_donated_idxs = []
        return self._compile(module, inputs)

    def _compile(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        run: Callable[..., Any]
        run = self._engine(module) if self._replayable(module) else self._split(module)

        def boxed(args: list[Any]) -> Any:
            given = list(args)
            args.clear()
            with torch.no_grad():
                return run(*given)

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    def _engine(self, module: fx.GraphModule) -> Callable[..., Any]:
        name = f"graph{next(_numbers)}"
        # No module behind it: parameters are inputs here. Plans are made at the first call, when
        # sizes that Dynamo left symbolic are known.
        engine = Engine(
            Target(module.forward, {}), name, self._settings, self._device, max_plans=64
        )
        return _Part(engine, module)

    def _split(self, module: fx.GraphModule) -> fx.GraphModule:
        """Run eagerly what no replay can call, and engines between."""
        part, eager = 0, False
        parts: dict[fx.Node, int] = {}
        for node in module.graph.nodes:
            if node.op != "call_function":
                continue
            if node.target is operator.getitem and node.args[0] in parts:
                parts[node] = parts[node.args[0]]
                continue
            if (self._why_eager(node) is not None) != eager:
                part, eager = part + 1, not eager
            parts[node] = part
        # In the order of the graph: parts that need nothing of each other may draw random numbers,
        # or write to what the other reads.
        split = split_module(
            module,
            None,  # type: ignore[arg-type]
            lambda node: parts[node],
            keep_original_order=True,
        )
        for name, child in list(split.named_children()):
            if isinstance(child, fx.GraphModule) and name.startswith("submod_"):
                why = next(filter(None, map(self._why_eager, child.graph.nodes)), None)
                if why is None:
                    setattr(split, name, self._engine(child))
                else:
                    _log.info("%s runs eagerly between engines: %s", name, why)
        return split

    def _replayable(self, module: fx.GraphModule) -> bool:
        nodes = module.graph.nodes
        return all(
            self._why_eager(n) is None if n.op == "call_function" else self._fits(n) for n in nodes
        )

    def _why_eager(self, node: fx.Node) -> str | None:
        """Why this node has to run eagerly; None if an engine can replay it."""
        op = node.target
        if node.op != "call_function" or op is operator.getitem:
            return None
        if not all(map(self._fits, (node, *node.all_input_nodes))):
            here = self._place.device
            return f"{op} has operands that are not dense tensors on {here} of a dtype it knows"
        if not isinstance(op, OpOverload):
            # Arithmetic on sizes is done while an engine captures its part.
            sizes = "val" in node.meta and isinstance(node.meta["val"], _NUMBERS)
            return None if sizes else f"{op} is not an operator of tensors"
        sized_by_data = torch.Tag.dynamic_output_shape in op.tags and free_unbacked_symbols(
            node.meta.get("val")
        )
        if sized_by_data or torch.Tag.data_dependent_output in op.tags:
            return f"what {op} gives depends on data"
        for place, argument in enumerate(op._schema.arguments):
            if argument.name == "storage_offset":
                given = (
                    node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
                )
                if given is not None:
                    return f"{op} looks for a place in a storage, of which an engine sees a part"
        why = why_refused(op, self._place)
        return None if why is None else f"{op}: {why}"

    def _fits(self, node: fx.Node) -> bool:
        """Whether the node's result, as far as it is tensors, can lie in an engine's memory."""
        here = self._place.device
        return all(
            leaf.dtype in FROM_TORCH and leaf.layout is torch.strided and leaf.device == here
            if isinstance(leaf, torch.Tensor)
            else isinstance(leaf, _NUMBERS)
            for leaf in tree_leaves(node.meta.get("val"))
        )


class _Part(nn.Module):
    """An engine, and the graph that it was made from, which runs where no plan can be made."""

    def __init__(self, engine: Engine, eager: fx.GraphModule) -> None:
        super().__init__()
        self._engine: Engine | None = engine
        self._eager = eager

    def forward(self, *args: Any) -> Any:
        if self._engine is not None:
            try:
                return self._engine(*(_plain(arg) for arg in args))
            except MemoryLimitError:
                raise  # The user's own limit, which eager would not keep.
            except NimbleError as error:
                # Raised before anything ran. To use torch.compile is no news here.
                why = str(error).replace(OTHER_DOOR, "").strip()
                _log.warning("%s runs eagerly from now on: %s", self._engine.name, why)
                self._engine = None
        return self._eager(*args)


def _plain(arg: Any) -> Any:
    """Parameters without what makes them parameters: the engine computes no gradients."""
    return arg.detach() if isinstance(arg, torch.Tensor) and arg.requires_grad else arg
