"""What others have published about the networks, to count ours against."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """Millions of parameters, and thousand millions of multiply-accumulates at batch 1."""

    parameters: float | None
    multiplies: float | None
    source: str
    within: float = 0.01
    """How far ours may be off, relative."""


_TORCHVISION = "torchvision's table of models"
PUBLISHED = {
    "resnet50": Published(25.557, 4.089, _TORCHVISION),
    "resnet101": Published(44.549, 7.801, _TORCHVISION),
    "inception_v3": Published(
        23.835, 5.713, "torchvision's table; parameters without the auxiliary classifier"
    ),
    "googlenet": Published(6.625, 1.498, _TORCHVISION),
    "mobilenet_v2": Published(3.505, 0.301, _TORCHVISION),
    "nasnet_a_mobile": Published(
        5.290, 0.568, "an independent count; the paper says 5.3 and 0.564"
    ),
    "nasnet_a_large": Published(
        88.753, 23.81, "an independent count; the paper says 88.9 and 23.8"
    ),
    "amoebanet": Published(
        None,
        0.527,
        "an independent count in the frame of DARTS, in which ours is built; the paper's differs",
    ),
    "darts": Published(
        4.7,
        0.530,
        "the paper's parameters; arithmetic: an independent count, where the paper says 0.574",
    ),
    "randwire": Published(
        5.6, 0.583, "the paper, ± 0.1 and ± 0.006: it depends on the wiring that is drawn", 0.02
    ),
    "efficientnet_b0": Published(5.289, 0.386, _TORCHVISION),
    "efficientnet_b5": Published(30.390, 10.266, _TORCHVISION),
    "squeezenet": Published(1.235, 0.349, _TORCHVISION + ", version 1.1"),
    "densenet121": Published(7.979, 2.834, _TORCHVISION),
    "densenet201": Published(20.014, 4.291, _TORCHVISION),
    "vit_tiny": Published(5.717, 1.26, "timm's table of models"),
    "bert_base": Published(109.482, 11.2, "the published checkpoint; 128 tokens"),
    "bert_tiny": Published(4.386, None, "the published checkpoint"),
    "gpt2_step": Published(124.440, None, "the published checkpoint"),
    "unet": Published(31.038, None, "a widely used definition"),
}
