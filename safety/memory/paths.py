"""The hot paths whose memory is watched: each makes what it needs once, and gives a function for one round trip."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tensorbytes as tb
from tensorbytes import _wire

Trip = Callable[[], Any]
SMALL = np.arange(12, dtype=np.float32).reshape(3, 4)
TREE = {"w": SMALL, "b": np.zeros(3, np.int64), "n": [1, "text"]}


def _both(value: Any, format: str, **options: Any) -> Trip:
    read: dict[str, Any] = {"dtype": "float32", "shape": (3, 4)} if format == "raw" else {}

    def trip() -> None:
        tb.loads(tb.dumps(value, format, **options), format, **read)

    return trip


def _refused(data: bytes, format: str | None = None) -> Trip:
    try:
        tb.loads(data, format)
    except tb.errors.TensorbytesError:
        pass
    else:
        raise AssertionError("these bytes were to be refused")

    def trip() -> None:
        try:
            tb.loads(data, format)
        except tb.errors.TensorbytesError:
            return

    return trip


def _flipped(format: str, at: int, bit: int = 1) -> Trip:
    data = bytearray(tb.dumps(SMALL, format))
    data[at] ^= bit
    return _refused(bytes(data), format)


def _lossy() -> Trip:
    value = {"a": SMALL, "b": SMALL}

    def trip() -> None:
        try:
            tb.dumps(value, "npy")
        except tb.errors.LossError:
            return

    return trip


def _examples(compression: str) -> Trip:
    """A thousand records at a time, written and read; a round is one record, so most calls do nothing."""
    rows = [{"x": SMALL[0], "n": np.int64(i), "s": b"text"} for i in range(1000)]
    calls = 0

    def trip() -> None:
        nonlocal calls
        calls += 1
        if calls % len(rows):
            return
        file = io.BytesIO()
        with tb.RecordWriter(file, compression=compression) as writer:
            for row in rows:
                writer.write(row)
        file.seek(0)
        if sum(1 for _ in tb.open_records(file)) != len(rows):
            raise AssertionError("records were lost")

    return trip


def _broken_examples() -> Trip:
    """The same with a record whose checksum is wrong."""
    rows = {"x": np.arange(1000, dtype=np.int64)}
    file = io.BytesIO()
    with tb.RecordWriter(file) as writer:
        writer.write_batch(rows)
    data = bytearray(file.getvalue())
    data[-1] ^= 1
    calls = 0

    def trip() -> None:
        nonlocal calls
        calls += 1
        if calls % 1000:
            return
        try:
            list(tb.open_records(io.BytesIO(data)))
        except tb.errors.CorruptError:
            return
        raise AssertionError("the checksum was to be refused")

    return trip


def _file(suffix: str, rounds: int, act: Callable[[str], Any]) -> Trip:
    """Something done with a file; once in `rounds` rounds, since the system takes its time over files."""
    folder = tempfile.TemporaryDirectory()
    path = str(Path(folder.name) / f"file{suffix}")
    tb.save({"w": SMALL, "b": SMALL[0]}, path)
    calls = 0

    def trip() -> None:
        nonlocal calls
        calls += 1
        if calls % rounds == 0:
            act(path)

    trip.folder = folder  # type: ignore[attr-defined]  # it lives as long as the function
    return trip


def _open_and_slice(path: str) -> None:
    with tb.open(path) as file:
        if len(file["w"][1:]) != 2:
            raise AssertionError("a slice of another size")


def _stream() -> Trip:
    def trip() -> None:
        file = io.BytesIO()
        with tb.open(file, "w") as writer:
            writer.write(SMALL)
        file.seek(0)
        for _ in tb.open(file):
            pass

    return trip


def _kernel_refusals() -> Trip:
    """Calls of the kernel that must raise, so that what they had taken is given back."""
    data, room = bytes(64), bytearray(8)
    key = b"a", np.array([0, 1]), np.array([3, 0, 1]), 1, 0
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (_wire.scan, (data, 65, True, room)),
        (_wire.scan, (data, 0, True, data)),
        (_wire.frame, (data, 3)),
        (_wire.frames, ([[data, data, 3]],)),
        (_wire.fields, (data, 9, 8, 0)),
        (_wire.plain_tensor, (data, 3, 65)),
        (_wire.strings_unpack, (data, 65, 65, 1)),
        (_wire.strings_pack, (1, np.array([5, 1]), data)),
        (_wire.huffman_encode, (data, room)),
        (_wire.planes_join, ([data, data, data], room, False)),
        (_wire.planes_join, ([data, 3], room, False)),
        (_wire.example_count, (data, np.array([[0, 65]]), 2, np.empty(2, np.int64))),
        (_wire.example_decode, (data, np.array([[0, 65]]), 0, 0, *key, [room, *[None] * 4])),
        (_wire.example_decode, (data, np.array([[0, 8]]), 0, 0, *key, [room, room, None, None, 3])),
        (_wire.example_decode, (data, np.array([[0, 8]]), 0, 9, *key, [room, *[None] * 4])),
    ]

    def trip() -> None:
        for function, arguments in calls:
            try:
                function(*arguments)
            except (IndexError, TypeError, ValueError, BufferError):
                continue
            raise AssertionError(f"{function} was to refuse this")

    return trip


PATHS: dict[str, Callable[[], Trip]] = {
    "tb, an array": lambda: _both(SMALL, "tb"),
    "tb, a structure": lambda: _both(TREE, "tb"),
    "tb, strings": lambda: _both(np.array(["a", "bc", ""]), "tb"),
    "tb, huffman": lambda: _both(np.zeros(400, np.float32), "tb", compression="split+huffman"),
    "tb, zstd": lambda: _both(np.zeros(400, np.float32), "tb", compression="zstd"),
    "tb, a stream": _stream,
    "tensorproto": lambda: _both(SMALL, "tensorproto"),
    "raw": lambda: _both(SMALL, "raw"),
    "npy": lambda: _both(SMALL, "npy"),
    "npz": lambda: _both({"w": SMALL}, "npz"),
    "safetensors": lambda: _both({"w": SMALL}, "safetensors"),
    "Examples": lambda: _examples("none"),
    "Examples, gzip": lambda: _examples("gzip"),
    "a file opened and sliced": lambda: _file(".tb", 20, _open_and_slice),
    "a file loaded": lambda: _file(".safetensors", 20, tb.load),
    "refused: tb, a checksum": lambda: _flipped("tb", -1),
    "refused: tb, a length": lambda: _flipped("tb", 8),
    "refused: tensorproto, a length": lambda: _flipped("tensorproto", 3, 0x40),
    "refused: safetensors, its header": lambda: _refused(b"\x08" + bytes(7) + b'{"a":{}}', "safetensors"),
    "refused: npy, its header": lambda: _flipped("npy", 12),
    "refused: Examples, a checksum": _broken_examples,
    "refused: a structure as npy": _lossy,
    "refused: calls of the kernel": _kernel_refusals,
}
# Those whose rounds take half a millisecond.
SLOW = frozenset({"tb, a structure", "tb, strings", "tb, huffman", "tb, zstd"})
