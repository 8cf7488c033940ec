"""pyarrow: IPC files and streams, tensor messages, Parquet. Our readers of tables use pyarrow: both may crash."""

from __future__ import annotations

import io
import re
from functools import cache
from random import Random
from typing import Any

import numpy as np

import tensorbytes as tb
from safety.fuzz.differential.arrays import neutral, plain
from safety.fuzz.differential.mutate import damage, often_one, splice
from safety.fuzz.differential.outcome import LIMITS
from safety.fuzz.differential.pair import Pair
from tensorbytes import formats
from tensorbytes.formats.arrow import to_table


def _warm(_: Pair, __: str) -> None:
    import pyarrow.parquet  # noqa: F401


@cache
def _columns() -> dict[str, Any]:
    import pyarrow as pa

    n = 3
    kinds = [pa.int8(), pa.int32(), pa.int64(), pa.uint16(), pa.float32(), pa.float64()]
    return {
        **{str(kind): pa.array([1, 2, 3], kind) for kind in kinds},
        "half": pa.array(np.arange(n, dtype=np.float16)),
        "bool": pa.array([True, False, True]),
        "string": pa.array(["a", "é", ""]),
        "large": pa.array(["a", "é", ""], pa.large_string()),
        "view": pa.array(["a", "é", "a string of over twelve bytes"], pa.string_view()),
        "binary": pa.array([b"a", b"\xff", b""]),
        "fixed": pa.array([b"ab", b"cd", b"ef"], pa.binary(2)),
        "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
        "list": pa.array([[1], [2, 3], []], pa.list_(pa.int16())),
        "large list": pa.array([[1], [2, 3], []], pa.large_list(pa.uint8())),
        "fixed list": pa.array([[1, 2]] * n, pa.list_(pa.int16(), 2)),
        "strings": pa.array([["a"], ["b", ""], []]),
        "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(n * 4, dtype=np.int32).reshape(n, 2, 2)),
        "time": pa.array([1, 2, 3], pa.timestamp("us")),
        "date": pa.array([1, 2, 3], pa.date32()),
        "span": pa.array([1, 2, 3], pa.duration("s")),
        "clock": pa.array([1, 2, 3], pa.time32("s")),
        "decimal": pa.array([1, 2, 3], pa.decimal128(9, 2)),
        "struct": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": ""}, {"a": 3, "b": "z"}]),
        "structs": pa.array([[{"a": 1}], [], [{"a": 2}, {"a": 3}]]),
        "map": pa.array([[("k", 1)], [], [("l", 2), ("m", 3)]], pa.map_(pa.string(), pa.int8())),
        "null": pa.array([1, None, 3]),
        "null lists": pa.array([[1, None], None, []]),
        "null structs": pa.array([{"a": 1}, None, {"a": None}]),
    }  # fmt: skip


@cache
def _table(names: tuple[str, ...]) -> Any:
    import pyarrow as pa

    return pa.table({name: _columns()[name] for name in names})


def _any_table(rng: Random) -> Any:
    names = list(_columns())
    return _table(tuple(rng.sample(names, rng.choice([1, 1, 2]))))


