"""Model → FX graph of functional ATen operators, traced once on fake tensors.

One trace after dispatch gives what AOTAutograd gives `torch.compile` backends: in-place updates
made functional, autocast turned into casts, composite operators opened. Both front doors of Nimble
therefore speak one dialect. docs/design.md says why this is not `torch.export`.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.fx.traceback as fx_traceback
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
)
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn.utils.rnn import PackedSequence
from torch.nn.utils.stateless import _reparametrize_module
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from nimble.capture.attributes import without_python_state
from nimble.capture.blame import first_line, line_of_caller, line_of_error
from nimble.capture.cumulative import cumulative_averages
from nimble.capture.functional import Updates, functional
from nimble.capture.outside import Kept, seeding_refused, without_python_randomness
from nimble.capture.shortcuts import as_by_shortcut
from nimble.capture.structure import Structure, flatten, flatten_result, unflatten
from nimble.capture.target import Target, all_names
from nimble.errors import CaptureError, NimbleError

_DATA_DEPENDENT = (
    GuardOnDataDependentSymNode,
    DataDependentOutputException,
    DynamicOutputShapeException,
)
_one_at_a_time = threading.RLock()
# A fork waits for the trace of another thread: in the child, nobody would put the model's own
# tensors back.
os.register_at_fork(
    before=_one_at_a_time.acquire,
    after_in_parent=_one_at_a_time.release,
    after_in_child=_one_at_a_time.release,
)
_TRACERS = tuple(
    f"{Path(torch.__file__).parent}/{name}"
    for name in ("_decomp/", "_inductor/", "_meta_registrations.py", "_prims", "_refs/")
)
"""What PyTorch traces in place of kernels, written in Python."""
_PACKING = torch._VF._pack_padded_sequence
OTHER_DOOR = 'Use torch.compile(model, backend="nimble"), which breaks the graph there and goes on.'


@dataclass(frozen=True)
class Traced:
    """An FX graph whose placeholders are `names` and then the tensors of the arguments, and whose
    outputs are those of `output`, then the new contents of `assigned`, then those of `updates`."""

    module: torch.fx.GraphModule
    names: tuple[str, ...]
    tensors: dict[str, torch.Tensor]
    output: Structure
    outputs: int
    assigned: tuple[str, ...]
    """Buffers that the model replaced by assignment."""
    updates: Updates
    """Of parameters, buffers and arguments, in place."""


def trace(
    target: Target, tensors: list[torch.Tensor], structure: Structure, called: Sequence[str]
) -> Traced:
    """Trace `target` on arguments given as flat tensors, what these are called, and the structure
    of (args, kwargs)."""
    named = target.named_tensors()
    names = tuple(named)
    found: dict[str, Any] = {}
    updates, kept = Updates(), Kept()
    origins = _Origins(target, kept)

    def flat(held: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        mine = dict(zip(names, held, strict=True))
        args, kwargs = unflatten(structure, list(given))
        before = flatten((args, kwargs))
        with _swapped(target, mine):
            with origins:
                result = target.function(*args, **kwargs)
            assigned = _assigned_buffers(target, mine)
        if not _same(before, flatten((args, kwargs))):
            raise CaptureError(
                "the model changes a list, dict or other container that it is given (a cache that "
                "grows, say), which a replay would not do; return the new container instead"
            )
        out, found["output"] = flatten_result(result)
        found["outputs"], found["assigned"] = len(out), tuple(assigned)
        return [*out, *assigned.values()]

    tracer = make_fx(
        functional(flat, (*names, *called), updates),
        decomposition_table=target.decompositions,
        tracing_mode="fake",
        _allow_non_fake_inputs=True,
    )

    def run() -> torch.fx.GraphModule:
        # The flag tells libraries not to look into tensors, as torch.compile does.
        tracing = torch.compiler._compile_session_context()
        rates = cumulative_averages()
        with torch.no_grad(), tracing, seeding_refused(), origins.hooked(), _unprofiled(), rates:
            return tracer(list(named.values()), tensors)

    try:
        # One at a time: tracing swaps the tensors of modules and sets hooks for the whole process.
        # The caller's own modes (a profiler, a counter of operations) stay out of the trace.
        modes = _disable_current_modes()
        own = _without_cudnn([*named.values(), *tensors])
        with _one_at_a_time, modes, torch.random.fork_rng(devices=[]), unlogged(), own:
            module = without_python_randomness(
                lambda: without_python_state(target.submodules(), run)
            )
            kept.refuse()
    except NimbleError:
        raise
    except Exception as error:
        raise _explain(error) from error
    return Traced(
        module,
        names,
        named,
        found["output"],
        found["outputs"],
        found["assigned"],
        updates,
    )


@contextlib.contextmanager
def _without_cudnn(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """On a GPU, layers are traced as PyTorch's own operators. cuDNN's batch norm writes running
    statistics and does not say so in its schema, so that the trace would miss the update; its
    recurrent layers ask for addresses, which fake tensors do not have. Convolutions are one
    operator either way, and find cuDNN when they run."""
    cudnn = torch.backends.cudnn
    before = cudnn.enabled
    if any(tensor.is_cuda for tensor in tensors):
        cudnn.enabled = False
    try:
        yield
    finally:
        cudnn.enabled = before


def _same(
    before: tuple[list[torch.Tensor], Structure], after: tuple[list[torch.Tensor], Structure]
) -> bool:
    """Whether the same tensors are in the same places."""
    return before[1] == after[1] and all(map(operator.is_, before[0], after[0]))


@contextlib.contextmanager
def _unprofiled() -> Iterator[None]:
    """Marks for a profiler are of a call, and no part of what is computed."""
    marks = torch.autograd.profiler.record_function
    with (
        patch.object(marks, "__enter__", lambda self: self),
        patch.object(marks, "__exit__", lambda self, *error: None),
    ):
        yield


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """PyTorch logs what a fake tensor raises, traceback and all; our error says it in a line."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _explain(error: Exception) -> CaptureError:
    where = line_of_error(error.__traceback__)
    at = f" at {where}" if where else ""
    first = first_line(error)
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if "extract specialized integer" in first:
        return CaptureError(
            f"the model takes a number out of a tensor{at}. Where it is an index x[:, i] with a "
            "tensor i of no dimensions: x.index_copy_(1, i.view(1), y) writes and "
            f"x.index_select(1, i.view(1)) reads without taking it out. {OTHER_DOOR}"
        )
    told = ("value out of a tracing tensor", "expected to contain only concrete integers")
    if isinstance(error, _DATA_DEPENDENT) or any(text in str(error) for text in told):
        if any("torch/distributions/" in file for file in files):
            return CaptureError(
                f"a distribution checks the data that it is given{at}, and a replay does not look "
                "at data; make it with validate_args=False, or call "
                f"torch.distributions.Distribution.set_default_validate_args(False). {OTHER_DOOR}"
            )
        return CaptureError(
            f"the model depends on the data in a tensor{at}: its path or shapes would differ from "
            f"call to call ({first}). {OTHER_DOOR}"
        )
    if ".numpy() is not supported" in str(error):
        return CaptureError(f"the model turns a tensor into a NumPy array{at}. {OTHER_DOOR}")
    if "mutating a non-functional tensor" in str(error):
        return CaptureError(
            f"the model updates a tensor in place{at} that is neither an argument nor a buffer, "
            "and a replay would not know it; make it a buffer (register_buffer)"
        )
    if isinstance(error, SyntaxError):
        return CaptureError(
            "the model calls an operator that PyTorch's tracer cannot write down "
            "(x.random_(low, high), for one; use torch.randint(low, high, x.shape)). " + OTHER_DOOR
        )
    if "token for effect" in str(error):
        return CaptureError(
            f"the model calls an operator that may raise for its data (torch.linalg.inv){at}, and "
            f"a replay does not check data. {OTHER_DOOR}"
        )
    if isinstance(error, ZeroDivisionError) and files and files[-1].startswith(_TRACERS):
        return CaptureError(
            f"PyTorch's tracer divided by zero{at}: it divides by a number of elements, and a "
            "tensor has none (an empty batch?), of which eager makes NaN. Leave out batches that "
            "are empty, or run them in eager"
        )
    if isinstance(error, UnsupportedFakeTensorException):
        return CaptureError(f"the model cannot be traced{at}: {first}. {OTHER_DOOR}")
    said = f"the model raised {type(error).__name__}{at}: {first}"
    if "None" not in first:
        return CaptureError(said.replace("FunctionalTensor", "Tensor"))
    return CaptureError(
        f"{said}. If it runs in eager, it may ask torch.compiler.is_compiling() and then not make "
        "what it was not given, a mask say: pass such arguments too"
    )


