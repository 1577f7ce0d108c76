"""What the user holds: an engine finds the plan for a call, and notices changed weights."""

from nimble.engine.engine import Engine

__all__ = ["Engine"]
