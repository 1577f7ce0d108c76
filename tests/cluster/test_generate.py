"""Made-up jobs have the mix's shares, come as asked, and are the same for the same seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nimble.cluster.arrivals import measured, offered_load, speed_up, to_load
from nimble.cluster.generate import generate
from nimble.cluster.mixes import DALLY, HOURLY, MIXES, PHILLY, find_mix
from nimble.cluster.profiles import bundled
from nimble.cluster.work import solo_by_job
from nimble.errors import InputError


def alone(profile, gpus):
    return profile.compute_s


def made(mix=DALLY, jobs=500, **how):
    return generate(mix, jobs, alone, bundled(), **({"arrivals": "batch"} | how))


def durations(jobs):
    return jobs.iterations * solo_by_job(jobs.profiles, jobs.model, jobs.gpus_max, alone)


@pytest.mark.parametrize("seed", [0, 7])
def test_500_jobs_of_dally_are_the_published_ones(seed):
    jobs = made(seed=seed)
    sizes, counts = np.unique(jobs.gpus_max, return_counts=True)
    assert dict(zip(sizes.tolist(), counts.tolist(), strict=True)) == {
        1: 270, 2: 13, 4: 52, 8: 109, 16: 42, 32: 11, 40: 1, 48: 1, 56: 1,
    }  # fmt: skip
    names = [jobs.profiles[place].name for place in jobs.model]
    assert {name: names.count(name) for name in set(names)} == {
        "mobilenet_v3": 125, "bert_large": 125, "resnet50": 125, "alexnet": 53, "resnet18": 38,
        "vgg11": 34,
    }  # fmt: skip
    seconds = durations(jobs)
    assert np.quantile(seconds, 0.1) == pytest.approx(2_667, rel=0.02)
    assert np.median(seconds) == pytest.approx(14_369, rel=0.02)
    assert seconds.mean() == pytest.approx(52_714, rel=0.01)
    assert np.quantile(seconds, 0.99) == pytest.approx(322_463, rel=0.02)
    assert np.dot(seconds, jobs.gpus_max) / 86_400 == pytest.approx(544, rel=0.02)
    assert set(jobs.submit_s) == {0.0}


def test_philly_is_mostly_single_gpus():
    jobs = made(PHILLY, 20_000)
    assert np.mean(jobs.gpus_max > 1) == pytest.approx(0.068, abs=0.001)
    assert np.median(durations(jobs)) == pytest.approx(1_144, rel=0.05)


def test_seeds_change_the_jobs_and_nothing_else_does():
    first, again, other = made(seed=1), made(seed=1), made(seed=2)
    assert list(first) == list(again)
    assert list(first) != list(other)


@settings(max_examples=25, deadline=None)
@given(
    jobs=st.integers(2, 300),
    load=st.floats(0.05, 3),
    mix=st.sampled_from(sorted(MIXES)),
    seed=st.integers(0, 99),
)
def test_poisson_arrivals_offer_exactly_the_load_asked_for(jobs, load, mix, seed):
    found = made(MIXES[mix], jobs, arrivals="poisson", load=load, cluster_gpus=64, seed=seed)
    assert offered_load(found, 64, alone) == pytest.approx(load)
    assert len(found) == jobs
    assert np.all(np.diff(found.submit_s) >= 0)


def test_poisson_gaps_are_exponential():
    gaps = np.diff(made(jobs=20_000, arrivals="poisson", jobs_per_day=864).submit_s)
    assert gaps.mean() == pytest.approx(100, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)


def test_diurnal_arrivals_follow_the_hours():
    jobs = made(jobs=60_000, arrivals="diurnal", jobs_per_day=2_000)
    hours = np.bincount((jobs.submit_s % 86_400 // 3_600).astype(int), minlength=24)
    assert hours / hours.mean() == pytest.approx(np.array(HOURLY) / np.mean(HOURLY), abs=0.08)
    assert np.all(np.diff(jobs.submit_s) >= 0)


def test_diurnal_arrivals_come_near_the_load_and_keep_the_days_length():
    jobs = made(PHILLY, 20_000, arrivals="diurnal", load=0.8, cluster_gpus=256)
    assert offered_load(jobs, 256, alone) == pytest.approx(0.8, rel=0.05)


def test_speedup_divides_the_times_and_multiplies_the_load():
    jobs = made(arrivals="poisson", load=0.5, cluster_gpus=64)
    fast = speed_up(jobs, 4)
    assert fast.submit_s == pytest.approx(jobs.submit_s / 4)
    assert offered_load(fast, 64, alone) == pytest.approx(2.0)
    assert to_load(fast, 0.5, 64, alone).submit_s == pytest.approx(jobs.submit_s)


def test_warm_up_leaves_out_the_first_jobs_from_what_counts():
    jobs = made(jobs=1_000, arrivals="poisson", jobs_per_day=100)
    part = measured(jobs, warm_up=0.2, cool_down=0.1)
    last = jobs.submit_s[-1]
    assert jobs.submit_s[part.start] >= 0.2 * last > jobs.submit_s[part.start - 1]
    assert jobs.submit_s[part.stop - 1] <= 0.9 * last < jobs.submit_s[part.stop]
    assert measured(jobs) == range(1_000)


def test_jobs_above_the_largest_ask_for_the_largest():
    assert made(largest=16).gpus_max.max() == 16


def test_tenants_share_the_jobs():
    jobs = made(tenants=4, jobs=2_000)
    assert {job.tenant for job in jobs} == {"tenant0", "tenant1", "tenant2", "tenant3"}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"jobs": 0}, "0 jobs asked for"),
        ({"load": 0.5}, "come at once"),
        ({"arrivals": "poisson"}, "one of load and jobs_per_day"),
        ({"arrivals": "poisson", "load": 0.5}, "give cluster_gpus"),
        ({"arrivals": "weekly", "jobs_per_day": 3}, "batch, poisson or diurnal"),
        ({"arrivals": "poisson", "jobs_per_day": 0}, "0 jobs a day"),
    ],
)
def test_what_cannot_be_made_is_refused(how, said):
    with pytest.raises(InputError, match=said):
        made(**how)


def test_wrong_numbers_are_refused():
    batch = made()
    with pytest.raises(InputError, match="all come at once"):
        offered_load(batch, 64, alone)
    with pytest.raises(InputError, match="speedup 0"):
        speed_up(batch, 0)
    with pytest.raises(InputError, match="shares below 1"):
        measured(batch, warm_up=0.6, cool_down=0.4)
    with pytest.raises(InputError, match="expected one of dally, philly"):
        find_mix("helios")
    with pytest.raises(InputError, match="no profile for alexnet"):
        generate(DALLY, 5, alone, {}, arrivals="batch")
    with pytest.raises(InputError, match=r"takes 0\.0 s; expected more than 0"):
        generate(DALLY, 5, lambda profile, gpus: 0.0, bundled(), arrivals="batch")
