"""Build a graph by hand and schedule it, with no model and no device.

python examples/plan_by_hand.py
"""

import nimble
from nimble.graph import DType, Graph, RecordedCosts, Ref, Role, Task, Value, show

SIZE = 1024


def value(id: int, name: str, role: Role) -> Value:
    return Value(id, name, role, DType.FLOAT32, (SIZE,), (1,))


def task(name: str, op: str, read: tuple[int, ...], write: int, cost: int) -> Task:
    args = tuple(Ref(id) for id in read)
    return Task(name, op, args, reads=read, writes=(write,), results=(write,), cost=cost)


# x goes two ways, which meet again: a diamond.
graph = Graph(
    name="diamond",
    values=(
        value(0, "x", Role.INPUT),
        value(1, "left", Role.INTERMEDIATE),
        value(2, "right", Role.INTERMEDIATE),
        value(3, "y", Role.OUTPUT),
    ),
    tasks=(
        task("left", "aten.exp.default", (0,), 1, cost=20_000),
        task("right", "aten.tanh.default", (0,), 2, cost=30_000),
        task("sum", "aten.add.Tensor", (1, 2), 3, cost=5_000),
    ),
    inputs=(0,),
    outputs=(3,),
)
print(show(graph))

planned = nimble.schedule(graph, streams=2, costs=RecordedCosts(wait=1_000))
nimble.prove(planned)  # schedule() has done so already; a changed schedule needs it anew
print(f"\n{planned.decision.reason}")
for number, stream in enumerate(planned.streams):
    print(f"stream {number}: {[graph.tasks[t].name for t in stream]}")
for wait in planned.waits:
    print(f"{graph.tasks[wait.task].name} waits for {graph.tasks[wait.on].name}")
print(f"arena: {planned.arena_bytes} bytes, lower bound {planned.arena_lower_bound}")
