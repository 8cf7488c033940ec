"""Bytes of Example and SequenceExample drawn from the grammar of the format, and protobuf's reading of them."""

import random
import struct
from functools import cache

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import strategies as st

from tests.support.wire_bytes import (
    DELIMITED,
    END_GROUP,
    FIXED32,
    FIXED64,
    START_GROUP,
    VARINT,
    field,
    number,
    overlong,
    tag,
    varint,
)

MISSING, BYTES, FLOAT, INT64 = range(4)


# ---- protobuf's parser ------------------------------------------------------

_TYPES = {"float": 2, "int64": 3, "string": 9, "bytes": 12}
# Each message's fields: name, number, type, repeated.
_SCHEMA = {
    "BytesList": [("value", 1, "bytes", True)],
    "FloatList": [("value", 1, "float", True)],
    "Int64List": [("value", 1, "int64", True)],
    "Feature": [("bytes_list", 1, "BytesList"), ("float_list", 2, "FloatList"), ("int64_list", 3, "Int64List")],
    "FeatureList": [("feature", 1, "Feature", True)],
    "Features": [("feature", 1, "Features.FeatureEntry", True)],
    "FeatureLists": [("feature_list", 1, "FeatureLists.FeatureListEntry", True)],
    "Features.FeatureEntry": [("key", 1, "string"), ("value", 2, "Feature")],
    "FeatureLists.FeatureListEntry": [("key", 1, "string"), ("value", 2, "FeatureList")],
    "Example": [("features", 1, "Features")],
    "SequenceExample": [("context", 1, "Features"), ("feature_lists", 2, "FeatureLists")],
}


