"""The libraries that could do our codecs' work, by themselves: `python -m benchmarks.codec_libraries`.

Chunks of 256 KiB, as one thread and as two take them. The table is what spec/decisions/0007-codecs.md
rests on; it is not part of the benchmarks' results. A library that is not installed is left out:
`pip install lz4 backports.zstd` for all of them.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks import compression_data as data

CHUNK = 256 << 10
_BYTES = 16 << 20
_ROUNDS = 5
Verb = Callable[[Any], Any]
Ways = Iterator[tuple[str, Verb, Verb]]


def _cramjam() -> Ways:
    import cramjam

    def back(module: Any) -> Verb:
        def decompress(packed: Any) -> Any:
            out = bytearray(CHUNK)
            module.decompress_into(packed, out)
            return out

        return decompress

    for level in (1, 3):
        yield f"cramjam zstd {level}", partial(cramjam.zstd.compress, level=level), back(cramjam.zstd)
    lz4 = cramjam.lz4
    yield "cramjam lz4", partial(lz4.compress_block, store_size=False), partial(lz4.decompress_block, output_len=CHUNK)
    yield "cramjam snappy", cramjam.snappy.compress_raw, cramjam.snappy.decompress_raw


def _zstandard() -> Ways:
    import zstandard

    for level in (1, 3):
        # Its compressors may not be shared by threads, so each call makes one, as cramjam does.
        def compress(chunk: Any, level: int = level) -> bytes:
            return zstandard.ZstdCompressor(level=level).compress(chunk)

        yield f"zstandard {level}", compress, lambda packed: zstandard.ZstdDecompressor().decompress(packed)


def _backports() -> Ways:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    for level in (1, 3):
        yield f"stdlib zstd {level}", partial(zstd.compress, level=level), zstd.decompress


def _lz4() -> Ways:
    from lz4 import block

    back = partial(block.decompress, uncompressed_size=CHUNK)
    yield "lz4", partial(block.compress, store_size=False), back


def _deflate() -> Ways:
    from isal import isal_zlib

    yield "isal zlib 1", partial(isal_zlib.compress, level=1), isal_zlib.decompress
    yield "zlib 1", partial(zlib.compress, level=1), zlib.decompress


def _blosc() -> Ways:
    import blosc2

    for codec in (blosc2.Codec.ZSTD, blosc2.Codec.LZ4):
        # Two of our threads get no further with it than one does: it holds the interpreter's lock.
        compress = partial(blosc2.compress2, codec=codec, clevel=1, typesize=1, filters=[], nthreads=1)
        yield f"blosc2 {codec.name.lower()} 1", compress, partial(blosc2.decompress2, nthreads=1)


def _zipnn() -> Ways:
    from zipnn import ZipNN

    # One plane alone: a dtype of one byte. Its own threads are off: a chunk is too small for two.
    made = ZipNN(method="HUFFMAN", input_format="byte", bytearray_dtype="float8_e4m3fn", threads=1)
    yield "zipnn", lambda chunk: made.compress(bytearray(chunk)), made.decompress


def _ours() -> Ways:
    from tensorbytes.codecs import huffman

    def decompress(packed: Any) -> Any:
        out = bytearray(CHUNK)
        huffman.CODECS["huffman"].decompress(memoryview(packed), memoryview(out))
        return out

    yield "our huffman", lambda chunk: huffman.CODECS["huffman"].compress(memoryview(chunk), None), decompress


_SOURCES = (_ours, _cramjam, _zstandard, _backports, _lz4, _deflate, _blosc, _zipnn)


def _seconds(work: Verb, items: list[Any], threads: int) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        with ThreadPoolExecutor(threads) as pool:
            started = perf_counter()
            for _ in pool.map(lambda part: [work(item) for item in part], [items[k::threads] for k in range(threads)]):
                pass
            best = min(best, perf_counter() - started)
    return best


def _measure(name: str, compress: Verb, decompress: Verb, chunks: list[bytes]) -> str:
    packed = [compress(chunk) for chunk in chunks]
    if any(bytes(decompress(part)) != chunk for part, chunk in zip(packed, chunks, strict=True)):
        return f"| {name} | gave back something else |"
    raw = CHUNK * len(chunks) / 1e9
    speeds = [
        raw / _seconds(work, items, threads)
        for threads in (1, 2)
        for work, items in ((compress, chunks), (decompress, packed))
    ]
    size = sum(memoryview(part).nbytes for part in packed) / (CHUNK * len(chunks))
    return f"| {name} | {size:.1%} | " + " | ".join(f"{speed:.2f}" for speed in speeds) + " |"


def main() -> None:
    values = data.weights(ml_dtypes.bfloat16, 2 * _BYTES).view(np.uint16)
    exponents = (np.left_shift(values, 1) >> 8).astype(np.uint8)
    tokens = data.zipf_tokens(_BYTES // 4).astype(np.int32)
    for what, x in (("exponents of bfloat16 weights", exponents), ("token ids, int32", tokens)):
        raw = x.tobytes()
        chunks = [raw[at : at + CHUNK] for at in range(0, len(raw), CHUNK)]
        print(f"\n{what}\n\n| | size | compress, 1 thread | decompress | compress, 2 threads | decompress |")
        print("| --- | --: | --: | --: | --: | --: |")
        for source in _SOURCES:
            try:
                ways = list(source())
            except ImportError as error:
                print(f"| {error} |")
                continue
            for name, compress, decompress in ways:
                print(_measure(name, compress, decompress, chunks), flush=True)


if __name__ == "__main__":
    main()
