"""Small calls of every function of the kernel, and of the verbs above it, that run out of memory in allocations.py."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import tensorbytes as tb
from tensorbytes import _wire

Call = Callable[[], Any]
WORDS = np.array([0, 3, 3, 9], np.int64)
SPANS = np.array([[0, 6]], np.int64)


def _usuals() -> list[tuple[str, tuple[int, Any, list[Any]]]]:
    """Columns for collect_row, one of each form."""
    sizes = (np.ndarray, "dtype", np.dtype(np.uint8), (400,))
    return [
        ("a", (1, None, [])),
        ("b", (2, None, [])),
        ("c", (3, None, [])),
        ("d", (4, sizes, [])),
        ("a", (0, None, [])),
    ]


def _kernel() -> dict[str, Call]:
    data, plane, room = bytes(range(64)), bytes(400), np.empty(600, np.uint8)
    array = np.frombuffer(plane, np.uint8)
    offsets, places, notes = np.zeros(3, np.int64), np.zeros((4, 2), np.int64), np.zeros(4, np.uint8)
    record = _wire.frames([[data]])
    strings = _wire.strings_pack(0x42, WORDS, data)
    tensor = tb.dumps(np.arange(6.0).reshape(2, 3))
    ints = b"\x0a\x04\x01\x02\x03\x04"
    code = np.empty(500, np.uint8)
    size = _wire.huffman_encode(plane[:399] + b"\1", code)
    planes = np.empty(500, np.uint8)
    planes_size = _wire.planes_encode(plane, planes, room, 4, True)
    none = (None,) * 3
    column = (3, b"key", None, np.array([0, 2, 4], np.int64), None, np.arange(4), None)
    listed = (3, b"key", np.array([0, 1, 2]), *column[3:])
    return {
        "crc32c": lambda: _wire.crc32c(data),
        "scan": lambda: _wire.scan(record, 0, True, places),
        "frame": lambda: _wire.frame(data, plane),
        "frame_header": lambda: _wire.frame_header(12),
        "frames": lambda: _wire.frames([[data] * 12, [plane]]),
        "plain_tensor": lambda: _wire.plain_tensor(tensor, 12, len(tensor) - 4),
        "plain_record": lambda: _wire.plain_record(tensor),
        "prefault": lambda: _wire.prefault(room),
        "fields": lambda: _wire.fields(tensor, 12, len(tensor) - 4, 0),
        "resync": lambda: _wire.resync(plane + record, 0, 400 + len(record)),
        "closing": lambda: _wire.closing(record, 12, len(record), 0),
        "strings_pack": lambda: _wire.strings_pack(0x42, WORDS, data),
        "strings_unpack": lambda: _wire.strings_unpack(strings, 0, len(strings), 0x42),
        "example_locate": lambda: _wire.example_locate(
            bytes(8), np.array([[0, 8]]), b"a", np.array([0, 1]), 0, notes, places, notes
        ),
        "example_steps": lambda: _wire.example_steps(bytes(8), np.array([[0, 0]]), offsets, *none[:2]),
        "example_count": lambda: _wire.example_count(ints, SPANS, 3, offsets),
        "example_fill": lambda: _wire.example_fill(ints, SPANS, 3, -1, np.empty(4, np.int64)),
        "example_decode": lambda: _wire.example_decode(
            ints, SPANS, 0, 0, b"a", np.array([0, 1]), np.array([3, 0, 1]), 1, 0, [np.empty(1, np.int64), *none, None]
        ),
        "example_fill_bytes": lambda: _wire.example_fill_bytes(ints, SPANS, offsets, room),
        "bytes_offsets": lambda: _wire.bytes_offsets([data, plane], np.zeros(3, np.int64)),
        "collect_row": lambda: _wire.collect_row(
            {"a": b"abc", "b": "abc", "c": 1 << 40, "d": array}, tuple((name, *usual, len) for name, usual in _usuals())
        ),
        "example_records": lambda: _wire.example_records(
            [column] * 2, [listed], np.array([1, 0, 1]), 0, room, np.zeros(3, np.int64)
        ),
        "start_writeback": lambda: _wire.start_writeback(1, 0, 0),
        "huffman_encode": lambda: _wire.huffman_encode(plane, room),
        "huffman_decode": lambda: _wire.huffman_decode(code[:size], bytearray(400)),
        "planes_encode": lambda: _wire.planes_encode(plane, room, bytearray(400), 4, True),
        "planes_decode": lambda: _wire.planes_decode(planes[:planes_size], bytearray(400), bytearray(400), 4, True),
        "chunks_encode": lambda: _wire.chunks_encode(
            plane, room, bytearray(200), 4, True, 100, bytearray(16), bytearray(16), 2, 200
        ),
        "chunks_decode": lambda: _wire.chunks_decode(
            plane, bytearray(400), bytearray(200), 4, True, 100, bytearray(16), bytearray(16), 2
        ),
        "planes_split": lambda: _wire.planes_split(plane, bytearray(400), 4, False),
        "planes_join": lambda: _wire.planes_join([bytes(100)] * 4, bytearray(400), False),
        "difference": lambda: _wire.difference(plane, bytearray(400), 8, 5),
        "accumulate": lambda: _wire.accumulate(plane, bytearray(400), 8, 5),
        "bits_pack": lambda: _wire.bits_pack(plane, bytearray(150), 4, 0, 12),
        "bits_unpack": lambda: _wire.bits_unpack(bytes(150), bytearray(400), 4, 0, 12),
    }


def _verbs() -> dict[str, Call]:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    tree = {"w": array, "b": np.array(["text", "more"]), "n": [1, 2.5, None]}
    calls: dict[str, Call] = {}
    for name, value, format in (
        ("tb", array, "tb"),
        ("tb, a structure", tree, "tb"),
        ("tensorproto", array, "tensorproto"),
        ("npy", array, "npy"),
        ("npz", {"w": array}, "npz"),
        ("safetensors", {"w": array}, "safetensors"),
    ):
        data = tb.dumps(value, format)
        calls[f"dumps, {name}"] = partial(tb.dumps, value, format)
        calls[f"loads, {name}"] = partial(tb.loads, data, format)
        calls[f"loads, {name}, damaged"] = partial(_refused, data[:-3], format)
    calls["dumps, huffman"] = lambda: tb.dumps(np.zeros(400, np.float32), compression="split+huffman")
    packed = tb.dumps(np.zeros(400, np.float32), compression="split+huffman")
    calls["loads, huffman"] = lambda: tb.loads(packed)
    records = _written()
    calls["Examples written"] = _written
    calls["Examples read"] = lambda: len(list(tb.open_records(io.BytesIO(records), threads=1)))
    return calls


def _refused(data: bytes, format: str) -> str:
    try:
        return repr(tb.loads(data, format))
    except tb.errors.CorruptError:
        return "refused"


def _written() -> bytes:
    file = io.BytesIO()
    with tb.RecordWriter(file) as writer:
        for number in range(3):
            writer.write({"x": np.array([1, 2], np.float32), "n": number, "s": "text"})
    return file.getvalue()


def calls() -> dict[str, dict[str, Call]]:
    return {"kernel": _kernel(), "verbs": _verbs()}
