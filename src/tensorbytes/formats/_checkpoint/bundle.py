r"""TensorFlow's bundle of tensors: the messages of its index, and its string tensors.

    BundleHeaderProto  num_shards 1, endianness 2 (0 little, 1 big), version 3 {producer 1, min_consumer 2}
    BundleEntryProto   dtype 1, shape 2 {dim 2 {size 1}}, shard_id 3, offset 4, size 5, crc32c 6
                       (fixed32, masked), slices 7 {extent 1 {start 1, length 2}}

A tensor that was saved in slices has one entry that lists them, without data, and one entry
for each slice. The key of a slice is an ordered code: 0, the tensor's name, the rank, and the
start and length of each axis (0 and -1 for a whole axis).

The bytes of a string tensor: the lengths (varints), the masked CRC-32C of the lengths (u32),
then all strings. For both checksums, that of the lengths and that of the entry, a length
counts as its 4 bytes (8 from 4 GiB on), not as its varint.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import crc32c, fields, mask, proto, varint
from tensorbytes.budget import Budget
from tensorbytes.dtypes import DType
from tensorbytes.errors import CorruptError, Hint, UnsupportedError
from tensorbytes.formats._tensorproto import check_shape
from tensorbytes.tensor import Array, Strings

# The only version there is: readers of a later one may demand more.
_VERSION = 1
_NUMBERS = {1: "code", 3: "shard", 4: "offset", 5: "size"}
_NOT_VALUES = {20: "resource", 21: "variant"}
Extent = tuple[int, int]  # start and length; a length of -1 is the whole axis


@dataclass(slots=True)
class BundleHeader:
    shards: int = 0
    big: bool = False


@dataclass(slots=True)
class BundleEntry:
    """What the index says of one tensor; `at` is where it says so."""

    name: str
    code: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc: int
    at: int
    slices: list[tuple[Extent, ...]] = field(default_factory=list)
    row: DType | None = None  # the dtype, if it is one of numbers that we know

    @property
    def is_strings(self) -> bool:
        return self.code == dtypes.STRING_CODE

    @property
    def readable(self) -> bool:
        return self.is_strings or self.row is not None

    def refusal(self) -> UnsupportedError:
        """The error for an entry that holds no values."""
        what = _NOT_VALUES.get(self.code)
        known = f"dtype {what}, which holds no values" if what else f"the unknown dtype {self.code}"
        return UnsupportedError(
            f"{self.name!r} is of {known}",
            tensor=self.name,
            hints=[Hint("names", purpose="to load the others", of="load"), Hint(purpose="open the file")],
        )


# ---- the messages -----------------------------------------------------------


def read_header(data: memoryview, at: int) -> BundleHeader:
    header = BundleHeader()
    for item in proto.fields(data, 0, len(data)):
        if item.number == 1:
            header.shards = _signed_number(proto.number(item))
        elif item.number == 2:
            order = proto.number(item)
            if order > 1:
                raise CorruptError(f"the unknown byte order {order}", at=item.at)
            header.big = order == 1
        elif item.number == 3:
            _check_version(data, item, at)
    if not 0 < header.shards < 1 << 31:
        raise CorruptError(f"a checkpoint of {header.shards} shards", at=0)
    return header


def _check_version(data: memoryview, whole: proto.Field, at: int) -> None:
    proto.delimited(data, whole)
    for item in proto.fields(data, whole.start, whole.end):
        if item.number == 2 and proto.number(item) > _VERSION:
            raise UnsupportedError(
                f"a checkpoint for readers of version {proto.number(item)} or later; this is {_VERSION}", at=at
            )


def _signed_number(value: int) -> int:
    """Negative numbers are written as those of 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def read_entry(name: str, data: memoryview, budget: Budget, at: int) -> BundleEntry:
    """An entry of the index; where it leads to is checked by others."""
    entry = BundleEntry(name, 0, (), 0, 0, 0, 0, at)
    shape: tuple[int, ...] = ()
    found, end = fields(data, 0, len(data), 0)
    # Field by field where it is not in the usual form.
    for item in found if end == len(data) else proto.fields(data, 0, len(data)):
        number, wire, first, last, place = item
        if number in _NUMBERS:
            if wire != proto.VARINT:
                raise CorruptError(f"field {number} has the wire type {wire}, expected 0", at=place)
            setattr(entry, _NUMBERS[number], _signed_number(first))
        elif number == 2:
            shape += _shape_in(data, proto.Field(*item))
        elif number == 6:
            if wire != proto.FIXED32:
                raise CorruptError(f"field 6 has the wire type {wire}, expected 5", at=place)
            entry.crc = int.from_bytes(data[first:last], "little")
        elif number == 7:
            entry.slices.append(read_slice(data, proto.Field(*item)))
    if entry.code == 0:
        raise CorruptError(f"{name!r} has no dtype", at=0)
    if entry.offset < 0 or entry.size < 0:
        raise CorruptError(f"{name!r} stands at byte {entry.offset}, and takes {entry.size}", at=0)
    entry.row = dtypes.BY_CODE.get(entry.code) if entry.code < 1000 else None
    entry.shape = check_shape(shape, entry.row.itemsize if entry.row else 8, budget, 0)
    if not entry.slices:
        _check_size(entry)
    return entry


