"""huffman.c in Python: the definition of correct, and the fallback. spec/frame.md gives the bytes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tensorbytes._wire.common import HUFFMAN_SLACK, PLANES_SLACK, mask
from tensorbytes._wire.filters_reference import planes_join, planes_split
from tensorbytes._wire.reference import crc32c
from tensorbytes.typing import Buffer, bytes_view

MOST_BITS = 11
_STREAMS = 4
_FIXED = struct.Struct("<BBIII")
_GLANCE_FROM, _GLANCE_BYTES = 65536, 256


def huffman_encode(plane: Buffer, out: Buffer, portable: bool = False) -> int:
    src, dst = np.frombuffer(bytes(bytes_view(plane)), np.uint8), bytes_view(out)  # a copy: it may change meanwhile
    if len(dst) < len(src) + HUFFMAN_SLACK:
        raise ValueError("huffman_encode: the sizes of the buffers don't fit")
    n = len(src)
    if n < 2 or _looks_random(src):
        return 0
    counts = np.bincount(src, minlength=256).tolist()
    used = [symbol for symbol in range(256) if counts[symbol]]
    if len(used) == 1:
        dst[0] = used[0]
        return 1
    lengths = code_lengths(counts)
    first, last = used[0], used[-1]
    bits = sum(count * length for count, length in zip(counts, lengths, strict=True))
    if _FIXED.size + (last - first + 2) // 2 + bits // 8 + _STREAMS >= n - n // 64:
        return 0
    codes, lengths_of = np.array(_codes(lengths), np.uint16), np.array(lengths, np.uint8)
    segment = -(-n // _STREAMS)
    streams = [_encode_stream(src[k * segment : (k + 1) * segment], codes, lengths_of) for k in range(_STREAMS)]
    nibbles = [*lengths[first : last + 1], 0]
    table = bytes(low | high << 4 for low, high in zip(nibbles[0::2], nibbles[1::2], strict=False))
    head = _FIXED.pack(first, last, *(len(stream) for stream in streams[:-1]))
    code = b"".join([head, table, *streams])
    dst[: len(code)] = code
    return len(code)


def huffman_decode(code: Buffer, out: Buffer, portable: bool = False) -> bool:
    src, dst = bytes_view(code), bytes_view(out)
    n, size = len(dst), len(src)
    if n < 2 or size < _FIXED.size:
        return False
    first, last, *sizes = _FIXED.unpack_from(src)
    at = _FIXED.size + (last - first + 2) // 2
    if first > last or at > size:
        return False
    nibbles = [nibble for byte in src[_FIXED.size : at] for nibble in (byte & 15, byte >> 4)]
    lengths = [0] * 256
    lengths[first : last + 1] = nibbles[: last - first + 1]
    if any(nibbles[last - first + 1 :]) or max(lengths) > MOST_BITS:
        return False
    if sum(1 << MOST_BITS - length for length in lengths if length) != 1 << MOST_BITS:
        return False
    symbols, steps = _table(lengths)
    segment = -(-n // _STREAMS)
    for k in range(_STREAMS):
        start, stop = min(k * segment, n), min((k + 1) * segment, n)
        length = sizes[k] if k + 1 < _STREAMS else size - at
        if length > size - at:
            return False
        decoded = _decode_stream(src[at : at + length], stop - start, symbols, steps)
        if decoded is None:
            return False
        dst[start:stop] = decoded
        at += length
    return True


def planes_encode(elements: Buffer, out: Buffer, scratch: Buffer, width: int, rotate: bool) -> int:
    """planes.c: the planes of elements, each coded by itself or plain, after the sizes of all."""
    plain, dst = len(bytes_view(elements)), bytes_view(out)
    planes = bytes_view(scratch)[:plain]
    if len(planes) < plain or len(dst) < plain + PLANES_SLACK:
        raise ValueError("planes_encode: the sizes of the buffers don't fit")
    planes_split(elements, planes, width, rotate)
    n, at = plain // width, 4 * width
    for k in range(width):
        plane = planes[k * n : (k + 1) * n]
        size = huffman_encode(plane, dst[at:])
        if not size:
            dst[at : at + n] = plane
            size = n
        dst[4 * k : 4 * k + 4] = struct.pack("<I", size)
        at += size
    return at


def planes_decode(code: Buffer, out: Buffer, scratch: Buffer, width: int, rotate: bool) -> int:
    src, dst = bytes_view(code), bytes_view(out)
    if width not in (1, 2, 4, 8) or len(dst) % width or len(bytes_view(scratch)) < len(dst):
        raise ValueError("planes_decode: the sizes of the buffers, or the width, don't fit")
    n, at, planes = len(dst) // width, 4 * width, []
    if len(src) < at:
        return 0
    for size in struct.unpack_from(f"<{width}I", src):
        coded, plane = src[at : at + size], bytearray(n)
        if not 0 < size <= min(n, len(src) - at):
            return 0
        if size == n:
            plane[:] = coded
        elif size == 1:
            plane[:] = bytes(coded) * n
        elif not huffman_decode(coded, plane):
            return 0
        planes.append(plane)
        at += size
    if at != len(src):
        return 0
    planes_join(planes, out, rotate)
    return 1


def chunks_encode(
    data: Buffer,
    out: Buffer,
    scratch: Buffer,
    width: int,
    rotate: bool,
    chunk: int,
    sizes: Buffer,
    checksums: Buffer,
    threads: int,
    part: int,
) -> None:
    """planes.c: the chunks of each part one after another, the size of each chunk, and its masked CRC-32C."""
    src, dst, numbers, sums = map(bytes_view, (data, out, sizes, checksums))
    starts = _chunk_starts("chunks_encode", len(src), width, chunk, scratch, numbers, sums, threads)
    if part < 1 or part % chunk or len(dst) < len(src) + -(-len(src) // part) * PLANES_SLACK:
        raise ValueError("chunks_encode: the sizes of the buffers don't fit")
    at = 0
    for k, start in enumerate(starts):
        if start % part == 0:
            at = start // part * (part + PLANES_SLACK)
        plain, here = src[start : start + chunk], dst[at:]
        size = huffman_encode(plain, here) if width == 1 else planes_encode(plain, here, scratch, width, rotate)
        if not 0 < size < len(plain):
            here[: len(plain)] = plain
            size = len(plain)
        numbers[4 * k : 4 * k + 4] = struct.pack("<I", size)
        sums[4 * k : 4 * k + 4] = struct.pack("<I", mask(crc32c(here[:size])))
        at += size


def chunks_decode(
    code: Buffer,
    out: Buffer,
    scratch: Buffer,
    width: int,
    rotate: bool,
    chunk: int,
    sizes: Buffer,
    checksums: Buffer,
    threads: int,
) -> int:
    """How many chunks are sound and decoded: those before the first that is not."""
    src, dst, numbers, sums = map(bytes_view, (code, out, sizes, checksums))
    at = k = 0
    for start in _chunk_starts("chunks_decode", len(dst), width, chunk, scratch, numbers, sums, threads):
        plain = dst[start : start + chunk]
        (size,), (stored,) = struct.unpack_from("<I", numbers, 4 * k), struct.unpack_from("<I", sums, 4 * k)
        coded = src[at : at + size]
        if not size or len(coded) < size or mask(crc32c(coded)) != stored:
            return k
        if size == len(plain):
            plain[:] = coded
        elif width > 1:
            if not planes_decode(coded, plain, scratch, width, rotate):
                return k
        elif size == 1:
            plain[:] = bytes(coded) * len(plain)
        elif size > len(plain) or not huffman_decode(coded, plain):
            return k
        at += size
        k += 1
    return k


def _chunk_starts(
    name: str, n: int, width: int, chunk: int, scratch: Buffer, sizes: memoryview, checksums: memoryview, threads: int
) -> range:
    if width not in (1, 2, 4, 8) or chunk < 1 or n % width or chunk % width or threads < 1:
        raise ValueError(f"{name}: the sizes of the buffers, or the width, don't fit")
    starts = range(0, n, chunk)
    if len(bytes_view(scratch)) // threads < chunk or min(len(sizes), len(checksums)) // 4 < len(starts):
        raise ValueError(f"{name}: the sizes of the buffers, or the width, don't fit")
    return starts


def _looks_random(src: np.ndarray[Any, Any]) -> bool:
    n = len(src)
    if n < _GLANCE_FROM:
        return False
    step, total = (n - _GLANCE_BYTES) // 15, 16 * _GLANCE_BYTES
    seen = np.concatenate([src[step * k : step * k + _GLANCE_BYTES] for k in range(16)])
    squares = int((np.bincount(seen, minlength=256) ** 2).sum())
    return (squares - total) * 256 * 10 <= total * total * 11


def code_lengths(counts: list[int]) -> list[int]:
    """The best lengths up to MOST_BITS for two symbols or more, by package-merge; see huffman.c."""
    order = sorted((symbol for symbol in range(256) if counts[symbol]), key=lambda symbol: (counts[symbol], symbol))
    leaves = [(counts[symbol], 0) for symbol in order]  # 0 stands before 1: symbols before pairs
    levels: list[list[tuple[int, int]]] = []
    items: list[tuple[int, int]] = []
    for _ in range(MOST_BITS):
        pairs = [(one[0] + two[0], 1) for one, two in zip(items[0::2], items[1::2], strict=False)]
        items = sorted(leaves + pairs)
        levels.append(items)
    lengths, taken = [0] * 256, 2 * len(order) - 2
    for items in reversed(levels):
        found = sum(1 for _, is_pair in items[:taken] if not is_pair)
        for symbol in order[:found]:
            lengths[symbol] += 1
        taken = 2 * (taken - found)
    return lengths


def _codes(lengths: list[int]) -> list[int]:
    """Canonical codes, shorter ones first, then by symbol; their bits reversed: streams are read from the low end."""
    codes, code = [0] * 256, 0
    for length in range(1, MOST_BITS + 1):
        code <<= 1
        for symbol in range(256):
            if lengths[symbol] == length:
                codes[symbol] = int(f"{code:0{length}b}"[::-1], 2)
                code += 1
    return codes


def _encode_stream(src: np.ndarray[Any, Any], codes: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> bytes:
    mine, sizes = codes[src], lengths[src].astype(np.int64)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    bits = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    for bit in range(MOST_BITS):
        here = sizes > bit
        bits[starts[here] + bit] = mine[here] >> bit & 1
    return np.packbits(bits, bitorder="little").tobytes()


def _table(lengths: list[int]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The symbol that each MOST_BITS bits start with, and its length."""
    symbols, steps = np.zeros(1 << MOST_BITS, np.uint8), np.zeros(1 << MOST_BITS, np.uint8)
    for symbol, code in enumerate(_codes(lengths)):
        if lengths[symbol]:
            symbols[code :: 1 << lengths[symbol]] = symbol
            steps[code :: 1 << lengths[symbol]] = lengths[symbol]
    return symbols, steps


def _decode_stream(src: memoryview, n: int, symbols: np.ndarray[Any, Any], steps: np.ndarray[Any, Any]) -> bytes | None:
    """Looks up what stands at every bit at once, then walks from code to code."""
    padded = np.zeros(len(src) + 3, np.uint32)
    padded[: len(src)] = src
    words = padded[:-2] | padded[1:-1] << 8 | padded[2:] << 16
    windows = (words[:, None] >> np.arange(8, dtype=np.uint32) & ((1 << MOST_BITS) - 1)).reshape(-1)
    symbol_at, step_at = symbols[windows].tobytes(), steps[windows].tobytes()
    out, at, bits = bytearray(n), 0, 8 * len(src)
    for i in range(n):
        if at > bits:
            return None
        out[i] = symbol_at[at]
        at += step_at[at]
    if (at + 7) // 8 != len(src) or (at & 7 and src[-1] >> (at & 7)):
        return None
    return bytes(out)
