"""What the rows about records read and write: data that is the same in every run, and files of it.

Whatever a library hands out is brought into one form for checking, a table: for each
feature its flat values, then the lengths of each level above them, innermost first.

    int64 [n]              (values,)
    float32 [n, 32]        (values,)
    bytes [n]              (bytes, length of each string)
    int64, ragged          (values, values of each record)
    ragged in both levels  (values, values of each step, steps of each record)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.peers import import_tensorflow
from tensorbytes import _wire

Array: TypeAlias = np.ndarray[Any, Any]
Column: TypeAlias = tuple[Array, ...]
Table: TypeAlias = dict[str, Column]
FeatureSpec: TypeAlias = str | tuple[str, list[int | None]]


@dataclass(frozen=True)
class Spec:
    """What a record holds, as our schema spells it. With `lists` it is a SequenceExample."""

    features: dict[str, FeatureSpec]
    lists: dict[str, FeatureSpec] | None = None

    def schema(self) -> Any:
        return self.features if self.lists is None else (self.features, self.lists)


def dtype_and_shape(spec: FeatureSpec) -> tuple[str, list[int | None]]:
    return (spec, []) if isinstance(spec, str) else (spec[0], list(spec[1]))


@dataclass(frozen=True)
class Sample:
    """Some records: what they hold, all their values, how many they are."""

    spec: Spec
    table: Table
    count: int


@dataclass(frozen=True)
class Files:
    """The same records as one file and as two halves. `compression` is TensorFlow's word."""

    whole: str
    halves: tuple[str, str]
    compression: str = ""


# ---- tables -----------------------------------------------------------------


def same_tables(a: Table, b: Table) -> bool:
    return a.keys() == b.keys() and all(
        len(a[name]) == len(b[name])
        and a[name][0].dtype == b[name][0].dtype
        and all(map(np.array_equal, a[name], b[name]))
        for name in b
    )


def joined(tables: Iterable[Table]) -> Table:
    """One table of the records of all, in their order."""
    parts: dict[str, list[Column]] = {}
    for table in tables:
        for name, column in table.items():
            parts.setdefault(name, []).append(column)
    return {name: tuple(map(np.concatenate, zip(*columns, strict=True))) for name, columns in parts.items()}


def strings_column(items: list[bytes]) -> Column:
    return np.frombuffer(b"".join(items), np.uint8), np.fromiter(map(len, items), np.int64, len(items))


def reordered(column: Column, order: Array) -> Column:
    """Record (or step, or value) order[i] of the column comes at place i."""
    *below, last = column
    if not below:
        return (last.reshape(len(order), -1)[order].reshape(-1),)
    lengths = last[order]
    starts = (np.cumsum(last) - last)[order] - (np.cumsum(lengths) - lengths)
    return *reordered(tuple(below), np.repeat(starts, lengths) + np.arange(lengths.sum())), lengths


# ---- data -------------------------------------------------------------------


def _random_strings(rng: Any, count: int, shortest: int, longest: int) -> Column:
    lengths = rng.integers(shortest, longest + 1, count)
    return rng.integers(97, 123, int(lengths.sum()), dtype=np.uint8), lengths


def _random_lists(rng: Any, count: int, shortest: int, longest: int, below: int) -> Column:
    lengths = rng.integers(shortest, longest + 1, count)
    return rng.integers(0, below, int(lengths.sum())), lengths


_EXAMPLE = Spec({"embedding": ("float32", [32]), "id": "int64", "label": "int64", "path": "bytes"})


def examples(count: int) -> Sample:
    rng = np.random.default_rng(1)
    table = {
        "embedding": (rng.standard_normal(32 * count, dtype=np.float32),),
        "id": (rng.integers(0, 1 << 40, count),),
        "label": (rng.integers(0, 1000, count),),
        "path": _random_strings(rng, count, 40, 50),
    }
    return Sample(_EXAMPLE, table, count)


def wide(count: int) -> Sample:
    """40 features a record."""
    rng = np.random.default_rng(2)
    kinds: dict[str, tuple[int, FeatureSpec, Callable[[], Column]]] = {
        "count": (12, "int64", lambda: (rng.integers(0, 100_000, count),)),
        "score": (12, "float32", lambda: (rng.standard_normal(count, dtype=np.float32),)),
        "name": (6, "bytes", lambda: _random_strings(rng, count, 5, 15)),
        "vector": (5, ("float32", [4]), lambda: (rng.standard_normal(4 * count, dtype=np.float32),)),
        "tags": (5, ("int64", [None]), lambda: _random_lists(rng, count, 0, 8, 10_000)),
    }
    features: dict[str, FeatureSpec] = {}
    table: Table = {}
    for kind, (number, feature, make) in kinds.items():
        for i in range(number):
            features[f"{kind}_{i}"], table[f"{kind}_{i}"] = feature, make()
    return Sample(Spec(features), table, count)


