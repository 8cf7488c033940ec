"""Example and SequenceExample by protobuf's rules, whatever the order and form of the bytes.

    Example          features = 1: Features
    SequenceExample  context = 1: Features, feature_lists = 2: FeatureLists
    Features         map = 1 of entries: key = 1, value = 2: Feature
    FeatureLists     map = 1 of entries: key = 1, value = 2: FeatureList
    FeatureList      feature = 1: any number of Features
    Feature          one of bytes_list = 1, float_list = 2, int64_list = 3
    each list        value = 1: any number, floats and integers packed or single

This is the slow and complete reader: the kernel takes the usual form by whole columns and
leaves the rest to this one. A message that comes in pieces is the pieces end to end, of map
entries with one key the last counts, and unknown fields are passed over, as is a field of
a wire type that it can't have. What is passed over or replaced must be well-formed all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np

from tensorbytes._wire import proto, varint
from tensorbytes._wire.proto import DELIMITED, FIXED32, VARINT, Field
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, CorruptError, UsageError
from tensorbytes.typing import Buffer, bytes_view

MISSING, BYTES, FLOAT, INT64 = range(4)

_KINDS = (BYTES, FLOAT, INT64)
# About what a field takes in memory that is kept for a while; and a feature, with its name and its list.
_FIELD_BYTES, _FEATURE_BYTES = 192, 400
# A kind and its values: an array of float32 or int64, a list of bytes, None where the kind is missing.
Values = tuple[int, Any]


def parse_example(data: Buffer, budget: Budget | None = None) -> dict[str, Values]:
    """The features of an Example."""
    reader = _Reader(bytes_view(data), budget)
    return reader.features(reader.messages([_whole(reader.view)], 1, 0))


def parse_sequence(data: Buffer, budget: Budget | None = None) -> tuple[dict[str, Values], dict[str, list[Values]]]:
    """The context and the feature lists of a SequenceExample."""
    reader = _Reader(bytes_view(data), budget)
    whole = _whole(reader.view)
    lists: dict[str, list[Values]] = {}
    for key, values in reader.entries(reader.messages([whole], 2, 0)):
        lists[key] = [reader.feature([step], 4) for step in reader.messages(values, 1, 3)]
    return reader.features(reader.messages([whole], 1, 0)), lists


def names(data: Buffer, in_lists: bool, budget: Budget | None = None) -> set[str]:
    """The names of the features, or of the feature lists; values are not looked at."""
    reader = _Reader(bytes_view(data), budget)
    return {key for key, _ in reader.entries(reader.messages([_whole(reader.view)], 2 if in_lists else 1, 0))}


def encode_example(features: Mapping[str, Values]) -> bytes:
    """The canonical bytes: keys sorted, numbers packed."""
    return proto.put_bytes(1, _put_map({key: _put_feature(*feature) for key, feature in features.items()}))


def encode_sequence(context: Mapping[str, Values], lists: Mapping[str, Iterable[Values]]) -> bytes:
    """The same for a SequenceExample."""
    steps = {key: b"".join(proto.put_bytes(1, _put_feature(*step)) for step in lists[key]) for key in lists}
    return encode_example(context) + proto.put_bytes(2, _put_map(steps))


def canonical(data: Buffer, sequence: bool, budget: Budget | None = None) -> bytes:
    """The same message in the one form that `encode_example` or `encode_sequence` gives it."""
    if sequence:
        return encode_sequence(*parse_sequence(data, budget))
    return encode_example(parse_example(data, budget))


def in_one_piece(data: Buffer, sequence: bool, budget: Budget | None = None) -> bytes | None:
    """The same message, each of its maps whole and sorted, without a look at the values; None if a key comes twice."""
    reader = _Reader(bytes_view(data), budget)
    written = b""
    for number in (1, 2) if sequence else (1,):
        entries: dict[str, bytes] = {}
        for key, pieces in reader.entries(reader.messages([_whole(reader.view)], number, 0)):
            if key in entries:
                return None
            entries[key] = b"".join(reader.view[piece.start : piece.end] for piece in pieces)
        written += proto.put_bytes(number, _put_map(entries))
    return written


# ---- reading ----------------------------------------------------------------
# `depth` is how many messages stand around one: protobuf limits the nesting by it.


def _whole(view: memoryview) -> Field:
    return Field(0, DELIMITED, 0, len(view), 0)


def _fields(view: memoryview, messages: Iterable[Field], depth: int) -> Iterator[Field]:
    """All fields of a message that may come in pieces."""
    for message in messages:
        at = message.start
        while at < message.end:
            run, at = proto.field_run(view, at, message.end, 0)
            yield from run
            if at < message.end:
                field, at = proto.read_field(view, at, message.end, depth)
                if field is not None:
                    yield field


class _Reader:
    """Reads one message. What it keeps of each field is charged to the budget."""

    def __init__(self, view: memoryview, budget: Budget | None) -> None:
        self.view, self._budget = view, budget or Budget(LIMITS, len(view))

    def messages(self, messages: Iterable[Field], number: int, depth: int) -> Iterator[Field]:
        """The messages in field `number` of another."""
        return (f for f in _fields(self.view, messages, depth) if f.number == number and f.wire == DELIMITED)

    def entries(self, maps: Iterable[Field]) -> Iterator[tuple[str, list[Field]]]:
        """The entries of a map: the key, and the pieces of the value."""
        for entry in self.messages(maps, 1, 1):
            key, value = "", []
            for field in _fields(self.view, [entry], 2):
                if field.wire != DELIMITED:
                    continue
                if field.number == 1:
                    key = proto.text(self.view, field)
                elif field.number == 2:
                    self._count(field)
                    value.append(field)
            self._count(entry)
            yield key, value

    def features(self, maps: Iterable[Field]) -> dict[str, Values]:
        return {key: self.feature(value, 3) for key, value in self.entries(maps)}

    def feature(self, pieces: Iterable[Field], depth: int) -> Values:
        """A list that comes in pieces is merged; one of another kind takes its place."""
        members = (f for f in _fields(self.view, pieces, depth) if f.number in _KINDS and f.wire == DELIMITED)
        kind, values = MISSING, None
        for kind, run in groupby(members, lambda member: member.number):
            fields = (field for field in _fields(self.view, run, depth + 1) if field.number == 1)
            values = self._values(kind, fields)
        self._budget.objects(1, "features", 0, _FEATURE_BYTES)
        return kind, values

    def _values(self, kind: int, fields: Iterator[Field]) -> Any:
        if kind == BYTES:
            return self._bytes(fields)
        return self._floats(fields) if kind == FLOAT else self._integers(fields)

    def _bytes(self, fields: Iterator[Field]) -> list[bytes]:
        found = []
        for field in fields:
            if field.wire == DELIMITED:
                self._count(field)
                found.append(bytes(self.view[field.start : field.end]))
        return found

    def _floats(self, fields: Iterator[Field]) -> np.ndarray[Any, Any]:
        found = bytearray()
        for field in fields:
            if field.wire in (DELIMITED, FIXED32):
                size = field.end - field.start
                if size % 4:
                    raise CorruptError(f"packed floats take a multiple of 4 bytes, got {size}", at=field.at)
                found += self.view[field.start : field.end]
        return np.frombuffer(found, "<f4")

    def _integers(self, fields: Iterator[Field]) -> np.ndarray[Any, Any]:
        found = [np.empty(0, np.uint64)]
        values = (f for f in fields if f.wire in (DELIMITED, VARINT))
        for packed, run in groupby(values, lambda field: field.wire == DELIMITED):
            if packed:
                for field in run:
                    self._count(field)
                    self._budget.copy(16 * (field.end - field.start), "integers", field.at)  # once more when joined
                    found.append(proto.varints(self.view[field.start : field.end], field.start))
            else:
                found.append(np.fromiter((field.start for field in run), np.uint64))
        return np.concatenate(found).view(np.int64)

    def _count(self, field: Field) -> None:
        self._budget.objects(1, "the fields of a record", field.at, _FIELD_BYTES)


# ---- writing ----------------------------------------------------------------


def _put_map(entries: Mapping[str, bytes]) -> bytes:
    # The order of code points is that of the UTF-8 bytes too.
    return b"".join(
        proto.put_bytes(1, proto.put_bytes(1, _put_key(key)) + proto.put_bytes(2, value))
        for key, value in sorted(entries.items())
    )


def _put_key(key: str) -> bytes:
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the feature name {key!r} can't be written as UTF-8: it has half a surrogate pair") from None


def _put_feature(kind: int, values: Any) -> bytes:
    if kind == MISSING:
        return b""
    if kind == BYTES:
        return proto.put_bytes(BYTES, b"".join(proto.put_bytes(1, value) for value in values))
    if kind == FLOAT:
        packed = np.asarray(values, "<f4").tobytes()
    elif kind == INT64:
        packed = b"".join(map(varint, np.asarray(values, np.int64).view(np.uint64).tolist()))
    else:
        raise UsageError(f"unknown kind {kind!r} of feature; known: 0 missing, 1 bytes, 2 float, 3 int64")
    return proto.put_bytes(kind, proto.put_bytes(1, packed) if packed else b"")