def _classes(package, maps):
    """TensorFlow's two messages; without `maps`, the entries of a map are messages like others."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    made = {}
    for name, fields in _SCHEMA.items():
        outer, _, inner = name.rpartition(".")
        message = made[outer].nested_type.add(name=inner) if outer else file.message_type.add(name=name)
        made[name] = message
        message.options.map_entry = maps and bool(outer)
        if name == "Feature":
            message.oneof_decl.add(name="kind")
        for title, which, kind, *repeated in fields:
            item = message.field.add(name=title, number=which, label=3 if repeated else 1, type=_TYPES.get(kind, 11))
            if item.type == 11:
                item.type_name = f".{package}.{kind}"
            if name == "Feature":
                item.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in ("Example", "SequenceExample")
    ]


MAPS = _classes("maps", True)
ENTRIES = _classes("entries", False)


def feature_of(message):
    """A Feature in the form of `plain`."""
    which = message.WhichOneof("kind")
    if which is None:
        return MISSING, None
    values = list(getattr(message, which).value)
    if which == "float_list":
        return FLOAT, np.array(values, "<f4").tobytes()
    return (BYTES if which == "bytes_list" else INT64), values


def _map_of(entries, read, whole):
    """The map that entries make: the last of each key. An entry with unknown fields is left out unless `whole`."""
    return {entry.key: read(entry.value) for entry in entries if whole or not len(UnknownFieldSet(entry))}


def _list_of(message):
    return [feature_of(step) for step in message.feature]


def by_entries(raw, sequence, whole=True):
    """What protobuf reads, with the entries of maps put together by us; None if it refuses."""
    try:
        message = ENTRIES[sequence].FromString(raw)
    except DecodeError:
        return None
    if not sequence:
        return _map_of(message.features.feature, feature_of, whole)
    return (
        _map_of(message.context.feature, feature_of, whole),
        _map_of(message.feature_lists.feature_list, _list_of, whole),
    )


def by_maps(raw, sequence):
    """What protobuf reads, maps included; None if it refuses."""
    try:
        message = MAPS[sequence].FromString(raw)
    except DecodeError:
        return None
    if not sequence:
        return {key: feature_of(feature) for key, feature in message.features.feature.items()}
    return (
        {key: feature_of(feature) for key, feature in message.context.feature.items()},
        {key: _list_of(steps) for key, steps in message.feature_lists.feature_list.items()},
    )


def plain(feature):
    """(kind, values) as the general parser gives it, in a form that == compares by bits."""
    kind, values = feature
    if kind == FLOAT:
        assert values.dtype == np.float32
        return kind, values.astype("<f4").tobytes()
    if kind == INT64:
        assert values.dtype == np.int64
        return kind, values.tolist()
    return kind, values


def plain_map(features):
    """A dict of features, or of lists of them."""
    return {
        key: [plain(step) for step in value] if isinstance(value, list) else plain(value)
        for key, value in features.items()
    }


# ---- the grammar ------------------------------------------------------------

KEYS = ["a", "b", "", "é", "label", "long" * 40]
INTEGERS = [0, 1, 127, 128, 300, -1, 1 << 31, -(1 << 31), (1 << 56) - 1, (1 << 63) - 1, -(1 << 63)]
STRINGS = [b"", b"x", b"\x0a\x00", b"\xff\x80", bytes(200)]
# Without signalling NaNs: Python's float makes quiet ones of them on protobuf's side.
FLOATS = [struct.pack("<I", bits) for bits in (0, 0x3F800000, 0x80000000, 0x7F800000, 0x7FC00001, 1, 0xC0490FDB)]


class Grammar:
    """Makes up messages. With `odd` 0 as our writer would write them, with 1 in every odd way
    that protobuf reads, with 2 also in ways that it refuses. choose(n) gives a number below n."""

    def __init__(self, choose, odd, unique=False):
        self.choose = choose
        self.odd = odd
        self.unique = unique or not odd  # no entry takes the place of another
        self.long = False  # whether a tag or a length takes more than five bytes

    def pick(self, options):
        return options[self.choose(len(options))]

    def seldom(self, times, odd=1):
        """True one time in so many, where such odd messages are wanted."""
        return self.odd >= odd and self.choose(times) == times - 1

    def some(self, most):
        return range(self.choose(most + 1))

    def varint(self, value):
        """A tag or a length."""
        raw = varint(value)
        if not self.seldom(30):
            return raw
        size = self.pick(range(len(raw), 11 if self.seldom(3, 2) else 6))
        self.long |= size > 5
        return overlong(value, size)

    def tag(self, which, wire):
        return self.varint(which << 3 | wire)

    def field(self, which, content):
        size = len(content)
        if self.seldom(150, 2):
            size = self.pick([size + 1, max(size - 1, 0), size + (1 << 32)])
        return self.tag(which, DELIMITED) + self.varint(size) + content

    def unknown(self, wires):
        """A field that is passed over: of a new number, or of number 1 to 3 but none of their `wires`."""
        which = self.pick([4, 15, 16, 500, (1 << 29) - 1])
        if self.seldom(3):
            which = self.pick([1, 2, 3])
        else:
            wires = ()
        group = self.tag(which, START_GROUP) + self.pick([b"", field(3, b"x"), number(1, 2)]) + tag(which, END_GROUP)
        options = {
            VARINT: self.tag(which, VARINT) + self.pick([b"\x05", b"\xff" * 9 + b"\x7f", overlong(1, 10)]),
            DELIMITED: self.tag(which, DELIMITED) + self.pick([b"\x00", b"\x02\x0a\xff"]),
            FIXED32: self.tag(which, FIXED32) + b"\x0a\x01\x02\x03",
            FIXED64: self.tag(which, FIXED64) + bytes(8),
            START_GROUP: self.pick([group, tag(3, START_GROUP) + group + tag(3, END_GROUP)]),
        }
        return self.pick([raw for wire, raw in options.items() if wire not in wires])

    def broken(self):
        return self.pick(BROKEN)

    def message(self, pieces, wires=(DELIMITED,), often=15):
        """The pieces of a message, sometimes among unknown or broken ones."""
        pieces = list(pieces)
        if self.seldom(often):
            pieces.insert(self.choose(len(pieces) + 1), self.unknown(wires))
        if self.seldom(120, 2):
            pieces.insert(self.choose(len(pieces) + 1), self.broken())
        return b"".join(pieces)

    def number(self):
        value = self.pick(INTEGERS)
        if self.seldom(10):
            return self.pick([overlong(value & 0x7F, self.pick(range(2, 11))), b"\xff" * 9 + b"\x7f"])
        return overlong(1, 11) if self.seldom(100, 2) else varint(value)

    def numbers(self, single, value):
        """A list of numbers, packed in one go, or in any mixture."""
        if not self.seldom(3):
            packed = b"".join(value() for _ in self.some(5))
            return self.message([self.field(1, packed)] if packed or self.seldom(2) else [], (DELIMITED, single))
        pieces = []
        for _ in self.some(4):
            if self.pick([True, False]):
                pieces.append(self.field(1, b"".join(value() for _ in self.some(3))))
            else:
                pieces.append(self.tag(1, single) + value())
        return self.message(pieces, (DELIMITED, single))

    def list(self, kind):
        if kind == BYTES:
            return self.message(self.field(1, self.pick(STRINGS)) for _ in self.some(3))
        if kind == FLOAT:
            return self.numbers(FIXED32, lambda: self.pick(FLOATS)[: 3 if self.seldom(100, 2) else 4])
        return self.numbers(VARINT, self.number)

    def feature(self):
        count = self.pick([2, 3, 4]) if self.seldom(6) else 0 if self.seldom(10) else 1
        members = [self.pick([BYTES, FLOAT, INT64]) for _ in range(count)]
        return self.message([self.field(kind, self.list(kind)) for kind in members])

    def entry(self, key, value):
        """A map entry; `value` draws what it holds."""
        name = self.pick([b"\xff", b"\xed\xa0\x80", b"a\xc3"]) if self.seldom(150, 2) else key.encode()
        pieces = [self.field(1, name), self.field(2, value())]
        if self.seldom(10):
            pieces = self.pick([pieces[::-1], pieces[:1], pieces[1:], [], [*pieces, pieces[0]]])
        elif self.seldom(10):
            pieces += [self.field(1, self.pick(KEYS).encode()), self.field(2, value())]
        return self.message(pieces, often=40)

    def map(self, value):
        """A Features or FeatureLists message."""
        names = [self.pick(KEYS) for _ in self.some(4)]
        if self.unique:
            names = sorted(set(names))
        return self.message(self.field(1, self.entry(name, value)) for name in names)

    def steps(self):
        return self.message(self.field(1, self.feature()) for _ in self.some(3))

    def record(self, sequence):
        return self.sequence() if sequence else self.example()

    def example(self):
        count = 2 if self.seldom(10) else 0 if self.seldom(20) else 1
        return self.cut(self.message(self.field(1, self.map(self.feature)) for _ in range(count)))

    def sequence(self):
        context = self.field(1, self.map(self.feature))
        lists = self.field(2, self.map(self.steps))
        pieces = [context, lists]
        if self.seldom(6):
            pieces = self.pick([pieces[::-1], [context], [lists], [], [*pieces, context], [*pieces, lists]])
        return self.cut(self.message(pieces))

    def cut(self, raw):
        return raw[: self.choose(len(raw) + 1)] if self.seldom(40, 2) else raw


# What no reader takes, at any level.
BROKEN = [
    tag(20, START_GROUP),
    tag(20, END_GROUP),
    tag(20, START_GROUP) + tag(21, END_GROUP),
    tag(20, START_GROUP) * 101 + tag(20, END_GROUP) * 101,
    tag(20, DELIMITED) + varint(1 << 40),
    tag(20, DELIMITED) + b"\x80" * 9 + b"\x7e",
    tag(20, VARINT) + overlong(1, 11),
    tag(20, VARINT) + b"\x80",
    tag(20, FIXED32) + b"abc",
    overlong(20 << 3, 11) + b"\x01",
    b"\x00\x00",
    b"\x02\x00",
    b"\x82\x80\x80\x80\x10\x00",
    tag(20, 6),
    tag(20, 7),
    b"\x80",
]


@cache
def _below(n):
    return st.integers(0, n - 1)


@st.composite
def grammars(draw, odd, unique=False):
    return Grammar(lambda n: draw(_below(n)), odd, unique)


def seeded(seed, odd, unique=False):
    """A grammar that is a hundred times as fast as a drawn one, but can't be shrunk."""
    return Grammar(random.Random(seed).randrange, odd, unique)
