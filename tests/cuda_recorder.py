"""Sees every operator that a capturing thread calls, and has it written down instead of run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

aten = torch.ops.aten
_SYNCHRONISING = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero"}
_EMPTY = ("aten::empty", "aten::new_empty")


class Launches(Protocol):
    """What the recorder asks of the stand-in."""

    def launch(self, func: Any, args: Any, kwargs: Any, make: Callable[[], Any]) -> Any: ...
    def write_down(self, run: Callable[[], None], tensors: list[torch.Tensor]) -> None: ...
    def from_pool(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]: ...
    def not_holding(self, tensor: torch.Tensor) -> torch.Tensor: ...
    def refuse_to_wait(self) -> Exception: ...


class Recorder(TorchDispatchMode):
    """Sees every operator that the capturing thread calls."""

    def __init__(self, cuda: Launches) -> None:
        super().__init__()
        self._cuda = cuda
        self._fake = FakeTensorMode()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        custom = OPDEFS.get(func.name().partition(".")[0])
        if custom is not None:
            with self:  # What an operator written in Python launches is seen one by one.
                return custom._init_fn(*args, **kwargs)
        returns = func._schema.returns
        if returns and all(r.alias_info and not r.alias_info.is_write for r in returns):
            return func(*args, **kwargs)
        return self._cuda.launch(func, args, kwargs, lambda: self._recorded(func, args, kwargs))

    def _recorded(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name
        depends = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
        masked = func is aten.index.Tensor and not any(
            i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]
        )
        if name in _SYNCHRONISING or (depends & set(func.tags) and not masked):
            raise self._cuda.refuse_to_wait()
        given = args, kwargs
        tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]
        args, kwargs = tree_map_only(torch.Tensor, self._cuda.not_holding, given)
        if func._schema.is_mutable:
            self._cuda.write_down(lambda: _run(func, args, kwargs), tensors)
            return _written(func, *given)
        with self._fake:
            fake = func(*_faked(args), **_faked(kwargs))
        made: list[torch.Tensor] = []

        def place(like: torch.Tensor) -> torch.Tensor:
            kept, handed = self._cuda.from_pool(like)
            made.append(kept)
            return handed

        result = tree_map_only(torch.Tensor, place, fake)
        if not name.startswith(_EMPTY):
            run = lambda: _copy(made, _run(func, args, kwargs))  # noqa: E731
            self._cuda.write_down(run, [*tensors, *made])
        return result


def _faked(things: Any) -> Any:
    """Tensors of the same types, made in a mode where nothing is computed."""

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)

    return tree_map_only(torch.Tensor, fake, things)


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    with torch.no_grad():
        return func(*args, **kwargs)


def _copy(into: list[torch.Tensor], results: Any) -> None:
    found = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    for mine, theirs in zip(into, found, strict=True):
        mine.copy_(theirs)


def _written(func: Any, args: Any, kwargs: Any) -> Any:
    """What an operator that writes its arguments returns."""
    schema = func._schema
    given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
    found = [given[a.name] for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    return found[0] if len(schema.returns) == 1 else tuple(found[: len(schema.returns)])


# Operators that exist on a GPU only, told in those of the CPU.
_library = torch.library.Library("aten", "IMPL")


def _cudnn(x, weight, padding, stride, dilation, groups, benchmark, deterministic, tf32, *, out):  # type: ignore[no-untyped-def]
    made = aten.convolution(x, weight, None, stride, padding, dilation, False, [0, 0], groups)
    return out.copy_(made)


def _depthwise(x, weight, sizes, bias, stride, padding, dilation, *, out):  # type: ignore[no-untyped-def]
    groups = x.shape[1]
    made = aten.convolution(x, weight, bias, stride, padding, dilation, False, [0, 0], groups)
    return out.copy_(made)


for _key in ("CPU", "Meta"):
    _library.impl("cudnn_convolution.out", _cudnn, _key)
    _library.impl("_conv_depthwise2d.out", _depthwise, _key)
