"""Decompressing by cramjam, whose functions fill a buffer that is given and fail rather than overrun it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cramjam

from tensorbytes.codecs import Damaged


def fill(decompress_into: Callable[..., Any], name: str, data: memoryview, out: memoryview) -> None:
    try:
        size = decompress_into(data, out)
    except cramjam.DecompressionError as error:
        raise Damaged(f"{name} can't decompress it: {error}") from None
    if size != len(out):
        raise Damaged(f"{name} made {size} bytes of it where {len(out)} were due")
