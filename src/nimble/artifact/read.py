"""File → plans. Nothing in the file is trusted: all of it is checked, and no code runs from it."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import torch

from nimble import _core
from nimble.artifact.checked import check_once
from nimble.artifact.layout import DIGESTS, FORMAT, PLAN
from nimble.artifact.structures import class_name, decode
from nimble.artifact.weights import Stored, Weights, zeros
from nimble.capture import CPU, Parameters, Place
from nimble.capture.dtypes import FROM_TORCH, TO_TORCH
from nimble.capture.operators import find, why_not_pure
from nimble.choose import planned
from nimble.clock import Clock
from nimble.devices import Constants, Device, Prepared
from nimble.devices.cpu import Replay, ReplayPool, give_back, supported, this_cpu
from nimble.errors import ArtifactError, NimbleError
from nimble.graph import DType, Graph, Ref, Symbol, Task, verify_memory
from nimble.graph.codec import decode as decode_graph
from nimble.lower import CUTS, SIDES, cut, lower, use_winograd
from nimble.plan import Plan
from nimble.rewrite import FUNCTIONAL, Step
from nimble.schedule import Schedule, schedule
from nimble.schedule.codec import decode as decode_schedule
from nimble.settings import TUNE, Settings
from nimble.signature import Ambient, Signature, TensorType

_SYMBOLS = {("device", "cpu"), ("layout", "strided")} | {
    ("memory_format", f"{name}_format") for name in ("contiguous", "preserve")
}
_SYMBOLS |= {("memory_format", "channels_last"), ("memory_format", "channels_last_3d")}
# What reading nonsense as a plan may raise; each becomes an ArtifactError with its cause.
_DAMAGE = (
    NimbleError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    RuntimeError,
    MemoryError,
    OverflowError,
    AssertionError,
)


T = TypeVar("T")


@dataclass(frozen=True)
class Loaded:
    name: str
    settings: Settings
    device: Device
    plans: tuple[Plan, ...]
    constants: Constants
    parameters: Parameters
    pad: str | None


def read_engine(
    path: Path,
    types: Iterable[type[Any]],
    workers: int | None,
    device: Callable[[str], Device],
) -> Loaded:
    """Read, check, prove and bind what `write_engine` wrote, for the device of the kind that it
    was compiled for."""
    known = {class_name(kind): kind for kind in types}
    try:
        body, digests = _open(path)
        kind = str(body.get("device", "cpu"))
        weights = Weights(path, digests)
        return _load(body, weights, known, workers if kind == "cpu" else 1, device(kind))
    except ArtifactError as error:
        raise ArtifactError(f"{path}: {error}") from error
    except _DAMAGE as error:
        raise ArtifactError(
            f"{path}: damaged or not written by Nimble ({type(error).__name__}: {error}); compile "
            "the model and save it again"
        ) from error


def _open(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The plan, and the digests of all parts."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.compress_type != zipfile.ZIP_STORED:
                    raise ArtifactError(f"{info.filename} is compressed, which Nimble never does")
            plan, digests = archive.read(PLAN), json.loads(archive.read(DIGESTS))
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ArtifactError(
            f"not a saved engine, or cut off ({error}); save it again with engine.save()"
        ) from error
    if digests.get(PLAN) != hashlib.sha256(plan).hexdigest():
        raise ArtifactError(f"{PLAN} was changed after it was saved; save the engine again")
    body = json.loads(plan)
    if not isinstance(body, dict) or type(body.get("format")) is not int:
        raise ArtifactError("the plan is malformed")
    if body["format"] != FORMAT:
        raise ArtifactError(
            f"saved in format {body['format']}, and this Nimble reads format {FORMAT}; "
            "use the Nimble that saved it, or compile the model again"
        )
    return body, digests


def _load(
    body: dict[str, Any],
    weights: Weights,
    types: dict[str, type[Any]],
    workers: int | None,
    device: Device,
) -> Loaded:
    saved = _record(Settings, body["settings"])
    if saved.workers < 1 or (saved.memory_limit or 0) < 0 or saved.tune not in TUNE:
        raise ArtifactError(f"the settings are malformed: {saved}")
    settings = replace(saved, workers=workers or _core.usable_cores())
    here = body["cpu"] == this_cpu() and settings.workers == saved.workers
    constants = device.constants()
    constants.frugal = True
    shared: dict[str, torch.Tensor] = {}
    plans = tuple(
        _plan(data, weights, shared, types, settings, constants, keep_schedule=here)
        if device.kind == "cpu"
        else _plan_anew(data, weights, shared, types, settings, constants, device)
        for data in body["plans"]
    )
    if body["pad"] not in (None, "batch"):
        raise ArtifactError(f"the file says pad={body['pad']!r}, which is not known")
    parameters = _parameters(body["parameters"])
    give_back()
    return Loaded(str(body["name"]), settings, device, plans, constants, parameters, body["pad"])


def _parameters(data: dict[str, Any]) -> Parameters:
    positional, named = tuple(data["positional"]), tuple(data["named"])
    if any(type(n) not in (str, type(None)) for n in positional) or any(
        type(n) is not str for n in named
    ):
        raise ArtifactError(f"the names of parameters are malformed: {data}")
    return Parameters(positional, named)


def _plan(
    data: dict[str, Any],
    weights: Weights,
    shared: dict[str, torch.Tensor],
    types: dict[str, type[Any]],
    settings: Settings,
    constants: Constants,
    *,
    keep_schedule: bool,
) -> Plan:
    source = _graph(data["graph"], CPU)
    lowered = lower(source, supported)[0] if settings.native_kernels else source
    sides = _sides(data["sides"])
    lowered = use_winograd(lowered, sides)
    lowered, known = _with_costs(lowered, data["costs"])
    how, workers = data["cut"]["how"], _number(data["cut"]["workers"])
    lean = _number(data["cut"]["lean"])
    if how not in CUTS or not 1 <= workers <= 1024:
        raise ArtifactError(f"tasks cannot be cut as {how!r} for {workers} workers")
    parts = cut(lowered, how, workers, supported, lean)
    graph, known_parts = _with_costs(parts, data["cut"]["costs"])
    # Another version of Nimble has other kernels, and so other tasks.
    keep_schedule = keep_schedule and known and known_parts
    stored = Stored(graph, data["tensors"], weights, shared, CPU.device)
    held = constants.of(graph, stored)
    reason = "saved with the engine"
    if keep_schedule:
        made = decode_schedule(graph, data)  # Binding it proves it.
    else:
        made = planned(graph, how, settings.workers, settings.memory_limit)
        reason = "saved elsewhere or for another number of workers, scheduled again here"
    replay = Replay(made, {**stored.held, **held})

    def narrow() -> Schedule:
        return schedule(cut(lowered, "whole", 1, supported, lean), streams=1)

    measured = data["measured_ns"] is not None
    prepared = Prepared(
        lowered=lowered,
        graph=graph,
        steps=tuple(_record(Step, step) for step in data["steps"]),
        replay=ReplayPool(replay, settings.workers, narrow),
        constants=held,
        choice=str(data["choice"]) if keep_schedule else made.decision.reason,
        measured_ns=_number(data["measured_ns"]) if keep_schedule and measured else None,
        sides=sides,
        cut=how,
        lean=lean,
    )
    example = _example(data, graph, CPU.device)
    plan = _assembled(data, types, source, stored.held, prepared, example, reason)
    return replace(plan, elsewhere=stored.elsewhere)


def _plan_anew(
    data: dict[str, Any],
    weights: Weights,
    shared: dict[str, torch.Tensor],
    types: dict[str, type[Any]],
    settings: Settings,
    constants: Constants,
    device: Device,
) -> Plan:
    """For a device whose replays cannot be written to a file: from the graph on."""
    place = Place(device.place)
    source = _graph(data["graph"], place)
    tensors = dict(Stored(source, data["tensors"], weights, shared, device.place))
    example = _example(data, source, device.place)
    made = device.prepare(source, tensors, constants, example, settings, Clock(lambda stage: None))
    said = tuple(_record(Step, step) for step in data["steps"])
    known = {step.name for step in made.steps}
    steps = (*(step for step in said if step.name not in known), *made.steps)
    reason = "saved with the engine, scheduled and captured again here"
    return _assembled(data, types, source, tensors, replace(made, steps=steps), example, reason)


def _example(data: dict[str, Any], graph: Graph, place: torch.device) -> list[torch.Tensor]:
    """Zeros of the types that a plan was saved for, which have to be those of its graph."""
    inputs = _inputs(data)
    if inputs != tuple(_input_type(graph, id) for id in graph.inputs):
        raise ArtifactError("the signature does not fit the graph's inputs")
    return [zeros(dtype, shape, strides, place) for dtype, shape, strides in inputs]


def _inputs(data: dict[str, Any]) -> tuple[TensorType, ...]:
    return tuple(
        (TO_TORCH[DType(dtype)], tuple(shape), tuple(strides))
        for dtype, shape, strides in data["inputs"]
    )


def _assembled(
    data: dict[str, Any],
    types: dict[str, type[Any]],
    source: Graph,
    tensors: dict[str, torch.Tensor],
    made: Prepared,
    example: list[torch.Tensor],
    reason: str,
) -> Plan:
    inputs = _inputs(data)
    structure = decode(data["arguments"], len(inputs), types)
    return Plan(
        signature=Signature(structure, inputs, (), _ambient(data["ambient"])),
        names=[str(name) for name, _ in zip(data["names"], inputs, strict=True)],
        output=decode(data["output"], len(source.outputs), types),
        tensors=tensors,
        captured_tasks=_number(data["captured_tasks"]),
        source=source,
        lowered=made.lowered,
        sides=made.sides,
        cut=made.cut,
        lean=made.lean,
        graph=made.graph,
        steps=made.steps,
        replay=made.replay,
        constants=made.constants,
        example=example,
        reason=reason,
        measured_ns=made.measured_ns,
        choice=made.choice,
        paddable=bool(data["paddable"]),
        padded=dict.fromkeys(n for n in data["paddable"] if type(n) is int),
    )


def _sides(data: Any) -> dict[str, int]:
    if any(type(n) is not str or side not in SIDES for n, side in data.items()):
        raise ArtifactError(f"the algorithms of convolutions are malformed: {data}")
    return dict(data)


def _with_costs(graph: Graph, costs: Any) -> tuple[Graph, bool]:
    """The graph with the costs measured where it was saved, if they are for these tasks."""
    if not isinstance(costs, list) or len(costs) != len(graph.tasks):
        return graph, False
    known = (replace(t, cost=_number(c)) for t, c in zip(graph.tasks, costs, strict=True))
    return graph.with_tasks(known), True


def _record(kind: type[T], data: dict[str, Any]) -> T:
    """The dataclass with these fields, each of the type that it declares."""
    made = kind(**data)
    for name, expected in get_type_hints(kind).items():
        held = getattr(made, name)
        if not isinstance(held, expected) or (type(held) is bool) != (expected is bool):
            raise ArtifactError(f"{name} is {held!r}, and has to be a {expected}")
    return made


def _number(data: Any) -> int:
    if type(data) is not int or not 0 <= data < 1 << 63:
        raise ArtifactError(f"{data!r} is no number of tasks or nanoseconds")
    return data


def _graph(data: Any, place: Place) -> Graph:
    """The graph, with only operators that may be replayed."""
    graph = decode_graph(data)
    parts = [part for part in (graph, graph.prologue) if part is not None]
    for part in parts:
        for task in part.tasks:
            _check_task(part, task, place)
        verify_memory(part)
    check_once(data, parts, place.device)
    return graph.with_tasks(replace(task, kernel="aten") for task in graph.tasks)


def _check_task(graph: Graph, task: Task, place: Place) -> None:
    why = why_not_pure(find(FUNCTIONAL.get(task.op, task.op)), place)
    if why is not None:
        raise ArtifactError(f"operator {task.op} is not allowed in a saved engine: {why}")
    for arg in (*task.args, *(arg for _, arg in task.kwargs)):
        # All that a graph makes, it makes where the engine is.
        there = isinstance(arg, Symbol) and arg.kind == "device" and arg.name.startswith("cuda")
        if there and place.device.type == "cuda":
            continue
        if isinstance(arg, Symbol) and (arg.kind, arg.name) not in _SYMBOLS:
            raise ArtifactError(f"task {task.name!r} asks for {arg.kind} {arg.name!r}")
    # What is written in place is the first argument, and the proof has to know.
    versions = [graph[v].overwrites for v in task.writes if graph[v].overwrites is not None]
    written = [arg.id for arg in task.args[:1] if isinstance(arg, Ref)]
    in_place = task.op == "aten.copy_.default" or task.op in FUNCTIONAL
    if versions != (written if in_place else []):
        raise ArtifactError(f"task {task.name!r} ({task.op}) does not write what it says")


def _input_type(graph: Graph, id: int) -> tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]:
    value = graph[id]
    return TO_TORCH[value.dtype], value.shape, value.strides


def _ambient(data: list[Any]) -> Ambient:
    on, autocast, default = data
    dtypes = {str(theirs): theirs for theirs in FROM_TORCH}
    return (on == "True", None if autocast is None else dtypes[autocast], dtypes[default])
