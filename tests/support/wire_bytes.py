"""Protobuf and TFRecord bytes by hand, so that tests don't build their input with the code they test."""

import functools
import struct

import google_crc32c

VARINT, FIXED64, DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)
(NAME, META, STEP, PART, PARTS, ITEM, KIND, LAYOUT, ENCODING, DOCUMENT, PADDING, HEADER_CRC) = range(1000, 1012)
COMPRESSION, QUANTIZATION, ORIGIN, DOCUMENT_ORIGIN, ROWS, ALIAS = range(1012, 1018)
DIRECTORY = 1500
FLOAT32, INT32, STRING, INT64, BOOL = 1, 3, 7, 9, 10


def varint(value):
    """Of 64 bits; a negative number takes ten bytes."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def overlong(value, size):
    """A varint in more bytes than it needs."""
    digits = [value >> 7 * i & 0x7F for i in range(size)]
    return bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]])


def tag(number, wire):
    return varint(number << 3 | wire)


@functools.cache  # shapes of a million sizes are a million times the same
def number(field, value):
    return tag(field, VARINT) + varint(value)


def field(field, content):
    """A length-delimited field; text is stored as UTF-8."""
    raw = content.encode() if isinstance(content, str) else bytes(content)
    return tag(field, DELIMITED) + varint(len(raw)) + raw


@functools.cache
def dim(size):
    return field(2, number(1, size) if size else b"")


def shape(*dims):
    return field(2, b"".join(map(dim, dims)))


def tensor(code, dims, *fields):
    """A TensorProto: dtype, shape and whatever follows."""
    return number(1, code) + shape(*dims) + b"".join(fields)


def int64s(*values, dims=None):
    """A TensorProto of int64, with its content written out."""
    raw = struct.pack(f"<{len(values)}q", *values)
    return tensor(INT64, (len(values),) if dims is None else dims, field(4, raw) if raw else b"")


def entry(key, value):
    """One entry of a map of strings."""
    return field(1, key) + field(2, value)


def key_step(text):
    return field(STEP, field(1, text))


def number_step(kind, value):
    """A step of another kind: 2 an integer key (zigzag), 3 a list, 4 a tuple, 5 the name itself."""
    return field(STEP, number(kind, value))


def place(part, parts):
    return number(PART, part) + number(PARTS, parts)


def layout(name, *parts, extra=b""):
    """A ragged or sparse record of nested TensorProtos."""
    return tensor(STRING, (len(parts),), extra, field(LAYOUT, name), *(field(8, part) for part in parts))


def masked_crc(raw):
    crc = google_crc32c.value(bytes(raw))
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def header(length):
    """That of a TFRecord which claims so many bytes."""
    raw = struct.pack("<Q", length)
    return raw + masked_crc(raw)


def framed(*payloads):
    """TFRecords with checksums that are right, whatever they hold."""
    return b"".join(part for payload in payloads for part in (header(len(payload)), payload, masked_crc(payload)))


def records(data):
    """The payloads of sound framed bytes."""
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        found.append(bytes(data[at + 12 : at + 12 + length]))
        at += length + 16
    return found


def damage_record(data, lost):
    """The same records, one of them with a wrong last byte."""
    raw, at = bytearray(data), 0
    for number, payload in enumerate(records(bytes(data))):
        if number == lost:
            raw[at + 12 + len(payload) - 1] ^= 1
        at += 16 + len(payload)
    return bytes(raw)
