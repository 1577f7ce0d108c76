"""The front door: `nimble.compile`, `nimble.load`, and the backend of `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nimble import _core
from nimble.artifact import read_engine
from nimble.capture import Target
from nimble.capture.structure import flatten
from nimble.clock import STAGES
from nimble.cpu import Cpu
from nimble.devices import Device
from nimble.engine import Engine
from nimble.errors import ArtifactError, InputError
from nimble.ladder import Shapes, rungs
from nimble.observe.progress import stages
from nimble.settings import TUNE, Settings

if TYPE_CHECKING:
    from nimble.train import Step


def compile(
    model: Any,
    args: tuple[Any, ...] | torch.Tensor = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    shapes: Shapes | None = None,
    strict_shapes: bool = False,
    pad: str | None = None,
    max_plans: int = 16,
    device: str | torch.device | Device | None = None,
    workers: int | None = None,
    streams: int | None = None,
    memory_limit: int | None = None,
    native_kernels: bool = True,
    tune: str = "fast",
    progress: bool | None = None,
    name: str | None = None,
) -> Engine:
    """Schedule a model once, ahead of time; the engine returned replays that schedule.

    `model` is an `nn.Module`, a function or an `ExportedProgram`; `args` and `kwargs` are example
    arguments, whose shapes and dtypes the plan is made for.

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    >>> x = torch.randn(2, 4)
    >>> engine = compile(model, (x,))
    >>> torch.allclose(engine(x), model(x))
    True

    shapes          sizes to compile ahead: `[1, 2, 4]` is a ladder of batch sizes,
                    `{"batch": [1, 8], "sequence": [64, 128]}` every combination
    strict_shapes   refuse other signatures instead of compiling on first use
    pad             "batch": run a smaller batch on the next larger plan, where rows are provably
                    independent of each other
    max_plans       drop the least recently used plan beyond this number
    device          "cpu" or "cuda"; default: where the model and its arguments are
    workers         threads per replay, the caller included; default: the cores this process may use
    streams         of a GPU, at most; default: as many as are predicted to help
    memory_limit    bytes that the arena of a plan may take
    native_kernels  False: run every task through ATen
    tune            "fast": measure the algorithms that are likely best, and remember what was found
                    (in the folder NIMBLE_CACHE, or ~/.cache/nimble); "full": measure all of them;
                    "off": no other algorithms, and nothing from or to the disk. The other algorithm
                    is Winograd's, which is less exact beside inputs that are larger by thousands
    progress        show a bar; default: where standard error is a terminal
    name            what the engine is called in explain() and in messages; default: the model's
    """
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, tuple):
        raise InputError(f"args is a {type(args).__name__}; expected a tuple of example arguments")
    settings = _settings(workers, memory_limit, native_kernels, tune, streams)
    target = Target.of(model)
    given = flatten((args, dict(kwargs or {})))[0]
    engine = Engine(
        target,
        name or str(getattr(model, "__name__", type(model).__name__)),
        settings,
        device_for(device, [*target.named_tensors().values(), *given]),
        strict_shapes=strict_shapes,
        max_plans=max_plans,
        pad=pad,
    )
    times = 1 if shapes is None else len(rungs(shapes))
    with stages(engine.name, STAGES, times, progress) as report:
        engine.compile(args, dict(kwargs or {}), shapes, report)
    return engine


def compile_step(
    model: torch.nn.Module,
    loss_fn: Callable[..., Any] | None,
    optimizer: torch.optim.Optimizer,
    example: tuple[Any, ...] | list[Any] | Mapping[str, Any],
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    accumulate: int = 1,
    autocast: torch.dtype | None = None,
    keep_grads: bool = False,
    rng: str = "eager",
    max_plans: int = 16,
    device: str | torch.device | Device | None = None,
    workers: int | None = None,
    streams: int | None = None,
    memory_limit: int | None = None,
    native_kernels: bool = True,
    tune: str = "fast",
    progress: bool | None = None,
    name: str | None = None,
) -> Step:
    """Schedule a whole training step once: forward, loss, backward, clipping and update.

    `step(*batch)` then does what `optimizer.zero_grad()`, `loss_fn(model(*batch[:-1]), batch[-1])`,
    `loss.backward()` and `optimizer.step()` do, and returns the loss. Parameters, buffers and the
    optimizer's state change where they lie, in your own model and optimizer.

    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> x, y = torch.randn(8, 4), torch.randn(8, 1)
    >>> step = compile_step(model, torch.nn.MSELoss(), optimizer, (x, y))
    >>> first, second = step(x, y), step(x, y)
    >>> bool(second < first)
    True

    loss_fn         called with what the model gives and the last of the batch. Its result is the
                    loss, or a tuple that begins with it; the step returns what it returns. None:
                    the model computes the loss itself (Hugging Face), from all of the batch
    example         a batch, whose shapes and dtypes the plan is made for; a dict is passed by name
    clip_norm       scale the gradients to at most this norm, as clip_grad_norm_ does
    clip_value      clamp the gradients, as clip_grad_value_ does
    accumulate      update after so many calls, with the mean of their gradients
    autocast        dtype of the forward's arithmetic (torch.bfloat16)
    keep_grads      leave the gradients in `p.grad`, where they are None otherwise
    rng             "eager": random numbers are drawn from PyTorch's generator in eager's order,
                    whatever the number of workers
    memory_limit    bytes that the arena of a plan may take; where that is not enough, activations
                    are dropped and computed again on the way back

    The others are those of `compile`. Learning rates and all other numbers of the optimizer are
    read at every step: change them, or let a scheduler.
    """
    from nimble.train import Step, StepOptions  # Whoever loads and serves does not train.

    args, kwargs = ((), dict(example)) if isinstance(example, Mapping) else (example, {})
    if isinstance(args, list):  # as a DataLoader gives it
        args = tuple(args)
    if not isinstance(args, tuple):
        raise InputError(
            f"example is a {type(example).__name__}; expected a tuple (inputs..., target) or a dict"
        )
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"model is a {type(model).__name__}; expected an nn.Module")
    step = Step(
        model,
        loss_fn,
        optimizer,
        _settings(workers, memory_limit, native_kernels, tune, streams),
        device_for(device, [*model.parameters(), *flatten((args, kwargs))[0]]),
        StepOptions(clip_norm, clip_value, accumulate, autocast, keep_grads, rng),
        name or f"{type(model).__name__} step",
        max_plans,
    )
    with stages(step.name, STAGES, 2 if accumulate > 1 else 1, progress) as report:
        step.compile(args, kwargs, report)
    return step


def load(
    path: str | Path,
    *,
    types: Iterable[type[Any]] = (),
    device: str | torch.device | Device | None = None,
    workers: int | None = None,
) -> Engine:
    """Load what `engine.save` wrote. Needs no model source and runs no code from the file.

    Results that were dataclasses or Hugging Face outputs come back as dicts, unless their classes
    are given in `types`. An engine for a GPU is scheduled and captured again on `device`.
    """
    _check_workers(workers)

    def found(kind: str) -> Device:
        chosen = device_for(device or kind, ())
        if chosen.kind != kind:
            raise ArtifactError(
                f"compiled for {kind!r}, and not for {chosen.kind!r}: compile the model for that"
            )
        return chosen

    loaded = read_engine(Path(path), types, workers, found)
    plans = max(16, len(loaded.plans))
    engine = Engine(
        None, loaded.name, loaded.settings, loaded.device, max_plans=plans, pad=loaded.pad
    )
    engine.adopt(loaded.plans, loaded.constants, loaded.parameters)
    return engine


def dynamo_backend(
    module: torch.fx.GraphModule,
    example_inputs: list[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """What `torch.compile(model, backend="nimble")` calls. `options` are those of `compile` that
    concern every plan: device, workers, streams, memory_limit, native_kernels, tune. `mode` changes
    nothing: a plan is always made for the least latency."""
    from nimble.dynamo import Backend  # Imports Dynamo: a second that other callers are spared.

    given = dict(options or {})
    known = ("device", "workers", "streams", "memory_limit", "native_kernels", "tune")
    if unknown := given.keys() - set(known):
        raise InputError(f"options= has {sorted(unknown)}; expected some of {', '.join(known)}")
    tensors = [thing for thing in example_inputs if isinstance(thing, torch.Tensor)]
    device = device_for(given.pop("device", None), [*module.parameters(), *tensors])
    return Backend(_settings(**given), device)(module, example_inputs)


def device_for(
    wanted: str | torch.device | Device | None, tensors: Iterable[torch.Tensor]
) -> Device:
    """The device that a user named; if none, where the tensors are."""
    if wanted is None:
        gpus = [tensor.device for tensor in tensors if tensor.device.type == "cuda"]
        wanted = gpus[0] if gpus else "cpu"
    if not isinstance(wanted, str | torch.device):
        return wanted
    try:
        place = torch.device(wanted)
    except RuntimeError as error:
        raise InputError(f"device={wanted!r}: expected 'cpu', 'cuda' or 'cuda:1'") from error
    if place.type == "cpu":
        return Cpu()
    if place.type != "cuda":
        raise InputError(f"device={wanted!r}: Nimble runs on 'cpu' and 'cuda'")
    # Imported where it is wanted: most users have no GPU.
    from nimble.devices.cuda import Cuda

    return Cuda.of(place)


def _settings(
    workers: int | None = None,
    memory_limit: int | None = None,
    native_kernels: bool = True,
    tune: str = "fast",
    streams: int | None = None,
) -> Settings:
    _check_workers(workers)
    if streams is not None and (type(streams) is not int or streams < 1):
        raise InputError(f"streams={streams!r}: expected a number from 1 up, or None")
    if memory_limit is not None and (type(memory_limit) is not int or memory_limit < 0):
        raise InputError(f"memory_limit={memory_limit!r}: expected a number of bytes, or None")
    if tune not in TUNE:
        raise InputError(f"tune={tune!r}: expected one of {', '.join(TUNE)}")
    return Settings(workers or _core.usable_cores(), memory_limit, native_kernels, tune, streams)


def _check_workers(workers: int | None) -> None:
    if workers is not None and (type(workers) is not int or not 1 <= workers <= 1024):
        cores = _core.usable_cores()
        raise InputError(
            f"workers={workers!r}: expected a number from 1 to 1024, or None for {cores}"
        )
