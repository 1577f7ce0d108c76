"""Imports packages of models that nobody here wrote, and that need not be installed."""

from __future__ import annotations

import importlib
import importlib.util
import os
import warnings
from functools import cache
from types import ModuleType

import torch

# Models are built from configurations, with random weights: nothing may reach for a network.
os.environ["HF_HUB_OFFLINE"] = "1"


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@cache
def load(package: str) -> ModuleType:
    """Imports a package or a module of it, past what it warns of and what it lacks."""
    if package.partition(".")[0] in ("timm", "torchvision"):
        _declare_torchvision_ops()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(package)


@cache
def _declare_torchvision_ops() -> torch.library.Library:
    """A torchvision whose native part does not load stops where it describes these two ops.

    Declared but without kernels they are enough for all models that do not call them. The library
    is returned, and so cached, because its declarations end with it.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for op in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, op):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
