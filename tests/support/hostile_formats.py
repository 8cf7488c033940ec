"""One tensor in every format, byte by byte, under any shape and any name; and every way of reading it.

`SHAPED[name](dims, content)` gives a `File` whose header claims these dimensions of uint8 or
float32 elements; whether the content fits is for the reader to find out. `NAMED[name](names)`
gives a file of one small tensor under each name.
"""

import io
import json
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tensorbytes as tb
from tensorbytes.formats import _zip
from tests.formats.test_gguf import file as gguf_file
from tests.formats.test_gguf import info as gguf_info
from tests.support import checkpoint_bytes, npy_bytes, safetensors_cases, torch_bytes
from tests.support.wire_bytes import (
    FLOAT32,
    STRING,
    field,
    framed,
    int64s,
    key_step,
    layout,
    number,
    place,
    tensor,
    varint,
)

RAISED = (tb.errors.CorruptError, tb.errors.LimitError, tb.errors.UnsupportedError)


class File(NamedTuple):
    """Some bytes and how they are read; `beside` are further files, by the suffix of their names."""

    format: str
    raw: bytes
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    beside: dict[str, bytes] = {}  # noqa: RUF012


def zipped(*members: tuple[str, bytes]) -> bytes:
    return b"".join(_zip.archive([_zip.Content(name, [data]) for name, data in members], 64, 0x4246))


# ---- a tensor of any shape ---------------------------------------------------


def _c_strides(dims: Iterable[int]) -> tuple[int, ...]:
    out, step = [], 1
    for n in reversed(list(dims)):
        out.append(step)
        step *= max(n, 1)
    return tuple(n if n < 1 << 63 else 1 for n in reversed(out))


def _npy(dims, content):
    text = "(" + "".join(f"{n}," for n in dims) + ")"
    return npy_bytes.npy(npy_bytes.header("'|u1'", shape=text), content, (2, 0))


def _arrow_schema(dims, content, kind):
    """A column of one list; a note says that its one row has this shape."""
    note = json.dumps({"column": {"cell": list(dims)}}).encode()
    made = pa.array([list(content)], kind)
    field_ = pa.field("x", kind, metadata={"tensorbytes": note})
    return pa.Table.from_arrays([made], schema=pa.schema([field_]))


def _arrow(dims, content):
    table = _arrow_schema(dims, content, pa.list_(pa.uint8(), len(content)))
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _parquet(dims, content):
    sink = io.BytesIO()
    pq.write_table(_arrow_schema(dims, content, pa.list_(pa.uint8())), sink)
    return sink.getvalue()


def _arrowtensor(dims, content):
    """pyarrow's own message of three dimensions, with other numbers in their places."""
    sink = pa.BufferOutputStream()
    sizes = (31, 37, 41)
    if len(dims) != len(sizes):
        pa.ipc.write_tensor(pa.Tensor.from_numpy(np.frombuffer(content, np.uint8).reshape(dims)), sink)
        return sink.getvalue().to_pybytes()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(np.zeros(sizes, np.int16)), sink)
    raw = sink.getvalue().to_pybytes()[:-94054]
    for old, new in zip((*sizes, 94054), (*dims, len(content)), strict=True):
        assert raw.count(struct.pack("<q", old)) == 1 + (old == 94054)
        raw = raw.replace(struct.pack("<q", old), struct.pack("<q", new))
    return raw + content


def _torch(dims, content):
    held = torch_bytes.storage("ByteStorage", count=len(content))
    made = torch_bytes.tensor(size=dims, stride=_c_strides(dims), held=held)
    return torch_bytes.archive(torch_bytes.whole(made), [content])


def _proto(dims, content):
    return tensor(4, dims, field(4, content))


def _onnx(dims, content):
    return b"".join(number(1, n) for n in dims) + number(2, 2) + field(8, "x") + field(9, content)


def _model(*tensors):
    return number(1, 8) + field(7, b"".join(field(5, one) for one in tensors))


def _sparse(dims, content):
    return [int64s(dims=(0, len(dims))), tensor(4, (0,)), int64s(*dims)]


def _checkpoint(entries, content):
    items = [(b"", checkpoint_bytes.HEADER), *sorted(entries.items())]
    table = checkpoint_bytes.table(checkpoint_bytes.block(items), keys=[b"\xff"])
    return File("checkpoint", table, beside={".data-00000-of-00001": content})


