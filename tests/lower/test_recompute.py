"""Tasks run twice: the same results, with fewer bytes alive."""

from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_graphs import from_edges, sized_dags

from nimble.graph import Graph, verify
from nimble.lower.recompute import is_again, recompute
from nimble.schedule import prove, schedule
from nimble.schedule.lifetimes import homes, peak


def meaning(graph: Graph) -> list[object]:
    """What the outputs are computed from, as a term of tasks."""
    terms: dict[int, object] = {}
    for task in graph.tasks:
        name = task.name.partition(" again ")[0]
        args = tuple(terms.get(ref.id, graph[ref.id].name) for ref in task.args)
        for place, v in enumerate(task.results):
            terms[v] = name, place, args
    return [terms[v] for v in graph.outputs]


def alive(graph: Graph) -> int:
    return peak(homes(graph), range(len(graph.tasks)))


@settings(max_examples=300, deadline=None)
@given(graph=sized_dags(12), share=st.floats(0.2, 1.0), workers=st.integers(1, 3))
def test_the_same_is_computed_within_the_limit(graph, share, workers):
    limit = int(alive(graph) * share)
    lean = recompute(graph, limit)
    if lean is None:
        return
    assert alive(verify(lean)) <= limit
    assert meaning(lean) == meaning(graph)
    assert len(lean.tasks) - len(graph.tasks) == sum(map(is_again, lean.tasks))
    prove(schedule(lean, streams=workers))


def test_what_a_way_back_needs_is_computed_again():
    """Four tasks forward and four back, each of which needs what its like made."""
    before = [set(), {0}, {1}, {2}, {3}, {4, 2}, {5, 1}, {6, 0}]
    sizes = [100, 1000, 1000, 1000, 10, 10, 10, 10]
    graph = from_edges(before, sizes, [10] * 8)
    assert alive(graph) > 3000
    lean = recompute(graph, 2500)
    assert lean is not None
    assert alive(lean) <= 2500
    # Whatever the streams, it does not run until the way back has begun.
    for streams in (1, 2, 3, None):
        built = schedule(lean, streams=streams)
        assert built.arena_bytes <= 2500


def test_nothing_changes_where_it_fits():
    graph = from_edges([set(), {0}, {1}], [100, 100, 100])
    assert recompute(graph, 1000) is graph


def test_what_is_needed_at_the_peak_stays():
    """Both large values are read by the same task."""
    graph = from_edges([set(), {0}, {0, 1}], [1000, 1000, 10])
    assert recompute(graph, 500) is None
