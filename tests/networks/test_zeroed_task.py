"""`nimble check` is able to fail: zeroing the output of any one task is noticed."""

import dataclasses

import pytest

from nimble import zoo
from nimble.capture import Target, capture
from nimble.capture.structure import flatten
from nimble.compare import Reference
from nimble.devices.cpu import Replay, make_constants
from nimble.graph import DType, Task
from nimble.rewrite import rewrite
from nimble.schedule import schedule


def zeroed(graph, number):
    """The graph with task `number` giving zeros for its first result."""
    task = graph.tasks[number]
    first = graph[task.results[0]]
    others = tuple(v for v in task.writes if v != first.id)
    zeros = Task(
        name=task.name, op="aten.full.default", args=(first.shape, 0),
        kwargs=(("dtype", first.dtype),), reads=(), writes=(first.id,), results=(first.id,),
    )  # fmt: skip
    tasks = list(graph.tasks)
    tasks[number] = zeros
    assert not any(graph.readers.get(v) for v in others)
    used = [dataclasses.replace(v) for v in graph.values]
    return dataclasses.replace(graph, values=tuple(used), tasks=tuple(tasks))


@pytest.mark.parametrize("name", ["mobilenet_v2@32", "bert_tiny@16"])
def test_any_one_task_zeroed_is_noticed(name):
    model, args = zoo.build(name)
    tensors, structure = flatten((args, {}))
    reference = Reference.of(model, tensors, structure)
    made = capture(Target.of(model), tensors, structure, name)
    graph, _ = rewrite(made.graph)
    held = {**made.tensors, **make_constants().of(graph, made.tensors)}

    def differs(graph):
        got = Replay(schedule(graph, streams=1), held)(tensors)
        return reference.differs(dataclasses.replace(reference.outcome, results=got))

    assert not differs(graph)
    tasks = range(len(graph.tasks))
    for number in tasks:
        assert graph[graph.tasks[number].results[0]].dtype is not DType.TOKEN
        assert differs(zeroed(graph, number)), graph.tasks[number].name
