"""CUDA: streams, events and graphs of stock PyTorch (docs/cuda.md)."""

from nimble.devices.cuda.device import Cuda

__all__ = ["Cuda"]
