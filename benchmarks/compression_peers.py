"""Libraries that compress, each behind the same two verbs: compress and decompress.

All of them use two threads where they can. Except for ours they are given bytes and give bytes
back: dtype and shape are lost, and only ours and zstd (when asked to) have a checksum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import tensorbytes as tb
from benchmarks.timing import FLOOR, OURS, PEER, Contender
from tensorbytes.codecs import chunked
from tensorbytes.codecs.pipelines import Pipeline, elements_of
from tensorbytes.dtypes import get

THREADS = 2


def _same_thing(x: Any) -> Any:
    return x


@dataclass(frozen=True)
class Packer:
    """A way to compress. `takes` makes its argument of an array; `keeps` makes of a result what is stored."""

    name: str
    compress: Callable[[Any], Any]
    decompress: Callable[[Any], Any]
    takes: Callable[[Any], Any] = np.ndarray.tobytes
    keeps: Callable[[Any], Any] = _same_thing
    size: Callable[[Any], int] = len  # of what is stored
    spoils: bool = False  # whether it writes into its argument
    role: str = PEER
    note: str = ""

    def store(self, x: Any) -> Any:
        return self.keeps(self.compress(self.takes(x)))


def compressing(packer: Packer, x: Any) -> Contender:
    argument = packer.takes(x)
    restore = _restorer(argument, bytes(argument)) if packer.spoils else None
    return Contender(
        packer.name,
        packer.compress,
        argument,
        lambda out: _holds(packer.decompress(packer.keeps(out)), x),
        packer.role,
        restore,
        packer.note,
    )


def _restorer(argument: bytearray, contents: bytes) -> Callable[[], None]:
    def restore() -> None:
        argument[:] = contents

    return restore


def decompressing(packer: Packer, x: Any, stored: Any) -> Contender:
    return Contender(packer.name, packer.decompress, stored, lambda out: _holds(out, x), packer.role, note=packer.note)


def _holds(out: Any, x: Any) -> bool:
    """Whether all bytes of x are there, whatever holds them."""
    found = np.ascontiguousarray(out).view(np.uint8) if isinstance(out, np.ndarray) else np.frombuffer(out, np.uint8)
    return np.array_equal(found.ravel(), x.view(np.uint8).ravel())


# ---- ours -------------------------------------------------------------------


def ours(compression: str, name: str = "tensorbytes", role: str = OURS) -> Packer:
    return Packer(name, partial(tb.dumps, compression=compression), tb.loads, _same_thing, role=role)


def our_chunks(compression: str, dtype: str) -> Packer:
    """The same without a frame: what the codec takes, without the copy into one piece of bytes."""
    pipeline, elements = Pipeline.parse(compression), elements_of(get(dtype))

    def compress(data: memoryview) -> Any:
        return chunked.compress(data, pipeline, elements)

    def keeps(made: Any) -> Any:
        chunks, pieces = made
        return chunks, memoryview(b"".join(pieces))

    def decompress(stored: Any) -> Any:
        chunks, content = stored
        return chunks.decode(content, 0, 0, chunks.raw)

    def takes(x: Any) -> memoryview:
        return memoryview(x.view(np.uint8)).cast("B")

    note = "our chunks in memory; each has its checksum, but they are not one piece of bytes"
    return Packer(
        "chunks alone", compress, decompress, takes, keeps, lambda stored: len(stored[1]), role=FLOOR, note=note
    )


# ---- peers ------------------------------------------------------------------


def zipnn(dtype: str) -> Packer:
    from zipnn import ZipNN

    made = ZipNN(method="HUFFMAN", input_format="byte", bytearray_dtype=dtype, threads=THREADS)
    note = "writes into its input, which is restored while the clock stands"
    return Packer("zipnn", made.compress, made.decompress, lambda x: bytearray(x.tobytes()), spoils=True, note=note)


def blosc(codec: str, layout: str, width: int) -> Packer:
    import blosc2

    compress = partial(
        blosc2.compress2,
        codec=blosc2.Codec[codec.upper()],
        filters=[blosc2.Filter[layout.upper()]],
        clevel=1,
        typesize=width,
        nthreads=THREADS,
    )
    return Packer(f"blosc2 {layout}+{codec}", compress, partial(blosc2.decompress2, nthreads=THREADS))


def zstd(level: int) -> Packer:
    import zstandard

    compress = zstandard.ZstdCompressor(level=level, threads=THREADS).compress
    note = "decompresses in one thread"
    return Packer(f"zstandard {level}", compress, zstandard.ZstdDecompressor().decompress, note=note)


def for_weights(dtype: str, width: int) -> list[Callable[[], Packer]]:
    return [
        partial(our_chunks, "split+huffman", dtype),
        partial(zipnn, dtype),
        partial(blosc, "zstd", "shuffle", width),
        partial(blosc, "lz4", "bitshuffle", width),
        partial(zstd, 1),
        partial(zstd, 3),
    ]


def for_tokens() -> list[Callable[[], Packer]]:
    return [
        partial(ours, "zstd", OUR_ZSTD, PEER),
        partial(ours, "zstd:1", "compression='zstd:1'", PEER),
        partial(zstd, 1),
        partial(zstd, 3),
    ]


# Plain zstd, at its default level, in our chunks and threads: the fair comparison for filters.
OUR_ZSTD = "compression='zstd'"
