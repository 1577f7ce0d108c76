"""Which strides do eager's results have? Kernels know; shape functions are at times mistaken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from nimble.errors import CaptureError

aten = torch.ops.aten


def eager_strides(
    module: fx.GraphModule, tensors: Sequence[Any], outputs: int
) -> list[tuple[int, ...] | None]:
    """The strides of the first `outputs` results of `module`, run once operator by operator."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        results = _Run(module).run(*tensors)[:outputs]
    return [r.stride() if isinstance(r, torch.Tensor) else None for r in results]


class _Run(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.extra_traceback = False  # Ours says it in a line.

    def run_node(self, node: fx.Node) -> Any:
        try:
            return super().run_node(node)
        except Exception as error:
            where = (node.meta.get("custom") or {}).get("line", "")
            first = (str(error).strip().splitlines() or [""])[0]
            raise CaptureError(
                f"the model raised {type(error).__name__}{f' at {where}' if where else ''}, when "
                f"{node.target} ran on the example arguments: {first}"
            ) from error

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Where kernels and shape functions differ, a reshape that was traced as a view may have to
        # copy, as it does in eager.
        if target in (aten.view.default, aten._unsafe_view.default):
            target = aten.reshape.default
        return super().call_function(target, args, kwargs)
