"""The native index of free GPUs and the agenda, against plain scans."""

from __future__ import annotations

import random
from math import inf

import pytest
from cluster_cases import cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_fleet import PlainFleet

from nimble._cluster import Fleet
from nimble.cluster import Options, grid
from nimble.cluster.floor import fleet_of


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_it_fits_where_a_scan_fits(seed):
    rng = random.Random(seed)
    topology = cluster(rng)
    fast, plain = fleet_of(topology, Options()), PlainFleet(topology)
    held = []
    for _ in range(60):
        gpus, tier = rng.randint(1, topology.gpus), rng.randrange(len(topology.tiers))
        choice = rng.randrange(3)
        placement = fast.fit(gpus, tier, choice)
        assert placement == plain.fit(gpus, tier, choice)
        if placement is not None and rng.random() < 0.7:
            assert sum(count for _, count in placement) == gpus
            assert topology.tier(placement) <= tier
            fast.take(placement)
            plain.take(placement)
            held.append(placement)
        elif held and rng.random() < 0.7:
            back = held.pop(rng.randrange(len(held)))
            fast.give(back)
            plain.give(back)
        if rng.random() < 0.2:
            machine, up = rng.randrange(len(topology.machines)), rng.random() < 0.5
            fast.set_open(machine, up)
            plain.set_open(machine, up)
        assert fast.free == plain.free
        domain = rng.randrange(len(topology.parent))
        assert fast.free_in(domain) == plain.free_in(domain)


def test_machines_of_other_classes_are_not_offered():
    topology = grid((2, 2, 4))
    fleet = Fleet([4] * 4, list(topology.parent), list(topology.capacity), classes=2)
    fleet.set_class(0, 1)
    fleet.set_class(1, 1)
    assert fleet.fit(4, 0, 0, 0b10) == ((0, 4),)
    assert fleet.fit(4, 0, 0, 0b01) == ((2, 4),)
    assert fleet.fit(8, 1, 0, 0b01) == ((2, 4), (3, 4))
    assert fleet.fit(9, 2, 0, 0b01) is None
    assert fleet.fit(9, 2, 0, 0b11) == ((0, 4), (1, 4), (2, 1))
    assert fleet.free_in(6, 0b10) == 8


def test_what_is_not_free_cannot_be_taken():
    fleet = fleet_of(grid((2, 4)), Options())
    fleet.take(((0, 3),))
    with pytest.raises(ValueError, match="0"):
        fleet.take(((0, 2), (1, 1)))
    assert fleet.free == 5
    fleet.set_open(1, False)
    with pytest.raises(ValueError, match="1"):
        fleet.take(((1, 1),))


def test_ends_are_moved_when_rates_change():
    fleet = Fleet([1, 1], [2, 2, -1], [10.0, 10.0])
    fleet.begin(1, 0.0, 0.0, 0.0, 100.0, 1.0, 10.0, ((0, 1.0),))
    fleet.settle(0.0)
    assert fleet.next() == (100.0, 1)
    fleet.begin(2, 50.0, 50.0, 0.0, 10.0, 1.0, 10.0, ((0, 1.0),))
    assert fleet.settle(50.0) == [(1, 0.5), (2, 0.5)]
    assert fleet.next() == (70.0, 2)
    assert fleet.end(2, 70.0) == 10.0
    assert fleet.settle(70.0) == [(1, 1.0)]
    assert fleet.next() == (110.0, 1)
    assert fleet.done(1, 70.0) == 60.0
    assert fleet.shared_link_s(110.0) == 20.0
    assert fleet.slowed_s(110.0) == 40.0
    fleet.end(1, 110.0)
    assert fleet.next() == (inf, -1)


def test_a_failure_goes_back_to_the_last_checkpoint():
    fleet = Fleet([1], [-1], [], True, 30.0)
    fleet.begin(1, 0.0, 10.0, 5.0, 1000.0, 2.0, 1.0, ())
    assert fleet.fail(1, 75.0) == 5.0 + 60 * 2.0  # checkpoints at 40 and 70 s
    fleet.begin(1, 75.0, 80.0, 125.0, 1000.0, 2.0, 1.0, ())
    assert fleet.fail(1, 79.0) == 125.0
