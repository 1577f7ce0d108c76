"""What a saved engine consists of."""

from __future__ import annotations

FORMAT = 5
PLAN, WEIGHTS, DIGESTS = "plan.json", "weights.safetensors", "digests.json"
