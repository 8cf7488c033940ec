"""Protobuf messages as trees of fields, edited field by field and written back with lengths that fit, or lie."""

from __future__ import annotations

import struct
from random import Random

from safety.fuzz import varints
from safety.fuzz.differential.mutate import WIDE, damage

VARINT, FIXED64, DELIMITED, START, END, FIXED32 = range(6)
# Which fields are messages, and what is in those; other delimited fields are bytes.
Schema = dict[int, "Schema"]
SHAPE: Schema = {2: {2: {}}}
FEATURES: Schema = {1: {2: {1: {}, 2: {}, 3: {}}}}
EXAMPLE: Schema = {1: FEATURES}
SEQUENCE: Schema = {1: FEATURES, 2: {1: {2: {1: {1: {}, 2: {}, 3: {}}}}}}
TENSOR: Schema = {2: {2: {}}}


class Field:
    """One field; what is odd about how it is written stands in `tag_size`, `length_size` and `lie`."""

    __slots__ = ("length_size", "lie", "number", "payload", "tag_size", "wire")

    def __init__(self, number: int, wire: int, payload: int | bytes | list[Field]) -> None:
        self.number, self.wire, self.payload = number, wire, payload
        self.tag_size = self.length_size = self.lie = 0


varint = varints.written


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    value, at = varints.read(raw, at, len(raw))
    if value is None:
        raise ValueError(at)
    return value & (1 << 64) - 1, at


def parse(raw: bytes, schema: Schema) -> list[Field]:
    """The fields of a sound message; ValueError of any other."""
    fields, at = _fields(raw, 0, schema, None)
    if at != len(raw):
        raise ValueError(at)
    return fields


def _fields(raw: bytes, at: int, schema: Schema, group: int | None) -> tuple[list[Field], int]:
    """The fields up to the end, or up to that of the group of this number."""
    out = []
    while at < len(raw):
        tag, at = read_varint(raw, at)
        which, wire = tag >> 3, tag & 7
        payload: int | bytes | list[Field]
        if wire == VARINT:
            payload, at = read_varint(raw, at)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
            payload, at = raw[at : at + size], at + size
        elif wire == DELIMITED:
            size, at = read_varint(raw, at)
            payload, at = raw[at : at + size], at + size
            if which in schema:
                payload = parse(payload, schema[which])
        elif wire == START:
            payload, at = _fields(raw, at, {}, which)
        elif wire == END and which == group:
            return out, at
        else:
            raise ValueError(at)
        if at > len(raw):
            raise ValueError(at)
        out.append(Field(which, wire, payload))
    if group is not None:
        raise ValueError(at)
    return out, at


def write(fields: list[Field]) -> bytes:
    out = []
    for field in fields:
        out.append(varint(field.number << 3 | field.wire, field.tag_size))
        payload = field.payload
        if isinstance(payload, int):
            out.append(varint(payload, field.length_size))
            continue
        raw = write(payload) if isinstance(payload, list) else payload
        if field.wire == START and isinstance(payload, list):
            raw += varint(field.number << 3 | END)
        if field.wire == DELIMITED:
            out.append(varint(max(len(raw) + field.lie, 0), field.length_size))
        out.append(raw)
    return b"".join(out)


def copied(field: Field) -> Field:
    twin = Field(field.number, field.wire, field.payload)
    if isinstance(field.payload, list):
        twin.payload = [copied(item) for item in field.payload]
    return twin


def _level(rng: Random, fields: list[Field]) -> list[Field]:
    """The fields of some message in the tree, those deep inside as likely as those on top."""
    found, levels = [fields], []
    while found:
        level = found.pop()
        levels.append(level)
        found += [field.payload for field in level if isinstance(field.payload, list)]
    return rng.choice(levels)


def _any_field(rng: Random, number: int) -> Field:
    number = rng.choice([number, number, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 18, 20, 999, 1000, 1007, (1 << 29) - 1])
    kind = rng.randrange(6)
    if kind == 0:
        return Field(number, VARINT, rng.choice(WIDE))
    if kind == 1:
        return Field(number, FIXED32, rng.randbytes(4))
    if kind == 2:
        return Field(number, FIXED64, rng.randbytes(8))
    if kind == 3:
        inner = rng.choice([b"", varint(1 << 3) + b"\1", rng.randbytes(4), varint(number << 3 | START) * 3])
        return Field(number, START, inner + varint(rng.choice([number, number, 21]) << 3 | END))
    return Field(number, DELIMITED, rng.choice([b"", b"\0", rng.randbytes(rng.randrange(9))]))


def _payload(rng: Random, field: Field) -> None:
    payload = field.payload
    if isinstance(payload, int):
        steps = [payload + 1, payload - 1, payload ^ 1 << rng.randrange(64), rng.choice(WIDE), rng.randrange(40)]
        field.payload = rng.choice(steps) % (1 << 64)
    elif isinstance(payload, bytes):
        field.payload = damage(rng, payload)
    elif payload:
        rng.shuffle(payload)


def _form(rng: Random, field: Field) -> None:
    """The same content in another form: long varints, a length that lies, another wire type, packed or not."""
    kind = rng.randrange(6)
    if kind == 0:
        field.tag_size = rng.choice([2, 3, 5, 6, 10, 11])
    elif kind == 1:
        field.length_size = rng.choice([2, 3, 5, 6, 10, 11])
    elif kind == 2:
        field.lie = rng.choice([-2, -1, 1, 2, 1 << 31, 1 << 32, 1 << 62])
    elif kind == 3 and isinstance(field.payload, int):
        field.wire, field.payload = rng.choice(
            [(DELIMITED, varint(field.payload)), (FIXED64, struct.pack("<Q", field.payload))]
        )
    elif kind == 4 and field.wire in (FIXED32, FIXED64):
        field.wire = DELIMITED
    else:
        field.wire = rng.choice([0, 1, 2, 2, 3, 4, 5, 6, 7])
        if field.wire == VARINT and not isinstance(field.payload, int):
            field.payload = rng.choice(WIDE)


def edit(rng: Random, fields: list[Field]) -> None:
    """One change to one message of the tree."""
    level = _level(rng, fields)
    kind = rng.randrange(10)
    if not level or kind == 0:
        level.insert(rng.randrange(len(level) + 1), _any_field(rng, level[0].number if level else 1))
        return
    at = rng.randrange(len(level))
    if kind == 1:
        del level[at]
    elif kind == 2:
        level.insert(rng.randrange(len(level) + 1), copied(level[at]))
    elif kind == 3:
        other = rng.randrange(len(level))
        level[at], level[other] = level[other], level[at]
    elif kind == 4:
        level[at].number = rng.choice(
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 0, level[at].number + 1]
        )
    elif kind == 5:
        payload = level[at].payload
        if (isinstance(payload, bytes) and payload and level[at].wire == DELIMITED) or isinstance(
            payload, list
        ):  # in two pieces
            middle = rng.randrange(len(payload) + 1)
            level[at].payload = payload[:middle]
            level.insert(at + 1, Field(level[at].number, DELIMITED, payload[middle:]))
    elif kind in (6, 7):
        _form(rng, level[at])
    else:
        _payload(rng, level[at])


def mutated(rng: Random, raw: bytes, schema: Schema, edits: int) -> bytes:
    """The message after some edits; one that is not a sound message is damaged as bytes."""
    try:
        fields = parse(raw, schema)
    except ValueError:
        return damage(rng, raw)
    for _ in range(edits):
        edit(rng, fields)
    return write(fields)
