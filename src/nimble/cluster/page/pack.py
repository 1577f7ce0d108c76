"""Arrays inside a page: bytes of equal weight together, deflated, in base64; each array once."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Packed:
    """The arrays of a page. `base.js` unpacks them."""

    def __init__(self) -> None:
        self.blobs: list[str] = []
        self._known: dict[tuple[str, bytes], int] = {}

    def add(self, array: NDArray[Any]) -> dict[str, int | str]:
        """Keeps an array; says where it is."""
        kind = array.dtype.newbyteorder("<").str.lstrip("<|")
        raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
        # The high bytes of neighbours are alike: apart from the low ones they deflate to little.
        planes = raw.view(np.uint8).reshape(-1, raw.dtype.itemsize).T
        packed = zlib.compress(planes.tobytes(), 7)
        key = (kind, packed)
        if key not in self._known:
            self._known[key] = len(self.blobs)
            self.blobs.append(base64.b64encode(packed).decode())
        return {"blob": self._known[key], "type": kind, "length": len(raw)}


def unpack(blob: str, kind: str) -> NDArray[Any]:
    """What `add` kept, as the page reads it."""
    dtype = np.dtype(kind).newbyteorder("<")
    planes = np.frombuffer(zlib.decompress(base64.b64decode(blob)), np.uint8)
    return np.ascontiguousarray(planes.reshape(dtype.itemsize, -1).T).view(dtype).ravel()


def smallest(values: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers from 0 up in the fewest bytes."""
    most = int(values.max()) if len(values) else 0
    kind = np.uint8 if most < 2**8 else np.uint16 if most < 2**16 else np.uint32
    return values.astype(kind)


def rounded(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Four figures, which deflate better than seven; whole numbers stay what they are."""
    single = values.astype(np.float32)
    bits = single.view(np.uint32)
    short = ((bits + np.uint32(1 << 9)) & np.uint32(0xFFFFFC00)).view(np.float32)
    whole = (single == np.rint(single)) & (np.abs(single) < 2**24)
    return np.where(whole | ~np.isfinite(single), single, short)
