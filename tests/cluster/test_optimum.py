"""Tiny cases: what an exhaustive search finds, and how far the policies are from it."""

from __future__ import annotations

import numpy as np
import pytest

from nimble.cluster.optimum import UNIT_S, Case, gaps, least_mean_s, mean_s, random_case
from nimble.cluster.policies import POLICIES
from nimble.errors import InputError


def test_the_search_knows_what_is_best():
    # The short one first: 1 and 4 units.
    assert least_mean_s(Case(1, ((0, 1, 3), (0, 1, 1)))) == 2.5 * UNIT_S
    # Preempting pays: the long one gives way to the one that comes after a unit.
    assert least_mean_s(Case(1, ((0, 1, 4), (1, 1, 1)))) == 3.0 * UNIT_S
    # Two small ones together before one that takes all GPUs.
    assert least_mean_s(Case(2, ((0, 2, 2), (0, 1, 2), (0, 1, 2)))) == pytest.approx(
        (2 + 2 + 4) / 3 * UNIT_S
    )


def test_on_one_gpu_srtf_is_optimal():
    rng = np.random.default_rng(7)
    for _ in range(15):
        case = random_case(rng)
        single = Case(1, tuple((submit, 1, units) for submit, _, units in case.jobs))
        assert mean_s(single, POLICIES["srtf"]()) == pytest.approx(least_mean_s(single), rel=1e-9)


def test_no_policy_beats_the_search_and_dally_plus_is_near_it():
    found = gaps(POLICIES, 20)
    assert found["dally+"][0] <= 0.15
    rng = np.random.default_rng(0)
    for _ in range(15):
        case = random_case(rng)
        best = least_mean_s(case)
        assert mean_s(case, POLICIES["srtf"]()) >= best * (1 - 1e-9)
        assert mean_s(case, POLICIES["dally+"]()) >= best * (1 - 1e-9)


def test_what_is_too_large_to_search_is_refused():
    with pytest.raises(InputError, match="at most 6 jobs"):
        least_mean_s(Case(1, ((0, 1, 1),) * 7))
