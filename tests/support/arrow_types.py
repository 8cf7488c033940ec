"""Every Arrow type through every way that tables take, with pyarrow as the judge.

    python -m tests.support.arrow_types docs/arrow-types.md

writes the table of the page. An array goes from a file that pyarrow wrote through others and back to one that pyarrow
reads: the same rows, the same type.
"""

from __future__ import annotations

import decimal
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tensorbytes as tb

BEGIN, END = (
    "<!-- types: written by `python -m tests.support.arrow_types docs/arrow-types.md` -->",
    "<!-- end of types -->",
)
_D = decimal.Decimal


def _extension(kind, storage):
    return pa.ExtensionArray.from_storage(kind, storage)


ARRAYS = {
    "int8 to uint64, float16 to float64": pa.array([1, None, -3], pa.int32()),
    "bool": pa.array([True, None, False]),
    "string": pa.array(["a", None, "bé"]),
    "large_string": pa.array(["a", None, ""], pa.large_string()),
    "string_view": pa.array(["a", None, "longer than twelve bytes"], pa.string_view()),
    "binary": pa.array([b"\0\xff", None, b""]),
    "binary_view": pa.array([b"a", None, b"longer than twelve bytes"], pa.binary_view()),
    "fixed_size_binary": pa.array([b"ab", None, b"\0\0"], pa.binary(2)),
    "decimal32": pa.array([_D("1.20"), None, _D("-3.04")], pa.decimal32(5, 2)),
    "decimal64": pa.array([_D("1.20"), None, _D("-3.04")], pa.decimal64(12, 2)),
    "decimal128": pa.array([_D("12345678901234567890.12"), None, _D("-0.01")], pa.decimal128(30, 2)),
    "decimal256": pa.array([_D(10) ** 60, None, _D(-1)], pa.decimal256(70, 0)),
    "date32": pa.array([1, None, -1], pa.date32()),
    "date64": pa.array([86400000, None, 0], pa.date64()),
    "time32": pa.array([1, None, 86399], pa.time32("s")),
    "time64": pa.array([1, None, 10**9], pa.time64("us")),
    "timestamp": pa.array([1, None, -1], pa.timestamp("us")),
    "timestamp with a zone": pa.array([1, None, -1], pa.timestamp("ns", "Europe/Berlin")),
    "duration": pa.array([1, None, -1], pa.duration("ms")),
    "month_day_nano_interval": pa.array([pa.MonthDayNano([1, 2, 3]), None, pa.MonthDayNano([0, -1, 10**12])]),
    "null": pa.nulls(3),
    "list": pa.array([[1, None], None, []], pa.list_(pa.int16())),
    "large_list": pa.array([["a", None], None, []], pa.large_list(pa.string())),
    "list_view": pa.array([[1, 2], None, [3]], pa.list_view(pa.int64())),
    "large_list_view": pa.array([[1, 2], None, [3]], pa.large_list_view(pa.int64())),
    "fixed_size_list": pa.array([[1, None], None, [3, 4]], pa.list_(pa.float32(), 2)),
    "list of lists": pa.array([[[1], None, [2, 3]], None, [[]]], pa.list_(pa.list_(pa.int32()))),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
    "struct of structs": pa.array([{"a": {"b": {"c": 1}}}, None, {"a": None}]),
    "list of structs": pa.array([[{"a": 1, "b": [1, 2]}, None], None, [{"a": None, "b": None}]]),
    "map": pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
    "map of maps": pa.array(
        [[("k", [(1, True)])], None, [("l", None)]], pa.map_(pa.string(), pa.map_(pa.int32(), pa.bool_()))
    ),
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "run_end_encoded": pa.compute.run_end_encode(pa.array([1, 1, None, 2])),
    "arrow.uuid": _extension(pa.uuid(), pa.array([b"0123456789abcdef", None, bytes(16)], pa.binary(16))),
    "arrow.json": _extension(pa.json_(), pa.array(["{}", None, "[1]"])),
    "arrow.bool8": _extension(pa.bool8(), pa.array([1, None, 0], pa.int8())),
    "arrow.fixed_shape_tensor": _extension(
        pa.fixed_shape_tensor(pa.int32(), [2, 2], dim_names=["h", "w"]),
        pa.array([[1, 2, 3, 4], None, [5, 6, 7, 8]], pa.list_(pa.int32(), 4)),
    ),
}
# The ways: the files that an array goes through, after the one that pyarrow wrote.
WAYS = {
    "Arrow": ["x.arrow"],
    "Parquet": ["x.parquet"],
    "tb": ["x.tb", "y.arrow"],
    "npz": ["x.npz", "y.arrow"],
    "TFRecord": ["x.tfrecord", "y.arrow"],
}
VARIANTS = {
    "": lambda array: array,
    "without nulls": lambda array: _without_nulls(array),
    "empty": lambda array: array.slice(0, 0),
    "all null": lambda array: pa.nulls(3, array.type),
}