def _check_size(entry: BundleEntry) -> None:
    if entry.row is not None:
        want = dtypes.nbytes(entry.row, entry.shape)
        if entry.size != want:
            what = f"{entry.row.name}{list(entry.shape)}"
            raise CorruptError(f"{entry.name!r}: {what} takes {want} bytes, the index says {entry.size}", at=0)
    elif entry.is_strings and entry.size < math.prod(entry.shape) + 4:
        raise CorruptError(f"{entry.name!r}: string{list(entry.shape)} can't fit into {entry.size} bytes", at=0)


def _shape_in(data: memoryview, whole: proto.Field) -> tuple[int, ...]:
    try:
        return _read_shape(bytes(proto.delimited(data, whole)))
    except CorruptError as error:
        raise error.shifted(whole.start) from None


@lru_cache(1024)
def _read_shape(raw: bytes) -> tuple[int, ...]:
    """A TensorShapeProto; kept, since many tensors have the same."""
    data = memoryview(raw)
    shape = []
    for item in proto.fields(data, 0, len(data)):
        if item.number == 3 and proto.number(item):
            raise CorruptError("the shape is unknown (unknown_rank is set)", at=item.at)
        if item.number == 2:
            proto.delimited(data, item)
            sizes = [proto.number(part) for part in proto.fields(data, item.start, item.end) if part.number == 1]
            size = _signed_number(sizes[-1]) if sizes else 0
            if size < 0:
                raise CorruptError(f"a dimension is {size}", at=item.at)
            shape.append(size)
    return tuple(shape)


def read_slice(data: memoryview, whole: proto.Field) -> tuple[Extent, ...]:
    """The start and length on each axis that a TensorSliceProto says."""
    proto.delimited(data, whole)
    extents = []
    for item in proto.fields(data, whole.start, whole.end):
        if item.number == 1:
            proto.delimited(data, item)
            start, length = 0, -1
            for part in proto.fields(data, item.start, item.end):
                if part.number == 1:
                    start = _signed_number(proto.number(part))
                elif part.number == 2:
                    length = _signed_number(proto.number(part))
            extents.append((start, length))
    return tuple(extents)


def write_header(shards: int) -> bytes:
    return proto.put_number(1, shards) + proto.put_bytes(3, proto.put_number(1, _VERSION))


def write_entry(code: int, shape: tuple[int, ...], shard: int, offset: int, size: int, crc: int) -> bytes:
    """As TensorFlow writes it: numbers that are 0 are left out, the shape never is."""
    dims = b"".join(proto.put_bytes(2, proto.put_number(1, n) if n else b"") for n in shape)
    numbers = b"".join(proto.put_number(number, n) for number, n in ((3, shard), (4, offset), (5, size)) if n)
    checksum = proto.tag(6, proto.FIXED32) + struct.pack("<I", crc) if crc else b""
    return proto.put_number(1, code) + proto.put_bytes(2, dims) + numbers + checksum


