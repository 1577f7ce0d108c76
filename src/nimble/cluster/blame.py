"""Whose fault it is that a run cannot go on: the policy's, with the line; or the rules'."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from traceback import FrameSummary, extract_tb
from typing import Any

from nimble.cluster.job import Job
from nimble.cluster.keeper import Keeper
from nimble.cluster.state import JobState
from nimble.cluster.topology import Placement, Topology

_JSON = "a dict with text as keys, a list, text, a finite number, true, false or None"


def job_named(state: JobState) -> str:
    return f"job {state.id} ({state.job.name})"


def raised(error: Exception, policy: object) -> str:
    """What a policy raised, and where: in its own file, and further down if it was there."""
    frames = extract_tb(error.__traceback__)
    decide = getattr(type(policy), "decide", None)
    own = getattr(getattr(decide, "__code__", None), "co_filename", "")
    mine = [frame for frame in frames if frame.filename == own] or frames[1:2] or frames
    where = _line(mine[-1])
    if frames[-1] is not mine[-1]:
        where += f", which came to {_line(frames[-1])}"
    return f"raised {error!r} at {where}"


def _line(frame: FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno} in {frame.name}"


def answer_fault(answer: Any) -> str | None:
    """What is wrong with the shape of what `decide` gave back."""
    if type(answer) is not tuple or len(answer) != 3:
        return f"gave back {_shown(answer)}; expected (actions, memory, wake_at)"
    actions, memory, wake_at = answer
    if type(actions) is not list and type(actions) is not tuple:
        return f"gave back {_shown(actions)} as its actions; expected a list"
    if type(memory) is not dict:
        return f"gave back {_shown(memory)} as its memory; expected a dict"
    if type(wake_at) is not float and not isinstance(wake_at, (int, float)):
        return f"gave back {_shown(wake_at)} as wake_at; expected seconds, inf for never"
    return None


def memory_fault(memory: Any) -> str | None:
    """What of a memory `json` could not write and read back as it was."""
    if type(memory) is not dict:
        return f"gave back {_shown(memory)} as its memory; expected a dict"
    found = _unwritable(memory, "memory")
    return None if found is None else f"keeps {found}; expected {_JSON}"


def _unwritable(value: Any, path: str) -> str | None:
    if value is None or isinstance(value, (str, bool, int)):
        return None
    if isinstance(value, float):
        return None if isfinite(value) else f"{path} = {value}"
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                return f"the key {_shown(key)} in {path}"
            found = _unwritable(inner, f"{path}[{key!r}]")
            if found is not None:
                return found
        return None
    if isinstance(value, list):
        for place, inner in enumerate(value):
            found = _unwritable(inner, f"{path}[{place}]")
            if found is not None:
                return found
        return None
    return f"{path} = {_shown(value)}"


def _shown(value: object) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def gang_fault(
    state: JobState, placement: Placement, topology: Topology, keeper: Keeper | None
) -> str | None:
    """Why a job may not run there, whether or not the GPUs are free."""
    job = state.job
    try:
        machines = [machine for machine, _ in placement]
        counts = [count for _, count in placement]
        gpus = sum(counts)
    except (TypeError, ValueError):
        return f"gave {job_named(state)} {_shown(placement)}; expected ((machine, GPUs), ...)"
    if not job.gpus_min <= gpus <= job.gpus_max:
        wanted = f"{job.gpus_min}"
        if job.gpus_max != job.gpus_min:
            wanted += f" to {job.gpus_max}"
        return f"gave {job_named(state)} {gpus} GPUs; its gang is {wanted}"
    if min(counts) < 1:
        return f"gave {job_named(state)} {placement}; expected one GPU or more of each machine"
    if (len(machines) > 1 and machines != sorted(set(machines))) or not (
        machines[0] >= 0 and machines[-1] < len(topology.machines)
    ):
        return f"gave {job_named(state)} {placement}: not distinct machines, ascending"
    if keeper is None:
        return None
    room = keeper.room(job)
    if gpus > room:
        return (
            f"gave {job_named(state)} {gpus} GPUs; the quota of tenant {job.tenant!r} has "
            f"{room:.0f} left"
        )
    if not keeper.may_use(job, placement):
        return (
            f"put {job_named(state)} on {placement}, of which a machine is being drained or "
            f"reserved for others than tenant {job.tenant!r}"
        )
    return None


def shut_out(
    waiting: Collection[JobState], topology: Topology, keeper: Keeper | None, down: Sequence[int]
) -> dict[int, int]:
    """Of waiting jobs that could not start if the cluster were empty: the GPUs open to them."""
    left: dict[str, int] = {}
    found = {}
    for state in waiting:
        job = state.job
        if job.tenant not in left:
            left[job.tenant] = _open_to(job, topology, keeper, down)
        if left[job.tenant] < job.gpus_min:
            found[state.id] = left[job.tenant]
    return found


def _open_to(job: Job, topology: Topology, keeper: Keeper | None, down: Sequence[int]) -> int:
    return sum(
        machine.gpus
        for place, machine in enumerate(topology.machines)
        if not down[place] and (keeper is None or keeper.may_use(job, ((place, 1),)))
    )
