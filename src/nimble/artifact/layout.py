"""What a saved engine consists of."""

from __future__ import annotations

FORMAT = 7
PLAN, DIGESTS = "plan.json", "digests.json"


def weight(key: str) -> str:
    """The part that holds a tensor."""
    return f"weights/{key}.safetensors"
