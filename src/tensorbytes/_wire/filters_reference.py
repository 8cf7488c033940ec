"""filters.c in NumPy: the definition of correct, and the fallback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorbytes._wire.common import MOST_BITS
from tensorbytes.typing import Buffer, bytes_view


def planes_split(src: Buffer, out: Buffer, width: int, rotate: bool, portable: bool = False) -> None:
    elements, dst = _elements(src, width), _target(out)
    _check(len(dst) == elements.nbytes)
    if rotate:
        elements = elements << 1 | elements >> 8 * width - 1
    planes = np.ascontiguousarray(elements).view(np.uint8).reshape(-1, width)
    dst.reshape(width, -1)[:] = planes[:, ::-1].T


def planes_join(planes: Sequence[Buffer], out: Buffer, rotate: bool, portable: bool = False) -> None:
    dst, width = _target(out), len(planes)
    _check(width in (1, 2, 4, 8) and all(len(bytes_view(plane)) * width == len(dst) for plane in planes))
    for k, plane in enumerate(planes):
        dst[width - 1 - k :: width] = np.frombuffer(bytes_view(plane), np.uint8)
    if rotate:
        elements = dst.view(f"<u{width}")
        elements[:] = elements >> 1 | elements << 8 * width - 1


def difference(src: Buffer, out: Buffer, width: int, first: int) -> None:
    elements, dst = _elements(src, width), _target(out)
    _check(len(dst) == elements.nbytes)
    steps = np.diff(elements, prepend=elements.dtype.type(first % (1 << 8 * width)))
    dst.view(elements.dtype)[:] = steps << 1 ^ (steps.view(f"<i{width}") >> 8 * width - 1).view(steps.dtype)


def accumulate(src: Buffer, out: Buffer, width: int, first: int) -> None:
    codes, dst = _elements(src, width), _target(out)
    _check(len(dst) == codes.nbytes)
    steps = codes >> 1 ^ (0 - (codes & 1)).astype(codes.dtype)
    elements = dst.view(codes.dtype)
    np.cumsum(steps, out=elements, dtype=codes.dtype)
    elements += codes.dtype.type(first % (1 << 8 * width))


def bits_pack(src: Buffer, out: Buffer, width: int, base: int, bits: int) -> None:
    elements, dst = _elements(src, width), _target(out)
    _check_packing(len(elements), len(dst), width, bits)
    offsets = elements - elements.dtype.type(base % (1 << 8 * width))
    unpacked = np.empty((len(elements), bits), np.uint8)
    for bit in range(bits):
        unpacked[:, bit] = offsets >> bit & 1
    dst[:] = np.packbits(unpacked, bitorder="little")


def bits_unpack(src: Buffer, out: Buffer, width: int, base: int, bits: int) -> None:
    packed, dst = np.frombuffer(bytes_view(src), np.uint8), _target(out)
    _check(width in (1, 2, 4, 8) and len(dst) % width == 0)
    elements = dst.view(f"<u{width}")
    _check_packing(len(elements), len(packed), width, bits)
    unpacked = np.unpackbits(packed, count=len(elements) * bits, bitorder="little").reshape(len(elements), bits)
    elements[:] = base % (1 << 8 * width)
    for bit in range(bits):
        elements += unpacked[:, bit].astype(elements.dtype) << bit


def _elements(src: Buffer, width: int) -> np.ndarray[Any, Any]:
    data = bytes_view(src)
    _check(width in (1, 2, 4, 8) and len(data) % width == 0)
    return np.frombuffer(data, f"<u{width}")


def _target(out: Buffer) -> np.ndarray[Any, Any]:
    return np.frombuffer(bytes_view(out), np.uint8)


def _check_packing(n: int, packed: int, width: int, bits: int) -> None:
    if not 0 <= bits <= MOST_BITS:
        raise IndexError(f"{bits} bits are outside 0..{MOST_BITS}")
    _check(bits <= 8 * width and packed == -(-n * bits // 8))


def _check(fits: bool) -> None:
    if not fits:
        raise ValueError("the sizes of the buffers, or the width, don't fit")
