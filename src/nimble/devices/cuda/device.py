"""A GPU as a device of the pipeline: schedule, prove, warm up, capture; keep the faster layout."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from nimble.capture.dtypes import TO_TORCH
from nimble.clock import Clock
from nimble.devices.constants import Constants
from nimble.devices.cuda.api import Api
from nimble.devices.cuda.calls import make_call
from nimble.devices.cuda.launch import UncapturedError
from nimble.devices.cuda.lower import has_images, lower, lower_channels_last
from nimble.devices.cuda.memory import OWNED, Arena, tensor_on
from nimble.devices.cuda.parts import launch_order, split
from nimble.devices.cuda.replay import CudaReplay
from nimble.devices.cuda.rules import RULES, refusal
from nimble.devices.device import Prepared, Tensors, fitting
from nimble.devices.sim import Gpu, choose_for_gpu, costs
from nimble.errors import NimbleError
from nimble.graph import Graph, verify
from nimble.lower import within
from nimble.rewrite import Step
from nimble.schedule import Schedule, schedule
from nimble.settings import Settings

_RUNS = 9
Scheduler = Callable[[Graph, Gpu, int | None, int | None], tuple[Schedule, Sequence[int]]]
"""(graph, GPU, streams, memory_limit) → the schedule, and the order in which it is launched."""


@dataclass(frozen=True, slots=True)
class _Variant:
    graph: Graph
    steps: tuple[Step, ...]
    layout: str
    replay: CudaReplay
    constants: dict[str, torch.Tensor]


def as_predicted(
    graph: Graph, gpu: Gpu, streams: int | None, memory_limit: int | None
) -> tuple[Schedule, Sequence[int]]:
    """Several streams only where the modelled GPU gains by them."""
    chosen = choose_for_gpu(graph, gpu, streams, memory_limit)
    return chosen.schedule, chosen.prediction.launch


def as_concurrent_as_can_be(
    graph: Graph, gpu: Gpu, streams: int | None, memory_limit: int | None
) -> tuple[Schedule, Sequence[int]]:
    """Every two independent tasks on different streams, whether that pays or not."""
    built = schedule(graph, streams=streams, memory_limit=memory_limit)
    return built, launch_order(built)


class Cuda:
    """One GPU. Plans of all engines that are made with this object share one arena."""

    kind = "cuda"
    runs_python = True
    """Python runs while a graph is captured, and not when it is replayed."""
    fuses = False

    def __init__(
        self, api: Api, *, split: bool = True, scheduler: Scheduler = as_predicted
    ) -> None:
        """`split`: run tasks that cannot be captured between captured parts, instead of raising
        StreamCaptureError."""
        self._api = api
        self._split = split
        self._scheduler = scheduler
        self._arena = Arena(api)

    @staticmethod
    def of(place: torch.device) -> Cuda:
        """The GPU that PyTorch calls so; DeviceError if there is none."""
        from nimble.devices.cuda.torch_cuda import TorchCuda

        return Cuda(TorchCuda(place))

    @property
    def place(self) -> torch.device:
        return self._api.place

    def constants(self) -> Constants:
        # Replays on any stream read them: they are written in a turn of their own.
        return Constants(self._computed, around=self._arena.turn)

    def describe(self, settings: Settings) -> str:
        return f"{self._api.place} ({self._api.gpu().name})"

    def prepare(
        self,
        graph: Graph,
        tensors: Tensors,
        constants: Constants,
        example: list[torch.Tensor],
        settings: Settings,
        clock: Clock,
    ) -> Prepared:
        with clock("lower"):
            graph, first = lower(graph)
            layouts: list[tuple[str, Graph, tuple[Step, ...]]] = [("as in eager", graph, ())]
            if settings.tune != "off" and has_images(graph):
                layouts.append(("channels last", *lower_channels_last(graph)))
                if os.environ.get("NIMBLE_VERIFY") == "1":
                    verify(layouts[-1][1])
        variants = []
        for layout, lowered, steps in layouts:
            held = constants.of(lowered, tensors)
            memory = {**tensors, **held}
            replay = self._replay(lowered, memory, example, settings, clock)
            variants.append(_Variant(lowered, steps, layout, replay, held))
        best, measured, said = 0, None, ""
        if settings.tune != "off":
            with clock("measure"):
                times = [min(v.replay.times_ns(example, _RUNS)) for v in variants]
            best = min(range(len(times)), key=times.__getitem__)
            measured = times[best]
            if len(times) > 1:
                said = "; " + ", ".join(
                    f"{v.layout} measured {ns / 1e6:.3f} ms"
                    for v, ns in zip(variants, times, strict=True)
                )
        kept = variants[best]
        return Prepared(
            lowered=kept.graph,
            graph=kept.replay.graph,
            steps=(*first, *kept.steps),
            replay=kept.replay,
            constants=kept.constants,
            choice=f"{kept.replay.schedule.decision.reason}; images {kept.layout}{said}"
            if has_images(graph)
            else kept.replay.schedule.decision.reason,
            measured_ns=measured,
        )

    def _replay(
        self,
        graph: Graph,
        memory: Tensors,
        example: list[torch.Tensor],
        settings: Settings,
        clock: Clock,
    ) -> CudaReplay:
        """The graph captured, and split where a task turns out not to be capturable."""
        eager: dict[str, str] = {}
        while True:
            with clock("schedule"):
                plan, order = self._scheduled(graph, eager, settings)
            try:
                with clock("bind"):
                    tuned = settings.tune != "off"
                    return CudaReplay(
                        self._api, plan, eager, order, memory, self._arena, example, tuned=tuned
                    )
            except UncapturedError as error:
                if error.task in eager:
                    raise
                if not self._split:
                    raise self._refusal(graph, error) from error
                eager[error.task] = error.why

    def _scheduled(
        self, graph: Graph, eager: Mapping[str, str], settings: Settings
    ) -> tuple[Schedule, Sequence[int]]:
        """Within the memory limit; with tasks that run twice, if it cannot be kept otherwise."""
        gpu = self._api.gpu()
        costs_of = costs(gpu)
        priced = graph.with_tasks(replace(t, cost=costs_of.task(graph, t)) for t in graph.tasks)

        def attempt(variant: Graph, limit: int | None, lean: int) -> tuple[Schedule, Sequence[int]]:
            chosen = variant if lean else graph
            return self._scheduler(split(chosen, eager), gpu, settings.streams, limit)

        return within(settings.memory_limit, priced, attempt)

    def _refusal(self, graph: Graph, error: UncapturedError) -> NimbleError:
        task = next(task for task in graph.tasks if task.name == error.task)
        rule = next(rule for rule in RULES if rule.broken in error.why)
        return refusal(task.name, task.op, task.origin, rule)

    def _computed(self, prologue: Graph, tensors: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """The outputs of a prologue, task by task on the current stream."""
        held = {root.id: fitting(root, tensors) for root in prologue.roots(*OWNED)}
        memory = _Separate(prologue, held, self._api)
        with torch.no_grad(), torch._C._DisableAutocast():
            for task in prologue.tasks:
                make_call(prologue, task, memory.__getitem__, set(), self._api).run()
        return [memory[v] for v in prologue.outputs]


class _Separate:
    """The tensors of a graph's values, every root in memory of its own."""

    def __init__(self, graph: Graph, held: dict[int, torch.Tensor], api: Api) -> None:
        self._graph = graph
        self._roots = held
        self._api = api

    def __getitem__(self, id: int) -> torch.Tensor:
        value, home = self._graph[id], self._graph[self._graph.homes[id]]
        if home.id not in self._roots:
            self._roots[home.id] = torch.empty_strided(
                home.shape, home.strides, dtype=TO_TORCH[home.dtype], device=self._api.place
            )
        whole = self._roots[home.id]
        if id == home.id:
            return whole.detach()
        start = int(whole.storage_offset()) * whole.element_size() + value.offset
        storage = whole.untyped_storage()
        return tensor_on(storage, start, value.dtype, value.shape, value.strides)
