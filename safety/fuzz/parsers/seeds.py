"""Small valid inputs of each target, written by this library: what the fuzzers start from."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np

import tensorbytes as tb
from safety.fuzz.parsers import seeds_torch
from tensorbytes import formats
from tensorbytes._wire import crc32c, frames, mask, proto
from tensorbytes.errors import TensorbytesError
from tensorbytes.formats._checkpoint import bundle, sstable
from tensorbytes.tree import Document, Leaf

_RAGGED = tb.Ragged(tb.Tensor("int32", (3,), np.arange(3, dtype="<i4").view(np.uint8)), (np.array([0, 2, 2, 3]),))
_CSR = tb.Sparse(
    "csr",
    (2, 4),
    (np.array([0, 1, 3], np.int32), np.array([3, 0, 2], np.int32)),
    tb.Tensor("float32", (3,), np.array([1.5, -2, 0], "<f4").view(np.uint8)),
)
_COO = tb.Sparse("coo", (3, 2), (np.array([[0, 1], [2, 0]]),), tb.Strings.from_items([b"a", b""], (2,), "bytes"))
_OBJECTS: list[Any] = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array(-2.5),
    np.array([True, False, True]),
    np.array(["", "é", "abc"], object),
    np.array([b"x", b""], object),
    np.array([1 + 2j, 3], np.complex64),
    tb.Tensor("int4", (3,), b"\x01\x0f\x07"),
    tb.Tensor("bfloat16", (2,), b"\x80\x3f\0\0"),
    tb.Tensor("float8_e4m3fn", (2,), b"\x01\x7e", name="f8", meta={"k": "v"}),
    np.array(["2020-01-01", "NaT"], "M8[D]"),
    _RAGGED,
    _CSR,
    _COO,
    {"w": np.array([1, 2], np.int8), "opt": {"lr": 0.5, 7: [1, 2]}, "t": ("a", None, [], 1 << 70)},
    {"x": _RAGGED, "y": _CSR},
    {"x": _RAGGED, "again": _RAGGED, "ü": np.zeros((2, 0))},  # an alias, in the formats that have them
    tb.Tensor("float32", (1,), bytes(4), None, {"framework": "mine"}, {"framework": "torch", "requires_grad": "true"}),
]
# Every way to keep a tensor in a feature.
CELLS: dict[str, Any] = {
    "t": tb.records.Feature("float32", (2,), encoding="tensorproto"),
    "r": tb.records.Feature("int16", (None,), encoding="raw", optional=True),
    "b": tb.records.Feature("bytes", (), encoding="base64", optional=True, default=b"d"),
    "u": tb.records.Feature("text", (None,), optional=True),
    "f": tb.records.Feature("float16", (2, 2), optional=True, default=1.0),
    "i": tb.records.Feature("uint8", (None, 2), optional=True),
    "q": tb.records.Feature("float32", (3,), quantize={"dtype": "int8", "scale": 0.5}, optional=True),
}


def of(name: str) -> Callable[[], Iterable[bytes]]:
    return lambda: _made(name)


@cache
def _made(name: str) -> list[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        maker = _MAKERS.get(name)
        return list(maker()) if maker is not None else list(_dumped(name))


def everything() -> list[bytes]:
    """A few of each format."""
    names = [name for name in formats.BUILTIN if name not in ("checkpoint", "raw")]
    found = [data for name in names for data in itertools.islice((d for d in _made(name) if len(d) < 512), 3)]
    return [*found, b"<!DOCTYPE html>", b'{"a": 1}', b"a,b\n1,2\n", b"\x1f\x8b\x08\0", b"\x89HDF\r\n\x1a\n"]


def _dumped(name: str, **options: Any) -> Iterator[bytes]:
    for obj in _OBJECTS:
        try:
            yield tb.dumps(obj, name, **options)
        except TensorbytesError:
            continue


def _frames() -> Iterator[bytes]:
    yield from _dumped("tb")
    out = io.BytesIO()
    with tb.open(out, "w") as writer:
        for obj in (np.arange(3), {"a": np.zeros(2, np.uint8), "b": b"xyz"}, "text"):
            writer.write(obj)
    yield out.getvalue()
    yield from _tables()


def _tables() -> Iterator[bytes]:
    """Groups of rows with masks, alone and as a stream."""

    def group(item: int) -> Document:
        numbers, mask = np.arange(3, dtype=np.int64), np.array([True, False, True])
        leaves = {
            (("key", "n"),): tb.Tensor("int64", (3,), numbers),
            (("key", "r"),): _RAGGED,
            (("key", "r"), ("mask", 0)): tb.Tensor("bool", (3,), mask),
            (("key", "r"), ("mask", 1)): tb.Tensor("bool", (3,), mask),
        }
        return Document([Leaf(value, path) for path, value in leaves.items()], item=item, rows=3)

    frame = tb.formats.get("tb")
    yield frame.dumps(group(0), frozenset(), {})
    yield b"".join(frame.dumps(group(item), frozenset(), {}) for item in (1, 2))


def _stored() -> Iterator[bytes]:
    steps = np.array([n * n * 7919 % 104729 % 50 for n in range(120)])
    for pipeline in (
        "pack",
        "delta+pack",
        "huffman",
        "delta+shuffle+huffman",
        "zlib",
        "zstd",
        "lz4",
        "snappy",
        "shuffle+zstd",
    ):
        yield tb.dumps(steps, compression=pipeline)
    bells = (steps % 8 * (steps[::-1] % 7) - 16).astype(np.float32) / 64
    yield tb.dumps(bells, compression="split+huffman")
    yield tb.dumps(np.full((40, 50), 258, np.int16), compression="shuffle+huffman")
    yield tb.dumps(np.array(["no", "yes", "no"] * 40), compression="huffman")
    yield tb.dumps(
        tb.Ragged(tb.Tensor("int64", (120,), steps.astype("<i8")), (np.arange(0, 121, 4),)), compression="pack"
    )
    for spec in ("bfloat16", "int8", tb.Quantize("int8", scale=1 / 64), tb.Quantize("int4")):
        yield tb.dumps(bells[:24].reshape(3, 8), quantize=spec)
    yield tb.dumps(bells, quantize=tb.Quantize("int16", scale=1 / 64), compression="pack")


def _npy() -> Iterator[bytes]:
    yield from _dumped("npy")
    for array in (
        np.array(["ab", "c"]),
        np.asfortranarray(np.ones((2, 2))),
        np.arange(2, dtype=">i4"),
        np.array(b"xy"),
        np.zeros(2, [("a", ">i4", (2,)), ("s", [("t", "S3"), ("b", "?")])]),
        np.zeros(1, np.dtype({"names": ["a", "b"], "formats": ["u1", "<f4"], "offsets": [1, 4], "itemsize": 12})),
    ):
        out = io.BytesIO()
        np.save(out, array)
        yield out.getvalue()
        yield out.getvalue() * 2


def _npz() -> Iterator[bytes]:
    yield from _dumped("npz")
    yield from _dumped("npz", compression="deflate")
    out = io.BytesIO()
    np.savez(out, a=np.arange(2), b=np.array([None]))
    yield out.getvalue()
    out = io.BytesIO()
    array = io.BytesIO()
    np.save(array, np.arange(2))
    with zipfile.ZipFile(out, "w") as archive, archive.open("a.npy", "w", force_zip64=True) as member:
        member.write(array.getvalue())
    yield out.getvalue()


def _safetensors() -> Iterator[bytes]:
    yield from _dumped("safetensors", extended=True)
    head = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}}'
    yield len(head).to_bytes(8, "little") + head + bytes(8)


def _gguf() -> Iterator[bytes]:
    def text(raw: bytes) -> bytes:
        return struct.pack("<Q", len(raw)) + raw

    meta = text(b"general.alignment") + struct.pack("<II", 4, 32)
    meta += text(b"a") + struct.pack("<IIQ", 9, 8, 2) + text(b"x") + text(b"y")
    meta += text(b"f") + struct.pack("<If", 6, 1.5) + text(b"b") + struct.pack("<IB", 7, 1)
    nested = text(b"n") + struct.pack("<IIQ", 9, 9, 2)
    nested += struct.pack("<IQ2i", 5, 2, 1, 2) + struct.pack("<IQ", 8, 1) + text(b"z")
    yield b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + nested
    big = b"GGUF" + struct.pack(">IQQQ", 3, 1, 0, 1) + b"w" + struct.pack(">IQIQ", 1, 2, 0, 0)
    yield big + bytes(-len(big) % 32) + bytes(8)
    for kind, size in ((0, 16), (1, 8), (8, 34), (2, 18), (24, 4), (30, 8)):
        count = 32 if kind in (2, 8) else 4
        tensor = text(b"w") + struct.pack("<IQIQ", 1, count, kind, 0)
        head = b"GGUF" + struct.pack("<IQQ", 3, 1, 4) + meta + tensor
        yield head + bytes(-len(head) % 32) + bytes(range(size))


def _onnx() -> Iterator[bytes]:
    yield from _dumped("onnx")
    number, put = proto.put_number, proto.put_bytes
    tensor = number(1, 2) + number(2, 1) + put(8, b"w") + put(9, bytes(8))
    floats = number(1, 2) + number(2, 1) + put(4, bytes(8))
    outside = number(1, 2) + number(2, 1) + put(13, put(1, b"location") + put(2, b"x.bin")) + number(14, 1)
    sparse = put(1, tensor) + put(2, number(1, 2) + number(2, 7) + put(9, bytes(8) + b"\1" + bytes(7))) + number(3, 4)
    for code, count, values in (
        (9, 2, b"\1\0"),
        (10, 1, b"\x80\x78"),
        (22, 3, b"\x21\3"),
        (3, 1, b"\x7f"),
        (6, 1, b"\5"),
    ):
        yield number(1, count) + number(2, code) + put(5, values)
    yield put(1, b"list") + number(2, 1) + put(3, tensor) + put(3, floats)
    yield number(2, 3) + put(5, put(1, b"in") + number(2, 1) + put(3, tensor)) + put(5, put(1, b"e") + number(2, 1))
    yield number(2, 2) + put(4, sparse)
    yield number(1, 1) + number(2, 14) + put(4, bytes(8))
    yield number(1, 1) + number(2, 8) + put(6, b"text") + put(12, b"about") + put(16, put(1, b"k") + put(2, b"v"))
    for one in (tensor, floats, outside):
        yield one
        graph = (
            put(2, b"g")
            + put(5, one)
            + put(15, sparse)
            + put(1, put(4, b"Constant") + put(5, put(1, b"value") + put(5, one)))
        )
        yield number(1, 8) + put(2, b"me") + put(7, graph) + put(8, number(2, 17))


def _outside() -> Iterator[bytes]:
    """Tensors of ONNX whose bytes are in another file."""
    number, put = proto.put_number, proto.put_bytes
    for location in (b"x.bin", b"d/x.bin", b"link", b"up/secret", b"../secret", b"d/../x.bin", b"/etc/passwd"):
        entries = [(b"location", location), (b"offset", b"8"), (b"length", b"8"), (b"checksum", b"0" * 40)]
        for count in (1, 3, 4):
            told = b"".join(put(13, put(1, key) + put(2, text)) for key, text in entries[:count])
            yield number(1, 2) + number(2, 1) + told + number(14, 1)


def _sparse() -> Iterator[bytes]:
    yield from _dumped("sparseproto")


def _arrow_rows() -> list[Any]:
    return [np.arange(2, dtype=np.int32), {"a": np.arange(2), "b": np.array(["x", "yz"], object)}, _RAGGED]


def _arrow(name: str) -> Iterator[bytes]:
    for obj in _arrow_rows():
        yield tb.dumps(obj, name)


def _checkpoints() -> Iterator[bytes]:
    for index, data in _bundles():
        yield len(data).to_bytes(2, "little") + data + index


def _first_checkpoints() -> Iterator[bytes]:
    """Checkpoints of TensorFlow's first format: numbers, strings, slices, and a slice that is not all."""
    number, put = proto.put_number, proto.put_bytes

    def described(name: bytes, code: int, shape: tuple[int, ...], *extents: bytes) -> bytes:
        dims = b"".join(put(2, number(1, n)) for n in shape)
        return put(1, put(1, name) + put(2, dims) + number(3, code) + b"".join(put(4, one) for one in extents))

    def stored(name: bytes, extents: tuple[tuple[int, int], ...], values: bytes) -> tuple[bytes, bytes]:
        return bundle.slice_key(name, extents), put(2, put(1, name) + put(3, values))

    whole, first, last = put(1, b""), put(1, _extent(0, 1)), put(1, _extent(1, 1))
    floats, strings = put(5, bytes(8)), put(8, b"ab") + put(8, b"")
    one, two = put(5, bytes(4)), put(5, bytes(4))
    meta = described(b"a", 1, (2,), whole) + described(b"s", 7, (2,), whole) + put(2, number(1, 1))
    yield sstable.build([(b"", put(1, meta)), stored(b"a", ((0, -1),), floats), stored(b"s", ((0, -1),), strings)])
    halves = [stored(b"p", ((0, 1),), one), stored(b"p", ((1, 1),), two)]
    yield sstable.build([(b"", put(1, described(b"p", 1, (2,), first, last))), *halves])
    yield sstable.build([(b"", put(1, described(b"p", 1, (2,), first))), halves[0]])
    yield sstable.build([(b"", put(1, described(b"n", 3, (), b""))), stored(b"n", (), put(7, b"\5"))])


