"""The libraries that compress: isal or zlib for deflate, cramjam for the rest.

No other module chooses between them or knows their errors, which all leave here as DamagedError. They are loaded when
they are first asked for. What is odd about them:

- isal deflates some ten times as fast as zlib's level 1, and no larger. It is not on every machine, so without a level
  the same input gives the same bytes on every run, but not on every machine.
- isal's twin of zlib's decompressor can't be copied, keeps some bytes back where the file ends, and takes a few flawed
  code tables that zlib refuses. After the end of a zlib or a raw stream it does not tell reliably which bytes it left
  over: up to three are hidden. So streams of zlib are inflated by zlib, except whole ones, whose last bytes are
  compared with the checksum; and whole raw ones by isal's other class.
- A decompressor that meets damage keeps what it decoded in that call to itself.
- All are asked for one byte more than is due, so that none makes more than that of a bomb.
- cramjam fills memory that is given, and fails rather than overrun it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from tensorbytes._wire.portions import portions
from tensorbytes.errors import CorruptError
from tensorbytes.typing import Buffer

# What zlib calls the containers of deflate: how large the window is, and what is around the stream.
_WBITS = {"gzip": 31, "zlib": 15, "deflate": -15}
_ZSTD_LEVEL = 3  # the library's own default
# What a deflater's flush() takes that does not end the stream.
SYNC_FLUSH = zlib.Z_SYNC_FLUSH
# Of isal, for files: the best of its fast levels.
ISAL_LEVEL = 2


class DamagedError(Exception):
    """Compressed bytes that are not what they should be; never leaves tensorbytes as such."""

    def at(self, place: int) -> CorruptError:
        return CorruptError(str(self), at=place)


class Isal(NamedTuple):
    """Its two modules: one like zlib, and one of its own."""

    zlib: Any
    igzip: Any


@cache
def find_isal() -> Isal | None:
    """isal, if this machine has it."""
    try:
        from isal import igzip_lib, isal_zlib
    except ImportError:
        return None
    return Isal(isal_zlib, igzip_lib)


def inflate_errors() -> tuple[type[Exception], ...]:
    """What decompressors raise; to be asked for when one did."""
    isal = find_isal()
    return (zlib.error,) if isal is None else (zlib.error, isal.zlib.error)


# ---- in pieces ----------------------------------------------------------------


def open_deflater(container: str, level: int | None, isal_level: int = ISAL_LEVEL) -> Any:
    """zlib's compressobj, for "gzip", "zlib" or raw "deflate". Without a level, isal's where it is installed."""
    isal = find_isal()
    if level is None and isal is not None:
        return isal.zlib.compressobj(isal_level, wbits=_WBITS[container])
    return zlib.compressobj(1 if level is None else level, zlib.DEFLATED, _WBITS[container])


def open_inflater(container: str, *, quick: bool = False) -> Any:
    """zlib's decompressobj; a quick one is isal's, which can't be copied."""
    isal = find_isal() if quick else None
    return (zlib if isal is None else isal.zlib).decompressobj(_WBITS[container])


def inflate_start(container: str, data: Buffer, most: int) -> bytes:
    """Up to `most` of the first plain bytes; fewer where `data`, the start of a stream, makes no more.

    A gzip file is members one after another, of which the first may be short, or empty.
    """
    plain = b""
    rest: Buffer = data
    while True:
        engine = zlib.decompressobj(_WBITS[container])
        try:
            plain += engine.decompress(rest, most - len(plain))
        except zlib.error as error:
            if plain:  # whoever reads on is told
                return plain
            raise DamagedError(str(error)) from None
        rest = engine.unused_data
        if container != "gzip" or not rest or len(plain) >= most:
            return plain


# ---- at once ------------------------------------------------------------------


def inflate_whole(container: str, data: memoryview, size: int) -> tuple[bytes, bool]:
    """Up to size + 1 plain bytes of a stream, and whether it ends just where `data` does."""
    isal = find_isal()
    engine: Any
    try:
        if isal is None:
            engine = zlib.decompressobj(_WBITS[container])
        elif container == "deflate":
            engine = isal.igzip.IgzipDecompressor(flag=isal.igzip.DECOMP_DEFLATE)
        else:
            engine = isal.zlib.decompressobj(wbits=_WBITS[container])
        plain: bytes = engine.decompress(data, size + 1)
    except inflate_errors() as error:
        raise DamagedError(str(error)) from None
    alone = bool(engine.eof) and not engine.unused_data
    if container == "zlib":
        alone = alone and int.from_bytes(data[-4:], "big") == zlib.adler32(plain)
    return plain, alone


def deflate_whole(container: str, pieces: Iterable[memoryview], level: int | None, isal_level: int = 1) -> bytes:
    engine = open_deflater(container, level, isal_level)
    made = [engine.compress(piece[part]) for piece in pieces for part in portions(len(piece))]
    return b"".join([*made, engine.flush()])


def compress(name: str, data: memoryview, level: int | None) -> Buffer:
    """All of it at once: "gzip", "zlib", or with neither frame nor size "zstd", "lz4", "snappy"."""
    if name in _WBITS:
        return deflate_whole(name, [data], level)
    import cramjam

    packed: Buffer
    if name == "zstd":
        packed = cramjam.zstd.compress(data, level or _ZSTD_LEVEL)
    elif name == "lz4":
        packed = cramjam.lz4.compress_block(data, store_size=False)
    else:
        packed = cramjam.snappy.compress_raw(data)
    return packed


def decompress_into(name: str, data: memoryview, out: memoryview) -> None:
    """Fill `out`, no more and no less, with what `compress` made `data` of."""
    if name in _WBITS:
        try:
            plain, alone = inflate_whole(name, data, len(out))
        except DamagedError as error:
            raise DamagedError(f"{name} can't decompress it: {error}") from None
        if len(plain) != len(out) or not alone:
            raise DamagedError(f"{name} made {len(plain)} bytes of it where {len(out)} were due, or left some")
        out[:] = plain
        return
    import cramjam

    fill = {
        "zstd": cramjam.zstd.decompress_into,
        "lz4": cramjam.lz4.decompress_block_into,
        "snappy": cramjam.snappy.decompress_raw_into,
    }[name]
    try:
        size = fill(data, out)
    except cramjam.DecompressionError as error:
        raise DamagedError(f"{name} can't decompress it: {error}") from None
    if size != len(out):
        raise DamagedError(f"{name} made {size} bytes of it where {len(out)} were due")


def decompress_block(block: Buffer) -> Buffer:
    """The plain bytes of a raw snappy block, for as many as it states: see snappy.can_hold."""
    import cramjam

    try:
        plain: Buffer = cramjam.snappy.decompress_raw(block)
    except cramjam.DecompressionError as error:
        raise DamagedError(str(error)) from None
    return plain
