"""Compressed records by hand: read with other libraries than ours, and written with whatever lies a test wants.

The reader follows spec/frame.md, one step after the other, in plain Python and NumPy.
"""

import gzip
import itertools
import struct
import zlib
from typing import NamedTuple

import lz4.block
import numpy as np
import pyarrow as pa
import zstandard

from tests.support.wire_bytes import field, masked_crc, number, tensor

COMPRESSION, QUANTIZATION = 1012, 1013
CODECS = ("zstd", "lz4", "gzip", "zlib", "snappy", "huffman")
# Every codec alone, and each filter with what follows it.
PIPELINES = (
    *CODECS,
    *(f"shuffle+{codec}" for codec in CODECS),
    "split+huffman",
    "split+zstd",
    "pack",
    "pack+zstd",
    "pack+huffman",
    "delta+pack",
    "delta+pack+zstd",
    "delta+zstd",
    "delta+shuffle+huffman",
    "delta+shuffle+zstd",
)  # fmt: skip


# ---- protobuf ---------------------------------------------------------------


def _varint(raw, at):
    value = shift = 0
    while True:
        value |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if raw[at - 1] < 0x80:
            return value, at


def parsed(raw):
    """(number, value) of each field; length-delimited ones as bytes."""
    found, at = [], 0
    while at < len(raw):
        key, at = _varint(raw, at)
        if key & 7 == 0:
            value, at = _varint(raw, at)
        else:
            size, at = _varint(raw, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = bytes(raw[at : at + size]), at + size
        found.append((key >> 3, value))
    return found


class Stored(NamedTuple):
    """What a record says of its compression, and the content."""

    code: int
    dims: list
    pipeline: str
    chunk: int
    sizes: tuple
    crcs: tuple
    raw: int  # strings alone
    content: bytes
    others: list  # fields


def stored(payload):
    """The compression of a record; None if it has none."""
    fields = dict(parsed(payload))
    if COMPRESSION not in fields:
        return None
    dims = [dict(parsed(dim)).get(1, 0) for _, dim in parsed(fields[2])]
    inner = dict(parsed(fields[COMPRESSION]))
    words = [struct.unpack(f"<{len(inner[key]) // 4}I", inner[key]) for key in (3, 4)]
    others = [pair for pair in parsed(payload) if pair[0] not in (1, 2, 4, COMPRESSION)]
    return Stored(fields[1], dims, inner[1].decode(), inner[2], *words, inner.get(5, 0), fields[4], others)


# ---- reading with other libraries -------------------------------------------


def _unhuffman(code, n):
    first, last, *sizes = struct.unpack_from("<BB3I", code)
    at = 14 + (last - first + 2) // 2
    nibbles = [nibble for byte in code[14:at] for nibble in (byte & 15, byte >> 4)]
    table, value = {}, 0
    for length in range(1, 12):
        value *= 2
        for symbol in range(first, last + 1):
            if nibbles[symbol - first] == length:
                table[length, value] = symbol
                value += 1
    out, segment = bytearray(), -(-n // 4)
    for k, size in enumerate([*sizes, len(code) - at - sum(sizes)]):
        bits = np.unpackbits(np.frombuffer(code, np.uint8, size, at), bitorder="little").tolist()
        place, due = 0, min((k + 1) * segment, n)
        while len(out) < due:
            length = value = 0
            while (length, value) not in table:
                value, length, place = 2 * value + bits[place], length + 1, place + 1
            out.append(table[length, value])
        assert -(-place // 8) == size
        assert not any(bits[place:])
        at += size
    return bytes(out)


DECODERS = {
    "zstd": lambda data, n: zstandard.ZstdDecompressor().decompress(data, max_output_size=n),
    "lz4": lambda data, n: lz4.block.decompress(data, uncompressed_size=n),
    "gzip": lambda data, n: gzip.decompress(data),
    "zlib": lambda data, n: zlib.decompress(data),
    "snappy": lambda data, n: pa.Codec("snappy").decompress(data, n).to_pybytes(),
    "huffman": _unhuffman,
}


def _plane(data, n, codec):
    if len(data) == n:
        return data
    made = data * n if len(data) == 1 else DECODERS[codec](data, n)
    assert len(made) == n
    return made


def undone(data, pipeline, n, width):
    """The n bytes of a chunk."""
    if len(data) == n:
        return data
    *filters, codec = [step for step in pipeline.split("+") if step]
    if codec == "pack":
        filters, codec = [*filters, codec], ""
    first = b""
    if "delta" in filters:
        first, data = data[:width], data[width:]
    if "shuffle" in filters or "split" in filters:
        sizes = struct.unpack_from(f"<{width}I", data)
        assert sum(sizes) + 4 * width == len(data)
        ends = np.cumsum([4 * width, *sizes])
        planes = [_plane(data[a:b], n // width, codec) for a, b in itertools.pairwise(ends)]
        values = [int.from_bytes(column, "big") for column in zip(*planes, strict=True)]
        if "split" in filters:
            values = [value >> 1 | (value & 1) << 8 * width - 1 for value in values]
    elif "pack" in filters:
        bits, low = struct.unpack_from("<BQ", data)
        size = -(-(n // width) * bits // 8)
        whole = int.from_bytes(_plane(data[9:], size, codec) if size else b"", "little")
        values = [(whole >> bits * i) % (1 << bits) + low for i in range(n // width)]
    else:
        made = _plane(data, n, codec)
        values = [int.from_bytes(made[i : i + width], "little") for i in range(0, n, width)]
    if "delta" in filters:
        value, steps, values = int.from_bytes(first, "little"), values, []
        for step in steps:
            value += step // 2 if step % 2 == 0 else -(step // 2) - 1
            values.append(value)
    return b"".join((value % (1 << 8 * width)).to_bytes(width, "little") for value in values)


def read(payload, itemsize, width):
    """The bytes of a compressed tensor, or of the strings of one."""
    found = stored(payload)
    left = found.raw or int(np.prod(found.dims, dtype=np.int64)) * itemsize
    at, out = 0, []
    assert len(found.sizes) == len(found.crcs) == -(-left // found.chunk)
    for size, crc in zip(found.sizes, found.crcs, strict=True):
        data, n = found.content[at : at + size], min(left, found.chunk)
        assert masked_crc(data) == struct.pack("<I", crc)
        out.append(undone(data, found.pipeline, n, width))
        at, left = at + size, left - n
    assert at == len(found.content)
    return b"".join(out)


# ---- writing what a test wants ----------------------------------------------


def compression(pipeline, chunk, pieces, *, sizes=None, crcs=None, raw=None, extra=b""):
    """The field of a record; what is not given is true of the pieces."""
    sizes = [len(piece) for piece in pieces] if sizes is None else sizes
    crcs = [struct.unpack("<I", masked_crc(piece))[0] for piece in pieces] if crcs is None else crcs
    message = field(1, pipeline) + (number(2, chunk) if chunk else b"")
    message += field(3, struct.pack(f"<{len(sizes)}I", *sizes)) + field(4, struct.pack(f"<{len(crcs)}I", *crcs))
    return field(COMPRESSION, message + (b"" if raw is None else number(5, raw)) + extra)


def record(code, dims, pipeline, chunk, pieces, *fields, **lies):
    """The payload of a record with this content."""
    head = compression(pipeline, chunk, pieces, **lies)
    return tensor(code, dims, *fields, head, field(4, b"".join(pieces)))
