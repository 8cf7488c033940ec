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


def directory(names=("a", "b"), codes=(INT64, INT64), kinds=(0, 0), shapes=((), ()), nbytes=(), sizes=None, extra=b""):
    """The directory of FIRST and SECOND, or one that lies."""
    columns = [
        field(1, "".join(names)),
        field(2, bytes(len(name.encode()) for name in names)),
        field(3, bytes(codes)),
        field(4, bytes(kinds)),
        field(5, bytes(map(len, shapes))),
        field(6, bytes(2 * size for shape in shapes for size in shape)),
        field(7, bytes(nbytes)),
        field(8, struct.pack(f"<{len(sizes)}I", *sizes) if sizes is not None else struct.pack("<I", len(SECOND))),
    ]
    return b"".join(columns) + extra


FIRST, SECOND = part(0, 2, key_step("a")), part(1, 2, key_step("b"))


def listed(raw=None, second=SECOND, **lies):
    return framed(FIRST + field(1500, directory(**lies) if raw is None else raw), second)


def alias(index, count, of, name="a", *fields, key="c"):
    """A record that stands for part number `of`."""
    number_of = b"" if of is None else number(1017, of)
    steps = key_step(key) + place(index, count)
    return tensor(STRING, (), steps, field(1007, "alias"), number_of, *fields, field(8, name))


def column(index, count, name, *more, dims=(3,), code=INT64):
    """A part of a table: the first one tells of its three rows."""
    size = {INT64: 8, BOOL: 1}[code]
    for n in dims:
        size *= n
    rows = b"" if index else number(1016, 3)
    return tensor(code, dims, key_step(name), *more, place(index, count), rows, field(4, bytes(size)))


