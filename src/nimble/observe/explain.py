"""A plan in words: what was decided, why, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch

from nimble.devices import Replayed
from nimble.graph import Graph
from nimble.rewrite import Step
from nimble.signature import Signature, type_text

MOST_OFF = 0.2
"""Of the predicted time that a measured one may differ without a word."""


class Explained(Protocol):
    """What `explain` reads of a plan."""

    signature: Signature
    names: list[str]
    captured_tasks: int
    graph: Graph
    steps: tuple[Step, ...]
    replay: Replayed
    reason: str
    choice: str
    seconds: dict[str, float]
    measured_ns: int | None
    example: list[torch.Tensor]


def explain_plans(name: str, where: str, plans: Sequence[Explained], *, tasks: bool = False) -> str:
    """`where`: what they run on. `tasks`: measure every plan, and list its tasks."""
    lines = [f"{name}: {_count(len(plans), 'plan')}, {where}"]
    for number, plan in enumerate(plans):
        lines += ["", *_plan(number, plan)]
        if tasks:
            lines += _tasks(plan)
    return "\n".join(lines)


def _tasks(plan: Explained) -> Iterator[str]:
    """Every task in the order in which it was measured: where, how long, and what was predicted."""
    yield "  tasks         stream   predicted µs   measured µs"
    listed = plan.graph.tasks
    lane = {t: lane for lane, stream in enumerate(plan.replay.schedule.streams) for t in stream}
    for span in sorted(plan.replay.measure(plan.example), key=lambda span: span.start):
        task = listed[span.task]
        measured = (span.stop - span.start) / 1e3
        yield (
            f"  {'':14}{lane[span.task]:6d}{task.cost / 1e3:15.1f}{measured:14.1f}   "
            f"{task.name} ({task.op})"
        )


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
    lines += [f"  {word:13} {line}" for word, line in plan.replay.remarks()]
    lines.append(
        f"  predicted     {decision.predicted_ns / 1e6:.3f} ms "
        f"(critical path {decision.critical_path_ns / 1e6:.3f} ms, "
        f"in sequence {decision.sequential_ns / 1e6:.3f} ms)"
    )
    if plan.measured_ns is not None:
        lines.append(f"  measured      {plan.measured_ns / 1e6:.3f} ms, median{_off(plan)}")
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
        "eager": "between captured parts",
    }
    parts = [f"{how[kind]} {text}" for kind, text in meanings.items() if how[kind]]
    lines = [f"  kernels       {', '.join(parts) or 'none'}"]
    other = [t for t in plan.graph.tasks if plan.replay.kinds[t.name] != "native"]
    times, cost = Counter(t.op for t in other), Counter[str]()
    for task in other:
        cost[task.op] += task.cost
    if other and plan.replay.native:
        whole = max(1, sum(t.cost for t in plan.graph.tasks))
        names = ", ".join(f"{op} x{times[op]} {ns / 1e3:.1f} µs" for op, ns in cost.most_common(6))
        more = f" and {len(cost) - 6} others" if len(cost) > 6 else ""
        share = 100 * sum(cost.values()) / whole
        lines.append(f"  fell back     {share:.0f} % of the time of all tasks: {names}{more}")
    return lines


def _off(plan: Explained) -> str:
    """A warning where the prediction is off by more than a fifth."""
    predicted = plan.replay.schedule.decision.predicted_ns
    if not plan.measured_ns or not predicted:
        return ""
    off = plan.measured_ns / predicted - 1
    if abs(off) <= MOST_OFF:
        return ""
    what = "longer" if off > 0 else "shorter"
    return f": {100 * abs(off):.0f} % {what} than predicted; explain(tasks=True) shows where"


def _count(number: int, what: str, sign: str = "") -> str:
    return f"{number:{sign}} {what}" if abs(number) == 1 else f"{number:{sign}} {what}s"


def _bytes(number: int) -> str:
    for unit in ("B", "KB", "MB"):
        if number < 10_000:
            return f"{number} {unit}" if unit == "B" else f"{number:,.0f} {unit}"
        number = round(number / 1000)
    return f"{number:,.0f} GB"
