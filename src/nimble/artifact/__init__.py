"""A saved engine: a zip of a versioned JSON plan and weights in safetensors. No code in it."""

from nimble.artifact.read import Loaded, read_engine
from nimble.artifact.write import write_engine

__all__ = ["Loaded", "read_engine", "write_engine"]
