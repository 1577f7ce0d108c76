"""What a saved engine consists of."""

from __future__ import annotations

FORMAT = 6
PLAN, WEIGHTS, DIGESTS = "plan.json", "weights.safetensors", "digests.json"
