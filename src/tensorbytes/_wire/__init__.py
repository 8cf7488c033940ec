"""The hot loops, compiled where a C compiler was at hand, NumPy otherwise.

TENSORBYTES_KERNEL=compiled or =reference forces the choice; tests run both ways.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tensorbytes._wire.common import (
    BAD_DATA,
    BAD_LENGTH,
    CUT_HEADER,
    CUT_PAYLOAD,
    FORM_ARRAY,
    FORM_BYTES,
    FORM_INT64,
    FORM_OTHER,
    FORM_TEXT,
    HUFFMAN_SLACK,
    LARGE_PAYLOAD,
    MOST_BITS,
    MOST_DECIMAL,
    MOST_SCALE,
    OK,
    PLANES_SLACK,
    SMALL,
    mask,
    varint,
)
from tensorbytes._wire.portions import portions
from tensorbytes.typing import Buffer, bytes_view

_CHOICE = os.environ.get("TENSORBYTES_KERNEL", "auto")
if _CHOICE not in ("auto", "compiled", "reference"):
    raise ImportError(f"TENSORBYTES_KERNEL={_CHOICE!r}: expected auto, compiled or reference")

ACCELERATED: bool = _CHOICE != "reference"
if not TYPE_CHECKING and ACCELERATED:
    try:
        from tensorbytes._wire import _kernel as kernel
    except ImportError:
        if _CHOICE == "compiled":
            raise
        ACCELERATED = False

if TYPE_CHECKING or not ACCELERATED:
    from tensorbytes._wire import columns_reference as columns
    from tensorbytes._wire import example_decode_reference as decoding
    from tensorbytes._wire import example_reference as examples
    from tensorbytes._wire import filters_reference as filters
    from tensorbytes._wire import huffman_reference as huffman
    from tensorbytes._wire import numbers_reference as numbers
    from tensorbytes._wire import objects_reference as objects
    from tensorbytes._wire import reference as kernel
    from tensorbytes._wire import rows_reference as rows
    from tensorbytes._wire import salvage_reference as salvage
else:
    columns = decoding = examples = filters = huffman = numbers = objects = rows = salvage = kernel

crc32c = kernel.crc32c
scan = kernel.scan
fields = kernel.fields
frame = kernel.frame
frames = kernel.frames
frame_header = kernel.frame_header
gather = kernel.gather
map_file = kernel.map_file
plain_tensor = kernel.plain_tensor
plain_record = kernel.plain_record
reserve = kernel.reserve
start_writeback = kernel.start_writeback
strings_pack = kernel.strings_pack
strings_unpack = kernel.strings_unpack
resync = salvage.resync
closing = salvage.closing
bytes_offsets = examples.bytes_offsets
collect_row = examples.collect_row
example_count = examples.example_count
example_decode = decoding.example_decode
example_fill = examples.example_fill
example_fill_bytes = examples.example_fill_bytes
example_locate = examples.example_locate
example_records = examples.example_records
example_steps = examples.example_steps
huffman_encode = huffman.huffman_encode
huffman_decode = huffman.huffman_decode
planes_encode = huffman.planes_encode
planes_decode = huffman.planes_decode
chunks_encode = huffman.chunks_encode
chunks_decode = huffman.chunks_decode
planes_split = filters.planes_split
planes_join = filters.planes_join
difference = filters.difference
accumulate = filters.accumulate
bits_pack = filters.bits_pack
bits_unpack = filters.bits_unpack
missing_zero = columns.missing_zero
missing_clear = columns.missing_clear
offsets_rise = columns.offsets_rise
longest_word = columns.longest_word
decimal_sizes = columns.decimal_sizes
decimal_text = columns.decimal_text
decimal_parse = columns.decimal_parse
strings_list = rows.strings_list
row_dicts = rows.row_dicts
header_read = objects.header_read
objects_read = objects.objects_read
objects_write = objects.objects_write
count_values = numbers.count_values
sum_floats = numbers.sum_floats
histogram = numbers.histogram
cast_floats = numbers.cast_floats
quantize_floats = numbers.quantize_floats
extremes = numbers.extremes
compare_floats = numbers.compare_floats
# The types of floats that these know, by name.
FLOAT_TYPES = {"float16": 0, "bfloat16": 1, "float32": 2, "float64": 3}


def prefault(memory: Buffer) -> None:
    """Fault large fresh memory in, in portions."""
    view = bytes_view(memory)
    for part in portions(len(view)):
        kernel.prefault(view[part])


__all__ = [
    "ACCELERATED",
    "BAD_DATA",
    "BAD_LENGTH",
    "CUT_HEADER",
    "CUT_PAYLOAD",
    "FLOAT_TYPES",
    "FORM_ARRAY",
    "FORM_BYTES",
    "FORM_INT64",
    "FORM_OTHER",
    "FORM_TEXT",
    "HUFFMAN_SLACK",
    "LARGE_PAYLOAD",
    "MOST_BITS",
    "MOST_DECIMAL",
    "MOST_SCALE",
    "OK",
    "PLANES_SLACK",
    "SMALL",
    "accumulate",
    "bits_pack",
    "bits_unpack",
    "bytes_offsets",
    "cast_floats",
    "chunks_decode",
    "chunks_encode",
    "closing",
    "collect_row",
    "compare_floats",
    "count_values",
    "crc32c",
    "decimal_parse",
    "decimal_sizes",
    "decimal_text",
    "difference",
    "example_count",
    "example_decode",
    "example_fill",
    "example_fill_bytes",
    "example_locate",
    "example_records",
    "example_steps",
    "extremes",
    "fields",
    "frame",
    "frame_header",
    "frames",
    "gather",
    "header_read",
    "histogram",
    "huffman_decode",
    "huffman_encode",
    "longest_word",
    "map_file",
    "mask",
    "missing_clear",
    "missing_zero",
    "objects_read",
    "objects_write",
    "offsets_rise",
    "plain_record",
    "plain_tensor",
    "planes_decode",
    "planes_encode",
    "planes_join",
    "planes_split",
    "prefault",
    "quantize_floats",
    "reserve",
    "resync",
    "row_dicts",
    "scan",
    "start_writeback",
    "strings_list",
    "strings_pack",
    "strings_unpack",
    "sum_floats",
    "varint",
]
