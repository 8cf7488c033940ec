"""Zlib streams, one for each chunk."""

from __future__ import annotations

import zlib

from tensorbytes.codecs import Damaged
from tensorbytes.codecs._deflate import Deflate


class Zlib(Deflate):
    name = "zlib"
    wbits = 15

    def decompress(self, data: memoryview, out: memoryview) -> None:
        super().decompress(data, out)
        # isal overlooks up to three bytes behind the end, which is this checksum.
        if int.from_bytes(data[-4:], "big") != zlib.adler32(out):
            raise Damaged("zlib left some bytes")


CODEC = Zlib()
