"""protobuf's own parser, upb: TensorProto and what is made of it, Example, SequenceExample."""

from __future__ import annotations

import struct
from functools import cache
from random import Random
from typing import Any

import numpy as np

import tensorbytes as tb
from safety.fuzz.differential import messages, protobytes
from safety.fuzz.differential.arrays import neutral
from safety.fuzz.differential.mutate import damage, often_one, pool, splice
from safety.fuzz.differential.outcome import LIMITS
from safety.fuzz.differential.pair import Pair
from tensorbytes import dtypes
from tensorbytes.formats.tfrecord.example import parse_example, parse_sequence

_FIELDS = {"float_val": 5, "double_val": 6, "int_val": 7, "scomplex_val": 9, "int64_val": 10, "bool_val": 11,
           "dcomplex_val": 12, "half_val": 13, "uint32_val": 16, "uint64_val": 17, "float8_val": 18}  # fmt: skip
_SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (2,), (3,), (2, 2), (2, 3), (0, 3), (3, 0, 2), (1,) * 5]
_TYPES = [*messages.VALUES, messages.STRING, messages.STRING]


def _delimited(number: int, raw: bytes) -> bytes:
    return protobytes.varint(number << 3 | 2) + protobytes.varint(len(raw)) + raw


def tensor(rng: Random, code: int | None = None, dims: tuple[int, ...] | None = None) -> bytes:
    """A sound TensorProto in one of the forms that writers give it."""
    code = rng.choice(_TYPES) if code is None else code
    dims = rng.choice(_SHAPES) if dims is None else dims
    count = 1
    for n in dims:
        count *= n
    shape = b"".join(_delimited(2, b"\x08" + protobytes.varint(n) if n else b"") for n in dims)
    out = b"\x08" + protobytes.varint(code) + _delimited(2, shape)
    if code == messages.STRING:
        items = [rng.randbytes(rng.randrange(4)) for _ in range(count)]
        if rng.random() < 0.2 and items:
            return out + _delimited(4, b"".join(protobytes.varint(len(item)) for item in items) + b"".join(items))
        return out + b"".join(_delimited(8, item) for item in items)
    row = dtypes.by_code(code)
    raw = (
        bytes(byte & row.value_mask for byte in rng.randbytes(count))
        if row.bits < 8
        else rng.randbytes(count * row.itemsize)
    )
    if code == 10:
        raw = bytes(byte & 1 for byte in raw)
    if rng.random() < 0.5:
        return out + (_delimited(4, raw) if raw else b"")
    name, element = messages.VALUES[code]
    number, size = _FIELDS[name], np.dtype(element).itemsize
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)][
        : rng.choice([count * row.itemsize // size, 1, 2])
    ]
    if code in (8, 18) and len(pieces) % 2:
        pieces = pieces[:-1]
    if name == "float8_val":
        return out + _delimited(number, b"".join(pieces))
    if not name.startswith(("float", "double", "scomplex", "dcomplex")):
        signed = np.dtype(element).kind == "i"
        pieces = [protobytes.varint(int.from_bytes(piece, "little", signed=signed)) for piece in pieces]
        wire = 0
    else:
        wire = 5 if size == 4 else 1
    if rng.random() < 0.5:
        return out + _delimited(number, b"".join(pieces))
    return out + b"".join(protobytes.varint(number << 3 | wire) + piece for piece in pieces)


def edited(rng: Random, raw: bytes, schema: protobytes.Schema, other: bytes) -> bytes:
    kind = rng.random()
    if kind < 0.8:
        return protobytes.mutated(rng, raw, schema, often_one(rng))
    if kind < 0.9:
        return damage(rng, raw)
    return raw if kind < 0.95 else splice(rng, raw, other)


@cache
def _tensors() -> list[bytes]:
    return pool(tensor)


class TensorProto(Pair):
    package = "protobuf"
    words = "`FromString` of a TensorProto, read by TensorFlow's rules"

    def generate(self, rng: Random) -> bytes:
        tensors = _tensors()
        return edited(rng, rng.choice(tensors), protobytes.TENSOR, rng.choice(tensors))

    def ours(self, raw: bytes) -> Any:
        return neutral(tb.loads(raw, "tensorproto", to="tensor", limits=LIMITS))

    def theirs(self, raw: bytes) -> Any:
        return messages.decode(messages.parse(raw))


def sparse(rng: Random) -> bytes:
    """string[3] of TensorProtos: indices, values, shape."""
    rank, count = rng.choice([1, 2, 2, 3]), rng.choice([0, 1, 2, 3])
    dims = [rng.randrange(1, 5) for _ in range(rank)]
    indices = [rng.randrange(n) for _ in range(count) for n in dims]
    parts = [
        _int64s((count, rank), indices),
        tensor(rng, dims=(count,)),
        _int64s((rank,), dims),
    ]
    if rng.random() < 0.7:
        which = rng.randrange(3)
        parts[which] = edited(rng, parts[which], protobytes.TENSOR, parts[0])
    shape = _delimited(2, _delimited(2, b"\x08\x03"))
    return b"\x08\x07" + shape + b"".join(_delimited(8, part) for part in parts)


def _int64s(dims: tuple[int, ...], values: list[int]) -> bytes:
    shape = b"".join(_delimited(2, b"\x08" + protobytes.varint(n) if n else b"") for n in dims)
    content = struct.pack(f"<{len(values)}q", *values)
    return b"\x08\x09" + _delimited(2, shape) + (_delimited(4, content) if content else b"")


@cache
def _triples() -> list[bytes]:
    return pool(sparse)


class SparseProto(Pair):
    package = "protobuf"
    words = "`FromString` of a TensorProto of three TensorProtos, as of `tf.io.serialize_sparse`"

    def generate(self, rng: Random) -> bytes:
        raw = rng.choice(_triples()) if rng.random() < 0.5 else sparse(rng)
        return (
            protobytes.mutated(rng, raw, {2: {2: {}}, 8: protobytes.TENSOR}, often_one(rng))
            if rng.random() < 0.5
            else raw
        )

    def ours(self, raw: bytes) -> Any:
        return sparse_neutral(tb.loads(raw, "sparseproto", to="tensor", limits=LIMITS))

    def theirs(self, raw: bytes) -> Any:
        kind, dims, parts = messages.decode(messages.parse(raw))
        if kind != "S" or dims != [3]:
            raise ValueError("no three strings")
        indices, values, shape = (messages.decode(messages.parse(part)) for part in parts)
        if indices[0] != "int64" or shape[0] != "int64" or len(shape[1]) != 1 or indices[1][1:] != shape[1]:
            raise ValueError("indices and shape disagree")
        dense = list(struct.unpack(f"<{shape[1][0]}q", shape[2]))
        if len(indices[1]) != 2 or len(values[1]) != 1 or indices[1][0] != values[1][0]:
            raise ValueError("indices and values disagree")
        numbers = struct.unpack(f"<{len(indices[2]) // 8}q", indices[2])
        if any(n < 0 for n in dense) or any(not 0 <= n < dense[at % len(dense)] for at, n in enumerate(numbers)):
            raise ValueError("an index outside the shape")
        return dense, indices[2], values


def sparse_neutral(value: Any) -> Any:
    if not isinstance(value, tb.Sparse):
        raise tb.errors.UnsupportedError("read as what fields of ours make of it")
    return list(value.shape), value.parts[0].astype("<i8").tobytes(), neutral(value.values)


@cache
def _records(sequence: bool) -> list[bytes]:
    from tests.support.example_bytes import Grammar

    return pool(lambda rng: Grammar(rng.randrange, rng.choice([0, 0, 1])).record(sequence))


class _Examples(Pair):
    package = "protobuf"
    sequence = False
    schema = protobytes.EXAMPLE

    def generate(self, rng: Random) -> bytes:
        from tests.support.example_bytes import Grammar

        raw: bytes
        if rng.random() < 0.3:
            raw = Grammar(rng.randrange, rng.choice([0, 1, 1, 2])).record(self.sequence)
            return raw
        records = _records(self.sequence)
        return edited(rng, rng.choice(records), self.schema, rng.choice(records))

    def ours(self, raw: bytes) -> Any:
        if not self.sequence:
            return plain_map(parse_example(raw))
        return tuple(plain_map(found) for found in parse_sequence(raw))

    def theirs(self, raw: bytes) -> Any:
        from tests.support.example_bytes import MAPS

        message = MAPS[self.sequence].FromString(raw)
        if not self.sequence:
            return {key: feature_of(feature) for key, feature in message.features.feature.items()}
        lists = message.feature_lists.feature_list.items()
        return (
            {key: feature_of(feature) for key, feature in message.context.feature.items()},
            {key: [feature_of(step) for step in steps.feature] for key, steps in lists},
        )


def feature_of(message: Any) -> Any:
    """(kind, values) of a Feature. Floats by their bits: on the way through Python's, signalling NaNs would change."""
    which = message.WhichOneof("kind")
    if which is None:
        return 0, None
    held = getattr(message, which)
    if which != "float_list":
        return (1 if which == "bytes_list" else 3), list(held.value)
    fields = protobytes.parse(held.SerializeToString(), {}) if len(held.value) else []
    packed = [field.payload for field in fields if (field.number, field.wire) == (1, protobytes.DELIMITED)]
    return 2, packed[0] if packed else b""


def plain_map(features: Any) -> Any:
    from tests.support.example_bytes import plain_map as plain

    return plain(features)


class Example(_Examples):
    words = "`FromString` of an Example, features by name"


class Sequence(_Examples):
    words = "`FromString` of a SequenceExample, context and feature lists by name"
    sequence = True
    schema = protobytes.SEQUENCE
