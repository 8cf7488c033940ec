"""The catalogue of hostile bytes, by number: what each is, what it looks like here, what must happen.

`CASES[number]` is (title, {variant: Case}); an expected value that is not a `Refused` is what
loading gives, as lists (or its shape). Numbers that don't concern these formats are in NOT_HERE, those that
need a test of their own are in ELSEWHERE.
"""

import itertools
import struct
from typing import Any, NamedTuple

import numpy as np

from tensorbytes.errors import CorruptError, LimitError, Limits, TensorbytesError, UnsupportedError, UsageError
from tests.support.golden import write
from tests.support.wire_bytes import (
    BOOL,
    END_GROUP,
    FIXED32,
    FLOAT32,
    INT32,
    INT64,
    META,
    START_GROUP,
    STRING,
    entry,
    field,
    framed,
    int64s,
    layout,
    masked_crc,
    number,
    overlong,
    records,
    shape,
    tag,
    tensor,
    varint,
)


class Refused(NamedTuple):
    kind: type[TensorbytesError]
    words: str


class Shaped(NamedTuple):
    """An array without elements, of this shape."""

    dims: tuple[int, ...]


class Case(NamedTuple):
    raw: bytes
    expected: Any
    format: str = "tb"
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed


def corrupt(words):
    return Refused(CorruptError, words)


def proto(raw, expected):
    return Case(raw, expected, "tensorproto")


def raw_bytes(raw, expected, **options):
    return Case(raw, expected, "raw", options)


def header(length):
    """A frame's first twelve bytes, with the checksum right."""
    size = struct.pack("<Q", length)
    return size + masked_crc(size)


FEW = {"limits": Limits(max_bytes=1 << 24)}
DENSE, NESTED, STREAM = write("dense"), write("nested"), write("stream")
ZIP = b"PK\x05\x06" + bytes(18)
ONE = tensor(FLOAT32, (1,), field(4, struct.pack("<f", 1)))
PAST = "a record runs past the end"
SHORT = tensor(FLOAT32, (2,), field(5, struct.pack("<2f", 1, 2)))


def reframed(raw, order):
    payloads = records(raw)
    return framed(*(payloads[i] for i in order))


def lying(raw, by):
    """The frame of one record with another length, and that length's own checksum."""
    (length,) = struct.unpack_from("<Q", raw)
    return header(length + by) + raw[12:]


def groups(depth):
    """Nested groups around nothing, in a tensor that is otherwise sound."""
    return ONE + tag(50, START_GROUP) * depth + tag(50, END_GROUP) * depth


def ragged(*splits):
    return framed(layout("ragged", *(int64s(*s) for s in splits), int64s(1, 2, 3)))


def coo(*indices):
    return framed(layout("coo", int64s(*indices, dims=(len(indices), 1)), int64s(*indices), int64s(2)))


