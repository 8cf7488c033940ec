"""The libraries that read and write TFRecord files of Examples, behind the same few verbs."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers import import_tensorflow
from benchmarks.record_data import (
    Array,
    Column,
    Sample,
    Spec,
    Table,
    dtype_and_shape,
    joined,
    same_tables,
    strings_column,
)
from benchmarks.timing import FLOOR, OURS, PEER, Contender
from tensorbytes import _wire


@dataclass(frozen=True)
class Reader:
    """A way through a file. `read` gives pieces (batches or rows), `count` the records in one."""

    name: str
    read: Callable[[str], Iterable[Any]]
    count: Callable[[Any], int]
    table: Callable[[list[Any]], Table]
    role: str = PEER
    note: str = ""

    def consume(self, path: str) -> int:
        return sum(map(self.count, self.read(path)))

    def contender(self, path: str, sample: Sample) -> Contender:
        def right(found: int) -> bool:
            return found == sample.count and same_tables(self.table(list(self.read(path))), sample.table)

        return Contender(self.name, self.consume, path, right, self.role, note=self.note)


# ---- rows as columns -----------------------------------------------------------------


def _collated(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows of fixed shapes as columns: an array for numbers, a list for bytes."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        name: values if isinstance(values[0], bytes) else np.stack(values).reshape(len(rows), -1)
        for name, values in columns.items()
    }


def _collated_table(batches: list[dict[str, Any]]) -> Table:
    return joined(
        {
            name: strings_column(values) if isinstance(values, list) else (values.reshape(-1),)
            for name, values in batch.items()
        }
        for batch in batches
    )


def _rows_table(rows: list[dict[str, Any]]) -> Table:
    return _collated_table([_collated(rows)])


def in_batches(rows: Reader, batch: int) -> Reader:
    """A library that gives rows, asked for columns."""

    def read(path: str) -> Iterator[dict[str, Any]]:
        source = iter(rows.read(path))
        while part := list(itertools.islice(source, batch)):
            yield _collated(part)

    return replace(rows, read=read, count=lambda columns: len(next(iter(columns.values()))), table=_collated_table)


# ---- tensorbytes ------------------------------------------------------------


def ours(batch: int, schema: Any = None, name: str = "tensorbytes", role: str = OURS, **options: Any) -> Reader:
    """`options` are those of open_records."""
    import tensorbytes as tb

    def read(path: str) -> Iterator[Any]:
        yield from tb.open_records(path, schema=schema, **options).batches(batch)

    def count(columns: dict[str, Any]) -> int:
        return min(map(len, map(_our_lengths, columns.values())))

    return Reader(name, read, count, _our_table, role)


def our_rows(schema: Any = None) -> Reader:
    import tensorbytes as tb

    def read(path: str) -> Iterator[Any]:
        yield from tb.open_records(path, schema=schema)

    return Reader("tensorbytes", read, bool, _rows_table, OURS)


def write_columns(schema: Any, data: Any, path: str) -> None:
    import tensorbytes as tb

    with tb.RecordWriter(path, schema=schema) as file:
        file.write_batch(data)


def write_rows(schema: Any, data: Any, path: str) -> None:
    import tensorbytes as tb

    with tb.RecordWriter(path, schema=schema) as file:
        for row in data:
            file.write(row)


def _our_lengths(column: Any) -> Any:
    """Something with one entry for each record."""
    import tensorbytes as tb

    return column.offsets[1:] if isinstance(column, tb.Strings) else column


def _our_table(batches: list[dict[str, Any]]) -> Table:
    return joined({name: _our_column(column) for name, column in batch.items()} for batch in batches)


def _our_column(column: Any) -> Column:
    import tensorbytes as tb

    if isinstance(column, tb.Ragged):
        return *_our_column(column.values), *map(np.diff, reversed(column.splits))
    if isinstance(column, tb.Strings):
        return np.frombuffer(column.data, np.uint8), np.diff(column.offsets)
    return ((column.numpy() if isinstance(column, tb.Tensor) else column).reshape(-1),)


# ---- the floor: read and checksum -------------------------------------------


def scanned(path: str, size: int = 4 << 20) -> Iterator[tuple[memoryview, Array]]:
    """The file in pieces of 4 MiB, and where the records are in each, their checksums verified."""
    buffer, out, kept = memoryview(np.empty(size, np.uint8)), np.empty((size // 16, 2), np.int64), 0
    with _opened(path) as file:
        while got := file.readinto(buffer[kept:]):
            filled = buffer[: kept + got]
            found, at, status = _wire.scan(filled, 0, True, out)
            if status in (_wire.BAD_LENGTH, _wire.BAD_DATA):
                raise ValueError(f"{path} is damaged")
            yield filled, out[:found]
            kept = len(filled) - at
            buffer[:kept] = bytes(filled[at:])
    if kept:
        raise ValueError(f"{path} is cut, or has a record of more than {size} bytes")


def _opened(path: str) -> Any:
    if not path.endswith(".gz"):
        return io.FileIO(path)
    try:
        from isal import igzip
    except ImportError:
        return gzip.open(path)
    return igzip.open(path)


def places_of(path: str) -> Array:
    """Where the payload of each record starts, and its length."""
    with open(path, "rb") as file:
        data = file.read()
    places = np.empty((len(data) // 16 + 1, 2), np.int64)
    count, _, _ = _wire.scan(data, 0, False, places)
    return places[:count].copy()


def random_floor(paths: list[str], numbers: Array) -> Contender:
    """Each record read by itself, and verified, without a look at what it holds."""
    found = [places_of(path) for path in paths]
    starts, places = np.cumsum([0, *map(len, found)]), np.concatenate(found)
    owners = np.searchsorted(starts, numbers, side="right") - 1
    lists = [np.column_stack([whose, places[some]]).tolist() for whose, some in zip(owners, numbers, strict=True)]

    def read(wanted: Any) -> int:
        with contextlib.ExitStack() as stack:
            fds = [stack.enter_context(open(path, "rb", buffering=0)).fileno() for path in paths]
            return sum(
                _wire.mask(_wire.crc32c(payload[:-4])) == int.from_bytes(payload[-4:], "little")
                for some in wanted
                for owner, start, length in some
                for payload in [os.pread(fds[owner], length + 4, start)]
            )

    return Contender("os.pread and CRC-check", read, lists, lambda found: found == numbers.size, FLOOR)


def floor(path: str, records: int) -> Contender:
    def count(path: str) -> int:
        return sum(len(found) for _, found in scanned(path))

    name = "inflate and CRC-check" if path.endswith(".gz") else "read and CRC-check"
    return Contender(name, count, path, lambda found: bool(found == records), FLOOR, note="decodes nothing")


# ---- protobuf and tfrecord --------------------------------------------------

_VALUES = {
    "bytes": lambda feature: feature.bytes_list.value[0],
    "float32": lambda feature: np.array(feature.float_list.value, np.float32),
    "int64": lambda feature: np.array(feature.int64_list.value, np.int64),
}


def protobuf_rows(spec: Spec) -> Reader:
    example = import_tensorflow().train.Example
    getters = [(name, _VALUES[dtype_and_shape(feature)[0]]) for name, feature in spec.features.items()]

    def read(path: str) -> Iterator[dict[str, Any]]:
        for data, records in scanned(path):
            for start, size in records.tolist():
                features = example.FromString(bytes(data[start : start + size])).features.feature
                yield {name: get(features[name]) for name, get in getters}

    return Reader("protobuf", read, bool, _rows_table, note="tf.train.Example.FromString over our scan")


def tfrecord_rows(spec: Spec) -> Reader:
    import_tfrecord()
    from tfrecord.reader import tfrecord_loader

    kinds = {"bytes": "byte", "float32": "float", "int64": "int"}
    description = {name: kinds[dtype_and_shape(feature)[0]] for name, feature in spec.features.items()}
    read = partial(tfrecord_loader, index_path=None, description=description)
    return Reader("tfrecord", read, bool, _rows_table, note="checks no CRC")


def import_tfrecord() -> None:
    """tfrecord defines the same messages as TensorFlow: it gets a pool of its own for them."""
    from unittest import mock

    from google.protobuf import descriptor_pool

    sys.modules.setdefault("tfrecord.torch", None)  # type: ignore[arg-type]  # it does without, and PyTorch loads slowly
    pool = descriptor_pool.DescriptorPool()
    with mock.patch.object(descriptor_pool, "Default", return_value=pool):
        import tfrecord  # noqa: F401


# ---- writers of rows --------------------------------------------------------


def writers() -> dict[str, Callable[[Iterable[dict[str, Any]], str], None]]:
    """Each takes rows of the four features that record_rows.EXAMPLE has."""
    tf = import_tensorflow()
    import_tfrecord()
    from tfrecord.writer import TFRecordWriter

    def in_place(row: dict[str, Any]) -> Any:
        example = tf.train.Example()
        feature = example.features.feature
        feature["embedding"].float_list.value.extend(row["embedding"].tolist())
        feature["id"].int64_list.value.append(row["id"])
        feature["label"].int64_list.value.append(row["label"])
        feature["path"].bytes_list.value.append(row["path"])
        return example

    def from_parts(row: dict[str, Any]) -> Any:
        feature = {
            "embedding": tf.train.Feature(float_list=tf.train.FloatList(value=row["embedding"].tolist())),
            "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[row["id"]])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[row["label"]])),
            "path": tf.train.Feature(bytes_list=tf.train.BytesList(value=[row["path"]])),
        }
        return tf.train.Example(features=tf.train.Features(feature=feature))

    def tensorflow_writer(build: Callable[[dict[str, Any]], Any]) -> Any:
        def write(rows: Iterable[dict[str, Any]], path: str) -> None:
            with tf.io.TFRecordWriter(path) as file:
                for row in rows:
                    file.write(build(row).SerializeToString())

        return write

    def tfrecord(rows: Iterable[dict[str, Any]], path: str) -> None:
        file = TFRecordWriter(path)
        for row in rows:
            file.write(
                {
                    "embedding": (row["embedding"].tolist(), "float"),
                    "id": (row["id"], "int"),
                    "label": (row["label"], "int"),
                    "path": (row["path"], "byte"),
                }
            )
        file.close()

    return {
        "TensorFlow": tensorflow_writer(from_parts),
        "TensorFlow, in place": tensorflow_writer(in_place),
        "tfrecord": tfrecord,
    }
