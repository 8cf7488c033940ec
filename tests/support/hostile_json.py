"""Every place of a file that holds JSON, and the JSON that two parsers would take for different things.

`PLACES[name](text, folder)` writes a file with these bytes in that place, and gives its path and format.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tensorbytes as tb
from tests.support import checkpoint_bytes, npy_bytes, safetensors_cases, torch_bytes
from tests.support.hostile_formats import zipped
from tests.support.wire_bytes import field, number

DEEP = 50_000
# What is wrong -> (what stands where an object is due, words of the refusal). `%s` is a sound object of the place.
HOSTILE: dict[str, tuple[bytes, str]] = {
    "40 a key twice": (b'{"x":{},"x":{}}', "twice"),
    "40 a key twice, deeper": (b'{"x":{"a":1,"a":1}}', "twice"),
    "40 a key twice, one of them escaped": (b'{"x":{},"\\u0078":{}}', "twice"),
    "41 NaN": (b'{"x":NaN}', "NaN"),
    "41 Infinity": (b'{"x":Infinity}', "Infinity"),
    "41 -Infinity": (b'{"x":-Infinity}', "Infinity"),
    "41 1e999": (b'{"x":1e999}', "1e999"),
    "42 lists": (b'{"x":' + b"[" * DEEP + b"]" * DEEP + b"}", "deep"),
    "42 objects": (b'{"x":' * DEEP + b"1" + b"}" * DEEP, "deep"),
    "42 lists without an end": (b"[" * DEEP, "deep|JSON"),
    "43 5000 digits": (b'{"x":' + b"9" * 5000 + b"}", "digits"),
    "43 5000 digits below zero": (b'{"x":-' + b"9" * 5000 + b"}", "digits"),
    "43 5000 digits and a fraction": (b'{"x":' + b"9" * 5000 + b".5}", "number|digits"),
    "44 half a character": (b'{"x":"\\ud800"}', "UTF-8|surrogate|text"),
    "44 half a character in a key": (b'{"\\udfff":{}}', "UTF-8|surrogate|text"),
    "45 no UTF-8": (b'{"x":"\xff"}', "UTF-8"),
    "45 a surrogate in UTF-8": (b'{"x":"\xed\xa0\x80"}', "UTF-8"),
    "45 an overlong slash": (b'{"x":"\xc0\xaf"}', "UTF-8"),
    "46 a byte order mark": (b"\xef\xbb\xbf{}", "JSON|BOM|byte order"),
    "46 a no-break space": (b"\xc2\xa0{}", "JSON"),
    "46 something after it": (b"{} {}", "JSON|Extra|after"),
    "47 a raw line feed": (b'{"x":"a\nb"}', "JSON|control"),
    "nothing": (b" ", "JSON"),
}  # fmt: skip


def _safetensors(folder, header):
    (folder / "x.safetensors").write_bytes(safetensors_cases.file(header, bytes(4)))
    return folder / "x.safetensors"


def _safetensors_note(text, folder):
    quoted = _quoted(text)
    header = b'{"__metadata__":{"tensorbytes":' + quoted + b'},"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    return _safetensors(folder, header)


def _quoted(text: bytes) -> bytes:
    """Text as a JSON string; bytes that are not text stay what they are."""
    escapes = {0x22: b'\\"', 0x5C: b"\\\\", 0x0A: b"\\n"}
    return b'"' + b"".join(escapes.get(byte, bytes([byte])) for byte in text) + b'"'


def _index(text, folder):
    (folder / "model.safetensors.index.json").write_bytes(text)
    (folder / "x.safetensors").write_bytes(safetensors_cases.PLAIN)
    return folder / "model.safetensors.index.json"


def _npy(text):
    comment = (npy_bytes.header() + " # tensorbytes ").encode() + text
    return npy_bytes.npy(comment, bytes(8), (3, 0))


def _written(path, raw):
    path.write_bytes(raw)
    return path


def _table(text, of_column):
    about = {"tensorbytes": text}
    made = pa.field("x", pa.uint8(), metadata=about if of_column else None)
    schema = pa.schema([made], metadata=None if of_column else about)
    return pa.Table.from_arrays([pa.array([1, 2], pa.uint8())], schema=schema)


def _arrow(text, folder, of_column):
    table = _table(text, of_column)
    with pa.OSFile(str(folder / "x.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return folder / "x.arrow"


def _parquet(text, folder, of_column):
    pq.write_table(_table(text, of_column), folder / "x.parquet", store_schema=True)
    return folder / "x.parquet"


def _onnx(text):
    return number(1, 4) + number(2, 2) + field(9, bytes(4)) + field(16, field(1, "tensorbytes") + field(2, text))


def _checkpoint(text, folder):
    floats = struct.pack("<2f", 1, 2)
    data, crc = checkpoint_bytes.strings(text)
    entries = {
        b"x": checkpoint_bytes.entry(1, (2,), floats),
        b"_TENSORBYTES": checkpoint_bytes.entry(7, (), data, offset=8, crc=crc),
    }
    return Path(checkpoint_bytes.put(folder, entries, floats + data) + ".index")


def _torch(text):
    return torch_bytes.archive(torch_bytes.whole(torch_bytes.tensor()), tensorbytes__json=text)


PLACES: dict[str, Callable[[bytes, Path], Path]] = {
    "safetensors header": lambda text, folder: _safetensors(folder, text),
    "safetensors note": _safetensors_note,
    "safetensors index": _index,
    "npy note": lambda text, folder: _written(folder / "x.npy", _npy(text)),
    "npz note": lambda text, folder: _written(folder / "x.npz", zipped(("x.npy", _npy(text)))),
    "arrow schema": lambda text, folder: _arrow(text, folder, False),
    "arrow column": lambda text, folder: _arrow(text, folder, True),
    "parquet schema": lambda text, folder: _parquet(text, folder, False),
    "parquet column": lambda text, folder: _parquet(text, folder, True),
    "onnx note": lambda text, folder: _written(folder / "x.pb", _onnx(text)),
    "checkpoint note": _checkpoint,
    "torchfile note": lambda text, folder: _written(folder / "x.pt", _torch(text)),
}
FORMATS = {"onnx note": "onnx", "checkpoint note": "checkpoint"}


def schema_beside(text: bytes, folder: Path) -> Path:
    """Records whose schema stands in a file of its own."""
    path = folder / "x.tfrecord"
    with tb.RecordWriter(path) as writer:
        writer.write({"x": np.arange(3)})
    (beside,) = [found for found in folder.iterdir() if found != path]
    beside.write_bytes(text)
    return path


def manifest_beside(text: bytes, folder: Path) -> Path:
    """A file of tensors with a manifest of their digests."""
    path = folder / "x.npy"
    np.save(path, np.arange(3))
    (folder / "x.npy.sums.json").write_bytes(text)
    return path


def read(path: Path, name: str) -> dict[str, Any]:
    """Every way of reading, and what it gives."""
    format = FORMATS.get(name)
    return {
        "load": lambda: tb.load(path, format),
        "lazily": lambda: [entry.load() for entry in tb.open(path, format=format).entries()],
        "inspect": lambda: tb.inspect(path, format),
    }