def _packed(where: str) -> CaptureError:
    return CaptureError(
        f"packed sequences cannot be captured{f' at {where}' if where else ''}: how many rows "
        "each step has stands in a tensor. Give the layer the padded tensor, and take what belongs "
        "to each row afterwards: with batch_first=True the last step of y is "
        "y[torch.arange(len(y)), lengths - 1]. (A bidirectional layer would begin in the padding, "
        f"on its way back.) {OTHER_DOOR}"
    )


@contextlib.contextmanager
def _swapped(target: Target, tensors: dict[str, torch.Tensor]) -> Iterator[None]:
    """Let the modules see the traced tensors in place of their own."""
    with contextlib.ExitStack() as stack:
        for prefix, module in target.modules.items():
            dot = f"{prefix}." if prefix else ""
            mine = {n.removeprefix(dot): t for n, t in tensors.items() if n.startswith(dot)}
            known = {name for name, _ in all_names(module)}
            mine = {name: tensor for name, tensor in mine.items() if name in known}
            # Stacked: a submodule that goes by two names is swapped twice.
            swapped = _reparametrize_module(module, mine, tie_weights=True, stack_weights=True)
            stack.enter_context(swapped)
        try:
            yield
        finally:
            stack.close()
            for module in target.submodules():
                if isinstance(module, nn.RNNBase):  # keeps a list of its weights besides
                    names = module._flat_weights_names
                    module._flat_weights = [getattr(module, name, None) for name in names]


