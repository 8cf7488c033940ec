"""TensorFlow: TensorProto, sparse tensors, Example, SequenceExample and TFRecord files."""

from __future__ import annotations

import io
import math
import struct
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

import tensorbytes as tb
from safety.fuzz.differential import messages, protobytes
from safety.fuzz.differential.arrays import masked
from safety.fuzz.differential.mutate import damage, often_one, splice
from safety.fuzz.differential.outcome import LIMITS
from safety.fuzz.differential.pair import Pair
from safety.fuzz.differential.pairs import upb
from tensorbytes import dtypes
from tensorbytes.formats.tfrecord.schema import Feature, Schema
from tests.support import wire_bytes
from tests.support.example_bytes import Grammar

_KEYS = ("a", "b", "é", "label")
_KINDS = {1: "bytes", 2: "float32", 3: "int64"}
RAGGED, FIXED = 0, 1


@cache
def tensorflow() -> Any:
    import tensorflow as tf

    return tf


class _TensorFlow(Pair):
    package = "tensorflow-cpu"
    remote = True
    slow = True

    def warm(self, side: str) -> None:
        tensorflow()


def _plain(code: int, found: Any) -> Any:
    """A tensor of TensorFlow's in the form of arrays.neutral."""
    dims = [int(n) for n in found.shape]
    if code == messages.STRING:
        return "S", dims, np.array(found.numpy(), object).reshape(-1).tolist()
    name = dtypes.by_code(code).name
    return name, dims, masked(name, found.numpy().tobytes())


def _code(raw: bytes) -> int:
    """The dtype that TensorFlow must be asked for; by a lenient reader, so that the verdict is TensorFlow's."""
    try:
        message = messages.parse(raw)
        code, dims = int(message.dtype), [dim.size for dim in message.tensor_shape.dim]
        if all(n >= 0 for n in dims) and math.prod(dims) > 1 << 22:
            raise ValueError("too large to be tried")
    except DecodeError:
        told = [field.payload for field in protobytes.parse(raw, {}) if (field.number, field.wire) == (1, 0)]
        code = told[-1] if told and isinstance(told[-1], int) else 0
    if code not in messages.VALUES and code != messages.STRING:
        raise ValueError(f"no values of dtype {code}")
    return code


def _parsed(raw: bytes) -> Any:
    tf = tensorflow()
    code = _code(raw)
    return _plain(code, tf.io.parse_tensor(raw, tf.dtypes.as_dtype(code)))


class TensorProto(_TensorFlow):
    words = "`tf.io.parse_tensor`"
    generate = upb.TensorProto.generate
    ours = upb.TensorProto.ours

    def theirs(self, raw: bytes) -> Any:
        return _parsed(raw)


class SparseProto(_TensorFlow):
    words = "`tf.io.parse_tensor`, then `DeserializeSparse`"
    generate = upb.SparseProto.generate
    ours = upb.SparseProto.ours

    def theirs(self, raw: bytes) -> Any:
        tf = tensorflow()
        kind, dims, parts = _parsed(raw)
        if kind != "S" or dims != [3]:
            raise ValueError("no three strings")
        code = _code(parts[1])
        found = tf.raw_ops.DeserializeSparse(serialized_sparse=parts, dtype=tf.dtypes.as_dtype(code))
        shape = [int(n) for n in found.sparse_shape.numpy()]
        return shape, found.sparse_indices.numpy().tobytes(), _plain(code, found.sparse_values)


# ---- records ----------------------------------------------------------------


class _OneKind(Grammar):  # type: ignore[misc]
    """Messages whose features are all lists of one kind, under keys that are asked for."""

    def __init__(self, rng: Random, odd: int, kind: int) -> None:
        super().__init__(rng.randrange, odd)
        self.kind = kind

    def feature(self) -> bytes:
        kind = self.pick([1, 2, 3]) if self.seldom(12) else self.kind
        return bytes(self.message([self.field(kind, self.list(kind))]))

    def pick(self, options: Any) -> Any:
        return super().pick(_KEYS if options and options[0] == "a" and "label" in options else options)


