"""Writes tests/corpus/reject: small files that every reader of the format must refuse.

    python -m tests.support.make_reject_corpus

Each file is named for what is wrong with it; checksums are right unless they are what is
wrong. The table also holds what our own reader says, which formats/test_golden_files.py checks.
"""

import struct

from tests.support import CORPUS
from tests.support.compressed_bytes import compression, record
from tests.support.golden import write
from tests.support.wire_bytes import (
    BOOL,
    FIXED32,
    FLOAT32,
    INT64,
    META,
    NAME,
    START_GROUP,
    STRING,
    entry,
    field,
    framed,
    int64s,
    key_step,
    layout,
    masked_crc,
    number,
    number_step,
    place,
    records,
    tag,
    tensor,
)

FOLDER = CORPUS / "reject"
SCALAR = tensor(INT64, (), field(4, bytes(8)))


def header(length):
    size = struct.pack("<Q", length)
    return size + masked_crc(size)


def part(index, count, *steps):
    return SCALAR + b"".join(steps) + place(index, count)


def checksummed(head):
    return head + tag(1011, FIXED32) + masked_crc(head)


def packed(bits, rest=b""):
    """A chunk of integers in few bits."""
    return struct.pack("<BQ", bits, 0) + rest


def compressed(pipeline, chunk, *pieces, code=INT64, dims=(64,), **lies):
    return framed(record(code, dims, pipeline, chunk, pieces, **lies))


def coded(*lengths):
    """A Huffman code of 64 bytes: a bit for each, in four streams of two bytes."""
    table = bytes(a | b << 4 for a, b in zip(lengths[0::2], [*lengths[1::2], 0], strict=False))
    return struct.pack("<BB3I", 5, 4 + len(lengths), 2, 2, 2) + table + bytes(8)


