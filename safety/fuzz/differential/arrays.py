"""NumPy arrays and our values in the form that outcomes hold: dtype, shape and bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.tensor import Strings, Tensor


def plain(x: Any) -> Any:
    """(dtype, shape, C-order little-endian bytes) of an array; of text, the strings themselves."""
    x = np.asarray(x)
    kind = x.dtype.kind
    if kind in "US":
        return kind, list(x.shape), x.reshape(-1).tolist()
    if kind == "O":
        items = x.reshape(-1).tolist()
        return "U" if items and isinstance(items[0], str) else "S", list(x.shape), items
    name = x.dtype.newbyteorder("<").str if kind in "mM" else x.dtype.name
    # Not astype, which would make a quiet NaN of a signalling one.
    raw = np.ascontiguousarray(x)
    swapped = x.dtype.byteorder == ">" or (x.dtype.byteorder == "=" and not np.little_endian)
    return name, list(x.shape), (raw.byteswap() if swapped else raw).tobytes()


def neutral(value: Tensor | Strings) -> Any:
    """The same of a value of ours."""
    if isinstance(value, Strings):
        return "S" if value.encoding == "bytes" else "U", list(value.shape), value.items()
    return value.dtype, list(value.shape), bytes(value.data)


def masked(dtype: str, raw: bytes) -> bytes:
    """Without the bits that a type of under 8 bits does not use."""
    row = dtypes.get(dtype)
    return bytes(byte & row.value_mask for byte in raw) if row.bits < 8 else raw
