"""Which task must happen before which."""

from __future__ import annotations

from sketch import Sketch

from nimble.graph import Ref, dependencies


def test_a_reader_waits_for_the_writers_of_what_it_reads() -> None:
    s = Sketch()
    x = s.root("input", "x", 2, 3)
    a, b = s.call("aten.exp.default", Ref(x)), s.call("aten.sin.default", Ref(x))
    s.call("aten.add.Tensor", Ref(s.transpose(a)), Ref(s.transpose(a)))
    assert dependencies(s.graph(b)) == [set(), set(), {0}]


def test_a_task_that_overwrites_waits_for_readers_of_the_old_contents() -> None:
    s = Sketch()
    state, x = s.root("state", "count", 2), s.root("input", "x", 2)
    s.call("aten.exp.default", Ref(state))
    s.call("aten.sin.default", Ref(x))
    new = s.update(state, x)
    s.call("aten.neg.default", Ref(new))
    s.update(new, x)
    assert dependencies(s.graph()) == [set(), set(), {0}, {2}, {0, 2, 3}]


def test_draws_of_random_numbers_keep_their_order() -> None:
    s = Sketch()
    token, x = s.root("state", "rng", dtype="token"), s.root("input", "x", 2)
    _, token = s.draw(token, "aten.bernoulli.default", Ref(x))
    s.draw(token, "aten.bernoulli.default", Ref(x))
    assert dependencies(s.graph()) == [set(), {0}]