def mask(index, count, name, level=0, size=3, code=BOOL):
    return column(index, count, name, number_step(6, level), dims=(size,), code=code)


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
        "packed-bits-after-the-end": (
            compressed("pack", 24, packed(3, b"\0\2"), dims=(3,)), "CorruptError", "bits after the last element"),
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
        "directory-lies-about-a-name": (listed(names=("a", "c")), "CorruptError", "'c' of the name of part 1"),
        "directory-swaps-names": (listed(names=("b", "a")), "CorruptError", "'b' of the name of part 0"),
        "directory-lies-about-a-dtype": (listed(codes=(INT64, 17)), "CorruptError", "'uint16' of the dtype of part 1"),
        "directory-lies-about-a-shape": (listed(shapes=((), (1,))), "CorruptError", "(1,) of the shape of part 1"),
        "directory-lies-about-a-kind": (listed(kinds=(0, 1), codes=(INT64, STRING), nbytes=(8,)),
            "CorruptError", "'strings' of the kind of part 1"),
        "directory-lies-about-an-alias": (listed(kinds=(0, 4)), "CorruptError", "True of the alias of part 1"),
        "directory-lies-about-metadata": (listed(kinds=(0, 16)), "CorruptError", "True of the metadata of part 1"),
        "directory-lies-about-a-size": (listed(sizes=[len(SECOND) + 1]), "CorruptError", "bytes of part 1"),
        "directory-tells-of-too-little": (listed(shapes=((), (60,))), "CorruptError", "in a record of"),
        "directory-of-three-records": (
            listed(names=("a", "b", "c"), codes=(9, 9, 9), kinds=(0, 0, 0), shapes=((), (), ()), sizes=[9, 9]),
            "CorruptError", "tells of 3 records, the object has 2"),
        "directory-of-one-record": (
            listed(names=("a",), codes=(9,), kinds=(0,), shapes=((),), sizes=[]),
            "CorruptError", "tells of 1 records, the object has 2"),
        "directory-of-nothing": (listed(b""), "CorruptError", "tells of 0 records"),
        "directory-without-names": (listed(names=()), "CorruptError", "0 lengths for 2 records"),
        "directory-without-dtypes": (listed(codes=()), "CorruptError", "columns of different lengths"),
        "directory-of-an-unknown-dtype": (listed(codes=(INT64, 99)), "CorruptError", "the dtype code 99"),
        "directory-of-an-unknown-kind": (listed(kinds=(0, 64)), "CorruptError", "unknown to this version"),
        "directory-with-sizes-twice": (listed(extra=field(9, bytes(8))), "CorruptError", "one column of sizes"),
        "directory-with-a-size-missing": (listed(sizes=[]), "CorruptError", "0 bytes of sizes for 1 records"),
        "directory-with-a-column-twice": (listed(extra=field(1, "ab")), "CorruptError", "its column 1 twice"),
        "directory-on-a-later-part": (
            framed(FIRST, SECOND + field(1500, directory())), "CorruptError", "a directory on part 1"),
        "alias-of-itself": (framed(FIRST, alias(1, 2, 1, "c")), "CorruptError", "does not come before it"),
        "alias-of-a-later-part": (
            framed(part(0, 3, key_step("a")), alias(1, 3, 2, "b"), part(2, 3, key_step("b"))),
            "CorruptError", "does not come before it"),
        "alias-of-no-part": (framed(FIRST, alias(1, 2, 1 << 40)), "CorruptError", "does not come before it"),
        "alias-alone": (framed(alias(0, 1, 0)), "CorruptError", "does not come before it"),
        "alias-of-an-alias": (
            framed(part(0, 3, key_step("a")), alias(1, 3, 0), alias(2, 3, 1, "c", key="d")),
            "CorruptError", "which is itself an alias"),
        "alias-under-another-name": (framed(FIRST, alias(1, 2, 0, "b")), "CorruptError", "which is 'a'"),
        "alias-of-a-python-value": (
            framed(part(0, 2, key_step("a"), field(1006, "int")), alias(1, 2, 0)), "CorruptError", "a Python value"),
        "alias-of-a-value-without-a-path": (
            framed(SCALAR + field(NAME, "a") + place(0, 2), alias(1, 2, 0)), "CorruptError", "has no place"),
        "alias-without-a-number": (framed(FIRST, alias(1, 2, None)), "CorruptError", "both its layout and the number"),
        "alias-without-its-layout": (
            framed(FIRST, SECOND + number(1017, 0)), "CorruptError", "both its layout and the number"),
        "alias-of-two-strings": (framed(FIRST, alias(1, 2, 0, "a", field(8, "a"))), "CorruptError", "one string"),
        "alias-with-metadata": (
            framed(FIRST, alias(1, 2, 0, "a", field(META, entry("k", "")))), "CorruptError", "no place in an alias"),
        "alias-with-content": (
            framed(FIRST, alias(1, 2, 0, "a", field(4, b"a"))), "CorruptError", "one string, the name"),
        "alias-in-a-part-of-a-layout": (
            framed(layout("ragged", int64s(0, 1), tensor(INT64, (1,), number(1017, 0), field(4, bytes(8))))),
            "CorruptError", "field 1017 has no place"),
        "table-of-another-number-of-rows": (
            framed(column(0, 2, "a"), column(1, 2, "b", dims=(2,))), "CorruptError", "in a table of 3 rows"),
        "table-of-a-scalar": (framed(column(0, 2, "a"), column(1, 2, "b", dims=())), "CorruptError", "in a table of"),
        "table-of-a-python-value": (
            framed(column(0, 2, "a"), column(1, 2, "b", field(1006, "list[int]"))), "CorruptError", "not a column"),
        "table-of-a-list": (framed(column(0, 1, "a", number_step(3, 0))), "CorruptError", "not a column under a key"),
        "table-without-a-name": (framed(int64s(1, 2, 3) + number(1016, 3)), "CorruptError", "not a column under a key"),
        "rows-on-a-later-part": (
            framed(column(0, 2, "a"), column(1, 2, "b") + number(1016, 3)), "CorruptError", "two objects are mixed"),
        "mask-outside-a-table": (
            framed(FIRST, tensor(BOOL, (1,), key_step("a"), number_step(6, 0), place(1, 2), field(4, b"\1"))),
            "CorruptError", "a mask outside a table"),
        "mask-of-another-length": (
            framed(column(0, 2, "a"), mask(1, 2, "a", size=2)), "CorruptError", "has 2 elements, its column has 3"),
        "mask-of-another-level": (
            framed(column(0, 2, "a", dims=(3, 2)), mask(1, 2, "a", 1)), "CorruptError", "3 elements, its column has 6"),
        "mask-of-no-level": (
            framed(column(0, 2, "a"), mask(1, 2, "a", 1)), "CorruptError", "level 1 on a column of 1 dimensions"),
        "mask-of-numbers": (
            framed(column(0, 2, "a"), mask(1, 2, "a", code=INT64)), "CorruptError", "not a list of bools"),
        "mask-of-nothing": (framed(column(0, 2, "a"), mask(1, 2, "b")), "CorruptError", "the mask of nothing"),
        "mask-in-the-middle": (
            framed(column(0, 2, "a"), column(1, 2, "a", number_step(6, 0), key_step("b"), dims=(3,), code=BOOL)),
            "CorruptError", "not the last step"),
        "mask-by-itself": (
            framed(tensor(BOOL, (1,), number_step(6, 0), field(4, b"\1"))), "CorruptError", "not the last step"),
        "mask-of-a-list": (
            framed(tensor(BOOL, (1,), number_step(3, 0), number_step(6, 0), field(4, b"\1"))),
            "CorruptError", "not the last step"),
        "mask-twice": (
            framed(column(0, 3, "a"), mask(1, 3, "a"), mask(2, 3, "a")), "CorruptError", "stored twice"),
        "origin-twice": (framed(SCALAR + field(1014, entry("a", "")) * 2), "CorruptError", "stored twice"),
        "origin-of-the-whole-on-a-later-part": (
            framed(FIRST, SECOND + field(1015, entry("a", ""))), "CorruptError", "two objects are mixed"),
    },
    "tensorproto": {
        "claims-four-tebibytes": (tensor(FLOAT32, (1 << 40,), field(5, bytes(4))), "LimitError", "over the limit"),
        "content-too-short": (tensor(INT64, (2,), field(4, bytes(15))), "CorruptError", "tensor_content has 15"),
        "shape-overflows": (tensor(INT64, (0, 1 << 62, 1 << 62)), "CorruptError", "more bytes than 64 bits"),
        "negative-dimension": (tensor(INT64, (-1,)), "CorruptError", "a dimension is -1"),
        "more-values-than-elements": (tensor(FLOAT32, (1,), field(5, bytes(8))), "CorruptError", "got 2"),
        "values-beside-content": (SCALAR + number(10, 1), "CorruptError", "does not use"),
        "value-out-of-range": (tensor(6, (1,), number(7, 300)), "CorruptError", "the range of int8"),
        "bool-of-two": (tensor(BOOL, (1,), field(4, b"\2")), "CorruptError", "is not a valid bool"),
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