NESTED, STREAM = records(write("nested")), records(write("stream"))
# format: {file name: (bytes, the error's class, words in its message)}
REJECT = {
    "tb": {
        "cut-in-header": (framed(SCALAR)[:11], "CorruptError", "ends inside a record's header"),
        "length-past-end": (header(1 << 40) + SCALAR, "CorruptError", "runs past the end"),
        "length-wraps-around": (header((1 << 64) - 4) + SCALAR, "CorruptError", "runs past the end"),
        "length-checksum-differs": (b"\1" + framed(SCALAR)[1:], "CorruptError", "checksum of a record's length"),
        "data-checksum-differs": (framed(SCALAR)[:-1] + b"\0", "CorruptError", "checksum of a record's data"),
        "zeros-at-end": (framed(SCALAR) + bytes(64), "CorruptError", "checksum of a record's length"),
        "no-tensor-in-record": (framed(b""), "CorruptError", "no dtype"),
        "part-missing": (framed(*NESTED[:-1]), "CorruptError", "the file ends after"),
        "parts-swapped": (framed(NESTED[1], NESTED[0], *NESTED[2:]), "CorruptError", "part 1 of an object"),
        "item-missing": (framed(STREAM[0], *STREAM[3:]), "CorruptError", "item 3 of a stream follows item 1"),
        "field-of-a-later-version": (framed(SCALAR + number(1018, 1)), "CorruptError", "unknown to this version"),
        "name-not-utf8": (framed(SCALAR + field(NAME, b"\xff")), "CorruptError", "not UTF-8"),
        "name-differs-from-path": (framed(SCALAR + field(NAME, "a") + key_step("b")), "CorruptError", "whose path is"),
        "key-twice": (framed(part(0, 2, key_step("a")), part(1, 2, key_step("a"))), "CorruptError", "stored twice"),
        "list-out-of-order": (
            framed(part(0, 2, number_step(3, 1)), part(1, 2, number_step(3, 0))), "CorruptError", "follows item -1"),
        "list-and-dict-in-one": (
            framed(part(0, 2, key_step("a")), part(1, 2, number_step(3, 0))), "CorruptError", "a dict for a list"),
        "path-too-deep": (framed(SCALAR + key_step("a") * 65), "LimitError", "a path of 65 steps"),
        "metadata-twice": (framed(SCALAR + field(META, entry("a", "")) * 2), "CorruptError", "stored twice"),
        "kind-of-something-else": (framed(SCALAR + field(1006, "str")), "CorruptError", "marked as Python 'str'"),
        "text-not-utf8": (
            framed(tensor(STRING, (1,), field(1008, "utf-8"), field(8, b"\xff"))), "CorruptError", "text is not UTF-8"),
        "header-checksum-differs": (
            framed(tensor(INT64, (), tag(1011, 5) + bytes(4), field(4, bytes(8)))), "CorruptError", "record's header"),
        # Sound one by one, but each covers all before it: time would grow with the square of their number.
        "header-checksum-twice": (
            framed(checksummed(checksummed(tensor(INT64, ()))) + field(4, bytes(8))), "CorruptError", "a second"),
        "header-checksum-not-before-content": (
            framed(checksummed(tensor(INT64, ())) + number(1500, 1) + field(4, bytes(8))),
            "CorruptError", "not followed by the content alone"),
        "splits-fall": (framed(layout("ragged", int64s(0, 2, 1), int64s(7))), "CorruptError", "must rise"),
        "index-outside-shape": (
            framed(layout("coo", int64s(5, dims=(1, 1)), int64s(1), int64s(5))), "CorruptError", "outside the shape"),
        "layout-unknown": (framed(layout("xyz", int64s(), int64s(), int64s())), "CorruptError", "must be one of"),
        "compression-unknown": (compressed("brotli", 512, b"a"), "CorruptError", "unknown codec or filter 'brotli'"),
        "compression-with-a-level": (compressed("zstd:3", 512, b"a"), "CorruptError", "a level in"),
        "compression-of-a-later-version": (
            compressed("pack", 512, packed(0), extra=number(6, 1)), "CorruptError", "field 6 of a compression"),
        "compressed-content-not-shorter": (
            compressed("pack", 512, bytes(512)), "CorruptError", "512 compressed bytes for"),
        "chunks-without-a-size": (compressed("pack", 0, packed(0)), "CorruptError", "chunks of 0 bytes"),
        "chunks-cut-elements": (compressed("pack", 500, packed(0), packed(0)), "CorruptError", "chunks of 500 bytes"),
        "chunk-missing": (compressed("pack", 256, packed(0)), "CorruptError", "expected 2"),
        "chunk-sizes-differ": (compressed("pack", 512, packed(0), sizes=[8]), "CorruptError", "chunks of 8 bytes in 9"),
        "chunk-checksum-differs": (compressed("pack", 512, packed(0), crcs=[7]), "CorruptError", "checksum of chunk 0"),
        "filter-for-another-dtype": (compressed("split+huffman", 512, b"a"), "CorruptError", "of signed elements"),
        "packed-in-57-bits": (compressed("pack", 512, packed(57)), "CorruptError", "in 57 bits"),
        "packed-bits-behind-the-end": (
            compressed("pack", 24, packed(3, b"\0\2"), dims=(3,)), "CorruptError", "bits behind the last element"),
        "planes-lie": (
            compressed("shuffle+huffman", 512, struct.pack("<8I", *[1] * 8) + bytes(7)),
            "CorruptError", "planes whose sizes"),
        "huffman-code-incomplete": (compressed("huffman", 64, coded(1, 2), code=4), "CorruptError", "not sound"),
        "huffman-code-over-complete": (compressed("huffman", 64, coded(1, 1, 1), code=4), "CorruptError", "not sound"),
        "compressed-claims-16-gibibytes": (
            compressed("pack", 1 << 26, *[packed(0)] * (1 << 8), dims=(1 << 31,)), "LimitError", "over the limit"),
        "compressed-layout": (
            framed(layout("ragged", int64s(0, 1), int64s(7), extra=compression("pack", 8, [b"a"]))),
            "CorruptError", "in its parts, not as a whole"),
        "compressed-python-value": (
            framed(record(INT64, (64,), "pack", 512, [packed(0)], field(1006, "list[int]"))),
            "CorruptError", "that is compressed or quantized"),
        "compressed-strings-missing": (
            compressed("huffman", 64, b"\x42", code=STRING, raw=64),
            "CorruptError", "in the strings that were compressed"),
        "quantized-strings": (
            framed(tensor(STRING, (1,), field(1013, field(1, "cast")), field(8, b"a"))),
            "CorruptError", "quantized strings"),
        "layout-in-layout": (
            framed(layout("ragged", int64s(0), layout("ragged", int64s(0), int64s()))), "CorruptError", "no place"),
    },
    "tensorproto": {
        "claims-four-tebibytes": (tensor(FLOAT32, (1 << 40,), field(5, bytes(4))), "LimitError", "over the limit"),
        "content-too-short": (tensor(INT64, (2,), field(4, bytes(15))), "CorruptError", "tensor_content has 15"),
        "shape-overflows": (tensor(INT64, (0, 1 << 62, 1 << 62)), "CorruptError", "more bytes than 64 bits"),
        "negative-dimension": (tensor(INT64, (-1,)), "CorruptError", "a dimension is -1"),
        "more-values-than-elements": (tensor(FLOAT32, (1,), field(5, bytes(8))), "CorruptError", "got 2"),
        "values-beside-content": (SCALAR + number(10, 1), "CorruptError", "does not use"),
        "value-out-of-range": (tensor(6, (1,), number(7, 300)), "CorruptError", "the range of int8"),
        "bool-of-two": (tensor(BOOL, (1,), field(4, b"\2")), "CorruptError", "is no bool"),
        "group-without-end": (SCALAR + tag(9, START_GROUP), "CorruptError", "never ends"),
        "varint-of-eleven-bytes": (SCALAR + b"\x80" * 10 + b"\1", "CorruptError", "longer than ten bytes"),
        "resource": (tensor(20, (1,)), "UnsupportedError", "a reference, not a value"),
    },
    "sparseproto": {
        "two-strings": (tensor(STRING, (2,), field(8, int64s()), field(8, int64s())), "CorruptError", "shape [3]"),
        "index-outside-shape": (
            tensor(STRING, (3,), *(field(8, p) for p in (int64s(5, dims=(1, 1)), int64s(1), int64s(5)))),
            "CorruptError", "outside the shape"),
        "strings-leave-bytes-over": (
            tensor(STRING, (3,), field(8, int64s(0, dims=(1, 1))), field(8, tensor(STRING, (1,), field(4, b"\1ab"))),
                   field(8, int64s(5))),
            "CorruptError", "left over"),
    },
}  # fmt: skip


def main():
    for format, files in REJECT.items():
        folder = FOLDER / format
        folder.mkdir(parents=True, exist_ok=True)
        for name, (raw, _, _) in files.items():
            (folder / f"{name}.bin").write_bytes(raw)


if __name__ == "__main__":
    main()
