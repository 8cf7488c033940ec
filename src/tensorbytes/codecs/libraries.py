"""The codecs of libraries, one stream or block for each chunk: Zstandard frames, LZ4 and Snappy blocks without a size,
gzip members, zlib streams."""

from __future__ import annotations

from tensorbytes.codecs import Codec
from tensorbytes.io.streams import engines
from tensorbytes.typing import Buffer


class Library(Codec):
    """What io/streams/engines.py has under this name. Of gzip and zlib, a level asks for the standard library's."""

    def __init__(self, name: str, levels: range = range(0)) -> None:
        self.name, self.levels = name, levels

    def compress(self, data: memoryview, level: int | None) -> Buffer:
        return engines.compress(self.name, data, level)

    def decompress(self, data: memoryview, out: memoryview) -> None:
        engines.decompress_into(self.name, data, out)


_ZSTD = Library("zstd", range(1, 23))
_DEFLATE = [Library(name, range(1, 10)) for name in ("gzip", "zlib")]
CODECS = {codec.name: codec for codec in (_ZSTD, *_DEFLATE, Library("lz4"), Library("snappy"))}
