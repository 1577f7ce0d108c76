"""Schedule → something that replays. One folder a device."""
