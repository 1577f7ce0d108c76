"""What a saved engine consists of."""

from __future__ import annotations

FORMAT = 4
PLAN, WEIGHTS, DIGESTS = "plan.json", "weights.safetensors", "digests.json"