# ---- the keys of slices ------------------------------------------------------


_ESCAPES = {0: b"\0\xff", 0xFF: b"\xff\0"}


def slice_key(name: bytes, extents: tuple[Extent, ...]) -> bytes:
    """Under which a slice is stored."""
    escaped = b"".join(_ESCAPES.get(byte, bytes([byte])) for byte in name)
    numbers = b"".join(_signed(start) + _signed(length) for start, length in extents)
    return b"\0" + escaped + b"\0\x01" + _unsigned(len(extents)) + numbers


def _unsigned(value: int) -> bytes:
    """A length, then that many bytes."""
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(raw)]) + raw


def _signed(value: int) -> bytes:
    """A run of bits tells the number of bytes: ones for positive numbers, zeros for negative ones."""
    size = (~value if value < 0 else value).bit_length() // 7 + 1
    head = ((1 << size) - 1) << 7 * size
    return ((value & ((1 << 8 * size) - 1)) ^ head).to_bytes(size, "big")


# ---- strings ----------------------------------------------------------------


def _length_bytes(lengths: Array, big: bool) -> bytes:
    """The lengths as the checksum counts them."""
    order = ">" if big else "<"
    if not (lengths >> np.uint64(32)).any():
        return lengths.astype(f"{order}u4").tobytes()
    return b"".join(struct.pack(f"{order}{'I' if n < 1 << 32 else 'Q'}", n) for n in lengths.tolist())


def write_strings(value: Strings) -> tuple[list[Any], int, int]:
    """(the pieces, their size, the masked checksum)"""
    lengths = np.diff(value.offsets).astype(np.uint64)
    small = lengths.astype(np.uint8).tobytes() if not (lengths >> np.uint64(7)).any() else None
    head = small if small is not None else b"".join(map(varint, lengths.tolist()))
    crc = crc32c(_length_bytes(lengths, False))
    checksum = struct.pack("<I", mask(crc))
    crc = crc32c(value.data, crc32c(checksum, crc))
    return [head, checksum, value.data], len(head) + 4 + value.nbytes, mask(crc)


def read_strings(entry: BundleEntry, data: memoryview, big: bool) -> Strings:
    """The strings of an entry's bytes, all checksums verified. Errors tell offsets within them."""
    count = math.prod(entry.shape)
    start, lengths = _read_lengths(entry.name, data, count)
    rest = len(data) - start - 4
    if rest < 0 or (count and (lengths.max() > rest or lengths.sum(dtype=np.float64) > 2.0 * rest)):
        raise CorruptError(f"{entry.name!r}: the strings take more bytes than there are", at=0)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    crc = crc32c(_length_bytes(lengths, big))
    (stored,) = struct.unpack_from(">I" if big else "<I", data, start)
    if mask(crc) != stored:
        raise CorruptError(f"{entry.name!r}: the checksum of the strings' lengths differs", at=start)
    if mask(crc32c(data[start:], crc)) != entry.crc:
        raise CorruptError(f"{entry.name!r}: the checksum differs", at=0)
    if offsets[-1] != rest:
        raise CorruptError(f"{entry.name!r}: {rest} bytes for strings of {offsets[-1]}", at=start + 4)
    return Strings(entry.shape, offsets, data[start + 4 :])


def _read_lengths(name: str, data: memoryview, count: int) -> tuple[int, Array]:
    """(where the lengths end, the lengths)"""
    if not count:
        return 0, np.zeros(0, np.uint64)
    raw = np.frombuffer(data[: 10 * count], np.uint8)
    stops = np.flatnonzero(raw < 0x80)
    if len(stops) < count:
        raise CorruptError(f"{name!r}: the lengths of {count} strings run past the end", at=len(data))
    end = int(stops[count - 1]) + 1
    return end, proto.varints(data[:end])
