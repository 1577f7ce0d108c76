"""Published measurements on GPUs that the model is fitted to, and judged by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Inference:
    """Nimble's paper, V100, batch 1: times as fast as eager PyTorch."""

    network: str
    nimble: float
    """Printed on the paper's figure."""
    tensorrt: float
    """Read off its bars, within 0.03."""


@dataclass(frozen=True, slots=True)
class Training:
    """Nimble's paper, V100, CIFAR-10 (32 x 32), SGD with momentum: times as fast as eager."""

    network: str
    batch: int
    nimble: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds that somebody measured; None where they did not."""

    source: str
    network: str
    gpu: str
    host: str
    mode: str
    """How kernels were launched on one and on several streams: graph, or launch."""
    eager: float | None
    single: float
    multi: float
    fused: bool = True
    """Batch norms and pointwise chains are parts of other kernels; else PyTorch's one by one."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """The same convolution on so many streams at once, and the milliseconds that all take."""

    streams: int
    ms: float


INFERENCE = (
    Inference("resnet50", 4.32, 3.39),
    Inference("resnet101", 4.59, 3.55),
    Inference("inception_v3", 5.16, 3.14),
    Inference("nasnet_a_mobile", 22.34, 8.00),
    Inference("nasnet_a_large", 5.49, 3.24),
    Inference("mobilenet_v2", 9.99, 8.05),
    Inference("efficientnet_b0", 9.03, 6.86),
    Inference("efficientnet_b5", 3.82, 2.93),
)
OVER_TENSORRT = 2.81
"""The paper's headline, for NASNet-A mobile; its bars, read off, give 2.79."""
OVER_ONE_STREAM = 1.88
"""Several streams against one, at most, in Nimble's paper, of a network that we do not know."""

TRAINING = tuple(
    Training(network, batch, speedup)
    for network, speedups in (
        ("mobilenet_v2", (3.61, 3.10, 2.28)),
        ("efficientnet_b0", (3.32, 2.72, 1.88)),
        ("resnet50", (1.90, 1.54, 1.33)),
    )
    for batch, speedup in zip((32, 64, 128), speedups, strict=True)
)

_ISSUE = "snuspl/nimble#22"
NO_HELP = (
    Latency(_ISSUE, "inception_v3", "rtx2080s", "recent", "graph", 8.213, 2.248, 2.314),
    Latency(_ISSUE, "inception_v3@299x8", "rtx2080s", "recent", "graph", 25.68, 17.35, 16.43),
    Latency(_ISSUE, "densenet201", "rtx2080s", "recent", "graph", 29.02, 5.54, 5.57),
    Latency(_ISSUE, "densenet201@224x8", "rtx2080s", "recent", "graph", 31.05, 24.18, 24.13),
)
"""Where several streams do not help, or hardly."""

OTHERS = (
    Latency("IOS", "inception_v3", "v100", "recent", "launch", None, 6.51, 4.62),
    Latency("IOS", "randwire", "v100", "recent", "launch", None, 8.49, 6.27),
    Latency("IOS", "nasnet_a_large", "v100", "recent", "launch", None, 22.95, 16.78),
    Latency("IOS", "squeezenet", "v100", "recent", "launch", None, 0.86, 0.98),
    Latency("Opara", "googlenet", "a100", "recent", "graph", 3.588, 1.868, 1.110, False),
)
"""Other systems. IOS launches cuDNN's kernels from C++, without a graph; several streams are its
greedy schedule. Opara captures PyTorch's own kernels, and does not say which GPU its example ran
on; its paper's is an A100."""

RESNET50_MS, RESNET50_STEP_MS = 1.888, 17.79
"""Nimble's repository (NIMBLE_EVAL.md): ResNet-50 by one stream, at batch 1, and a training step on
32 images of 32 x 32. It does not say on which GPU, so nothing is fitted to these."""

CROWD = tuple(
    Crowd(streams, ms)
    for streams, ms in (
        (1, 0.0761), (2, 0.0896), (4, 0.1003), (8, 0.1465), (16, 0.348), (32, 0.645),
    )
)  # fmt: skip
"""A 3 x 3 convolution of 256 to 256 channels on 8 x 8, on an RTX 2080 Ti."""

CONCURRENCY = {
    "nasnet_a_mobile": 13, "nasnet_a_large": 16, "amoebanet": 11, "darts": 7, "inception_v3": 6,
    "googlenet": 4, "resnet50": 2, "resnet101": 2, "mobilenet_v2": 1,
}  # fmt: skip
"""Tasks that may run at the same time, by an independent count; GoogLeNet's is a published one."""
