"""Models that nobody here wrote give eager's answers."""

import pytest
from catalogue import CATALOGUE

from nimble.cli.check import check
from nimble.targets import Made

# What these packages and eager PyTorch itself warn of; everything else is an error.
pytestmark = [
    pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
]
SAMPLE = [e for e in CATALOGUE if e.family != "segmentation"][::9]


def verify(entry):
    if not entry.installed:
        pytest.skip(f"{entry.package} is not installed")
    model, args, kwargs = entry.build()
    row = check(Made(entry.name, model, args, kwargs))
    assert row.ok, row.why


@pytest.mark.parametrize("entry", SAMPLE, ids=lambda e: e.name)
def test_a_sample_of_the_catalogue(entry):
    verify(entry)


@pytest.mark.full
@pytest.mark.parametrize("entry", [e for e in CATALOGUE if e not in SAMPLE], ids=lambda e: e.name)
def test_the_rest_of_the_catalogue(entry):
    verify(entry)
