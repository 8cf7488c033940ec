"""How the sweeps read a damaged file, and how they compare what comes out.

A way of reading yields what it delivers piece by piece, each in a form that compares bit for bit, so that what was
delivered before an error is known as well.
"""

import dataclasses
import functools
import io
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

import tensorbytes as tb
from tensorbytes import opening
from tensorbytes.formats import _opened
from tensorbytes.formats.tfrecord.files.salvage import check_records
from tensorbytes.ops import manifests
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor

Pieces = Iterator[Any]


def plain(value: Any) -> Any:
    """A value as what compares bit for bit, names and metadata included. All of its data is read."""
    kind = type(value)
    if kind is Tensor:
        return "tensor", value.dtype, value.shape, bytes(value.data), value.name, told(value)
    if kind is np.ndarray:
        if value.dtype == object:
            return "objects", value.shape, tuple(map(plain, value.reshape(-1).tolist()))
        return "array", value.dtype.str, value.shape, value.tobytes()
    if kind is dict:
        return "dict", tuple((plain(key), plain(item)) for key, item in value.items())
    if kind is list or isinstance(value, tuple):
        return kind.__name__, tuple(map(plain, value))
    if kind is Strings:
        return "strings", value.shape, value.encoding, tuple(value.items()), value.name, told(value)
    if kind is Ragged:
        parts = tuple(map(numbers, value.splits)), None if value.shapes is None else numbers(value.shapes)
        return "ragged", plain(value.values), parts, value.name, told(value)
    if kind is Sparse:
        parts = tuple(map(numbers, value.parts))
        return "sparse", value.layout, value.shape, parts, plain(value.values), value.name, told(value)
    if isinstance(value, np.generic):
        return "scalar", value.dtype.str, value.tobytes()
    if kind is float or kind is complex:
        return kind.__name__, np.asarray(value).tobytes()
    if dataclasses.is_dataclass(value):
        return kind.__name__, tuple(plain(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, Mapping):
        return "mapping", tuple((plain(key), plain(item)) for key, item in value.items())
    return kind.__name__, value if isinstance(value, str | bytes | int | None) else repr(value)


def numbers(array: np.ndarray) -> Any:
    return array.shape, tuple(array.reshape(-1).tolist())


def told(value: Any) -> Any:
    return tuple(value.meta.items())


class Pipe:
    """A stream that can only be read onwards, a few bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, 100))


class Place(NamedTuple):
    """What is read: the damaged bytes, and the folder that they stand in where several files belong together."""

    data: bytes
    folder: str  # of the files
    path: str  # what is opened there
    format: str | None
    options: Mapping[str, Any]


# ---- tensors ------------------------------------------------------------------------


def loads(place: Place) -> Pieces:
    yield plain(tb.loads(place.data, place.format, to="tensor", **place.options))


def recognised(place: Place) -> Pieces:
    """Nothing said about the format; as NumPy arrays, for which small files have a way of their own."""
    yield plain(tb.loads(place.data, None if place.format != "raw" else "raw", **place.options))


def entries(file: Any) -> Pieces:
    yield tuple(file.meta.items())
    for entry in file.entries():
        told = entry.name, entry.kind, entry.dtype, entry.shape, tuple(entry.meta.items())
        yield told, plain(entry.load())


def lazy(place: Place) -> Pieces:
    with tb.open(io.BytesIO(place.data), format=place.format, to="tensor", **place.options) as file:
        yield from entries(file)


def sliced(place: Place) -> Pieces:
    """Without the checksums, which cover whole tensors: errors and time are what is looked at."""
    with tb.open(io.BytesIO(place.data), format=place.format, **place.options) as file:
        for entry in file.entries():
            if entry.kind != "sparse" and entry.shape:
                yield plain(entry[:1])


def piped(place: Place) -> Pieces:
    yield from map(plain, tb.open(Pipe(place.data), to="tensor"))


def all_objects(place: Place) -> Pieces:
    """A stream read as a whole."""
    yield from map(plain, tb.loads(place.data, place.format, to="tensor"))


def listed(place: Place) -> Pieces:
    """The objects of a stream, one after the other; the rows of a table."""
    opened = opening.open_bytes(memoryview(place.data), place.format, tb.errors.LIMITS, {})
    if opened.rows:
        yield from (plain(dict(table.columns)) for table in opened.tables(1))
        return
    with tb.open(io.BytesIO(place.data), format=place.format, to="tensor") as file:
        yield from map(plain, file)


def path_whole(place: Place) -> Pieces:
    yield plain(tb.load(place.path, place.format, to="tensor", **place.options))


def path_lazy(place: Place) -> Pieces:
    with tb.open(place.path, format=place.format, to="tensor", **place.options) as file:
        yield from entries(file)


def path_mapped(place: Place) -> Pieces:
    yield plain(tb.load(place.path, place.format, to="tensor", mmap=True, **place.options))


def large(place: Place) -> Pieces:
    """As files of many mebibytes are read: in pieces, by two threads."""
    before, _opened._LARGE_BYTES = _opened._LARGE_BYTES, 1
    try:
        yield plain(tb.load(place.path, place.format, to="tensor"))
    finally:
        _opened._LARGE_BYTES = before


# ---- records ------------------------------------------------------------------------


def rows(place: Place) -> Pieces:
    yield from map(plain, tb.open_records(io.BytesIO(place.data), threads=1, **place.options))


def piped_rows(place: Place) -> Pieces:
    yield from map(plain, tb.open_records(Pipe(place.data), threads=1, **place.options))


def batches(place: Place) -> Pieces:
    """Columns of three records, handed on record by record: damage may leave a shorter batch."""
    for batch in tb.open_records(io.BytesIO(place.data), threads=1, **place.options).batches(3):
        columns = {name: [*map(plain, items(column))] for name, column in batch.items()}
        for number in range(batch.records):
            present = [name for name in columns if name not in batch.present or batch.present[name][number]]
            yield tuple((name, columns[name][number]) for name in present)


def items(column: Any) -> Any:
    """What a column has for each record."""
    return column.numpy() if isinstance(column, Strings) else column


def random_rows(place: Place) -> Pieces:
    records = tb.open_records(io.BytesIO(place.data), threads=1, **place.options)
    for number in range(len(records)):
        yield plain(records[number])


def inferred(place: Place) -> Pieces:
    """Without a schema: what was cut off may have told more about the features."""
    options = {key: value for key, value in place.options.items() if key != "schema"}
    yield from map(plain, tb.open_records(io.BytesIO(place.data), threads=1, **options))


def kept_rows(place: Place) -> Pieces:
    """Read around damage."""
    yield from map(plain, tb.open_records(io.BytesIO(place.data), threads=1, on_corrupt="skip", **place.options))


def verified(place: Place) -> Pieces:
    """What the report says; that intact and lost bytes are the whole file is checked here."""
    report = check_records(io.BytesIO(place.data), compression=place.options["compression"])
    assert report.intact + report.lost == report.size
    if not report.ok:
        raise tb.errors.CorruptError("damaged", at=report.damages[0].start)
    yield from range(report.records)


def events(place: Place) -> Pieces:
    for event in tb.records.read_events(io.BytesIO(place.data)):
        yield plain(dataclasses.replace(event, path=""))


def kept_events(place: Place) -> Pieces:
    for event in tb.records.read_events(io.BytesIO(place.data), on_corrupt="skip"):
        yield plain(dataclasses.replace(event, path=""))


def scalars(place: Place) -> Pieces:
    for tag, series in tb.records.read_scalars(io.BytesIO(place.data)).items():
        for one in zip(*series, strict=True):
            yield tag, plain(one)


def path_rows(place: Place) -> Pieces:
    """With the schema that stands beside it."""
    records = tb.open_records(place.path, threads=1)
    yield plain(records.schema.to_json())
    yield from map(plain, records)


def indexed(place: Place) -> Pieces:
    """By the saved index; one that is no good is made anew, which must not hide what it says."""
    records = tb.open_records(place.path, threads=1)
    yield len(records)
    for number in range(len(records)):
        yield plain(records[number])


def schema(place: Place) -> Pieces:
    made = tb.records.Schema.from_json(place.data)
    assert tb.records.Schema.from_json(made.to_json()) == made
    yield made.to_json()


# ---- manifests ----------------------------------------------------------------------


def manifest(place: Place) -> Pieces:
    """A file is sound, or some of it is not: that counts as refused."""
    beside = manifests.path_beside(place.path)
    found = tb.verify(place.path, place.format, manifest=beside)
    if not found.ok:
        raise tb.errors.CorruptError(found.damages[0].what, at=found.damages[0].start or 0, path=place.path)
    yield found.tensors, plain(manifests.read_manifest(beside))
    yield plain(tb.load(place.path, to="tensor"))


# ---- a reader with every fault, on which the sweep is tried ------------------------


def trial(place: Place) -> Pieces:
    """Reads b"ok", and goes wrong in another way for each kind of damage."""
    data = place.data
    if data == b"":
        bytes(20 << 20)
        raise tb.errors.CorruptError("memory was taken first", at=0)
    if data == b"o":
        raise KeyError("o")
    if data == b"nk":
        os.abort()
    if data == b"mk":
        bytearray(1 << 29)
    if data == b"kk":
        raise tb.errors.CorruptError("a place that is not there", at=99)
    if data == b"gk":
        yield b"other data"
        return
    if data == b"\x7fk":
        until = time.process_time() + 1.1
        while time.process_time() < until:
            pass
    if data == b"Ok":
        plain(functools.reduce(lambda inner, _: [inner], range(100_000), []))
    if data[1:] != b"k":
        raise tb.errors.CorruptError("as it should be", at=1)
    yield b"ok"


class Way(NamedTuple):
    read: Callable[[Place], Pieces]
    whole: bool = True  # False: it checks no checksums
    gaps: bool = False  # True: it leaves out what is damaged
    keyed: bool = False  # True: in another order than that of the file


WAYS = {
    "loads": Way(loads),
    "recognised": Way(recognised),
    "shortcut": Way(recognised),
    "lazy": Way(lazy),
    "sliced": Way(sliced, whole=False),
    "piped": Way(piped),
    "all objects": Way(all_objects),
    "listed": Way(listed),
    "path whole": Way(path_whole),
    "path lazy": Way(path_lazy),
    "path mapped": Way(path_mapped, whole=False),
    "large": Way(large),
    "rows": Way(rows),
    "piped rows": Way(piped_rows),
    "batches": Way(batches),
    "random rows": Way(random_rows),
    "inferred": Way(inferred, whole=False),
    "kept rows": Way(kept_rows, gaps=True),
    "verified": Way(verified),
    "events": Way(events),
    "kept events": Way(kept_events, gaps=True),
    "scalars": Way(scalars, keyed=True),
    "path rows": Way(path_rows),
    "indexed": Way(indexed),
    "schema": Way(schema),
    "manifest": Way(manifest),
    "trial": Way(trial),
}
