"""The policies, one a file, by name; `file.py:Class` names a user's own."""

from __future__ import annotations

from nimble.cluster.policies.dally import Dally
from nimble.cluster.policies.fifo import Fifo

# What `--policy NAME` makes. Values are called without arguments.
POLICIES = {
    "dally": Dally,
    "fifo": Fifo,
}
