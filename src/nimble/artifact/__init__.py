"""A saved engine: a zip of a versioned JSON plan and weights in safetensors. No code in it."""

from nimble.artifact.read import Loaded, read
from nimble.artifact.write import write

__all__ = ["Loaded", "read", "write"]
