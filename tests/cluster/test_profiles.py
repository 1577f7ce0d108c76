"""What a profile may say, the files it is in, and those that come with the package."""

import json

import pytest

from nimble.cluster.buckets import FIRST, FULL, bucketed, evenly
from nimble.cluster.mixes import MIXES
from nimble.cluster.profile import Profile, read_profiles, write_profile
from nimble.cluster.profiles import bundled, find_profile
from nimble.errors import InputError


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": ""}, "no name"),
        ({"compute_s": 0.0}, "compute_s is 0.0"),
        ({"compute_s": float("nan")}, "seconds above 0"),
        ({"buckets": (10, 0)}, "whole numbers of bytes above 0"),
        ({"overlap": 1.5}, "overlap is 1.5; expected a share from 0 to 1"),
        ({"skew": -0.1}, "skew"),
        ({"speeds": (("k80", 0.0),)}, "the speed on k80"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(changed, said):
    with pytest.raises(InputError, match=said):
        Profile(**{"name": "x", "compute_s": 1.0, "buckets": (4,), **changed})


def test_a_written_profile_reads_back_the_same(tmp_path):
    profile = Profile("x", 0.25, (3, 4), 0.5, 0.25, "made up", (("k80", 0.2), ("p100", 0.7)))
    write_profile(profile, tmp_path / "x.json")
    assert read_profiles(tmp_path / "x.json") == [profile]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("3", "expected a profile or a list"),
        ('{"name": "x", "buckets": [1]}', r"profile x: \['compute_s'\] missing"),
        ('{"name": "x", "compute_s": 1, "buckets": [1], "gpu": 3}', r"unknown fields \['gpu'\]"),
        ('{"name": "x", "compute_s": "slow", "buckets": [1]}', "profile x: could not convert"),
    ],
)
def test_a_file_of_profiles_that_is_wrong_says_where(tmp_path, text, said):
    (tmp_path / "profiles.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_profiles(tmp_path / "profiles.json")


def test_no_file_of_profiles(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_profiles(tmp_path / "nowhere.json")


def test_every_bundled_profile_says_its_source_and_every_mix_finds_its_models():
    profiles = bundled()
    assert all(profile.source for profile in profiles.values())
    for mix in MIXES.values():
        assert {name for name, _ in mix.models} <= set(profiles)
        assert all(len(group.durations_s) == len(mix.quantiles) for group in mix.groups)
    with pytest.raises(InputError, match="alexnet"):
        find_profile("resnet5")


def test_bundled_bytes_are_those_of_the_architectures():
    assert find_profile("resnet50").bytes == 4 * 25_557_032
    assert find_profile("vgg11").bytes == 4 * 132_863_336
    assert find_profile("alexnet").bytes == 4 * 61_100_840
    # The fully connected layers are what Tiresias keeps together.
    assert find_profile("vgg11").skew > 0.7 > find_profile("resnet50").skew


def test_a_profile_is_json_without_loss():
    for profile in bundled().values():
        assert Profile.from_dict(json.loads(json.dumps(profile.as_dict()))) == profile


def test_buckets_close_when_full_and_lose_nothing():
    sizes = [FIRST, 10, FULL - 11, 1, 3 * FULL, 7]
    assert bucketed(sizes) == (FIRST, FULL, 3 * FULL, 7)
    assert bucketed([5]) == (5,)
    assert bucketed([]) == ()
    assert evenly(2 * FULL) == (FULL, FULL)
    assert evenly(FULL + 3) == (FULL, 3)
