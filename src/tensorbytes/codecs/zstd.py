"""Zstandard frames."""

from __future__ import annotations

from cramjam import zstd

from tensorbytes.codecs import Codec, _library
from tensorbytes.typing import Buffer

_LEVEL = 3  # the library's own default


class Zstd(Codec):
    name = "zstd"
    levels = range(1, 23)

    def compress(self, data: memoryview, level: int | None) -> Buffer:
        packed: Buffer = zstd.compress(data, level or _LEVEL)
        return packed

    def decompress(self, data: memoryview, out: memoryview) -> None:
        _library.fill(zstd.decompress_into, "zstd", data, out)


CODEC = Zstd()
