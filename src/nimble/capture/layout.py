"""Which types do eager's results have? Kernels know; shape functions are at times mistaken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import has_free_symbols
from torch.utils._pytree import tree_leaves, tree_map_only

from nimble.capture.blame import at_line, first_line, line_of_call
from nimble.capture.operators import CPU, Place
from nimble.errors import CaptureError

aten = torch.ops.aten


def eager_strides(
    module: fx.GraphModule, tensors: Sequence[Any], outputs: int, place: Place = CPU
) -> list[tuple[int, ...] | None]:
    """The strides of the first `outputs` results of `module`, run once operator by operator.

    Nodes for which PyTorch's shape functions promised another dtype or shape than the kernels gave
    have their `meta["val"]` corrected, and so have those computed from them.
    """
    with torch.no_grad(), torch.random.fork_rng(devices=place.generators):
        results = _Run(module, outputs).run(*tensors)[:outputs]
    return [r.stride() if isinstance(r, torch.Tensor) else None for r in results]


class _Run(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, outputs: int) -> None:
        super().__init__(module)
        self.extra_traceback = False  # Ours says it in a line.
        end = module.graph.output_node()
        asked = {leaf for leaf in tree_leaves(end.args)[:outputs] if isinstance(leaf, fx.Node)}
        self._unasked = {n for n in end.all_input_nodes if set(n.users) == {end}} - asked
        """States as they would be afterwards: as large as the model, and looked at by nobody."""
        self._corrected: set[fx.Node] = set()
        fakes = (leaf for n in module.graph.nodes for leaf in tree_leaves(n.meta.get("val")))
        mode = next((leaf.fake_mode for leaf in fakes if isinstance(leaf, FakeTensor)), None)
        self._fake = mode or FakeTensorMode()

    def run_node(self, n: fx.Node) -> Any:
        try:
            result = super().run_node(n)
        except Exception as error:
            at = at_line(n) or (f" at {where}" if (where := line_of_call()) else "")
            raise CaptureError(
                f"the model raised {type(error).__name__}{at}, when {n.target} ran on the "
                f"example arguments: {first_line(error)}"
            ) from error
        if n.op == "call_function":
            self._correct(n, result)
            if n in self._unasked:
                return None
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Where kernels and shape functions differ, a reshape that was traced as a view may have to
        # copy, as it does in eager.
        if target in (aten.view.default, aten._unsafe_view.default):
            target = aten.reshape.default
        return super().call_function(target, args, kwargs)

    def _correct(self, node: fx.Node, result: Any) -> None:
        promised = node.meta.get("val")
        if has_free_symbols(promised):
            return  # A shape that depends on data: refused where the graph is built.
        if any(source in self._corrected for source in node.all_input_nodes):
            # Computed again, not just typed anew: a view must lie in what it is a view of.
            args, kwargs = fx.map_arg((node.args, node.kwargs), self._promised)
            with self._fake:
                promised = node.target(*args, **kwargs)  # type: ignore[operator]
        if _types(promised) != _types(result):
            with self._fake:
                promised = tree_map_only(torch.Tensor, _fresh, result)
        elif promised is node.meta.get("val"):
            return
        node.meta["val"] = promised
        self._corrected.add(node)

    def _promised(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            held = self.fetch_attr(str(node.target))
            return self._fake.from_tensor(held) if isinstance(held, torch.Tensor) else held
        return node.meta["val"]


def _types(results: Any) -> list[Any]:
    return [
        (leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else None
        for leaf in tree_leaves(results)
    ]


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