FRAMING = {
    1: ("an empty file", {
        "tb": Case(b"", corrupt("it holds no tensors")),
        "tensorproto": proto(b"", corrupt("no dtype")),
        "sparseproto": Case(b"", corrupt("not a serialized sparse tensor"), "sparseproto"),
        "raw": raw_bytes(b"", corrupt("takes 4 bytes, got 0"), dtype="float32", shape=()),
        "raw, no elements": raw_bytes(b"", [], dtype="float32"),
    }),
    2: ("magic only: the header of a record, nothing after it", {
        "part of it": Case(DENSE[:11], corrupt("ends inside a record's header")),
        "all of it": Case(DENSE[:12], corrupt(PAST)),
        "of no length": Case(header(0), corrupt(PAST)),
    }),
    3: ("a length beyond the file", {
        "by one": Case(lying(DENSE, 1), corrupt(PAST)),
        "by much": Case(lying(DENSE, 1 << 40), corrupt(PAST)),
    }),
    4: ("a length of 2^63 and over", {
        str(n): Case(header(n) + DENSE[12:], corrupt(PAST)) for n in (1 << 63, (1 << 63) - 1, (1 << 64) - 1)
    }),
    5: ("a length that wraps around with the frame added", {
        str(n): Case(header((1 << 64) - n) + DENSE[12:], corrupt(PAST)) for n in (4, 12, 16, 28)
    }),
    6: ("a lying length with a checksum that is right", {
        "shorter": Case(lying(DENSE, -1), corrupt("checksum of a record's data")),
        "shorter by the checksum": Case(lying(DENSE, -4), corrupt("checksum of a record's data")),
        "none": Case(header(0) + DENSE[12:], corrupt("checksum of a record's data")),
    }),
    9: ("a tail of zeros", {
        str(n): Case(DENSE + bytes(n), corrupt("checksum of a record's length" if n > 11 else "ends inside"))
        for n in (1, 11, 12, 16, 4096)
    }),
    10: ("a record twice", {
        "an item of a stream": Case(reframed(STREAM, [0, 1, 2, 1, 2, 3]), corrupt("item 2 of a stream follows item 2")),
        "a part of an object": Case(reframed(NESTED, [0, 1, 1]), corrupt("part 1 of an object where part 2 was due")),
    }),
    11: ("records in another order", {
        "items": Case(reframed(STREAM, [0, 3, 1, 2]), corrupt("item 3 of a stream follows item 1")),
        "parts": Case(reframed(NESTED, [1, 0]), corrupt("part 1 of an object where part 0 was due")),
        "a part missing": Case(reframed(NESTED, [0, 2]), corrupt("part 2 of an object where part 1 was due")),
        "the end missing": Case(reframed(NESTED, [0, 1]), corrupt("the file ends after 2 of")),
        "two objects mixed": Case(framed(records(NESTED)[0], records(STREAM)[2]), corrupt("two objects are mixed")),
    }),
    12: ("two files one after another: all their objects", {
        "objects": Case(framed(ONE, ONE), [[1.0], [1.0]]),
        "of a stream": Case(framed(ONE + number(1005, 1), ONE + number(1005, 1)), [[1.0], [1.0]]),
    }),
    13: ("bytes after the end, such as a ZIP directory", {
        "one": Case(DENSE + b"\0", corrupt("ends inside")),
        "zip": Case(DENSE + ZIP, corrupt("checksum of a record's length")),
        "tensorproto": proto(ONE + ZIP, corrupt("field")),
        "raw": raw_bytes(bytes(4) + ZIP, corrupt("takes 4 bytes, got 26"), dtype="float32", shape=(1,)),
    }),
    14: ("what looks like a record inside a tensor: it is data", {
        "a whole one": Case(framed(tensor(4, (len(DENSE),), field(4, DENSE))), list(DENSE)),
    }),
    15: ("a whole record inside one whose header is damaged: not resurrected", {
        "length": Case(b"\xff" + framed(tensor(4, (len(DENSE),), field(4, DENSE)))[1:], corrupt("record's length")),
        "data": Case(framed(tensor(4, (len(DENSE),), field(4, DENSE)))[:-1] + b"\0", corrupt("record's data")),
    }),
    16: ("a newer version: a field that changes the meaning and is not known", {
        "named": Case(framed(ONE + number(1018, 1)), corrupt("extension field 1018 is unknown to this version")),
    }),
    17: ("unknown fields, those that may be passed over and those that may not", {
        "critical": Case(framed(ONE + number(1499, 1)), corrupt("1499")),
        "optional": Case(framed(ONE + number(1500, 1)), [1.0]),
    }),
    18: ("a forged checksum: it protects against damage, not against intent", {
        "loads": Case(framed(tensor(FLOAT32, (1,), field(4, struct.pack("<f", 2)))), [2.0]),
    }),
}  # fmt: skip

