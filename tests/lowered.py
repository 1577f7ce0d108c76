"""A model before lowering, after it and in tiles: all must agree."""

from dataclasses import dataclass, replace

from nimble.capture import Target, capture
from nimble.capture.structure import flatten
from nimble.compare import relative_error
from nimble.devices.cpu import Replay, make_constants, supported
from nimble.graph import verify
from nimble.lower import lower, split
from nimble.rewrite import rewrite
from nimble.schedule import schedule
from nimble.train.arithmetic import arithmetic


@dataclass(frozen=True)
class Opened(Target):
    """Traced as a training step is: gradients as the arithmetic that they are made of."""

    @property
    def decompositions(self):
        return arithmetic()


def graphs(model, args, *, opened=False):
    """Before lowering, after it, and with every task in tiles; and the model's tensors."""
    tensors, structure = flatten((args, {}))
    target = Target.of(model)
    if opened:
        target = Opened(target.function, target.modules, target.reached)
    captured = capture(target, tensors, structure, "m")
    plain = rewrite(captured.graph)[0]
    lowered = verify(lower(plain, supported)[0])
    long = lowered.with_tasks(replace(task, cost=10**6) for task in lowered.tasks)
    return plain, lowered, verify(split(long, 2, 1, supported)), captured.tensors, tensors


def run(graph, tensors, inputs, streams=1, *, in_order=False):
    """Results, and then the inputs and the model's tensors as they are afterwards."""
    held = make_constants().of(graph, tensors)
    given = [tensor.clone() for tensor in inputs]
    state = {name: tensor.clone() for name, tensor in tensors.items()}
    replay = Replay(schedule(graph, streams=streams, in_order=in_order), {**state, **held})
    return [*replay(given), *given, *state.values()]


def agree(model, *args):
    plain, lowered, tiled, tensors, inputs = graphs(model, args)
    expected = run(plain, tensors, inputs)
    for graph, streams in ((lowered, 1), (tiled, 1), (tiled, 2)):
        got = run(graph, tensors, inputs, streams)
        assert relative_error(got, expected) < 1e-3  # Two roundings of one result: check is exact.
    return lowered, tiled


def fell_back(graph):
    """The operators that ATen computes."""
    return [task.op for task in graph.tasks if not task.op.startswith("nimble.")]