def _bundles() -> Iterator[tuple[bytes, bytes]]:
    """(the index, the data) of small checkpoints."""
    plain = np.arange(4, dtype="<f4").tobytes()
    pieces, size, crc = bundle.write_strings(tb.Strings.from_items([b"ab", b"c"], (2,), "bytes"))
    strings = b"".join(bytes(piece) for piece in pieces)
    float32, string = 1, 7
    header = bundle.write_header(1)
    one = bundle.write_entry(float32, (2, 2), 0, 0, 16, mask(crc32c(plain)))
    two = bundle.write_entry(string, (2,), 0, 16, size, crc)
    yield sstable.build([(b"", header), (b"a", one), (b"b", two)]), plain + strings
    note = json.dumps({"a": {"path": [["key", "x"], ["list", 0]]}}).encode()
    pieces, size, crc = bundle.write_strings(tb.Strings.from_items([note], (), "bytes"))
    noted = bundle.write_entry(string, (), 0, 16, size, crc)
    text = b"".join(bytes(piece) for piece in pieces)
    yield sstable.build([(b"", header), (b"_TENSORBYTES", noted), (b"a", one)]), plain + text
    other = header + proto.put_number(2, 1)
    swapped = bundle.write_entry(float32, (2, 2), 0, 0, 16, mask(crc32c(plain)))
    yield sstable.build([(b"", other), (b"a", swapped), (b"v", bundle.write_entry(21, (), 0, 0, 0, 0))]), plain
    yield sstable.build([(b"", other), (b"a", swapped)]), plain
    halves = [((0, 1), (0, -1)), ((1, 1), (0, -1))]
    extents = [b"".join(proto.put_bytes(1, _extent(*pair)) for pair in half) for half in halves]
    whole = bundle.write_entry(float32, (2, 2), 0, 0, 0, 0) + b"".join(proto.put_bytes(7, one) for one in extents)
    keyed = {
        bundle.slice_key(b"a", half): bundle.write_entry(
            float32, (1, 2), 0, 8 * n, 8, mask(crc32c(plain[8 * n : 8 * n + 8]))
        )
        for n, half in enumerate(halves)
    }
    yield sstable.build(sorted({b"": header, b"a": whole, **keyed}.items())), plain


