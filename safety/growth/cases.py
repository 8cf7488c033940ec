"""What may be large in a sound file, or in what is written to one. `make` is not timed, `use` is."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tensorbytes as tb
from tensorbytes import _wire
from tensorbytes._wire import proto
from tensorbytes.formats import _zip

ONE = np.ones(1, np.float32)


class Case(NamedTuple):
    """Something of which there are n, 10 n and 100 n."""

    area: str
    what: str
    n: int
    make: Callable[[int, Path], Any]
    use: Callable[[Any], object]

    @property
    def name(self) -> str:
        return f"{self.area}: {self.what}"


def cases() -> Iterator[Case]:
    for part in (_records, _schemas, _files_of_records, _tensors, _tools, _fields, _elements, _depths):
        yield from part()


def _names(n: int) -> list[str]:
    return [f"layer.{i}.weight" for i in range(n)]


def _tree(n: int) -> dict[str, Any]:
    return dict.fromkeys(_names(n), ONE)


# ---- records -----------------------------------------------------------------------


def _field(number: int, content: bytes | str) -> bytes:
    return proto.put_bytes(number, content.encode() if isinstance(content, str) else content)


def _entries(names: list[str], value: bytes) -> bytes:
    return b"".join(_field(1, _field(1, name) + _field(2, value)) for name in names)


INTEGER = _field(3, _field(1, b"\1"))


def _record(names: list[str], value: bytes = INTEGER) -> bytes:
    """An Example with these features, in this order."""
    return _field(1, _entries(names, value))


def _write(folder: Path, payloads: list[bytes]) -> Path:
    path = folder / "x.tfrecord"
    path.write_bytes(_wire.frames([[payload] for payload in payloads]))
    return path


def _read_all(made: tuple[Path, tb.records.Schema]) -> None:
    path, schema = made
    for _ in tb.open_records(path, schema=schema).batches(1024):
        pass


def _with_schema(path: Path) -> tuple[Path, tb.records.Schema]:
    return path, tb.records.infer_schema(path)


def _records() -> Iterator[Case]:
    def usual(n: int, folder: Path) -> Path:
        return _write(folder, [_record(_names(n))])

    def falling(n: int, folder: Path) -> Path:
        return _write(folder, [_record(_names(n)[::-1])])

    def shuffled(n: int, folder: Path) -> Path:
        rng = np.random.default_rng(n)
        return _write(folder, [_record(rng.permutation(_names(n)).tolist())])

    def odd(n: int, folder: Path) -> Path:
        """Each feature in a message of its own, which protobuf merges."""
        return _write(folder, [b"".join(_record([name]) for name in _names(n))])

    def own(n: int, folder: Path) -> Path:
        return _write(folder, [_record([name]) for name in _names(n)])

    def lists(n: int, folder: Path) -> Path:
        step = _field(1, INTEGER)
        return _write(folder, [_field(2, _entries(_names(n), step))])

    def steps(n: int, folder: Path) -> Path:
        step = _field(1, INTEGER)
        return _write(folder, [_field(2, _field(1, _field(1, "a") + _field(2, step * n)))])

    def strings(n: int, folder: Path) -> Path:
        return _write(folder, [_record(["a"], _field(1, _field(1, "text") * n))])

    def single(n: int, folder: Path) -> Path:
        """Integers that are not packed."""
        return _write(folder, [_record(["a"], _field(3, b"\x08\x01" * n))])

    def pieces(n: int, folder: Path) -> Path:
        """A Feature in n pieces of one value."""
        return _write(folder, [_record(["a"], INTEGER * n)])

    def kinds(n: int, folder: Path) -> Path:
        """A Feature that is a list of floats, then of integers, and so on: the last one counts."""
        return _write(folder, [_record(["a"], (_field(2, b"") + INTEGER) * n)])

    def repeated(n: int, folder: Path) -> Path:
        """One key n times."""
        return _write(folder, [_record(["a"] * n)])

    built: list[tuple[str, int, Callable[[int, Path], Path]]] = [
        ("features", 100, usual),
        ("features in falling order", 100, falling),
        ("features in any order", 100, shuffled),
        ("features in messages of their own", 30, odd),
        ("feature lists", 30, lists),
        ("steps of a feature list", 100, steps),
        ("strings of a feature", 3000, strings),
        ("integers that are not packed", 3000, single),
        ("pieces of a feature", 100, pieces),
        ("lists of changing kinds", 100, kinds),
        ("entries with one key", 100, repeated),
    ]
    for what, n, make in built:
        yield Case("records", f"infer the schema of {what}", n, make, tb.records.infer_schema)
        yield Case("records", f"read {what}", n, lambda n, folder, make=make: _with_schema(make(n, folder)), _read_all)
    yield Case("records", "infer the schema of records with features of their own", 300, own, tb.records.infer_schema)
    yield Case("records", "records to rows", 100, usual, lambda path: list(islice(tb.open_records(path), 2)))
    yield Case("records", "write rows of features", 100, lambda n, folder: (folder, _tree(n)), _write_rows)
    yield Case("records", "write a batch of columns", 100, _batch, _write_batch)
    yield Case("records", "write steps", 300, lambda n, folder: (folder, n), _write_steps)


def _write_rows(made: tuple[Path, dict[str, Any]]) -> None:
    folder, tree = made
    with tb.RecordWriter(folder / "w.tfrecord") as writer:
        for _ in range(2):
            writer.write(tree)


def _batch(n: int, folder: Path) -> tuple[Path, dict[str, Any]]:
    return folder, dict.fromkeys(_names(n), np.ones(2, np.float32))


def _write_batch(made: tuple[Path, dict[str, Any]]) -> None:
    folder, columns = made
    with tb.RecordWriter(folder / "w.tfrecord") as writer:
        writer.write_batch(columns)


def _write_steps(made: tuple[Path, int]) -> None:
    folder, n = made
    with tb.RecordWriter(folder / "w.tfrecord", lists=["a"]) as writer:
        writer.write({"a": [ONE] * n})


def _schemas() -> Iterator[Case]:
    def schema(n: int, folder: Path) -> tb.records.Schema:
        return tb.records.Schema({name: tb.records.Feature("float32", (1,)) for name in _names(n)})

    def several(n: int, folder: Path) -> list[tb.records.Schema]:
        return [tb.records.Schema({"a": tb.records.Feature("float32", (i + 1,))}) for i in range(n)]

    def apart(n: int, folder: Path) -> list[tb.records.Schema]:
        return [tb.records.Schema({name: tb.records.Feature("float32", (1,))}) for name in _names(n)]

    other = tb.records.Schema({"a": tb.records.Feature("float32", (1,))})
    yield Case("schemas", "merge two of many features", 300, schema, other.merge)
    yield Case("schemas", "merge many of one feature", 300, several, _merged)
    yield Case("schemas", "merge many of a feature each", 300, apart, _merged)
    yield Case("schemas", "to JSON and back", 300, schema, lambda s: tb.records.Schema.from_json(s.to_json()))
    yield Case("schemas", "to text", 300, schema, repr)


def _merged(schemas: list[tb.records.Schema]) -> tb.records.Schema:
    return tb.records.Schema.merged([(f"file {i}", schema) for i, schema in enumerate(schemas)])


def _files_of_records() -> Iterator[Case]:
    def many(n: int, folder: Path) -> Path:
        return _write(folder, [_record(["a"])] * n)

    def damaged(n: int, folder: Path) -> Path:
        raw = bytearray(_wire.frames([[_record(["a"])]] * n))
        size = len(raw) // n
        raw[size - 1 :: 2 * size] = bytes(b ^ 1 for b in raw[size - 1 :: 2 * size])
        path = folder / "x.tfrecord"
        path.write_bytes(raw)
        return path

    def lying(n: int, folder: Path) -> Path:
        """Sound headers, each of a record that is longer than the file."""
        raw = bytearray(_wire.frames([[_record(["a"])]]))
        raw[12:] = _wire.frame_header(100 * n) * n
        path = folder / "x.tfrecord"
        path.write_bytes(raw)
        return path

    def members(n: int, folder: Path) -> Path:
        import gzip

        path = folder / "x.tfrecord.gz"
        path.write_bytes(gzip.compress(_wire.frames([[_record(["a"])]])) * n)
        return path

    def shards(n: int, folder: Path) -> list[Path]:
        raw = _wire.frames([[_record(["a"])]])
        folder = folder / f"shards{n}"
        folder.mkdir(exist_ok=True)
        paths = [folder / f"x-{i:05d}-of-{n:05d}.tfrecord" for i in range(n)]
        for path in paths:
            path.write_bytes(raw)
        return paths

    def events(n: int, folder: Path) -> Path:
        value = _field(1, "loss") + b"\x15" + struct.pack("<f", 1)
        path = folder / "events.out.tfevents.1"
        version = b"\x09" + bytes(8) + _field(3, "brain.Event:2")
        event = b"\x09" + bytes(8) + b"\x10\x01" + _field(5, _field(1, value))
        path.write_bytes(_wire.frames([[version]] + [[event]] * n))
        return path

    def read(path: Any) -> None:
        for _ in tb.open_records(path).batches(1024):
            pass

    def repair(path: Path) -> None:
        tb.repair(path, path.with_suffix(".repaired"))

    yield Case("files of records", "read small records", 3000, many, read)
    yield Case("files of records", "build an index", 3000, many, tb.records.build_index)
    yield Case("files of records", "verify", 10_000, many, tb.verify)
    yield Case("files of records", "repair, every other record damaged", 300, damaged, repair)
    yield Case("files of records", "verify headers that lie", 300, lying, tb.verify)
    yield Case("files of records", "read gzip members", 300, members, read)
    yield Case("files of records", "read shards", 10, shards, read)
    yield Case("files of records", "read events", 300, events, lambda path: list(tb.records.read_events(path)))
    yield Case("files of records", "read scalars", 300, events, tb.records.read_scalars)


# ---- tensors ------------------------------------------------------------------------

SUFFIXES = {
    "tb": ".tb",
    "safetensors": ".safetensors",
    "npz": ".npz",
    "torchfile": ".pt",
    "checkpoint": ".index",
    "delimited": ".delimited",
    "onnx": ".onnx",
    "arrow": ".arrow",
    "parquet": ".parquet",
    "gguf": ".gguf",
}
# pyarrow takes a fifth of a millisecond and more for each column
FEW = {"arrow": 10, "parquet": 10}


def _saved(format: str, compression: str | None = None) -> Callable[[int, Path], Path]:
    def make(n: int, folder: Path) -> Path:
        path = folder / f"x{SUFFIXES[format]}"
        if format in WRITTEN_HERE:
            path.write_bytes(WRITTEN_HERE[format](n))
        else:
            tb.save(_tree(n), path, format, **({} if compression is None else {"compression": compression}))
        return path

    return make


def _gguf(n: int) -> bytes:
    infos = b"".join(
        struct.pack("<Q", len(name)) + name.encode() + struct.pack("<IQIQ", 1, 1, 0, 32 * i)
        for i, name in enumerate(_names(n))
    )
    head = b"GGUF" + struct.pack("<IQQ", 3, n, 0) + infos
    return head + bytes(-len(head) % 32) + bytes(32 * n)


def _onnx(n: int) -> bytes:
    tensors = b"".join(
        _field(5, b"\x08\x01\x10\x01" + _field(8, name) + _field(9, struct.pack("<f", 1))) for name in _names(n)
    )
    return b"\x08\x08" + _field(7, tensors)


# What is read and not written by us.
WRITTEN_HERE = {"gguf": _gguf, "onnx": _onnx}


def _keys(path: Path) -> None:
    with tb.open(path) as file:
        names = list(file.keys())
        for name in names:
            _ = file[name]


def _tensors() -> Iterator[Case]:
    for format in SUFFIXES:
        n = FEW.get(format, 100)
        make = _saved(format)
        yield Case("tensors", f"load {format}", n, make, tb.load)
        yield Case(
            "tensors", f"load every other one of {format}", n,
            lambda n, folder, make=make: (make(n, folder), _names(n)[::2]),
            lambda made: tb.load(made[0], names=made[1]),
        )  # fmt: skip
        yield Case("tensors", f"open {format}, each by its name", n, make, _keys)
        yield Case("tensors", f"inspect {format}", n, make, tb.inspect)
        if format not in WRITTEN_HERE:
            yield Case(
                "tensors", f"save {format}", n, lambda n, folder: (folder, _tree(n)),
                lambda made, format=format: tb.save(made[1], made[0] / f"w{SUFFIXES[format]}", format),
            )  # fmt: skip
    for compression in ("zstd", "auto"):
        make = _saved("tb", compression)
        yield Case("tensors", f"load tb, {compression}", 100, make, tb.load)
    yield Case("tensors", "a stream of objects", 100, _stream, lambda raw: tb.loads(raw, "tb"))
    yield Case("tensors", "append to tb", 100, lambda n, folder: (folder, n), _append)


def _stream(n: int, folder: Path) -> bytes:
    return b"".join(bytes(tb.dumps(ONE)) for _ in range(n))


def _append(made: tuple[Path, int]) -> None:
    folder, n = made
    path = folder / "a.tb"
    path.unlink(missing_ok=True)
    with tb.open(path, "w") as file:
        for _ in range(n):
            file.write(ONE)


def _tools() -> Iterator[Case]:
    def two(n: int, folder: Path) -> tuple[Path, Path]:
        paths = folder / "a.safetensors", folder / "b.safetensors"
        for path in paths:
            tb.save(_tree(n), path)
        return paths

    def unlike(n: int, folder: Path) -> tuple[Path, Path]:
        one, other = two(n, folder)
        tb.save({f"other.{i}": ONE + i for i in range(n)}, other)
        return one, other

    def parts(n: int, folder: Path) -> list[Path]:
        paths = [folder / f"part{i}.tb" for i in range(n)]
        for path in paths:
            tb.save({path.stem: ONE}, path)
        return paths

    for source, target in (
        ("safetensors", "tb"), ("tb", "npz"), ("npz", "torchfile"), ("torchfile", "checkpoint"),
        ("checkpoint", "delimited"), ("onnx", "safetensors"), ("delimited", "safetensors"),
    ):  # fmt: skip
        yield Case(
            "tools", f"convert {source} to {target}", 100, _saved(source),
            lambda path, target=target: tb.convert(path, path.with_name(f"w{SUFFIXES[target]}"), target),
        )  # fmt: skip
    yield Case("tools", "diff of equal files", 100, two, lambda paths: tb.diff(*paths))
    yield Case("tools", "diff of files without a common name", 100, unlike, lambda paths: tb.diff(*paths))
    yield Case("tools", "stats", 100, _saved("safetensors"), tb.stats)
    yield Case("tools", "verify", 100, _saved("tb"), tb.verify)
    yield Case("tools", "split", 100, _saved("safetensors"), _split)
    yield Case("tools", "merge", 10, parts, lambda paths: tb.merge(paths, paths[0].with_name("all.tb")))


def _split(path: Path) -> None:
    tb.split(path, path.with_name("split.safetensors"), shards=3)


# ---- fields -------------------------------------------------------------------------


def _fields() -> Iterator[Case]:
    head = b"\x08\x01" + _field(2, _field(2, b"\x08\x01"))  # DT_FLOAT, one dimension
    sized = {"tensorproto": "TensorProto", "protobuf": "protobuf"}

    def shape(n: int) -> bytes:
        return b"\x08\x01" + _field(2, _field(2, b"\x08" + _wire.varint(n)))

    def values(n: int, folder: Path) -> bytes:
        return shape(n) + (b"\x2d" + struct.pack("<f", 1)) * n

    def packed(n: int, folder: Path) -> bytes:
        return shape(n) + _field(5, struct.pack("<f", 1)) * n

    def unknown(n: int, folder: Path) -> bytes:
        return head + b"\x2d" + struct.pack("<f", 1) + b"\xf8\x7e\x01" * n

    def contents(n: int, folder: Path) -> bytes:
        """n contents, of which the last counts."""
        return head + _field(4, struct.pack("<f", 1)) * n

    def shapes(n: int, folder: Path) -> bytes:
        """A shape in n pieces, of which all but one say nothing."""
        return head + _field(2, b"") * n + b"\x2d" + struct.pack("<f", 1)

    def text(n: int, folder: Path) -> bytes:
        return b"\x08\x07" + _field(2, _field(2, b"\x08" + _wire.varint(n))) + _field(8, "text") * n

    def nodes(n: int, folder: Path) -> bytes:
        tensor = b"\x08\x01\x10\x01" + _field(8, "x") + _field(9, struct.pack("<f", 1))
        return b"\x08\x08" + _field(7, _field(1, _field(4, "Relu")) * n + _field(5, tensor))

    def properties(n: int, folder: Path) -> bytes:
        pairs = b"".join(_field(14, _field(1, name) + _field(2, "v")) for name in _names(n))
        return nodes(1, folder) + pairs

    for format, name in sized.items():
        for what, make in (
            ("single values", values), ("pieces of packed values", packed), ("unknown fields", unknown),
            ("contents", contents), ("pieces of the shape", shapes), ("strings", text),
        ):  # fmt: skip
            yield Case("fields", f"{name}: {what}", 1000, make, lambda raw, format=format: tb.loads(raw, format))
    yield Case("fields", "onnx: nodes", 1000, nodes, lambda raw: tb.loads(raw, "onnx"))
    yield Case("fields", "onnx: properties", 300, properties, lambda raw: tb.loads(raw, "onnx"))


# ---- elements and members -----------------------------------------------------------


def _elements() -> Iterator[Case]:
    def strings(n: int, folder: Path) -> Any:
        return np.array([f"text {i}" for i in range(n)])

    def rows(n: int, folder: Path) -> Any:
        return tb.Ragged(tb.Tensor("float32", (n,), np.ones(n, np.float32)), (np.arange(n + 1),))

    def metadata(n: int, folder: Path) -> bytes:
        return bytes(tb.dumps({"x": ONE}, "safetensors", meta=dict.fromkeys(_names(n), "v")))

    def list_of_numbers(n: int, folder: Path) -> Any:
        return list(range(n))

    def names_of_members(n: int, folder: Path) -> bytes:
        """Members of which only one is an array."""
        npy = io.BytesIO()
        np.save(npy, ONE)
        members = [_zip.Content(f"{name}.npy", [npy.getvalue()]) for name in _names(n)]
        return b"".join(_zip.archive(members, 64, 0x4246))

    def header(n: int, folder: Path) -> bytes:
        """A safetensors header with one very long shape of nothing but ones is refused; this one has spaces."""
        text = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode() + b" " * n
        return struct.pack("<Q", len(text)) + text + bytes(4)

    for format in ("tb", "npz", "arrow", "parquet", "delimited"):
        for what, make, n in (("strings", strings, 300), ("ragged rows", rows, 300)):
            yield Case(
                "elements", f"{what} to {format}", n, make,
                lambda value, format=format: tb.dumps({"x": value}, format),
            )  # fmt: skip
            yield Case(
                "elements", f"{what} of {format}", n,
                lambda n, folder, make=make, format=format: bytes(tb.dumps({"x": make(n, folder)}, format)),
                lambda raw, format=format: tb.loads(raw, format),
            )  # fmt: skip
    yield Case("elements", "a list of numbers, there and back", 300, list_of_numbers, lambda x: tb.loads(tb.dumps(x)))
    yield Case("elements", "metadata of safetensors", 1000, metadata, lambda raw: tb.loads(raw, "safetensors"))
    yield Case("elements", "members of an archive", 300, names_of_members, lambda raw: tb.loads(raw, "npz"))
    yield Case("elements", "spaces in a header", 100_000, header, lambda raw: tb.loads(raw, "safetensors"))


# ---- depth --------------------------------------------------------------------------


def _depths() -> Iterator[Case]:
    """Up to the limit, and far beyond it, where they must be refused as cheaply."""

    def nested(n: int, folder: Path) -> Any:
        value: Any = ONE
        for _ in range(n):
            value = {"a": value}
        return value

    def refused(call: Callable[[Any], object]) -> Callable[[Any], None]:
        def use(made: Any) -> None:
            try:
                call(made)
            except tb.errors.TensorbytesError:
                return

        return use

    def header(n: int, folder: Path) -> bytes:
        text = b'{"x":' + b"[" * n + b"]" * n + b"}"
        return struct.pack("<Q", len(text)) + text

    def schema(n: int, folder: Path) -> str:
        return '{"a":' * n + "1" + "}" * n

    def pickled(n: int, folder: Path) -> bytes:
        data = b"\x80\x02" + b"]" * n + b"a" * (n - 1) + b"."
        members = [_zip.Content("x/data.pkl", [data]), _zip.Content("x/version", [b"3\n"])]
        return b"".join(_zip.archive(members, 64, 0x4246))

    def groups(n: int, folder: Path) -> bytes:
        return b"\x08\x01" + b"\xa3\x06" * n + b"\xa4\x06" * n

    limits = tb.errors.Limits(max_depth=1 << 20)
    yield Case("depth", "a structure, 64 at the most", 6, nested, refused(lambda x: tb.loads(tb.dumps(x))))
    yield Case("depth", "a structure beyond the limit", 300, nested, refused(tb.dumps))
    yield Case("depth", "a JSON header", 1000, header, refused(lambda raw: tb.loads(raw, "safetensors")))
    yield Case("depth", "the JSON of a schema", 1000, schema, refused(tb.records.Schema.from_json))
    yield Case("depth", "a pickle", 1000, pickled, refused(lambda raw: tb.loads(raw, "torchfile")))
    yield Case(
        "depth",
        "a pickle without a limit",
        100,
        pickled,
        refused(lambda raw: tb.loads(raw, "torchfile", limits=limits)),
    )
    yield Case("depth", "groups of protobuf", 1000, groups, refused(lambda raw: tb.loads(raw, "tensorproto")))
