"""`nimble predict`, as a user runs it."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from nimble.cli.main import app
from nimble.devices.sim import published_error
from nimble.foresee.lanes import KINDS, kind

runner = CliRunner()


class Page(HTMLParser):
    """Collects tags and text; void elements aside, every tag has to be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "rect", "line"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in ("rect", "line"):
            return
        assert self.open.pop() == tag


def test_a_network_with_branches(tmp_path):
    html = tmp_path / "out.html"
    result = runner.invoke(app, ["predict", "googlenet@64", "--gpu", "v100", "--html", str(html)])
    assert result.exit_code == 0, result.output
    for said in ("a prediction, nothing was measured", "eager PyTorch", "graph, one stream",
                 "longest chain of tasks", "GPU idle", "4 streams: predicted"):  # fmt: skip
        assert said in result.output
    error = published_error()
    assert f"off by {error.median:.0%} in the median" in result.output
    text = html.read_text()
    page = Page(text)
    assert not page.links
    assert page.tags.count("svg") >= 2
    assert "A prediction, not a measurement" in text
    assert f"{error.worst:.0%} at worst" in text
    assert "@media (max-width: 36rem)" in text, "bars have no room beside their names on a phone"
    for svg in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.partition("</svg>")[0] + "</svg>")


def test_a_chain_gains_nothing():
    result = runner.invoke(app, ["predict", "mobilenet_v2@32", "--gpu", "t4"])
    assert result.exit_code == 0, result.output
    assert "every task depends on the one before it" in result.output


def test_a_training_step_and_a_gpu_of_the_users_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nsource = "a guess"\nsms = 10\nfp32_tflops = 5\nfp16_tflops = 10\n'
        "bandwidth_gbs = 100\nl2_mb = 1\nmemory_gb = 4\n"
    )
    result = runner.invoke(app, ["predict", "mlp@64x8", "--train", "sgd", "--gpu", str(path)])
    assert result.exit_code == 0, result.output
    assert "mlp@64x8 with sgd on mine" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mlp", "--gpu", "abacus"], "no GPU 'abacus'"),
        (["mlp", "--host", "abacus"], "no host 'abacus'"),
        (["mlp", "--train", "luck"], "expected one of sgd"),
        (["mlp", "--streams", "0"], "streams=0"),
        (["abacus"], "no network 'abacus'"),
        (["mlp", "--html", "/nowhere/at/all.html"], "no file can be written there"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments, said):
    result = runner.invoke(app, ["predict", *arguments])
    assert result.exit_code == 1
    assert said in result.output
    assert "Traceback" not in result.output


def test_operators_have_a_kind():
    kinds = {
        "aten.convolution_backward.default": "convolutions",
        "aten.addmm.default": "matrix products",
        "aten.native_batch_norm_backward.default": "norms",
        "aten.max_pool2d_with_indices.default": "pools and sums",
        "aten.cat.default": "copies",
        "aten.relu.default": "pointwise and others",
    }
    assert {op: KINDS[kind(op)] for op in kinds} == kinds