def _extent(start: int, length: int) -> bytes:
    return (proto.put_number(1, start) if start else b"") + (proto.put_number(2, length) if length >= 0 else b"")


def _records() -> Iterator[bytes]:
    rows = {"x": np.ones((2, 2), np.float32), "n": np.arange(2), "s": np.array(["a", "bc"], object)}
    yield _written(rows)
    yield _written({"v": [np.arange(2), np.arange(0)]})
    yield _framed([_sequence()])
    yield _framed([_sequence(), b""])
    yield _framed([b"", b""])


def _payloads() -> Iterator[bytes]:
    """What is in the records."""
    for data in _made("records"):
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 8], "little")
            yield data[at + 12 : at + 12 + size]
            at += 16 + size


def _framed(payloads: list[bytes]) -> bytes:
    return frames([[payload] for payload in payloads])


def _sequence() -> bytes:
    put = proto.put_bytes
    ints = put(3, put(1, b"\1\2"))
    context = put(1, put(1, put(1, b"id") + put(2, ints)))
    steps = put(1, ints) + put(1, put(3, b""))
    return context + put(2, put(1, put(1, b"w") + put(2, steps)))


def _written(batch: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    with tb.RecordWriter(out, **options) as writer:
        writer.write_batch(batch)
    return out.getvalue()


def _cells() -> Iterator[bytes]:
    row = {
        "t": np.ones(2, np.float32), "r": np.arange(2, dtype=np.int16), "b": b"xyz", "u": ["a", "b"],
        "f": np.zeros((2, 2), np.float16), "i": np.ones((1, 2), np.uint8), "q": np.ones(3, np.float32),
    }  # fmt: skip
    for some in (list(row), ["t"], ["t", "r", "b"], ["t", "q"], ["t", "u", "f", "i"]):
        out = io.BytesIO()
        with tb.RecordWriter(out, schema=CELLS) as writer:
            writer.write({name: row[name] for name in some})
        yield out.getvalue()


def _events() -> Iterator[bytes]:
    put, number = proto.put_bytes, proto.put_number
    time = b"\x09" + struct.pack("<d", 1.5) + number(2, 3)
    plugin = put(9, put(1, put(1, b"scalars")))
    tensor = number(1, 1) + put(2, b"") + put(5, struct.pack("<f", 2.0))
    values = [
        put(1, b"a") + b"\x15" + struct.pack("<f", 1.0),
        put(1, b"b") + plugin + put(8, tensor),
        put(1, b"c") + put(9, put(1, put(1, b"text"))) + put(8, number(1, 7) + put(8, b"hi")),
        put(1, b"d") + put(4, number(1, 1) + number(2, 2) + number(3, 3) + put(4, b"\x89PNG")),
        put(1, b"e") + put(5, b"\x09" + bytes(8) + put(6, bytes(8)) + put(7, bytes(8))),
        put(1, b"f") + put(6, b"\x0d" + bytes(4) + put(4, b"RIFF")),
    ]
    yield _framed([time + put(3, b"brain.Event:2"), *(time + put(5, put(1, value)) for value in values)])
    for value in values:
        yield _framed([time + put(5, put(1, value))])
    yield _framed([time + put(14, put(1, b"run") + put(2, b"x")), time + put(4, b"graph")])


def _compressed() -> Iterator[bytes]:
    plain = _framed([b"abcabcabc", b""])
    yield b"\0" + gzip.compress(plain, mtime=0)
    yield b"\0" + gzip.compress(plain, mtime=0) + gzip.compress(b"more", mtime=0) + b"\0\0"
    yield b"\1" + zlib.compress(plain)
    yield b"\1" + zlib.compress(plain, 0)
    literal = bytes([len(plain)]) + bytes([(len(plain) - 1) << 2]) + plain
    yield b"\2" + struct.pack(">I", len(literal)) + literal
    yield b"\2" + struct.pack(">I", 5) + b"\x08\x00a\x1a\x01"


def _index() -> Iterator[bytes]:
    meta = {"tensorbytes.index": "1", "compression": "none", "size": "48", "mtime_ns": "1"}
    yield tb.dumps(tb.Tensor("int64", (2,), np.array([8, 8]).view(np.uint8), meta=meta))
    yield tb.dumps(tb.Tensor("int64", (0,), b"", meta={**meta, "compression": "gzip"}))


def _schemas() -> Iterator[bytes]:
    yield tb.records.Schema(CELLS).to_json().encode()
    yield (
        tb.records.Schema({"a": tb.records.Feature("int64", ())}, {"w": tb.records.Feature("text", (None,))})
        .to_json()
        .encode()
    )
    yield b'{"features": {"x": {"dtype": "float32"}}, "tensorbytes.schema": 1}'


_JSON = [b'{"a": [1, -0, 1.5e3, null, true], "b": {"c": "\\u00e9\\ud83d\\ude00"}}', b"[[[]]]", b'"x"', b"-1", b"{}"]
_ADDRESSES = [
    "m.tb::w[0:4, ..., -1]",
    "x.npy::[0:4]",
    "t::#-1",
    'm::"a[0]"[1]',
    "a::b.tb::",
    "zip://x.tb::s3://b/y",
    'a::"\\""',
]
_MAKERS: dict[str, Callable[[], Iterable[bytes]]] = {
    "tb": _frames,
    "tb_stored": _stored,
    "npy": _npy,
    "npz": _npz,
    "safetensors": _safetensors,
    "safetensors_index": lambda: [b'{"metadata": {"total_size": 8}, "weight_map": {"a": "x-1.safetensors", "b": "y"}}'],
    "gguf": _gguf,
    "onnx": _onnx,
    "onnx_external": _outside,
    "sparseproto": _sparse,
    "torch_legacy": seeds_torch.legacy,
    "pickle": seeds_torch.pickles,
    "arrow": lambda: _arrow("arrow"),
    "parquet": lambda: _arrow("parquet"),
    "parquet_footer": lambda: _made("parquet"),
    "example": _payloads,
    "checkpoint": _checkpoints,
    "checkpoint_table": lambda: [index for index, _ in _bundles()],
    "checkpoint_v1": _first_checkpoints,
    "checkpoint_state": lambda: [b'model_checkpoint_path: "a\\303\\xa9"\n', b"model_checkpoint_path: 'm-1'\n"],
    "raw": lambda: [bytes([n]) + bytes(size) for n in range(8) for size in (0, 4, 6, 12, 13)],
    "json": lambda: _JSON,
    "records": _records,
    "record_cells": _cells,
    "events": _events,
    "compressed": _compressed,
    "record_index": _index,
    "schema": _schemas,
    "address": lambda: [address.encode() for address in _ADDRESSES],
    "manifest": lambda: [
        b'{"tensorbytes.sums": 1, "tensors": [{"name": "a", "dtype": "float32", "shape": [2], "sha256": "00"}]}'
    ],
}
