"""A graph as text."""

from __future__ import annotations

from dataclasses import replace

from sketch import Sketch

from nimble.graph import DType, Ref, Symbol, show
from nimble.rewrite import fold_constants

EXPECTED = """\
graph sketch
  %0 = input x: float32[2,3]
  %1 = state count: float32[2,2]
  %2 = constant exp_0: float32[2,3]
  %5 = state rng: token[]
  %3 = view %2+0: float32[3,2](1,3)
  %4: float32[2,2] = aten.mm.default(%0, %3)
  %6: float32[2,2], %7: token[] = aten.bernoulli.p(%4, 0.5)
  %8: float32[2,2] over %1 = aten.copy_.default(%1, %6)
  %9: float64[2,2] out = aten._to_copy.default(%8, dtype=float64, memory_format=preserve_format)
  return %9
prologue:
  graph sketch.prologue
    %0 = parameter w: float32[2,3]
    %1: float32[2,3] out = aten.exp.default(%0)
    return %1"""


def test_everything_a_graph_holds_is_shown() -> None:
    s = Sketch()
    x, w = s.root("input", "x", 2, 3), s.root("parameter", "w", 2, 3)
    state = s.root("state", "count", 2, 2)
    product = s.call(
        "aten.mm.default", Ref(x), Ref(s.transpose(s.call("aten.exp.default", Ref(w))))
    )
    drawn, _ = s.draw(s.root("state", "rng", dtype="token"), "aten.bernoulli.p", Ref(product), 0.5)
    new = s.update(state, drawn)
    preserve = Symbol("memory_format", "preserve_format")
    out = s.call("aten._to_copy.default", Ref(new), dtype=DType.FLOAT64, memory_format=preserve)
    assert show(fold_constants(s.graph(out))) == EXPECTED


def test_kernels_and_costs_are_shown_where_known() -> None:
    s = Sketch()
    graph = s.graph(s.call("aten.relu.default", Ref(s.root("input", "x", 2))))
    graph = graph.with_tasks(replace(t, kernel="native.relu", cost=1500) for t in graph.tasks)
    assert "aten.relu.default(%0) by native.relu\n" in show(graph)
    assert "by native.relu ~1.5 us" in show(graph, costs=True)
