"""Deflate for gzip and zlib, by isal where it is installed: several times as fast as the standard library."""

from __future__ import annotations

import zlib
from typing import Any

from tensorbytes.codecs import Codec, Damaged
from tensorbytes.typing import Buffer

_FAST: Any
try:
    from isal import isal_zlib as _FAST
except ModuleNotFoundError:  # a machine that isal does not know
    _FAST = zlib


class Deflate(Codec):
    """A level asks for the standard library's zlib, none for the fastest there is."""

    levels = range(1, 10)
    wbits: int

    def compress(self, data: memoryview, level: int | None) -> Buffer:
        made = _FAST.compressobj(1, wbits=self.wbits) if level is None else zlib.compressobj(level, wbits=self.wbits)
        return made.compress(data) + made.flush()

    def decompress(self, data: memoryview, out: memoryview) -> None:
        reader = _FAST.decompressobj(wbits=self.wbits)
        try:
            # One byte more than is due shows output that is too long, and none of the rest is made.
            plain = reader.decompress(data, len(out) + 1)
        except (zlib.error, _FAST.error) as error:
            raise Damaged(f"{self.name} can't decompress it: {error}") from None
        if len(plain) != len(out) or not reader.eof or reader.unused_data:
            raise Damaged(f"{self.name} made {len(plain)} bytes of it where {len(out)} were due, or left some")
        out[:] = plain
