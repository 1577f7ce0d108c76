"""What an engine says of itself."""

import re

import torch
from torch import nn

import nimble


def engine():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8), nn.Softmax(-1))
    return nimble.compile(model, (torch.randn(4, 64),), workers=2)


def test_tasks_are_listed_with_what_was_predicted_and_measured():
    made = engine()
    text = made.explain(tasks=True)
    for task in made.plans[0].graph.tasks:
        line = next(line for line in text.splitlines() if line.endswith(f"{task.name} ({task.op})"))
        stream, predicted, measured = line.split()[:3]
        assert int(stream) in range(2)
        assert float(predicted) == round(task.cost / 1e3, 1)
        assert float(measured) >= 0
    assert "predicted µs" not in made.explain()


def test_what_fell_back_is_named_with_its_cost():
    made = nimble.compile(lambda x: x.sort()[0], (torch.randn(40),))
    line = next(line for line in made.explain().splitlines() if "fell back" in line)
    assert re.search(r"100 % of the time of all tasks: aten\.sort\S* x1 [\d.]+ µs", line)
    assert "fell back" not in nimble.compile(lambda x: x + 1, (torch.ones(3),)).explain()


def test_a_prediction_that_is_off_is_admitted():
    made = engine()
    plan = made.plans[0]
    predicted = plan.schedule.decision.predicted_ns
    plan.measured_ns = int(1.5 * predicted)
    assert "50 % longer than predicted" in made.explain()
    plan.measured_ns = int(1.1 * predicted)
    assert "than predicted" not in made.explain()
    plan.measured_ns = int(0.7 * predicted)
    assert "30 % shorter than predicted" in made.explain()
