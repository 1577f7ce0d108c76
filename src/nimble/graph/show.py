"""A graph as text: one line a value or task, stable enough to be compared in golden tests."""

from __future__ import annotations

from nimble.graph.ir import Arg, DType, Graph, Ref, Symbol


def show(graph: Graph, *, costs: bool = False) -> str:
    """The graph as text. `costs` adds what each task takes, which is not stable between runs."""
    lines = [f"graph {graph.name}"]
    for value in graph.values:
        if value.base is not None or value.overwrites is not None or value.id in graph.writer:
            continue
        lines.append(f"  %{value.id} = {value.role} {value.name}: {value.type}")
    shown: set[int] = set()
    for task in graph.tasks:
        lines += _views(graph, task.reads, shown)
        arguments = [show_arg(a) for a in task.args]
        arguments += [f"{name}={show_arg(a)}" for name, a in task.kwargs]
        written = ", ".join(_written(graph, v) for v in task.writes)
        line = f"  {written} = {task.op}({', '.join(arguments)})"
        if task.kernel != "aten":
            line += f" by {task.kernel}"
        if costs and task.cost:
            line += f" ~{task.cost / 1000:.1f} us"
        lines.append(line)
    lines += _views(graph, graph.outputs, shown)
    lines.append(f"  return {', '.join(f'%{v}' for v in graph.outputs)}")
    if graph.prologue is not None:
        lines.append("prologue:")
        lines += ["  " + line for line in show(graph.prologue, costs=costs).splitlines()]
    return "\n".join(lines)


def _written(graph: Graph, id: int) -> str:
    value = graph[id]
    if value.overwrites is not None:
        return f"%{id}: {value.type} over %{value.overwrites}"
    if value.base is not None:
        return f"%{id}: {value.type} in %{value.base}+{value.offset}"
    return f"%{id}: {value.type}" + (" out" if value.role == "output" else "")


def _views(graph: Graph, ids: tuple[int, ...], shown: set[int]) -> list[str]:
    lines = []
    for v in ids:
        value = graph[v]
        if value.base is not None and v not in shown and v not in graph.writer:
            shown.add(v)
            lines.append(f"  %{v} = view %{value.base}+{value.offset}: {value.type}")
    return lines


def show_arg(arg: Arg) -> str:
    if isinstance(arg, Ref):
        return f"%{arg.id}"
    if isinstance(arg, Symbol):
        return arg.name
    if isinstance(arg, DType):
        return arg.value
    if isinstance(arg, tuple):
        return f"[{', '.join(map(show_arg, arg))}]"
    return repr(arg)
