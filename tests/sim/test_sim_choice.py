"""Which streams are chosen for a GPU: the best prediction, within a limit on memory."""

from __future__ import annotations

import pytest
import torch
from schedule_graphs import from_edges, nasnet_like
from torch import nn

from nimble import zoo
from nimble.devices.sim import choose_for_gpu, costs, predict, predict_eager
from nimble.errors import InputError, MemoryLimitError
from nimble.foresee import Subject, capture_call, foresee
from nimble.graph import Costs, Graph
from nimble.schedule import prove, schedule


def network(name: str) -> Subject:
    model, inputs = zoo.untrained(name)
    return capture_call(model, inputs, {}, name)


class Branches(nn.Module):
    """Four long and narrow ways from the input to the output."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = nn.ModuleList(
            nn.Sequential(*(nn.Conv2d(16, 16, 3, padding=1, bias=False) for _ in range(6)))
            for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([way(x) for way in self.ways], 1)


@pytest.fixture(scope="module")
def branches() -> Graph:
    return capture_call(Branches(), (torch.randn(1, 16, 14, 14),), {}, "branches").planned


def test_narrow_branches_run_beside_each_other(branches):
    built, prediction, reasons = choose_for_gpu(branches, "v100")
    prove(built)
    single = predict(schedule(branches, streams=1), "v100")
    assert len(built.streams) == 4
    assert prediction.ns < 0.6 * single.ns
    assert prediction.ns >= prediction.critical_path_ns
    assert f"{prediction.ms:.3f} ms" in reasons[0]
    assert built.decision.predicted_ns == round(prediction.ns)


def test_branches_that_fill_the_gpu_each_do_not():
    model = Branches()
    graph = capture_call(model, (torch.randn(64, 16, 112, 112),), {}, "wide").planned
    built, _, reasons = choose_for_gpu(graph, "t4")
    assert len(built.streams) == 1
    assert "one stream" in reasons[0]


def test_a_chain_gains_nothing():
    seen = foresee(network("mobilenet_v2@64"), "v100")
    assert seen.choice.prediction.ns == seen.single.ns == seen.assigned.ns
    assert seen.gain == 1
    assert seen.verdict.startswith("One stream: every task depends on the one before it")


def test_the_choice_is_never_predicted_slower_than_one_stream():
    for name in ("googlenet@64", "squeezenet@64", "bert_tiny@16"):
        for gpu in ("v100", "t4"):
            seen = foresee(network(name), gpu)
            assert seen.choice.prediction.ns <= seen.single.ns * 1.0001
            prove(seen.choice.schedule)


def test_a_cap_on_streams_holds(branches):
    for most in (1, 2, 3):
        built, prediction, _ = choose_for_gpu(branches, "v100", streams=most)
        assert len(built.streams) <= most
        assert len(prediction.streams) == len(built.streams)
    for wrong in (0, 33):
        with pytest.raises(InputError, match=f"streams={wrong}"):
            choose_for_gpu(branches, "v100", streams=wrong)
    with pytest.raises(InputError, match="memory_limit=-5"):
        choose_for_gpu(branches, "v100", memory_limit=-5)


def test_a_limit_on_memory_holds_or_says_what_is_possible(branches):
    free, _, _ = choose_for_gpu(branches, "v100")
    limit = free.arena_bytes - 64
    built, prediction, _ = choose_for_gpu(branches, "v100", memory_limit=limit)
    assert built.arena_bytes <= limit
    assert prediction.arena_bytes == built.arena_bytes
    with pytest.raises(MemoryLimitError, match="memory_limit=64"):
        choose_for_gpu(branches, "v100", memory_limit=64)


def test_tasks_are_handed_over_in_an_order_that_streams_and_waits_allow(branches):
    built, prediction, _ = choose_for_gpu(branches, "v100")
    place = {task: place for place, task in enumerate(prediction.launch)}
    assert sorted(place) == list(range(len(branches.tasks)))
    for stream in built.streams:
        assert [place[t] for t in stream] == sorted(place[t] for t in stream)
    assert all(place[wait.on] < place[wait.task] for wait in built.waits)


def test_the_list_scheduler_takes_the_costs(branches):
    prices: Costs = costs("v100")
    built = schedule(branches, streams=4, costs=prices)
    assert 1 < len(built.streams) <= 4
    assert prices.task(branches, branches.tasks[0]) > 0


def test_eager_is_as_slow_as_its_host_on_small_kernels():
    subject = network("mobilenet_v2@64")
    eager = predict_eager(subject.eager, "v100")
    assert eager.idle > 0.5
    assert eager.ns > 2 * predict(schedule(subject.planned, streams=1), "v100").ns


def test_modes_are_known(branches):
    built = schedule(branches, streams=1)
    assert predict(built, "v100", mode="launch").ns >= predict(built, "v100").ns
    with pytest.raises(InputError, match="expected one of graph, launch"):
        predict(built, "v100", mode="fast")


def test_a_graph_of_1500_tasks():
    graph = from_edges(nasnet_like(1500), [1 << 20] * 2000)
    built, prediction, _ = choose_for_gpu(graph, "v100")
    assert sum(map(len, built.streams)) == len(graph.tasks) >= 1500
    assert prediction.ns <= predict(schedule(graph, streams=1), "v100").ns


def test_an_empty_graph_takes_no_time():
    built, prediction, _ = choose_for_gpu(Graph("nothing", (), (), (), ()), "v100")
    assert built.streams == ()
    assert prediction.ns == 0


@pytest.mark.full
@pytest.mark.parametrize("gpu", ["v100", "h100", "t4"])
@pytest.mark.parametrize(
    "name", ["nasnet_a_mobile", "inception_v3", "googlenet", "resnet50", "randwire", "densenet121"]
)
def test_arenas_are_close_to_the_bound(name, gpu):
    built, _, _ = choose_for_gpu(network(name).planned, gpu)
    assert built.arena_bytes <= 1.02 * built.arena_lower_bound
    if name == "nasnet_a_mobile":
        assert built.arena_bytes <= 0.2 * built.intermediates_bytes
