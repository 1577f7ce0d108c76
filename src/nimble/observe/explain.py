"""A plan in words: what was decided, why, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from nimble.devices.cpu import ReplayPool
from nimble.graph import Graph
from nimble.rewrite import Step
from nimble.signature import Signature, type_text


class Explained(Protocol):
    """What `explain` reads of a plan."""

    signature: Signature
    names: list[str]
    captured_tasks: int
    graph: Graph
    steps: tuple[Step, ...]
    replay: ReplayPool
    reason: str
    choice: str
    seconds: dict[str, float]
    measured_ns: int | None


def explain_plans(name: str, workers: int, plans: Sequence[Explained]) -> str:
    lines = [f"{name}: {_count(len(plans), 'plan')}, {_count(workers, 'worker')}"]
    for number, plan in enumerate(plans):
        lines += ["", *_plan(number, plan)]
    return "\n".join(lines)


def _plan(number: int, plan: Explained) -> list[str]:
    schedule, graph = plan.replay.schedule, plan.graph
    decision = schedule.decision
    inputs = ", ".join(
        f"{n}: {type_text(t)}" for n, t in zip(plan.names, plan.signature.tensors, strict=True)
    )
    lines = [f"plan {number}: {inputs or 'no inputs'}"]
    lines.append(f"  why           {plan.reason}")
    compiled = sum(plan.seconds.values())
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in plan.seconds.items())
    lines.append(f"  made in       {compiled:.2f} s ({stages})")
    lines.append(f"  captured      {_count(plan.captured_tasks, 'task')}")
    for step in plan.steps:
        if not step.detail:
            continue
        change = _count(step.tasks_after - step.tasks_before, "task", "+")
        lines.append(f"  rewritten     {step.name}: {change}; {step.detail}")
    lines.append(
        f"  scheduled     {_count(len(graph.tasks), 'task')} on "
        f"{_count(len(schedule.streams), 'stream')} with {_count(len(schedule.waits), 'wait')}; "
        f"{plan.choice}"
    )
    lines.append(
        f"  concurrency   {_count(decision.chains, 'chain')} at full concurrency, at most "
        f"{_count(decision.width, 'task')} independent of each other, "
        f"{decision.concurrency:.2f} busy on average"
    )
    bound, total = schedule.arena_lower_bound, schedule.intermediates_bytes
    over = f"{schedule.arena_bytes / bound:.3f} x its lower bound" if bound else "nothing to hold"
    share = f", {100 * schedule.arena_bytes / total:.0f} % of all intermediates" if total else ""
    lines.append(
        f"  arena         {_bytes(schedule.arena_bytes)}, {over}{share}; in sequence the bound is "
        f"{_bytes(schedule.sequential_lower_bound)}"
    )
    if len(plan.replay) > 1:
        lines.append(f"  callers       {len(plan.replay)} at once, each with an arena of its own")
    lines.append(
        f"  predicted     {decision.predicted_ns / 1e6:.3f} ms "
        f"(critical path {decision.critical_path_ns / 1e6:.3f} ms, "
        f"in sequence {decision.sequential_ns / 1e6:.3f} ms)"
    )
    if plan.measured_ns is not None:
        lines.append(f"  measured      {plan.measured_ns / 1e6:.3f} ms, median")
    lines.append("  proven        no two tasks race; no value is overwritten while it is needed")
    lines += _kernels(plan)
    return lines


def _kernels(plan: Explained) -> list[str]:
    how = Counter(plan.replay.kinds.values())
    meanings = {
        "native": "by native kernels",
        "out": "by ATen into the arena",
        "copy": "by ATen with an allocation and a copy",
        "inplace": "updating state in place",
    }
    parts = [f"{how[kind]} {text}" for kind, text in meanings.items() if how[kind]]
    lines = [f"  kernels       {', '.join(parts) or 'none'}"]
    copied = Counter(t.op for t in plan.graph.tasks if plan.replay.kinds[t.name] == "copy")
    if copied:
        names = ", ".join(f"{op} x{n}" for op, n in copied.most_common(6))
        lines.append(f"  copied        {names}")
    return lines


def _count(number: int, what: str, sign: str = "") -> str:
    return f"{number:{sign}} {what}" if abs(number) == 1 else f"{number:{sign}} {what}s"


def _bytes(number: int) -> str:
    for unit in ("B", "KB", "MB"):
        if number < 10_000:
            return f"{number} {unit}" if unit == "B" else f"{number:,.0f} {unit}"
        number = round(number / 1000)
    return f"{number:,.0f} GB"
