"""The whole way through, in seconds: if this fails, look here first."""

import json

import torch

import nimble


def model_with_branches() -> torch.nn.Module:
    class Branches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Sequential(
                torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
            )
            self.left = torch.nn.Conv2d(8, 8, 3, padding=1)
            self.right = torch.nn.Conv2d(8, 8, 1)

        def forward(self, x):
            x = self.stem(x)
            return torch.cat([self.left(x), self.right(x)], 1).mean((2, 3))

    return Branches().eval()


def test_compile_replay_explain_timeline_save_load(tmp_path):
    model, x = model_with_branches(), torch.randn(2, 3, 12, 12)
    engine = nimble.compile(model, (x,))
    expected = model(x)
    torch.testing.assert_close(engine(x), expected)
    assert "fold batch norm" in engine.explain()
    trace = json.loads(engine.timeline().save(tmp_path / "run.json").read_text())
    assert {e["name"] for e in trace["traceEvents"]} >= {
        t.name for t in engine.plans[0].graph.tasks
    }
    engine.save(tmp_path / "model.nimble")
    torch.testing.assert_close(nimble.load(tmp_path / "model.nimble")(x), expected)


def test_the_other_front_door():
    model, x = model_with_branches(), torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="nimble")(x), model(x))