def tokens(count: int) -> Sample:
    table = {"tokens": _random_lists(np.random.default_rng(3), count, 100, 500, 50_000)}
    return Sample(Spec({"tokens": ("int64", [None])}), table, count)


def images(count: int) -> Sample:
    rng = np.random.default_rng(4)
    pixels = np.frombuffer(rng.bytes(count * 100_000), np.uint8)
    table = {"image": (pixels, np.full(count, 100_000)), "label": (rng.integers(0, 1000, count),)}
    return Sample(Spec({"image": "bytes", "label": "int64"}), table, count)


STEPS = 20


def sequences(count: int) -> Sample:
    rng = np.random.default_rng(5)
    steps = np.full(count, STEPS)
    table = {
        "id": (rng.integers(0, 1 << 40, count),),
        "user": _random_strings(rng, count, 10, 20),
        "items": (*_random_lists(rng, STEPS * count, 1, 8, 50_000), steps),
        "state": (rng.standard_normal(8 * STEPS * count, dtype=np.float32), steps),
    }
    spec = Spec({"id": "int64", "user": "bytes"}, {"items": ("int64", [None]), "state": ("float32", [8])})
    return Sample(spec, table, count)


# ---- files ------------------------------------------------------------------


def values_of(column: Column, count: int) -> Callable[[int], Array]:
    """The values of record (or step) i of `count`."""
    data, *lengths = column
    each = lengths[0] if lengths else np.full(count, len(data) // count)
    bounds = [0, *np.cumsum(each).tolist()]
    return lambda i: data[bounds[i] : bounds[i + 1]]


def serialized(sample: Sample) -> Iterator[bytes]:
    """The records as tf.train.Example or SequenceExample writes them."""
    train = import_tensorflow().train
    spec, table, count = sample.spec, sample.table, sample.count
    context = [(name, _filler(table[name], feature, count)) for name, feature in spec.features.items()]
    lists = [(name, _filler(table[name][:-1], feature, STEPS * count)) for name, feature in (spec.lists or {}).items()]
    for i in range(count):
        record = train.Example() if spec.lists is None else train.SequenceExample()
        features = (record.features if spec.lists is None else record.context).feature
        for name, fill in context:
            fill(features[name], i)
        for name, fill in lists:
            steps = record.feature_lists.feature_list[name].feature
            for step in range(i * STEPS, (i + 1) * STEPS):
                fill(steps.add(), step)
        yield record.SerializeToString()


def _filler(column: Column, feature: FeatureSpec, count: int) -> Callable[[Any, int], None]:
    """What puts the values of record (or step) i into a tf.train.Feature."""
    dtype, values = dtype_and_shape(feature)[0], values_of(column, count)
    if dtype == "bytes":
        return lambda feature, i: feature.bytes_list.value.append(values(i).tobytes())
    kind = {"float32": "float_list", "int64": "int64_list"}[dtype]

    def fill(feature: Any, i: int) -> None:
        numbers = getattr(feature, kind)
        numbers.SetInParent()  # an empty list is there, and empty
        numbers.value.extend(values(i).tolist())

    return fill


def pieces_of(record: bytes) -> list[bytes]:
    """The entries of an Example, each a feature with its key."""
    found, at = [], _field(record, 0)[0]
    while at < len(record):
        end = _field(record, at)[1]
        found.append(record[at:end])
        at = end
    return found


def put_together(*pieces: Sequence[bytes]) -> bytes:
    """An Example of these entries; of several lots, each in a message of its own, as protobuf allows it."""
    return b"".join(b"\x0a" + _wire.varint(len(part)) + part for part in map(b"".join, pieces))


def _field(record: bytes, at: int) -> tuple[int, int]:
    """Where the content of the field at this place starts and ends."""
    size = shift = 0
    while True:
        at += 1
        size |= (record[at] & 0x7F) << shift
        shift += 7
        if record[at] < 0x80:
            return at + 1, at + 1 + size


def write_files(records: Sequence[bytes], folder: Path, compression: str = "") -> Files:
    tf = import_tensorflow()
    half, suffix = len(records) // 2, ".tfrecord.gz" if compression else ".tfrecord"
    parts = {"whole": records, "first": records[:half], "second": records[half:]}
    for name, part in parts.items():
        with tf.io.TFRecordWriter(str(folder / (name + suffix)), compression) as file:
            for record in part:
                file.write(record)
    whole, *halves = (str(folder / (name + suffix)) for name in parts)
    return Files(whole, (halves[0], halves[1]), compression)