@cache
def _ipc(names: tuple[str, ...], file: bool, codec: str | None, batches: int) -> bytes:
    import pyarrow as pa

    table, sink = _table(names), pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    make = pa.ipc.new_file if file else pa.ipc.new_stream
    with make(sink, table.schema, options=options) as writer:
        for batch in table.to_batches(max_chunksize=3 // batches):
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


class Ipc(Pair):
    package = "pyarrow"
    words = "`ipc.open_file` or `open_stream`, `validate(full=True)`"
    remote = ours_remote = True
    warm = _warm

    def generate(self, rng: Random) -> bytes:
        def one() -> bytes:
            names = tuple(_any_table(rng).column_names)
            return _ipc(names, rng.random() < 0.4, rng.choice([None, None, "lz4", "zstd"]), rng.choice([1, 1, 3]))

        raw = one()
        if rng.random() < 0.05:
            return splice(rng, raw, one())
        for _ in range(often_one(rng) - (rng.random() < 0.05)):
            raw = damage(rng, raw)
        return raw

    def ours(self, raw: bytes) -> Any:
        return _table_of_ours(raw, "arrow")

    def theirs(self, raw: bytes) -> Any:
        import pyarrow as pa

        reader = pa.ipc.open_file(raw) if raw[:6] == b"ARROW1" else pa.ipc.open_stream(raw)
        return _table_of_theirs(reader.read_all())


def _table_of_ours(raw: bytes, format: str) -> Any:
    """What we read, as a table again: every value went through ours."""
    (document,) = formats.get(format).decode(memoryview(raw), LIMITS, False, {})
    return _rows(to_table(document))


def _table_of_theirs(table: Any) -> Any:
    table.validate(full=True)
    return _rows(table)


def _rows(table: Any) -> Any:
    """The rows of each column, whatever its encoding; numbers by their bits."""
    return [[name, *_cells(column)] for name, column in zip(table.column_names, table.columns, strict=True)]


def _cells(column: Any) -> Any:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = pa.chunked_array([chunk.dictionary_decode() for chunk in column.chunks], kind.value_type)
        kind = kind.value_type
    if pa.types.is_floating(kind) or pa.types.is_temporal(kind):  # a NaN is not equal to itself, a date may be no date
        bits = pa.int64() if kind.bit_width == 64 else pa.int32() if kind.bit_width == 32 else pa.int16()
        column = pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)
    words = re.sub(r" \('[^']*'\)", "", str(kind))  # pyarrow's names of what a map holds
    return words.replace("large_", "").replace("_view", ""), [_cell(scalar) for scalar in column]


def _cell(scalar: Any) -> str:
    try:
        return repr(scalar.as_py())
    except (ArithmeticError, ValueError):
        return "not a Python value"


@cache
def _message(dtype: str, shape: tuple[int, ...], order: str, named: bool) -> bytes:
    import pyarrow as pa

    x = np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape, order=order)  # type: ignore[call-overload]
    sink = pa.BufferOutputStream()
    names = [f"axis {n}" for n in range(len(shape))] if named else None
    pa.ipc.write_tensor(pa.Tensor.from_numpy(x, dim_names=names), sink)
    return bytes(sink.getvalue().to_pybytes())


class TensorMessage(Pair):
    package = "pyarrow"
    words = "`ipc.read_tensor`"
    remote = True
    warm = _warm

    def generate(self, rng: Random) -> bytes:
        dtype = rng.choice(["i1", "u2", "i4", "u8", "f2", "f4", "f8"])
        shape = rng.choice([(), (0,), (5,), (2, 3), (3, 0, 2), (2, 1, 2)])
        raw = _message(dtype, shape, rng.choice("CF"), rng.random() < 0.3)
        for _ in range(often_one(rng) - (rng.random() < 0.05)):
            raw = damage(rng, raw)
        return raw

    def ours(self, raw: bytes) -> Any:
        return neutral(tb.loads(raw, "arrowtensor", to="tensor", limits=LIMITS))

    def theirs(self, raw: bytes) -> Any:
        import pyarrow as pa

        return plain(pa.ipc.read_tensor(pa.BufferReader(raw)).to_numpy())


@cache
def _file(names: tuple[str, ...], codec: str, checked: bool) -> bytes:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(
        _table(names), sink, compression=codec, write_page_checksum=checked, use_dictionary=codec == "snappy"
    )
    return sink.getvalue()


class Parquet(Pair):
    package = "pyarrow"
    words = "`parquet.read_table`, `validate(full=True)`"
    remote = ours_remote = True
    warm = _warm

    def generate(self, rng: Random) -> bytes:
        names = tuple(name for name in _any_table(rng).column_names if name not in ("span", "half"))
        raw = _file(names or ("int32",), rng.choice(["none", "none", "snappy", "zstd"]), rng.random() < 0.2)
        for _ in range(often_one(rng) - (rng.random() < 0.05)):
            raw = damage(rng, raw)
        return raw

    def ours(self, raw: bytes) -> Any:
        return _table_of_ours(raw, "parquet")

    def theirs(self, raw: bytes) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        return _table_of_theirs(pq.read_table(pa.BufferReader(raw), use_threads=False))
