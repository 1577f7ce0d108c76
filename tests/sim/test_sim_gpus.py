"""GPUs as data files: those that come with Nimble, and a user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from nimble.devices.sim import find_gpu, find_host, gpu_names, host_names
from nimble.errors import InputError
from nimble.graph import DType

MINE = """
name = "mine"
source = "a guess"
sms = 10
fp32_tflops = 5
fp16_tflops = 10.0
bandwidth_gbs = 100.0
l2_mb = 1.0
memory_gb = 4.0
"""


def test_all_are_found():
    assert {"v100", "a100", "h100", "rtx2080s", "t4"} <= set(gpu_names())
    for name in gpu_names():
        gpu = find_gpu(name)
        assert gpu.source
        assert gpu.flops(DType.FLOAT16) >= gpu.flops(DType.FLOAT32)
    assert {find_host(name).op_us > 0 for name in host_names()} == {True}


def test_tensor_cores_take_convolutions_in_single_precision_where_they_can():
    assert find_gpu("a100").flops(DType.FLOAT32, convolution=True) == 156e12
    assert find_gpu("a100").flops(DType.FLOAT32) == 19.5e12
    assert find_gpu("v100").flops(DType.FLOAT32, convolution=True) == 15.7e12


def test_a_file_of_the_users_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    assert find_gpu(str(path)).bandwidth == 100e9


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("sms = 10", "sms = 0"), "sms = 0; expected a number above 0"),
        (("sms = 10", "sms = 1.5"), "expected a whole number"),
        (("sms = 10", 'sms = "ten"'), "expected a number above 0"),
        (("sms = 10", "sms = true"), "expected a number above 0"),
        (("sms = 10", "sms = inf"), "expected a number above 0"),
        (("l2_mb = 1.0", ""), "missing l2_mb; unknown nothing"),
        (("l2_mb = 1.0", "l2_mb = 1.0\ncolour = 1"), "missing nothing; unknown colour"),
        (('name = "mine"', "name = 3"), "expected text"),
        (("sms = 10", "sms = = 10"), "is no TOML file"),
    ],
)
def test_a_file_with_a_mistake_is_refused(tmp_path, change, said):
    path = tmp_path / "mine.toml"
    path.write_text(MINE.replace(*change))
    with pytest.raises(InputError, match=said):
        find_gpu(str(path))


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is no TOML file"):
        find_gpu(str(path))


def test_unknown_names_say_which_are_known(tmp_path):
    with pytest.raises(InputError, match=r"no GPU 'v1000'; expected one of a100, .*v100"):
        find_gpu("v1000")
    with pytest.raises(InputError, match="no such file"):
        find_gpu(str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="expected one of paper, recent"):
        find_host("slow")


def test_the_file_that_the_documentation_shows_can_be_used(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.partition("```toml\n")[2].partition("```")[0])
    assert find_gpu(str(path)).sms == 82
