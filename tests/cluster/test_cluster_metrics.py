"""The metrics of a run, against cases small enough to work out by hand."""

import json

import numpy as np
import pytest

from nimble.cluster import Job, Options, Outage, Profile, parse, simulate
from nimble.cluster.metrics import jain, metrics
from nimble.cluster.policies.fifo import Fifo
from nimble.cluster.spans import averaged, spans, within

SECOND = Profile("second", 1.0, ())  # an iteration takes a second and sends nothing


def job(place, submit_s, seconds, gpus=1, profile=SECOND, tenant=""):
    return Job(place, f"job{place}", submit_s, gpus, gpus, seconds, profile, tenant=tenant)


def test_two_jobs_on_one_gpu():
    result = simulate(parse("1"), [job(0, 0, 100, tenant="a"), job(1, 50, 100, tenant="b")], Fifo())
    found = metrics(result)
    assert found["jobs"] == found["finished"] == 2
    assert found["complete"]
    assert found["makespan_s"] == 200
    assert found["mean_jct_s"] == (100 + 150) / 2
    assert found["median_jct_s"] == 125
    assert found["p95_jct_s"] == pytest.approx(147.5)
    assert found["p99_jct_s"] == pytest.approx(149.5)
    assert found["queueing_s"] == 25
    assert found["utilisation"] == found["utilisation_submissions"] == 1
    assert found["peak_queue"] == 1
    assert found["placements"] == {"machine": 2}
    assert found["max_finish_ratio"] == pytest.approx(1.5)
    assert found["p95_finish_ratio"] == pytest.approx(1.475)
    assert found["jain_tenants"] == pytest.approx(jain([1, 100 / 150]))
    assert found["comm_share"] == 0


def test_idle_gpus_count_against_utilisation_and_submissions_have_their_own():
    # Two GPUs; one busy from 0 to 100, the other from 60 to 80: jobs came until 60.
    result = simulate(parse("2"), [job(0, 0, 100), job(1, 60, 20)], Fifo())
    found = metrics(result)
    assert found["utilisation"] == pytest.approx(120 / 200)
    assert found["utilisation_submissions"] == pytest.approx(60 / 120)


def test_communication_is_the_share_that_computing_does_not_hide():
    # A ring over two machines sends each byte once over a link of 12.5 GB/s: one second more.
    chatty = Profile("chatty", 1.0, (12_500_000_000,))
    result = simulate(parse("2x1"), [job(0, 0, 10, gpus=2, profile=chatty)], Fifo())
    found = metrics(result)
    assert found["comm_share"] == pytest.approx(0.5, abs=1e-4)
    assert found["makespan_s"] == pytest.approx(20, rel=1e-4)
    assert found["placements"] == {"machine": 0, "network": 1}


def test_only_counted_jobs_have_times():
    jobs = [job(0, 0, 100), job(1, 0, 10), job(2, 0, 30)]
    found = metrics(simulate(parse("3"), jobs, Fifo()), range(1, 3))
    assert found["mean_jct_s"] == 20
    assert found["counted"] == 2
    assert found["jobs"] == 3
    assert found["makespan_s"] == 100


def test_a_run_cut_short_says_so_and_is_valid_json():
    result = simulate(parse("1"), [job(0, 0, 100), job(1, 0, 100)], Fifo(), Options(until_s=50))
    found = metrics(result)
    assert not found["complete"]
    assert found["finished"] == 0
    assert found["mean_jct_s"] is None
    json.dumps(found, allow_nan=False)


def test_jain_is_one_for_equals_and_one_over_n_for_one_who_has_all():
    assert jain([3.0, 3.0, 3.0]) == 1
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25


def test_means_between_edges_are_exact():
    start, end = np.array([0.0, 1.0]), np.array([2.0, 4.0])
    mean = averaged(start, end, np.array([1.0, 10.0]), np.array([0.0, 1.5, 4.0]))
    assert mean == pytest.approx([(1.5 + 5) / 1.5, (0.5 + 25) / 2.5])


def test_spans_add_up_to_what_the_jobs_held_and_waited():
    rng = np.random.default_rng(0)
    jobs = [
        job(i, float(rng.integers(0, 500)), int(rng.integers(1, 90)), int(rng.integers(1, 9)))
        for i in range(80)
    ]
    result = simulate(parse("2x8"), jobs, Fifo())
    held, waits = spans(result.record)
    assert within(held, 0, result.end_s) == pytest.approx(result.gpu_s.sum())
    waited = np.bincount(waits.job, waits.end_s - waits.start_s, len(jobs))
    assert waited == pytest.approx(result.waited_s)


def test_failures_are_counted_until_the_last_job_has_ended():
    outages = (Outage(0, 40.0, 50.0), Outage(1, 60.0, 70.0), Outage(0, 9000.0, 9001.0))
    result = simulate(parse("2x1"), [job(0, 0, 100)], Fifo(), Options(outages=outages))
    found = metrics(result)
    assert (found["machine_failures"], found["failures"]) == (2, 2)
    assert found["finished"] == 1


def test_a_stopped_run_says_what_was_left():
    jobs = [job(0, 0, 10), job(1, 0, 100), job(2, 0, 100, gpus=2), job(3, 500, 10)]
    found = metrics(simulate(parse("2"), jobs, Fifo(), Options(until_s=50)))
    assert (found["finished"], found["running"], found["waiting"], found["to_come"]) == (1, 1, 1, 1)
    assert found["makespan_s"] is None
    assert found["simulated_s"] == 50
    assert found["utilisation"] == found["utilisation_submissions"] == (10 + 50) / 100
    assert found["queueing_s"] == pytest.approx(50 / 3)  # of the three that had come
    whole = metrics(simulate(parse("2"), jobs, Fifo()))
    assert (whole["running"], whole["waiting"], whole["to_come"]) == (0, 0, 0)
    assert whole["simulated_s"] == whole["makespan_s"] == 510