NUMPY_LACKS = Refused(UnsupportedError, "dtype")
SHAPES = {
    19: ("a negative dimension", {
        "-5": proto(tensor(FLOAT32, (-5,)), corrupt("a dimension is -5")),
        "raw": raw_bytes(bytes(4), Refused(UsageError, "negative"), dtype="float32", shape=(-5,)),
    }),
    20: ("a dimension of -1", {
        "-1": proto(tensor(FLOAT32, (-1,)), corrupt("a dimension is -1")),
        "raw": raw_bytes(bytes(4), Refused(UsageError, "negative"), dtype="float32", shape=(-1,)),
        "two of them": raw_bytes(bytes(4), Refused(UsageError, "negative"), dtype="float32", shape=(-1, -1)),
    }),
    21: ("a product that overflows", {
        "tensorproto": proto(tensor(4, (1 << 32, 1 << 32)), corrupt("more bytes than 64 bits")),
        "tb": Case(framed(tensor(4, (1 << 32, 1 << 32))), corrupt("more bytes than 64 bits")),
        "strings": proto(tensor(STRING, (1 << 32, 1 << 32)), corrupt("more bytes than 64 bits")),
        "raw": raw_bytes(b"", corrupt("more bytes than 64 bits"), dtype="uint8", shape=(1 << 32, 1 << 32)),
    }),
    22: ("elements times their size overflow", {
        "float32": proto(tensor(FLOAT32, (1 << 61,)), corrupt("more bytes than 64 bits")),
        "wraps to nothing": proto(tensor(INT64, (1 << 61,), field(4, b"\0")), corrupt("more bytes than 64 bits")),
    }),
    23: ("a zero among dimensions that overflow: refused in every order", {
        str(dims): proto(tensor(FLOAT32, dims), corrupt("more bytes than 64 bits"))
        for dims in sorted(set(itertools.permutations((0, 1 << 62, 1 << 62))))
    }),
    24: ("no elements, one large dimension", {
        "tensorproto": proto(tensor(FLOAT32, (0, 1 << 40)), Shaped((0, 1 << 40))),
        "reversed": Case(framed(tensor(FLOAT32, (1 << 40, 0))), Shaped((1 << 40, 0))),
        "strings": Case(framed(tensor(STRING, (1 << 40, 0))), Shaped((1 << 40, 0))),
    }),
    25: ("rank 0", {"scalar": proto(tensor(INT32, (), field(4, b"\7\0\0\0")), 7)}),
    26: ("a rank beyond reason", {
        "65": proto(tensor(4, (1,) * 65, field(4, b"\5")), Refused(LimitError, "rank 65")),
        "65, plain record": Case(framed(tensor(4, (1,) * 65, field(4, b"\5"))), Refused(LimitError, "rank 65")),
        "a million": proto(tensor(4, (1,) * 1_000_000), Refused(LimitError, "rank over 254")),
        "64": proto(tensor(4, (1,) * 64, field(4, b"\5")), np.full((1,) * 64, 5).tolist()),
        "sparse": Case(framed(layout("coo", int64s(dims=(0, 65)), int64s(), int64s(*[1] * 65))), corrupt("at most 64")),
        "ragged levels": Case(ragged(*[(0, 1)] * 64, (0, 3)), corrupt("65 levels")),
        "row shapes": Case(
            framed(layout("ragged-shapes", int64s(0, 1), int64s(9), int64s(*[1] * 65, dims=(1, 65)))),
            corrupt("at most 64"),
        ),
    }),
    27: ("a dimension that is not an integer", {
        "float": proto(number(1, 1) + field(2, field(2, tag(1, FIXED32) + bytes(4))), corrupt("wire type 5")),
        "text": proto(number(1, 1) + field(2, field(2, field(1, b"3"))), corrupt("wire type 2")),
        "no message": proto(number(1, 1) + field(2, number(2, 3)), corrupt("wire type 0")),
        "raw, float": raw_bytes(bytes(8), Refused(UsageError, "whole numbers"), dtype="float32", shape=(2.0,)),
        "raw, text": raw_bytes(bytes(8), Refused(UsageError, "whole numbers"), dtype="float32", shape="2"),
    }),
    28: ("elements of no size: there is no such dtype", {
        name: raw_bytes(b"", NUMPY_LACKS, dtype=name, shape=(1 << 40,)) for name in ("V0", "S0", "U0")
    }),
    29: ("content that does not fit dtype and shape", {
        "short": proto(tensor(FLOAT32, (2,), field(4, bytes(7))), corrupt("takes 8 bytes, tensor_content has 7")),
        "long": proto(tensor(FLOAT32, (2,), field(4, bytes(9))), corrupt("takes 8 bytes, tensor_content has 9")),
        "plain record": Case(framed(tensor(FLOAT32, (2,), field(4, bytes(9)))), corrupt("takes 8 bytes")),
        "no elements": proto(tensor(FLOAT32, (0,), field(4, bytes(4))), corrupt("takes 0 bytes")),
        "raw": raw_bytes(bytes(7), corrupt("not a whole number"), dtype="float32"),
    }),
    30: ("an unknown dtype", {
        "99": proto(tensor(99, (1,)), Refused(UnsupportedError, "number 99 .*byte 0")),
        "2^32 + 1": proto(tensor((1 << 32) + 1, (1,)), Refused(UnsupportedError, "4294967297")),
        "none": proto(shape(1), corrupt("no dtype")),
        "a reference type": proto(tensor(101, (1,)), Refused(UnsupportedError, "number 101")),
        "raw": raw_bytes(bytes(4), NUMPY_LACKS, dtype="float33"),
    }),
    31: ("objects", {"raw": raw_bytes(bytes(8), NUMPY_LACKS, dtype="O")}),
    32: ("structured dtypes", {
        "fields": raw_bytes(bytes(8), Refused(UnsupportedError, "structured"), dtype="f4,f4"),
        "overlap": raw_bytes(bytes(8), Refused(UnsupportedError, "structured"),
                             dtype={"names": ["a", "b"], "formats": ["f4", "f4"], "offsets": [0, 2]}),
    }),
    33: ("a bool of 2", {
        "tensorproto": proto(tensor(BOOL, (2,), field(4, b"\1\2")), corrupt("2 .element 1. is not a valid bool")),
        "tb": Case(framed(tensor(BOOL, (2,), field(4, b"\1\2"))), corrupt("is not a valid bool")),
        "raw": raw_bytes(b"\1\2", corrupt("is not a valid bool"), dtype="bool"),
    }),
    34: ("four-bit integers: an odd count, dirty bits", {
        "three": proto(tensor(29, (3,), field(4, b"\x0f\x07\x08")), [-1, 7, -8]),
        "dirty": proto(tensor(29, (3,), field(4, b"\x0f\x1f\x08")), corrupt("31 .element 1. is not a valid int4")),
        "raw": raw_bytes(b"\x10", corrupt("is not a valid uint4"), dtype="uint4"),
    }),
    39: ("half a complex number", {
        "three floats": proto(tensor(8, (2,), field(9, bytes(12))), corrupt("an odd number of values")),
    }),
}  # fmt: skip

