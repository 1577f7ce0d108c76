"""Graph → Graph for one device: which kernel computes each task."""

from nimble.lower.native import choose_native_kernels

__all__ = ["choose_native_kernels"]
