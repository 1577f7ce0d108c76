"""A user's policy is one class in one file."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimble.cluster import Job, Profile, grid, simulate
from nimble.cluster.policies.own import load_policy
from nimble.errors import InputError

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_policy.py"
ONE = Profile("one", 1.0, (1000,))


def test_the_example_runs():
    jobs = [Job(i, f"j{i}", 0.0, gpus, gpus, 10, ONE) for i, gpus in enumerate((4, 2, 3))]
    result = simulate(grid((4,)), jobs, load_policy(f"{EXAMPLE}:SmallestFirst"))
    assert result.policy == "smallest-first"
    assert list(result.first_start_s.round()) == [20.0, 0.0, 10.0]


def test_names_take_parameters():
    assert load_policy("dally", lease_s=20.0).lease_s == 20.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dolly", "policy 'dolly': expected one of dally"),
        ("nowhere.py:Mine", "there is no file nowhere.py"),
        (f"{EXAMPLE}:Mine", "has no class Mine; it has SmallestFirst$"),
    ],
)
def test_what_is_not_there_is_named(text, message):
    with pytest.raises(InputError, match=message):
        load_policy(text)


def test_a_file_that_raises_and_a_class_that_is_no_policy_are_named(tmp_path):
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(InputError, match="raised ZeroDivisionError"):
        load_policy(f"{tmp_path / 'bad.py'}:Mine")
    (tmp_path / "odd.py").write_text("class Mine:\n    name = 'mine'\n")
    with pytest.raises(InputError, match="has no `rank`"):
        load_policy(f"{tmp_path / 'odd.py'}:Mine")