PROTOBUF = {
    60: ("a varint of eleven bytes", {
        "tag": proto(ONE + b"\x80" * 10 + b"\1", corrupt("longer than ten bytes")),
        "value": proto(tensor(INT64, (1,), tag(10, 0) + b"\x80" * 10 + b"\1"), corrupt("longer than ten bytes")),
        "packed": proto(tensor(INT64, (1,), field(10, b"\x80" * 10 + b"\1")), corrupt("longer than ten bytes")),
    }),
    61: ("a varint of ten bytes that overflows: a value keeps its low bits, a length is refused", {
        "value": proto(tensor(INT64, (1,), tag(10, 0) + b"\x85" + b"\x80" * 8 + b"\x7e"), [5]),
        "packed": proto(tensor(INT64, (1,), field(10, b"\x85" + b"\x80" * 8 + b"\x7e")), [5]),
        "length": proto(ONE + tag(8, 2) + b"\x80" * 9 + b"\x02", corrupt("more than 64 bits")),
    }),
    62: ("a zero in many bytes", {
        "value": proto(tensor(INT64, (1,), tag(10, 0) + overlong(0, 10)), [0]),
        "length": proto(ONE + tag(99, 2) + overlong(0, 10), [1.0]),
    }),
    63: ("field number 0, wire types 6 and 7", {
        "field 0": proto(ONE + b"\x02\x00", corrupt("a field has the number 0")),
        "beyond 29 bits": proto(ONE + tag(1 << 29, 0) + b"\0", corrupt("a field has the number")),
        "wire type 6": proto(ONE + tag(99, 6), corrupt("unknown wire type 6")),
        "wire type 7": proto(ONE + tag(99, 7), corrupt("unknown wire type 7")),
    }),
    64: ("a length past the end", {
        **{str(n): proto(ONE + tag(99, 2) + varint(n), corrupt(f"claims {n} bytes where 0 are left"))
           for n in (1, 1 << 31, 1 << 63, (1 << 64) - 1)},
        "strings": proto(tensor(STRING, (1,), tag(8, 2) + varint(1 << 63)), corrupt("claims 9223372036854775808")),
        "inside": proto(number(1, 1) + field(2, b"\x12\x7f"), corrupt("claims 127 bytes where 0 are left")),
    }),
    65: ("nesting without end", {
        "100 groups": proto(groups(100), [1.0]),
        "101 groups": proto(groups(101), corrupt("nested deeper than 100")),
        "100 000 groups": proto(groups(100_000), corrupt("nested deeper than 100")),
        "a layout in a layout": Case(
            framed(layout("ragged", int64s(0, 1), layout("ragged", int64s(0, 1), int64s(1)))),
            corrupt("has no place in a part"),
        ),
    }),
    66: ("a group that ends without a start", {
        "alone": proto(ONE + tag(50, END_GROUP), corrupt("ends a group that never began")),
        "another's": proto(ONE + tag(50, START_GROUP) + tag(51, END_GROUP), corrupt("group 50 is ended as 51")),
        "never": proto(ONE + tag(50, START_GROUP), corrupt("group 50 never ends")),
    }),
    67: ("packed values cut in the middle", {
        "float32": proto(tensor(FLOAT32, (2,), field(5, bytes(7))), corrupt("values of 4 bytes fill 7 bytes")),
        "float64": proto(tensor(2, (2,), field(6, bytes(12))), corrupt("values of 8 bytes fill 12 bytes")),
        "varint": proto(tensor(INT64, (2,), field(10, b"\1\x80")), corrupt("runs past the end of its")),
    }),
    68: ("packed and single values mixed", {
        "both": proto(tensor(INT64, (3,), number(10, 1), field(10, b"\2\3")), [1, 2, 3]),
    }),
    69: ("a scalar twice: the last counts", {
        "dtype": proto(number(1, 9) + ONE, [1.0]),
        "content": proto(tensor(FLOAT32, (1,), field(4, bytes(9)), field(4, bytes(4))), [0.0]),
    }),
    71: ("19 bytes that claim four tebibytes", {
        "tensorproto": proto(tensor(FLOAT32, (1 << 40,), tag(5, FIXED32) + bytes(4)), Refused(LimitError, "over the")),
        "tb": Case(framed(tensor(FLOAT32, (1 << 40,), tag(5, FIXED32) + bytes(4))), Refused(LimitError, "over the")),
        "string": proto(tensor(STRING, (1 << 40,), field(8, b"abc")), Refused(LimitError, "over the limit")),
        "many small claims": Case(
            framed(*[tensor(4, (1 << 16,), number(7, 1))] * 257),
            Refused(LimitError, r"of which 16\d{6} are taken"), "tb", FEW,
        ),
        "many parts": Case(
            framed(layout("ragged", *[tensor(INT32, (1 << 16,), number(7, 1))] * 65)),
            Refused(LimitError, r"of which 16\d{6} are taken"), "tb", FEW,
        ),
    }),
    72: ("the same without a value", {
        "tensorproto": proto(tensor(FLOAT32, (1 << 40,)), Refused(LimitError, "over the limit")),
        "strings": proto(tensor(STRING, (1 << 40,)), Refused(LimitError, "over the limit")),
        "a list of Python integers": Case(
            framed(tensor(INT64, (1 << 20,), field(1006, "list[int]"))), corrupt("whose values are not all there")
        ),
    }),
    73: ("more values than elements", {
        "floats": proto(tensor(FLOAT32, (1,), field(5, bytes(8))), corrupt("takes 1 values, got 2")),
        "none wanted": proto(tensor(FLOAT32, (0,), field(5, bytes(4))), corrupt("takes 0 values, got 1")),
    }),
    74: ("tensor_content beside typed values", {
        "own": proto(ONE + field(5, bytes(4)), corrupt("field 5 holds values that this tensor does not use")),
        "another's": proto(ONE + number(7, 1), corrupt("field 7 holds values")),
        "strings": proto(tensor(STRING, (1,), field(4, b"\1a"), field(8, b"b")), corrupt("both")),
        "in a layout": Case(framed(layout("ragged", int64s(0, 1), int64s(1)) + field(4, b"x")), corrupt("not a list")),
    }),
    75: ("another number of strings", {
        "more": proto(tensor(STRING, (1,), field(8, b"a"), field(8, b"b")), corrupt("takes 1 strings, got 2")),
        "fewer repeat the last": proto(tensor(STRING, (3,), field(8, b"a"), field(8, b"b")), [b"a", b"b", b"b"]),
        "in content": proto(tensor(STRING, (3,), field(4, b"\1\1ab")), corrupt("string 2 runs past|left over|varint")),
    }),
    76: ("a shape of unknown rank or size", {
        "rank": proto(number(1, 1) + field(2, number(3, 1)), corrupt("the shape is unknown")),
        "size": proto(tensor(FLOAT32, (-1,)), corrupt("a dimension is -1")),
    }),
    77: ("row splits that don't fit", {
        "beyond": Case(ragged((0, 4)), corrupt("must rise from 0 to 3, got 0 to 4")),
        "falling": Case(ragged((0, 2, 1, 3)), corrupt("must rise")),
        "not from 0": Case(ragged((1, 3)), corrupt("must rise")),
        "none": Case(ragged(()), corrupt("list of integers")),
        "levels that disagree": Case(ragged((0, 5), (0, 3)), corrupt("must rise from 0 to 1")),
        "a scalar": Case(framed(layout("ragged", int64s(0, dims=()), int64s(1))), corrupt("lists of integers")),
        "floats": Case(framed(layout("ragged", ONE, int64s(1))), corrupt("int32 or int64")),
    }),
    78: ("a sparse index outside the shape", {
        "beyond": Case(coo(0, 2), corrupt("outside the shape")),
        "below": Case(coo(-1), corrupt("outside the shape")),
        "csr column": Case(
            framed(layout("csr", int64s(0, 1), int64s(9), int64s(1), int64s(1, 2))), corrupt("outside 0..1")
        ),
        "csr pointers": Case(
            framed(layout("csr", int64s(0, 5), int64s(0), int64s(1), int64s(1, 2))), corrupt("rising numbers")
        ),
    }),
    79: ("a map key twice", {
        "metadata": Case(framed(ONE + field(META, entry("a", "1")) * 2), corrupt("'a' is stored twice")),
    }),
    80: ("references in place of values", {
        "resource": proto(tensor(20, (1,)), Refused(UnsupportedError, "resource")),
        "variant": proto(tensor(21, (1,)), Refused(UnsupportedError, "variant")),
        "resource_handle_val": proto(tensor(20, (1,), field(14, b"")), Refused(UnsupportedError, "references")),
    }),
}  # fmt: skip

CASES = {**FRAMING, **SHAPES, **PROTOBUF}
ELSEWHERE = {
    7: "hostile/test_damaged_padding.py: test_each_truncation_is_noticed",
    8: "hostile/test_damaged_padding.py: test_no_flipped_bit_loads_as_anything",
    35: "hostile/test_cases.py: test_case_35",
    36: "hostile/test_cases.py: test_case_36",
    37: "hostile/test_cases.py: test_case_37",
    38: "hostile/test_cases.py: test_case_38",
    70: "formats/test_tensorproto.py: test_two_gibibytes_are_refused_before_anything_is_written",
}
NOT_HERE: dict[int, str] = {}
