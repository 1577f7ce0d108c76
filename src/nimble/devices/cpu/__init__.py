"""The CPU: a native tape replayed by pinned threads, with ATen for what has no native kernel."""

from nimble.devices.cpu.calls import supported
from nimble.devices.cpu.constants import make_constants
from nimble.devices.cpu.machine import this_cpu
from nimble.devices.cpu.measure import BYTE_NS, WAIT_NS, times_ns, with_measured_costs
from nimble.devices.cpu.memo import key_of, recall, remember
from nimble.devices.cpu.memory import allocate, give_back
from nimble.devices.cpu.pool import ReplayPool
from nimble.devices.cpu.replay import Bound, Replay

__all__ = [
    "BYTE_NS",
    "WAIT_NS",
    "Bound",
    "Replay",
    "ReplayPool",
    "allocate",
    "give_back",
    "key_of",
    "make_constants",
    "recall",
    "remember",
    "supported",
    "this_cpu",
    "times_ns",
    "with_measured_costs",
]
