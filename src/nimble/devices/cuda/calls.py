"""Task → a call of PyTorch's operator that writes where the plan wants it.

An out variant where there is one that writes any memory it is given; else a call that makes new
tensors, and a copy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from nimble.capture.dtypes import TO_TORCH, from_symbol
from nimble.capture.operators import find
from nimble.devices.cuda.api import Api
from nimble.graph import Arg, DType, Graph, Ref, Symbol, Task

aten = torch.ops.aten
Tensors = tuple[torch.Tensor, ...]
# Give their first argument in other memory, some in another dtype.
_COPIES = {"alias", "clone", "contiguous", "detach", "lift_fresh_copy", "_to_copy"}
# Not tagged as pointwise or as reductions, but they write results of any strides.
_ANY_STRIDES = {"addmm", "baddbmm", "bmm", "cat", "gather", "index", "index_select", "mm"}
_OPTIONS = {"dtype", "layout", "device", "pin_memory"}
_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)


@dataclass(frozen=True, slots=True)
class Call:
    kind: str
    """`out`, `copy` or `inplace`."""
    run: Callable[[], Tensors]
    """Launches it on the current stream; gives the temporary tensors that it made."""


def make_call(
    graph: Graph, task: Task, tensor: Callable[[int], torch.Tensor], unread: Set[int], api: Api
) -> Call:
    """A task on the tensors of its values. Results in `unread` need not be written."""
    op = find(task.op)
    args = [_to_torch(arg, tensor, api) for arg in task.args]
    kwargs = {key: _to_torch(arg, tensor, api) for key, arg in task.kwargs}
    if any(graph[v].overwrites is not None for v in task.writes):
        return Call("inplace", _direct(op, args, kwargs))
    outs = [None if v is None else tensor(v) for v in task.results]
    direct = _writing(op, args, kwargs, outs, api)
    if direct is not None:
        return Call("out", direct)
    kept = [None if v in unread else out for v, out in zip(task.results, outs, strict=True)]
    return Call("copy", functools.partial(_and_copy, op, args, kwargs, kept))


def has_out_variant(task: Task) -> bool:
    """Whether the operator can write all its results where they are wanted."""
    op = find(task.op)
    return op.namespace == "aten" and _out_variant(op) is not None


def _to_torch(arg: Arg, tensor: Callable[[int], torch.Tensor], api: Api) -> Any:
    if isinstance(arg, Ref):
        return tensor(arg.id)
    if isinstance(arg, DType):
        return TO_TORCH[arg]
    if isinstance(arg, Symbol):
        # All that a graph makes, it makes on its device.
        return api.place if arg.kind == "device" else from_symbol(arg)
    if isinstance(arg, tuple):
        return [_to_torch(item, tensor, api) for item in arg]
    return arg


def _direct(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[], Tensors]:
    def run() -> Tensors:
        op(*args, **kwargs)
        return ()

    return run


def _and_copy(
    op: OpOverload, args: list[Any], kwargs: dict[str, Any], outs: Sequence[torch.Tensor | None]
) -> Tensors:
    made = tree_leaves(op(*args, **kwargs))
    for out, result in zip(outs, made, strict=False):
        if out is not None:
            out.copy_(result)
    return tuple(leaf for leaf in made if isinstance(leaf, torch.Tensor))


def _writing(
    op: OpOverload,
    args: list[Any],
    kwargs: dict[str, Any],
    outs: Sequence[torch.Tensor | None],
    api: Api,
) -> Callable[[], Tensors] | None:
    """A call that writes its results straight into `outs`, if there is one."""
    name = op._schema.name.partition("::")[2]
    first = outs[0] if outs else None
    if first is None or op.namespace != "aten":
        return None
    if name in _COPIES and args[0].shape == first.shape:
        return _direct(aten.copy_.default, [first, args[0]], {})
    if op is aten.relu.default:
        return _direct(aten.clamp_min.out, [args[0], 0], {"out": first})
    if op is aten.embedding.default and args[1].is_contiguous() and first.is_contiguous():
        rows, flat = args[1].view(-1), first.view(-1, first.shape[-1])
        return _direct(aten.index_select.out, [args[0], 0, rows], {"out": flat})
    if op is aten.convolution.default:
        return _convolution(args, first, api)
    if name == "index" and any(
        index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    ):
        return None
    variant = _out_variant(op)
    results = [out for out in outs if out is not None]
    if variant is None or len(results) < len(outs):
        return None
    if not _trusts_strides(op, name, [*tree_leaves((args, kwargs)), *results]):
        return None
    names = [a.name for a in variant._schema.arguments if a.is_out]
    taken = {a.name for a in variant._schema.arguments}
    rest = {key: value for key, value in kwargs.items() if key in taken}
    return _direct(variant, args, rest | dict(zip(names, results, strict=True)))


@functools.cache
def _out_variant(op: OpOverload) -> OpOverload | None:
    """The overload that takes what `op` does, and a tensor for each result."""
    schema = op._schema
    if torch.Tag.dynamic_output_shape in op.tags and op is not aten.index.Tensor:
        return None
    # A loss makes its result as large as its input before it reduces it.
    if schema.is_mutable or any(a.name == "reduction" for a in schema.arguments):
        return None
    if not all(str(r.type) == "Tensor" for r in schema.returns):
        return None
    packet = getattr(aten, schema.name.partition("::")[2])
    wanted = [(a.name, str(a.type)) for a in schema.arguments]
    for overload in packet.overloads():
        other = getattr(packet, overload)
        # A generated one calls the plain operator and copies, as is done here.
        if torch.Tag.generated in other.tags:
            continue
        outs = [a for a in other._schema.arguments if a.is_out]
        reads = [(a.name, str(a.type)) for a in other._schema.arguments if not a.is_out]
        options = [a for a in wanted if a[0] in _OPTIONS and a not in reads]
        if len(outs) == len(schema.returns) and reads == [a for a in wanted if a not in options]:
            found: OpOverload = other
            return found
    return None


def _trusts_strides(op: OpOverload, name: str, tensors: Iterable[Any]) -> bool:
    """Many out variants assume that results have the strides which the plain operator would have
    given them. They are trusted only with arguments and results all in one format."""
    if {torch.Tag.pointwise, torch.Tag.reduction} & set(op.tags) or name in _ANY_STRIDES:
        return True
    dense = [t for t in tensors if isinstance(t, torch.Tensor) and t.dim() > 0]
    return any(all(_has(t, form) for t in dense) for form in _FORMATS)


def _has(tensor: torch.Tensor, form: torch.memory_format) -> bool:
    dims = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(form)
    if dims is not None and tensor.dim() != dims:
        form = torch.contiguous_format
    return tensor.is_contiguous(memory_format=form)


def _convolution(args: list[Any], out: torch.Tensor, api: Api) -> Callable[[], Tensors] | None:
    """The out variant of what PyTorch would compute a convolution with; the operator itself has
    none."""
    image, weight, bias, stride, padding, dilation, transposed, _, groups = args
    backend = api.convolution(*args)
    if transposed or backend == "other" or out.dim() != 4:
        return None
    if not any(_has(out, form) for form in _FORMATS[:2]):
        return None
    if backend == "depthwise":
        if not out.is_contiguous():
            return None  # Its kernel counts on that, and does not check.
        sizes = weight.shape[2:]
        given = [image, weight, list(sizes), bias, stride, padding, dilation]
        return _direct(aten._conv_depthwise2d.out, given, {"out": out})
    cudnn = torch.backends.cudnn

    def run() -> Tensors:
        flags = (cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32)
        aten.cudnn_convolution.out(
            image, weight, padding, stride, dilation, groups, *flags, out=out
        )
        if bias is not None:
            out.add_(bias.view(1, -1, *[1] * (out.dim() - 2)))
        return ()

    return run