class Example(_TensorFlow):
    """The first byte of an input is how it is read: the kind of all features, and whether their length is fixed."""

    words = "`tf.io.parse_example`, ragged and fixed features, and `open_records` with the same schema"
    sequence = False
    modes = (RAGGED, RAGGED, FIXED)

    def generate(self, rng: Random) -> bytes:
        kind, mode = rng.choice([1, 2, 3]), rng.choice(self.modes)
        raw = bytes(_OneKind(rng, rng.choice([0, 0, 1, 2]), kind).record(self.sequence))
        if rng.random() < 0.5:
            schema = protobytes.SEQUENCE if self.sequence else protobytes.EXAMPLE
            raw = upb.edited(rng, raw, schema, _OneKind(rng, 0, kind).record(self.sequence))
        return bytes([kind | mode << 4]) + raw

    def _schema(self, kind: int, mode: int) -> Schema:
        default = b"?" if kind == 1 else -7
        shape = (
            Feature(_KINDS[kind], (None,), optional=True)
            if mode == RAGGED
            else Feature(_KINDS[kind], (2,), default=default)
        )
        features = dict.fromkeys(_KEYS, shape)
        return Schema(features, features) if self.sequence else Schema(features)

    def ours(self, raw: bytes) -> Any:
        schema = self._schema(raw[0] & 15, raw[0] >> 4)
        (row,) = tb.open_records(io.BytesIO(wire_bytes.framed(raw[1:])), schema=schema, threads=1, limits=LIMITS)
        if not self.sequence:
            return {key: _values(row.get(key)) for key in _KEYS}
        steps = {key: [_values(step) for step in row.get(f"lists/{key}", [])] for key in _KEYS}
        return {key: _values(row.get(f"context/{key}")) for key in _KEYS}, steps

    def theirs(self, raw: bytes) -> Any:
        found = self._parser(raw[0] & 15, raw[0] >> 4)(tensorflow().constant([raw[1:]]))
        return {key: _values(found[key].numpy()) for key in _KEYS}

    @cache  # noqa: B019
    def _parser(self, kind: int, mode: int) -> Any:
        tf = tensorflow()
        specs = self._schema(kind, mode).to_tf()

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def parse(raw: Any) -> Any:
            return self._parsed(raw, specs, mode)

        return parse

    def _parsed(self, raw: Any, specs: Any, mode: int) -> Any:
        found = tensorflow().io.parse_example(raw, specs)
        return {key: found[key].flat_values if mode == RAGGED else found[key][0] for key in _KEYS}


class Sequence(Example):
    words = "`tf.io.parse_sequence_example`, ragged features, and `open_records` with the same schema"
    sequence = True
    modes = (RAGGED,)

    def theirs(self, raw: bytes) -> Any:
        context, lists, sizes = self._parser(raw[0] & 15, raw[0] >> 4)(tensorflow().constant([raw[1:]]))
        steps = {}
        for key in _KEYS:
            ends = np.cumsum([0, *sizes[key].numpy()])
            flat = lists[key].numpy()
            steps[key] = [_values(flat[a:b]) for a, b in pairwise(ends)]
        return {key: _values(context[key].numpy()) for key in _KEYS}, steps

    def _parsed(self, raw: Any, specs: Any, mode: int) -> Any:
        context, lists, _ = tensorflow().io.parse_sequence_example(raw, *specs)
        return (
            {key: context[key].flat_values for key in _KEYS},
            {key: lists[key].flat_values for key in _KEYS},
            {key: lists[key].values.row_lengths() for key in _KEYS},
        )


def _values(x: Any) -> Any:
    """Values of one list: bits of numbers, strings as such; none of either look the same."""
    if x is None or len(x) == 0:
        return b""
    if isinstance(x, list):
        return x
    assert x.dtype.kind != "S", "NumPy's strings lose zeros at their end"
    return x.tolist() if x.dtype.kind == "O" else x.tobytes()


class Records(_TensorFlow):
    words = "`tf.compat.v1.io.tf_record_iterator`, record after record"

    def generate(self, rng: Random) -> bytes:
        payloads = [rng.randbytes(rng.choice([0, 0, 1, 5, 30])) for _ in range(rng.randrange(1, 5))]
        raw = wire_bytes.framed(*payloads)
        for _ in range(often_one(rng)):
            kind = rng.random()
            if kind < 0.4:
                raw = damage(rng, raw)
            elif kind < 0.5:
                raw = splice(rng, raw, wire_bytes.framed(rng.randbytes(20)))
            else:
                raw = _resealed(rng, payloads)
        return raw

    def ours(self, raw: bytes) -> Any:
        return list(tb.open_records(io.BytesIO(raw), compression="none", threads=1, limits=LIMITS).payloads())

    def theirs(self, raw: bytes) -> Any:
        (self.folder / "x.tfrecord").write_bytes(raw)
        return list(tensorflow().compat.v1.io.tf_record_iterator(str(self.folder / "x.tfrecord")))


def _resealed(rng: Random, payloads: list[bytes]) -> bytes:
    """Records of which one lies about its length, under a checksum that is right; or has a wrong checksum."""
    out, wrong = [], rng.randrange(len(payloads))
    for number, payload in enumerate(payloads):
        size = len(payload)
        if number == wrong:
            size = rng.choice(
                [size, size + 1, max(size - 1, 0), 1 << 31, 1 << 40, 1 << 63, (1 << 64) - 4, (1 << 64) - 1, size + 16]
            )
        length = struct.pack("<Q", size)
        seal = wire_bytes.masked_crc(payload)
        if number == wrong and rng.random() < 0.3:
            seal = rng.choice([bytes(4), damage(rng, seal)[:4].ljust(4, b"\0"), wire_bytes.masked_crc(payload[:size])])
        out += [length, wire_bytes.masked_crc(length), payload, seal]
    return b"".join(out) + rng.choice([b"", b"", bytes(rng.randrange(1, 30))])
