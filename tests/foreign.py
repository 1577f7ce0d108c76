"""Imports packages of models that nobody here wrote, and that need not be installed."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType

import torch

# Models are built from configurations, with random weights: nothing may reach for a network.
os.environ["HF_HUB_OFFLINE"] = "1"
# The Makefile puts timm and torchvision beside the environment, where they harm nobody else.
sys.path.append(str(Path(sys.prefix) / "timm"))


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@cache
def load(module: str) -> ModuleType:
    """Imports a module of such a package. What it warns of is not our business."""
    if module.split(".")[0] in ("timm", "transformers") and installed("torchvision"):
        load("torchvision")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(module)
        except RuntimeError as error:
            if "operator torchvision::" not in str(error):
                raise
            _declare_torchvision_ops()
            return importlib.import_module(module)


@cache
def _declare_torchvision_ops() -> torch.library.Library:
    """A torchvision whose native part does not load stops where it describes these two ops.

    Declared but without kernels they are enough for all models that do not call them. The library
    is returned, and so cached, because its declarations end with it.
    """
    library = torch.library.Library("torchvision", "DEF")
    for op in ("nms", "qnms"):
        library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
