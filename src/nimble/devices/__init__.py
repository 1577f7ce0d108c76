"""Schedule → something that replays. One folder a device; device.py says what one is."""

from nimble.devices.constants import Constants
from nimble.devices.device import Bound, Device, Prepared, Replayed, Span

__all__ = ["Bound", "Constants", "Device", "Prepared", "Replayed", "Span"]
