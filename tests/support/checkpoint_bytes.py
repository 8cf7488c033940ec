"""Checkpoints byte by byte, also wrong ones: tables, blocks and entries by code of their own."""

import struct

from tests.support.wire_bytes import field, masked_crc, number, tag, varint

MAGIC = bytes.fromhex("57fb808b247547db")
HEADER = number(1, 1) + field(3, number(1, 1))
FLOAT32, INT32, UINT8, STRING, INT64, BOOL, VARIANT = 1, 3, 4, 7, 9, 10, 21


def crc_of(data):
    """The masked CRC-32C as a number."""
    return struct.unpack("<I", masked_crc(data))[0]


def entry(dtype, shape, data=b"", *, shard=0, offset=0, size=None, crc=None, extra=b""):
    """A BundleEntryProto; the checksum and the size are those of the data unless given."""
    dims = b"".join(field(2, number(1, n)) for n in shape)
    out = number(1, dtype) + field(2, dims) + number(3, shard) + number(4, offset)
    out += number(5, len(data) if size is None else size)
    return out + tag(6, 5) + struct.pack("<I", crc_of(data) if crc is None else crc) + extra


def block(items, restarts=(0,), count=None):
    """A block of (shared, further key, value), or of (key, value) that share nothing."""
    out = []
    for item in items:
        shared, key, value = item if len(item) == 3 else (0, *item)
        out += [varint(shared), varint(len(key)), varint(len(value)), key, value]
    out += [struct.pack("<I", n) for n in (*restarts, len(restarts) if count is None else count)]
    return b"".join(out)


def trailed(body, kind=0, crc=None):
    return body + bytes([kind]) + (masked_crc(body + bytes([kind])) if crc is None else crc)


def handle(offset, size):
    return varint(offset) + varint(size)


def table(*blocks, keys=None, kind=0, handles=None, padding=b"", magic=MAGIC):
    """A table of these blocks, under these keys in the index."""
    out, found = b"", []
    for body in blocks:
        found.append(handle(len(out), len(body)))
        out += trailed(body, kind)
    meta, empty = handle(len(out), 8), block([])
    out += trailed(empty)
    keys = keys or [bytes([0xF0 + n]) for n in range(len(blocks))]
    index = block(list(zip(keys, handles or found, strict=True)), restarts=restarts_of(keys, handles or found))
    footer = meta + handle(len(out), len(index))
    return out + trailed(index) + (footer + padding).ljust(40, b"\0") + magic


def restarts_of(keys, values):
    at, out = 0, []
    for key, value in zip(keys, values, strict=True):
        out.append(at)
        at += 3 + len(key) + len(value)
    return out or [0]


def index(entries, header=HEADER):
    """The index of a checkpoint of these {name: entry}."""
    items = [(b"", header), *sorted(entries.items())]
    return table(block(items))


def strings(*items, order="<"):
    """(the bytes of a string tensor, its masked checksum)"""
    lengths = b"".join(struct.pack(f"{order}I", len(item)) for item in items)
    checksum = masked_crc(lengths)[:: 1 if order == "<" else -1]
    data = b"".join(varint(len(item)) for item in items) + checksum + b"".join(items)
    return data, crc_of(lengths + checksum + b"".join(items))


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def extents(*pairs):
    """The field `slices` of an entry: (start, length), or None for a whole axis."""
    return field(7, b"".join(field(1, number(1, p[0]) + number(2, p[1]) if p else b"") for p in pairs))


def slice_key(name, *pairs):
    """For short names and extents under 64 alone."""
    out = b"\0" + name + b"\0\1" + (bytes([1, len(pairs)]) if pairs else b"\0")
    for start, length in ((pair or (0, -1)) for pair in pairs):
        out += bytes([0x80 ^ start]) + bytes([0x7F if length == -1 else 0x80 ^ length])
    return out


def put(folder, entries, data=b"", header=HEADER, name="c", shards=1):
    """Write a checkpoint; gives its prefix."""
    (folder / f"{name}.index").write_bytes(entries if isinstance(entries, bytes) else index(entries, header))
    if data is not None:
        (folder / f"{name}.data-00000-of-{shards:05d}").write_bytes(data)
    return str(folder / name)
