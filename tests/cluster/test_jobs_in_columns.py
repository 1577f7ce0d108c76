"""Jobs kept in columns are the same jobs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nimble.cluster.job import Job
from nimble.cluster.jobs import Jobs
from nimble.cluster.profile import Profile
from nimble.errors import InputError

PROFILES = [Profile("a", 1.0, (4,)), Profile("b", 2.0, (8, 8))]


@st.composite
def some_jobs(draw):
    times = sorted(draw(st.lists(st.floats(0, 1e6), max_size=20)))
    made = []
    for place, submit in enumerate(times):
        least = draw(st.integers(1, 8))
        made.append(
            Job(place, draw(st.sampled_from(["x", "y"])), submit, least,
                least + draw(st.integers(0, 8)), draw(st.integers(1, 10**12)),
                draw(st.sampled_from(PROFILES)), 3.0, 4.0, draw(st.integers(0, 3)),
                draw(st.sampled_from(["", "t"])))
        )  # fmt: skip
    return made


@given(some_jobs())
def test_columns_give_back_every_job(jobs):
    columns = Jobs.of(jobs)
    assert list(columns) == jobs
    assert [columns[place] for place in range(len(jobs))] == jobs


@given(some_jobs())
def test_a_slice_is_numbered_from_zero_again(jobs):
    part = Jobs.of(jobs)[1::2]
    assert [job.id for job in part] == list(range(len(jobs[1::2])))
    assert [job.submit_s for job in part] == [job.submit_s for job in jobs[1::2]]
    assert [job.name for job in part] == [job.name for job in jobs[1::2]]


def test_columns_must_fit_and_be_in_order():
    one, two = np.ones(1, np.int32), np.ones(2, np.int32)
    long, model = np.ones(2, np.int64), np.zeros(2, np.int16)
    with pytest.raises(InputError, match="another length"):
        Jobs(np.zeros(2), one, two, long, model, tuple(PROFILES))
    with pytest.raises(InputError, match="order of their submission"):
        Jobs(np.array([2.0, 1.0]), two, two, long, model, tuple(PROFILES))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"gpus_min": 0}, "0 to 2 GPUs"),
        ({"gpus_min": 3}, "3 to 2 GPUs"),
        ({"iterations": 0}, "0 iterations"),
        ({"submit_s": -1.0}, "submit_s is -1.0"),
        ({"restart_s": float("inf")}, "restart_s is inf"),
        ({"checkpoint_s": float("nan")}, "checkpoint_s is nan"),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_name(changed, said):
    good = {"id": 7, "name": "seven", "submit_s": 0.0, "gpus_min": 1, "gpus_max": 2,
            "iterations": 1, "profile": PROFILES[0]}  # fmt: skip
    Job(**good)
    with pytest.raises(InputError, match=rf"job 7 \(seven\): {said}"):
        Job(**{**good, **changed})
