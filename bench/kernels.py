"""Single convolutions: oneDNN's, as PyTorch calls it with packed weights, beside our own.

`make kernels`, on an otherwise idle machine; writes the table into docs/design.md. One thread; each
call reads channels-last images and ends with a bias and a ReLU; in turn, medians.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from marks import rewrite
from rich.progress import track
from torch import nn
from turns import in_turn

import nimble

PAGE = Path(__file__).parents[1] / "docs" / "design.md"
LAYERS = (
    # channels in and out, kernel, stride, side, groups
    (3, 32, 3, 2, 224, 1),
    (16, 96, 1, 1, 112, 1),
    (144, 32, 1, 1, 28, 1),
    (64, 64, 3, 1, 56, 1),
    (64, 256, 1, 1, 56, 1),
    (128, 128, 3, 1, 28, 1),
    (512, 128, 1, 1, 28, 1),
    (256, 256, 3, 1, 14, 1),
    (1024, 256, 1, 1, 14, 1),
    (512, 512, 3, 1, 7, 1),
    (96, 96, 3, 2, 112, 96),
    (144, 144, 3, 1, 56, 144),
)
SECONDS = 1.5


def contestants(layer: tuple[int, ...]) -> tuple[float, list[Callable[[], object]]]:
    """Multiplications and additions, and calls: oneDNN's, ours, and ours with other algorithms."""
    inside, out, kernel, stride, side, groups = layer
    torch.manual_seed(0)
    conv = nn.Conv2d(inside, out, kernel, stride, kernel // 2, groups=groups).eval()
    x = torch.randn(1, inside, side, side).contiguous(memory_format=torch.channels_last)
    ways = conv.padding, conv.stride, conv.dilation, groups
    packed = torch.ops.mkldnn._reorder_convolution_weight(conv.weight, *ways, list(x.shape))

    def onednn() -> torch.Tensor:
        made: torch.Tensor = torch.ops.mkldnn._convolution_pointwise(
            x, packed, conv.bias, *ways, "relu", [], ""
        )
        return made

    calls: list[Callable[[], object]] = [onednn]
    for tune in ("off", "fast"):
        engine = nimble.compile(nn.Sequential(conv, nn.ReLU()), (x,), workers=1, tune=tune)
        engine.bind(x)
        torch.testing.assert_close(engine.run(), onednn(), rtol=1e-3, atol=1e-3)
        calls.append(engine.run)
    pixels = (side // stride) ** 2
    return 2.0 * pixels * out * (inside // groups) * kernel**2, calls


def rows() -> Iterator[str]:
    found = re.search(r"MKL-DNN (v[\d.]+)", torch.__config__.show())
    version = found[1] if found else ""
    yield (
        f"| convolution | oneDNN {version}, GFLOP/s | ours | ratio | with Winograd where chosen |"
    )
    yield "|---|---|---|---|---|"
    for layer in track(LAYERS, "layers", transient=True):
        flops, calls = contestants(layer)
        times = in_turn(calls, SECONDS)
        theirs, direct, chosen = (flops / statistics.median(ms) / 1e6 for ms in times)
        inside, out, kernel, stride, side, groups = layer
        name = f"{inside} → {out}, {kernel} x {kernel}" + (
            f", stride {stride}" if stride > 1 else ""
        )
        name += f", {side} pixels" + (", depthwise" if groups > 1 else "")
        yield f"| {name} | {theirs:.1f} | {direct:.1f} | {direct / theirs:.2f} | {chosen:.1f} |"


def main() -> None:
    torch.set_num_threads(1)
    with torch.no_grad():
        lines = list(rows())
    rewrite(PAGE, "kernels", lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