def _without_nulls(array):
    if pa.types.is_null(array.type):
        return array
    try:
        return array.drop_null()
    except pa.ArrowNotImplementedError:
        return pa.array([value for value in array.to_pylist() if value is not None], array.type)


def write(array, path):
    """A file of one column of the array, and of its number in each row."""
    field = pa.field("col", array.type, metadata={"unit": "m"})
    schema = pa.schema([pa.field("n", pa.int64()), field], metadata={"made by": "pyarrow"})
    table = pa.Table.from_arrays([pa.array(np.arange(len(array))), array], schema=schema)
    if str(path).endswith(".parquet"):
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return table


def read(path):
    if str(path).endswith(".parquet"):
        return pq.read_table(path)
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def plain(table):
    """The rows, without the encodings that have no say in what they are."""
    columns = []
    for column in table.columns:
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        array = array if isinstance(array, pa.Array) else array.chunk(0)
        columns.append(array.dictionary_decode() if pa.types.is_dictionary(array.type) else array)
    return columns


def differences(got, want):
    """What is not the same in two tables, in a word; nothing if all is."""
    if got.schema.names != want.schema.names or got.schema.types != want.schema.types:
        return "type"
    if got.schema.metadata != want.schema.metadata:
        return "metadata"
    for one, two in zip(got.schema, want.schema, strict=True):
        if (one.metadata or {}).get(b"unit") != (two.metadata or {}).get(b"unit"):
            return "metadata"
    return "" if all(a.equals(b) for a, b in zip(plain(got), plain(want), strict=True)) else "values"


def travel(array, way, folder):
    """'same', or what differs, or the error, of an array that goes a way."""
    start = Path(folder) / "start.arrow"
    want = write(array, start)
    at = start
    try:
        for step in WAYS[way]:
            tb.convert(at, Path(folder) / step)
            at = Path(folder) / step
    except tb.errors.TensorbytesError as error:
        return f"refused: {error}"
    if way == "Parquet":  # what pyarrow itself makes of it there
        write(array, Path(folder) / "theirs.parquet")
        want = read(Path(folder) / "theirs.parquet")
    return differences(read(at), want) or "same"


def verdict(array, way):
    """How the variants of an array fare; what all have in common is said once."""
    found = {}
    for name, change in VARIANTS.items():
        with tempfile.TemporaryDirectory() as folder:
            made = change(array)
            try:
                write(made, os.path.join(folder, "theirs.parquet" if way == "Parquet" else "theirs.arrow"))
            except pa.ArrowNotImplementedError:
                return "pyarrow can't"
            found[name] = travel(made, way, folder).partition(":")[0]
    most = found[""]
    others = [f"{word} if {name}" for name, word in found.items() if word != most]
    return "; ".join([most, *others])


def table():
    """The page's table."""
    lines = [f"| Arrow type | {' | '.join(WAYS)} |", f"| --- |{' --- |' * len(WAYS)}"]
    lines += [f"| {name} | {' | '.join(verdict(array, way) for way in WAYS)} |" for name, array in ARRAYS.items()]
    return "\n".join(lines)


def updated(page, text):
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text(), table()))