SHAPED: dict[str, Callable[[tuple[int, ...], bytes], File]] = {
    "tb": lambda dims, content: File("tb", framed(_proto(dims, content))),
    "tb, ragged values": lambda dims, content: File(
        "tb", framed(layout("ragged", int64s(0, 0), _proto(dims, content)))
    ),
    "tensorproto": lambda dims, content: File("tensorproto", _proto(dims, content)),
    "protobuf": lambda dims, content: File("protobuf", _proto(dims, content)),
    "delimited": lambda dims, content: File("delimited", varint(len(_proto(dims, content))) + _proto(dims, content)),
    "npy": lambda dims, content: File("npy", _npy(dims, content)),
    "npz": lambda dims, content: File("npz", zipped(("x.npy", _npy(dims, content)))),
    "safetensors": lambda dims, content: File(
        "safetensors",
        safetensors_cases.file({"x": safetensors_cases.entry("U8", dims, (0, len(content)))}, content),
    ),
    "gguf": lambda dims, content: File("gguf", gguf_file(gguf_info("x", dims, 24), data=content)),
    "onnx": lambda dims, content: File("onnx", _onnx(dims, content)),
    "onnx model": lambda dims, content: File("onnx", _model(_onnx(dims, content))),
    "arrow": lambda dims, content: File("arrow", _arrow(dims, content)),
    "parquet": lambda dims, content: File("parquet", _parquet(dims, content)),
    "arrowtensor": lambda dims, content: File("arrowtensor", _arrowtensor(dims, content)),
    "torchfile": lambda dims, content: File("torchfile", _torch(dims, content)),
    "checkpoint": lambda dims, content: _checkpoint({b"x": checkpoint_bytes.entry(4, dims, content)}, content),
}
# Shapes of sparse tensors, of which no element is stored.
SPARSE: dict[str, Callable[[tuple[int, ...], bytes], File]] = {
    "tb, coo": lambda dims, content: File("tb", framed(layout("coo", *_sparse(dims, content)))),
    "sparseproto": lambda dims, content: File(
        "sparseproto", tensor(STRING, (3,), *(field(8, part) for part in _sparse(dims, content)))
    ),
    "onnx, sparse": lambda dims, content: File(
        "onnx",
        number(1, 8) + field(7, field(15, field(1, _onnx((0,), b"")) + field(2, number(1, 0) + number(2, 7))
                                      + b"".join(number(3, n) for n in dims))),
    ),
}  # fmt: skip


# ---- tensors of any names -----------------------------------------------------

_ONE = bytes(4)
_SAVED = npy_bytes.saved(np.ones(1))


def _safetensors(names):
    entries = {name: safetensors_cases.entry("U8", (4,), (4 * n, 4 * n + 4)) for n, name in enumerate(names)}
    return safetensors_cases.file(entries, bytes(4 * len(entries)))


def _tb(names):
    one = tensor(FLOAT32, (1,), field(4, _ONE))
    return framed(*(one + key_step(name) + place(n, len(names)) for n, name in enumerate(names)))


def _torch_dict(names):
    items = b"".join(torch_bytes.text(name) + torch_bytes.tensor() for name in names)
    return torch_bytes.archive(torch_bytes.whole(b"}(" + items + b"u"))


def _columns(names):
    return pa.Table.from_arrays([pa.array([1.0])] * len(names), names=list(names))


def _arrow_named(names):
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, (table := _columns(names)).schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _parquet_named(names):
    sink = io.BytesIO()
    pq.write_table(_columns(names), sink, write_statistics=False)
    return sink.getvalue()


def _onnx_named(names):
    return _model(*(number(1, 1) + number(2, 2) + field(8, name) + field(9, b"x") for name in names))


NAMED: dict[str, Callable[[list[str]], File]] = {
    "tb": lambda names: File("tb", _tb(names)),
    "delimited": lambda names: File(
        "delimited", b"".join(varint(len(r)) + r for r in _payloads(_tb(names)))
    ),
    "npz": lambda names: File("npz", zipped(*((f"{name}.npy", _SAVED) for name in names))),
    "safetensors": lambda names: File("safetensors", _safetensors(names)),
    "gguf": lambda names: File(
        "gguf",
        gguf_file(*(gguf_info(name, (1,), offset=32 * n) for n, name in enumerate(names)), data=bytes(32 * len(names))),
    ),
    "onnx": lambda names: File("onnx", _onnx_named(names)),
    "arrow": lambda names: File("arrow", _arrow_named(names)),
    "parquet": lambda names: File("parquet", _parquet_named(names)),
    "torchfile": lambda names: File("torchfile", _torch_dict(names)),
    "checkpoint": lambda names: _checkpoint(
        {name.encode(): checkpoint_bytes.entry(FLOAT32, (1,), _ONE) for name in names}, _ONE
    ),
}  # fmt: skip


def _payloads(raw):
    from tests.support.wire_bytes import records

    return records(raw)


# ---- every way of reading -----------------------------------------------------


def put(made: File, folder: Any, name: str = "x") -> str:
    """Write the file, and those beside it; gives its path."""
    path = folder / (name + tb.formats.get(made.format).suffixes[0] if made.format != "checkpoint" else f"{name}.index")
    path.write_bytes(made.raw)
    for suffix, data in made.beside.items():
        (folder / (name + suffix)).write_bytes(data)
    return str(path)


def _lazily(path, made, limits):
    with tb.open(path, format=made.format, limits=limits, **made.options) as file:
        return {entry.name: entry.load() for entry in file.entries()}


def readings(made: File, folder: Any, limits: tb.errors.Limits = tb.errors.LIMITS) -> dict[str, Any]:
    """What each way of reading gives: the value, or the error that is ours; any other exception leaves here."""
    path = put(made, folder)
    ways = {
        "load": lambda: tb.load(path, made.format, limits=limits, **made.options),
        "mapped": lambda: tb.load(path, made.format, mmap=True, limits=limits, **made.options),
        "lazily": lambda: _lazily(path, made, limits),
        "inspect": lambda: tb.inspect(path, made.format, limits=limits, read_options=made.options),
        "stats": lambda: tb.stats(path, format=made.format, limits=limits, read_options=made.options),
    }
    if not made.beside:
        ways["loads"] = lambda: tb.loads(made.raw, made.format, limits=limits, **made.options)
    return {name: _outcome(way) for name, way in ways.items()}


def _outcome(way: Callable[[], Any]) -> Any:
    try:
        return way()
    except RAISED as error:
        return error
