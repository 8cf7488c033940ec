"""TensorFlow's checkpoints: an index, which is a sorted table of blocks under checksums, and a file of data.

An input is both files: the length of the index in four bytes, the index, the data.
"""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import tensorbytes as tb
from safety.fuzz.differential import protobytes
from safety.fuzz.differential.arrays import masked, neutral
from safety.fuzz.differential.mutate import damage, often_one
from safety.fuzz.differential.outcome import LIMITS
from safety.fuzz.differential.pair import Pair
from safety.fuzz.differential.pairs.tensorflow import tensorflow
from tensorbytes import dtypes
from tests.support import checkpoint_bytes as cb

_CODES = [1, 2, 3, 4, 5, 6, 9, 10, 14, 19, 22, 23, 8]
_SHAPES: list[tuple[int, ...]] = [(), (0,), (2,), (3,), (2, 2), (1, 3)]
_ENTRY: protobytes.Schema = {2: {2: {}}, 7: {1: {}}}


def packed(index: bytes, data: bytes) -> bytes:
    return struct.pack("<I", len(index)) + index + data


class Checkpoint(Pair):
    package = "tensorflow-cpu"
    words = "`tf.train.load_checkpoint`, each tensor"
    remote = True
    slow = True

    def warm(self, side: str) -> None:
        tensorflow()

    def generate(self, rng: Random) -> bytes:
        entries, data = {}, b""
        for name in rng.sample(
            [b"a", b"b", b"model/w", b"x/.ATTRIBUTES/VARIABLE_VALUE", "é".encode()], rng.randrange(1, 4)
        ):
            raw, crc, code, shape = _tensor(rng)
            entries[name] = cb.entry(code, shape, raw, offset=len(data), crc=crc)
            data += raw
        header = cb.HEADER
        kind = rng.random()
        if kind < 0.4:
            name = rng.choice(list(entries))
            entries[name] = protobytes.mutated(rng, entries[name], _ENTRY, often_one(rng))
        elif kind < 0.5:
            header = protobytes.mutated(rng, header, {3: {}}, often_one(rng))
        elif kind < 0.6 and data:
            data = damage(rng, data)
        items = [(b"", header), *sorted(entries.items())]
        if kind > 0.9:
            rng.shuffle(items)
        body = cb.block(items)
        if 0.6 < kind < 0.75:
            for _ in range(often_one(rng)):
                body = damage(rng, body)
        index = cb.table(body) if rng.random() < 0.9 else cb.table(body, kind=rng.choice([1, 2]))
        if kind > 0.75 and rng.random() < 0.7:
            index = damage(rng, index)
        return packed(index, data)

    def ours(self, raw: bytes) -> Any:
        self._write(raw)
        found = tb.load(self._prefix, "checkpoint", to="tensor", limits=LIMITS)
        return {name: neutral(value) for name, value in found.items()}

    def theirs(self, raw: bytes) -> Any:
        self._write(raw)
        reader = tensorflow().train.load_checkpoint(self._prefix)
        types = reader.get_variable_to_dtype_map()
        return {name: _plain(reader.get_tensor(name), types[name].as_datatype_enum) for name in types}

    def _write(self, raw: bytes) -> None:
        (size,) = struct.unpack_from("<I", raw)
        Path(self._prefix + ".index").write_bytes(raw[4 : 4 + size])
        Path(self._prefix + ".data-00000-of-00001").write_bytes(raw[4 + size :])

    @property
    def _prefix(self) -> str:
        return str(self.folder / "c")


def _plain(x: Any, code: int) -> Any:
    if code == 7:
        x = np.array(x, object)  # not of NumPy's strings, which lose zeros at their end
        return "S", list(x.shape), x.reshape(-1).tolist()
    x = np.asarray(x)
    name = dtypes.by_code(code).name
    return name, list(x.shape), masked(name, x.tobytes())


def _tensor(rng: Random) -> tuple[bytes, int, int, tuple[int, ...]]:
    """(bytes, masked checksum, dtype, shape)"""
    shape = rng.choice(_SHAPES)
    count = int(np.prod(shape))
    if rng.random() < 0.15:
        return (*cb.strings(*(rng.randbytes(rng.randrange(4)) for _ in range(count))), 7, shape)
    code = rng.choice(_CODES)
    raw = rng.randbytes(count * dtypes.by_code(code).itemsize)
    raw = bytes(byte & 1 for byte in raw) if code == 10 else raw
    return raw, cb.crc_of(raw), code, shape
