"""LZ4 blocks, without a size in front."""

from __future__ import annotations

from cramjam import lz4

from tensorbytes.codecs import Codec, _library
from tensorbytes.typing import Buffer


class Lz4(Codec):
    name = "lz4"

    def compress(self, data: memoryview, level: int | None) -> Buffer:
        packed: Buffer = lz4.compress_block(data, store_size=False)
        return packed

    def decompress(self, data: memoryview, out: memoryview) -> None:
        _library.fill(lz4.decompress_block_into, "lz4", data, out)


CODEC = Lz4()
