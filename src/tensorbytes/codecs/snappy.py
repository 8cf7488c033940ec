"""Raw Snappy blocks."""

from __future__ import annotations

from cramjam import snappy

from tensorbytes.codecs import Codec, _library
from tensorbytes.typing import Buffer


class Snappy(Codec):
    name = "snappy"

    def compress(self, data: memoryview, level: int | None) -> Buffer:
        packed: Buffer = snappy.compress_raw(data)
        return packed

    def decompress(self, data: memoryview, out: memoryview) -> None:
        _library.fill(snappy.decompress_raw_into, "snappy", data, out)


CODEC = Snappy()