def _assigned_buffers(target: Target, held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Buffers that the model replaced by assignment (`self.total = self.total + x`)."""
    return {
        name: now
        for name, now in target.named_tensors().items()
        if name in held and now is not held[name]
    }


class _Origins(TorchFunctionMode):
    """While the model runs: writes into every node which submodule and which line made it, and
    notes whatever the model gets to see."""

    def __init__(self, target: Target, kept: Kept) -> None:
        super().__init__()
        self._kept = kept
        self._stack = [""]
        self._modules = set(target.submodules())
        self._names = {
            id(module): ".".join(filter(None, (prefix, name)))
            for prefix, root in target.modules.items()
            for name, module in root.named_modules()
        }

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        note = {"module": self._stack[-1], "line": line_of_caller()}
        fx_traceback.current_meta["custom"] = note
        if func is _PACKING:
            raise _packed(note["line"])
        result = as_by_shortcut(func, args, func(*args, **(kwargs or {})))
        self._kept.note(result, note["line"])
        return result

    @contextlib.contextmanager
    def hooked(self) -> Iterator[None]:
        """Hooks on the modules, not for all modules of the process, which other engines look at."""
        with fx_traceback.preserve_node_meta():
            handles = [
                handle
                for module in self._modules
                for handle in (
                    module.register_forward_pre_hook(self._enter, prepend=True),
                    module.register_forward_hook(self._leave, always_call=True),
                )
            ]
            try:
                yield
            finally:
                for handle in handles:
                    handle.remove()

    def _enter(self, module: nn.Module, args: Any) -> None:
        if isinstance(module, nn.RNNBase) and args and isinstance(args[0], PackedSequence):
            raise _packed(line_of_caller())
        self._stack.append(self._names.get(id(module), self._stack[-1]))

    def _leave(self, _module: nn.Module, _args: Any, _result: Any) -> None:
        self._stack.pop()
