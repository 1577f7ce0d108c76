"""The engine, called like the module it came from."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch
import torch.autograd.forward_ad as forward_ad
from torch._C._dynamo.eval_frame import _FrameAction as FrameAction
from torch._C._dynamo.eval_frame import _FrameExecStrategy as FrameExecStrategy
from torch._C._dynamo.eval_frame import set_code_exec_strategy

from nimble import _aten
from nimble.artifact import write_engine
from nimble.capture import Captured, Parameters, Place, Target, capture
from nimble.capture.structure import Structure, is_typed, unflatten
from nimble.clock import Report
from nimble.devices import Constants, Device
from nimble.engine.arguments import checked, flatten_call, mismatch, written_back
from nimble.engine.binding import Binding
from nimble.engine.padding import (
    fewer,
    next_rung,
    padded,
    require_independent_rows,
    rows_of,
    why_unpaddable,
)
from nimble.engine.plans import Plans
from nimble.errors import InputError
from nimble.ladder import Shapes, resized, rungs
from nimble.observe.explain import explain_plans
from nimble.observe.timeline import Timeline
from nimble.plan import Plan, make_plan
from nimble.settings import Settings
from nimble.signature import (
    PLAIN,
    Signature,
    ambient,
    modes_count,
    refuse_tracing,
    type_of,
    type_text,
)


class Engine:
    """A model whose every call is a replay of a plan made ahead of time.

    Holds one plan for each signature: types of the tensors, other arguments, train or eval mode.
    Made by `nimble.compile` or `nimble.load`.
    """

    def __init__(
        self,
        target: Target | None,
        name: str,
        settings: Settings,
        device: Device,
        *,
        strict_shapes: bool = False,
        max_plans: int = 16,
        pad: str | None = None,
    ) -> None:
        if type(max_plans) is not int or max_plans < 1:
            raise InputError(f"max_plans={max_plans!r}: expected a number from 1 up")
        if pad not in (None, "batch"):
            raise InputError(f"pad={pad!r}: expected 'batch' or None")
        self.name = name
        self.settings = settings
        self.device = device
        self._place = Place(device.place, device.runs_python)
        self._strict = strict_shapes
        self._pad = pad
        self._held = Plans(target, device, max_plans, name)
        self._binding: Binding | None = None
        self._lock = threading.RLock()
        _engines.add(self)

    # Calling

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Replay; the same result, in the same structure, as the model itself gives."""
        held = self._held
        plan = held.last
        if (
            plan is not None
            and plan.gate is not None
            and not kwargs
            and plan.gate.passes(args)
            and not held.changed()
        ):
            try:
                return unflatten(plan.output, plan.replay(args, held.watch))
            except (_aten.Mismatch, _aten.Changed):
                pass  # Another signature, bad input, other weights: the careful way finds out.
        return self._call_again(args, kwargs)

    def _call_again(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call like the last one, with arguments of any kind: nested, named, numbers."""
        held = self._held
        bound = held.parameters.bind(args, kwargs) if kwargs else (args, kwargs)
        tensors, structure = flatten_call(*bound)
        plan = held.last
        if (
            plan is not None
            and plan.signature.structure == structure
            and plan.signature.ambient == ambient(self.device.place)
            and not held.changed()
            and all(type(t) in PLAIN for t in tensors)
            and not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
            and not modes_count()
            and forward_ad._current_level < 0
        ):
            try:
                return unflatten(plan.output, plan.replay(tensors, held.watch))
            except (_aten.Mismatch, _aten.Changed):
                pass
            except RuntimeError:
                if not any(t.is_nested for t in tensors):
                    raise
        return self._call_carefully(args, kwargs)

    def _call_carefully(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._lock:
            refuse_tracing()
            self._held.notice_changes()
            given, structure, names = checked(
                args, kwargs, self._held.parameters, self.device.place
            )
            tensors = [t.resolve_conj().resolve_neg() for t in given]
            signature = self._signature(tensors, structure)
            plan, rows = self._find(signature, tensors)
            self._held.use(plan)
        if rows is not None:
            results = plan.replay(padded(plan, tensors))
            return unflatten(plan.output, [result[:rows] for result in results])
        try:
            results = plan.replay(tensors)
        except _aten.Mismatch as error:
            raise InputError(mismatch(names, *error.args)) from None
        return unflatten(plan.output, written_back(plan.graph, given, tensors, results))

    # Buffers that stay

    def bind(self, /, *args: Any, **kwargs: Any) -> Any:
        """Keep these tensors as the inputs of every `run()`, and return the results that it writes.

        For callers who reuse buffers: fill the inputs in place, `run()`, read the results. Nothing
        runs yet. A second `bind` replaces the first. The modes of this call (autocast) hold for
        every run. Weights may be edited, loaded and replaced between runs; after anything else that
        changes the model (`train()`, modules, hooks, attributes), bind again.
        """
        with self._lock:
            refuse_tracing()
            self._held.notice_changes()
            tensors, structure, names = checked(
                args, kwargs, self._held.parameters, self.device.place
            )
            plan, rows = self._find(self._signature(tensors, structure), tensors)
            if rows is not None:
                raise InputError(
                    f"bind() does not pad: pass {rows_of(plan.signature)} rows, or any other "
                    "number that the engine was compiled for"
                )
            if self._held.get(plan.signature) is not plan:
                raise InputError(
                    "another thread changed the model while it was captured: bind again"
                )
            try:
                bound = plan.replay.bind(tensors)
            except _aten.Mismatch as error:
                raise InputError(mismatch(names, *error.args)) from None
            self._binding = Binding.of(plan, bound, self._held)
            return self._binding.results

    def run(self) -> Any:
        """Replay on what the tensors given to `bind` hold now. The results are the same tensors
        every time, with new contents."""
        binding, held = self._binding, self._held
        if binding is None:
            raise InputError(
                "nothing is bound: call engine.bind(...) with the model's inputs first"
            )
        try:
            if binding.epoch == held.epoch and not held.changed():
                try:
                    binding.bound.run(held.watch)
                    return binding.results
                except _aten.Changed:
                    pass
            with self._lock:
                binding.still_fits(held, self._training())
            binding.bound.run()
        except _aten.Mismatch as error:
            names = [*binding.plan.names, "a result"]
            raise InputError(f"{mismatch(names, *error.args)}; bind again") from None
        return binding.results

    # Plans

    def _find(self, signature: Signature, tensors: list[torch.Tensor]) -> tuple[Plan, int | None]:
        """The plan for a signature, and how many rows of it count if the call was padded."""
        plan = self._held.get(signature)
        if plan is not None:
            return plan, None
        why = self._held.why_none(signature)
        if self._pad == "batch" and (fit := next_rung(self._held, signature)) is not None:
            wider, rows = fit
            if (unproven := self._why_unpaddable(wider, tensors, rows)) is None:
                return wider, rows
            why += f", and it cannot be padded to {rows_of(wider.signature)} rows: {unproven}"
        if self._strict and self._held:
            raise InputError(
                f"no plan for this call: {why}. The engine was compiled with "
                f"strict_shapes=True for: {self._held.listed()}"
            )
        return self._compile(signature, tensors, why), None

    def _why_unpaddable(self, plan: Plan, tensors: list[torch.Tensor], rows: int) -> str | None:
        """Why this call must not be padded to a plan, found out once; None if it may."""
        if rows not in plan.padded:
            plan.padded[rows] = (
                f"the file holds no proof for {rows} rows"
                if self._held.target is None
                else why_unpaddable(self._capture, plan, tensors, rows)
            )
        return plan.padded[rows]

    def compile(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        shapes: Shapes | None = None,
        report: Callable[[str, str], None] = lambda plan, stage: None,
    ) -> None:
        """Make plans ahead of time: for these arguments, and for the ladder that `shapes` names."""
        tensors, structure, _ = checked(args, kwargs, self._held.parameters, self.device.place)
        examples = [tensors] if shapes is None else [resized(tensors, r) for r in rungs(shapes)]
        if len(examples) > self._held.most:
            raise InputError(
                f"shapes= declares {len(examples)} plans, and max_plans={self._held.most}"
            )
        for example in examples:
            signature = self._signature(example, structure)
            if self._held.get(signature) is not None:
                continue
            rows = rows_of(signature)
            # Nothing is ever padded up to one row.
            paddable = self._pad == "batch" and rows > 1 and self._held.target is not None
            if paddable:
                require_independent_rows(self._capture, example, structure, rows)
            text = ", ".join(type_text(t) for t in signature.tensors)
            why = self._held.why_none(signature)
            plan = self._compile(signature, example, why, functools.partial(report, text))
            plan.paddable = paddable

    def adopt(self, plans: Sequence[Plan], constants: Constants, parameters: Parameters) -> None:
        """Take over plans that were made elsewhere, with the constants they are bound to, and what
        their model calls its arguments."""
        self._held.adopt(plans, constants, parameters)

    def _compile(
        self,
        signature: Signature,
        tensors: list[torch.Tensor],
        why: str,
        report: Report = lambda stage: None,
    ) -> Plan:
        if self._held.target is None:
            raise InputError(
                f"no plan for this call: {why}. The engine was loaded from a file, without the "
                f"model, so it cannot make one; it has plans for: {self._held.listed()}"
                + (_GIVE_TYPES if is_typed(signature.structure) else "")
            )
        plan = make_plan(
            self._held.target,
            signature,
            tensors,
            self.settings,
            self.device,
            self._held.constants,
            name=self.name,
            reason=why,
            report=report,
        )
        self._held.add(plan)
        return plan

    def _capture(self, tensors: list[torch.Tensor], structure: Structure) -> Captured:
        assert self._held.target is not None
        return capture(self._held.target, tensors, structure, self.name, self._place)

    def _signature(self, tensors: list[torch.Tensor], structure: Structure) -> Signature:
        types = tuple(type_of(tensor) for tensor in tensors)
        return Signature(structure, types, self._training(), ambient(self.device.place))

    def _training(self) -> tuple[bool, ...]:
        return self._held.target.training if self._held.target is not None else ()

    def refresh(self) -> None:
        """Take over weights that were changed in a way that PyTorch does not count, such as through
        `.data.add_()` or NumPy. Edits in place, `load_state_dict`, replaced parameters, submodules,
        attributes and hooks need no call."""
        with self._lock:
            self._held.take_over_all()

    # Seeing

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans held, least recently used first."""
        return tuple(self._held)

    def explain(self, *, tasks: bool = False) -> str:
        """What was decided for each plan, and why. `tasks=True` replays each plan on its example
        and lists its tasks, with the times predicted and measured."""
        with self._lock:
            self._held.notice_changes()
        return explain_plans(
            self.name, self.device.describe(self.settings), self.plans, tasks=tasks
        )

    def timeline(self, plan: int = -1) -> Timeline:
        """One measured replay of a plan (the last used, unless told), on its example inputs. The
        model's state is left alone."""
        with self._lock:
            self._held.notice_changes()
        plans = self.plans
        if not plans:
            raise InputError("the engine has no plan now; call it first")
        if type(plan) is not int or not -len(plans) <= plan < len(plans):
            raise InputError(
                f"timeline({plan!r}): the engine has {len(plans)} plans; expected a number from "
                f"{-len(plans)} to {len(plans) - 1}"
            )
        chosen = plans[plan]
        return Timeline.of(chosen.schedule, chosen.replay.measure(chosen.example))

    def save(self, path: str | Path) -> None:
        """Write all plans of the current train or eval mode, and the weights, to one file for
        `nimble.load`. With pad="batch", every number of rows is tried first that may be padded: the
        file says which."""
        with self._lock:
            self._held.notice_changes()
            mode = self._training()
            plans = [plan for plan in self.plans if plan.signature.training == mode]
            for plan in plans if self._held.target is not None else ():
                self._prove_padding(plan)
        kind = self.device.kind
        parameters = self._held.parameters
        write_engine(Path(path), self.name, self.settings, plans, parameters, self._pad, kind)

    def _prove_padding(self, plan: Plan) -> None:
        """Find out for all rows between a plan and the rung below whether they may be padded."""
        for rows in range(rows_of(plan.signature) if plan.paddable else 0):
            tensors = fewer(plan, rows)
            signature = self._signature(tensors, plan.signature.structure)
            fit = next_rung(self._held, signature)
            if fit is not None and fit[0] is plan:
                self._why_unpaddable(plan, tensors, rows)

    def after_fork(self) -> None:
        """In the child: whoever held the lock, compiling say, is gone."""
        self._lock = threading.RLock()

    def __reduce__(self) -> Any:
        raise TypeError(
            "an Engine cannot be copied or pickled: it is bound to memory and threads of this "
            "process. Use engine.save(path) and nimble.load(path), or compile the copied model"
        )

    def __repr__(self) -> str:
        return (
            f"Engine({self.name}, {len(self._held)} plans, {self.device.describe(self.settings)})"
        )


_GIVE_TYPES = ". Arguments of a class of your own need nimble.load(..., types=[TheClass])"
_engines: WeakSet[Engine] = WeakSet()


def _after_fork() -> None:
    for engine in _engines:
        engine.after_fork()


os.register_at_fork(after_in_child=_after_fork)

# torch.compile of a function that calls an engine breaks the graph there: what is a replay already
# needs no tracing. The same as torch.compiler.disable, without its wrapper around every call.
_SKIP = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)
set_code_exec_strategy(Engine.__call__.__code__, _SKIP)
Engine.__call__._torchdynamo_disable = True  # type: ignore[attr-defined]
Engine.__call__._torchdynamo_disable_msg = "an engine is compiled"  # type: ignore[attr-defined]
