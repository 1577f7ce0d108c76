"""The sentence that says who wins."""

from nimble.bench.result import Row
from nimble.bench.verdict import verdict

OURS = Row("net", "nimble", 1, True, ratio=1, ratio_low=1, ratio_high=1)
FAILED = Row("net", "tvm", 1, False, "crashed: signal 11")


def peer(name, low, ratio, high):
    return Row("net", name, 1, True, ratio=ratio, ratio_low=low, ratio_high=high)


def test_peers_that_win_are_named_first_and_plainly():
    rows = [OURS, peer("eager", 2, 3, 4), peer("b", 0.7, 0.8, 0.9), peer("a", 0.4, 0.5, 0.6)]
    assert verdict(rows) == "Faster than Nimble: a (2.00 times as fast), b (1.25 times as fast)."


def test_an_interval_that_contains_1_is_no_win():
    rows = [OURS, peer("a", 0.9, 0.99, 1.1), peer("eager", 2, 3, 4)]
    assert verdict(rows) == "As fast as Nimble, as far as can be told: a."


def test_a_win_is_measured_by_the_next():
    rows = [OURS, peer("eager", 2, 3, 4), peer("a", 1.1, 1.2, 1.3), FAILED]
    assert verdict(rows) == "Nimble is the fastest: 1.20 times as fast as a (did not run: tvm)."


def test_without_two_there_is_no_winner():
    assert verdict([OURS, FAILED]) == "Nobody to compare Nimble with."
    lost = Row("net", "nimble", 1, False, "wrong: off by 1")
    assert verdict([lost, peer("eager", 1, 1, 1)]) == "Nimble did not take part."
