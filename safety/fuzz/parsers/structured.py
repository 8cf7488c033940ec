"""Mutations that know the shape of what they change: messages of fields, JSON, pickles.

A byte that is put in or taken out breaks every length around it. These change a field, or a value, and
write the lengths anew, so that what they make is well-formed and wrong only in what it says.
"""

from __future__ import annotations

import contextlib
import itertools
import json as json_text
import pickletools
import struct
from random import Random
from typing import Any, TypeAlias

from safety.fuzz import varints

_DEPTH = 6
_MOST_FIELDS = 64
_NUMBERS = (0, 1, 2, 3, 7, 8, 9, 20, 127, 128, 255, 1000, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 1.5, 1e300, 1 << 40, 1 << 63, -(1 << 63), 10**30, "", "a", "é", "\0", "\ud800", "../x",
    "float32", "F32", "int8", "utf-8", "ragged", "key", [], {}, [0], [[]], {"a": 1}, [2**62, 0, 2**62],
)  # fmt: skip
# number, wire type, value: an integer, bytes, or a list of fields
Field: TypeAlias = "list[Any]"


# ---- messages ------------------------------------------------------------------------


def proto(data: bytes, chance: Random) -> bytes:
    """A message with one or two of its fields changed."""
    fields = _parsed(data, _DEPTH)
    if fields is None:
        return data
    for _ in range(chance.randrange(1, 3)):
        _change(fields, chance)
    return _written(fields)


def records(data: bytes, chance: Random) -> bytes:
    """TFRecord framing around messages, of which one is changed; checksums are left to be sealed."""
    payloads, at = [], 0
    while len(data) - at >= 16:
        length = min(int.from_bytes(data[at : at + 8], "little"), len(data) - at - 16)
        payloads.append(data[at + 12 : at + 12 + length])
        at += 16 + length
    if payloads:
        number = chance.randrange(len(payloads))
        payloads[number] = proto(payloads[number], chance)
        if chance.random() < 0.1:
            payloads.insert(chance.randrange(len(payloads) + 1), payloads[number])
        if chance.random() < 0.1:
            del payloads[chance.randrange(len(payloads))]
    return b"".join(len(one).to_bytes(8, "little") + bytes(4) + one + bytes(4) for one in payloads)


def delimited(data: bytes, chance: Random) -> bytes:
    """Messages after their lengths, of which one is changed."""
    messages, at = [], 0
    while at < len(data):
        size, at = _varint(data, at)
        if size < 0 or size > len(data) - at:
            return data
        messages.append(data[at : at + size])
        at += size
    if not messages:
        return data
    number = chance.randrange(len(messages))
    messages[number] = proto(messages[number], chance)
    return b"".join(varints.written(len(one)) + one for one in messages)


def _parsed(data: bytes, depth: int) -> list[Field] | None:
    """The fields of a message; None if it is none."""
    fields: list[Field] = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if tag < 8 or len(fields) > _MOST_FIELDS:
            return None
        value: Any
        if wire == 0:
            value, at = _varint(data, at)
            if value < 0:
                return None
        elif wire == 2:
            size, at = _varint(data, at)
            if size < 0 or size > len(data) - at:
                return None
            value = data[at : at + size]
            at += size
            inner = _parsed(value, depth - 1) if depth and value else None
            value = value if inner is None else inner
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value = data[at : at + size]
            at += size
            if at > len(data):
                return None
        else:
            return None
        fields.append([number, wire, value])
    return fields


def _change(fields: list[Field], chance: Random) -> None:
    """Change one field of a message, or of one inside it."""
    inner = [field[2] for field in fields if isinstance(field[2], list)]
    if inner and chance.random() < 0.7:
        _change(chance.choice(inner), chance)
        return
    if not fields:
        fields.append([chance.randrange(1, 16), 0, chance.choice(_NUMBERS)])
        return
    at = chance.randrange(len(fields))
    field, kind = fields[at], chance.randrange(8)
    if kind == 0:
        del fields[at]
    elif kind == 1:
        fields.insert(chance.randrange(len(fields) + 1), list(field))
    elif kind == 2:
        other = chance.randrange(len(fields))
        fields[at], fields[other] = fields[other], fields[at]
    elif kind == 3:
        field[0] = chance.choice(
            (field[0] + 1, field[0] - 1 or 1, chance.randrange(1, 20), chance.choice((*range(1000, 1018), 1500)))
        )
    elif kind == 4:
        field[1:] = chance.choice(fields)[1:]
    else:
        _change_value(field, chance)


def _change_value(field: Field, chance: Random) -> None:
    if field[1] == 0:
        field[2] = chance.choice((*_NUMBERS, field[2] + 1, max(field[2] - 1, 0)))
        return
    raw = bytearray(field[2] if isinstance(field[2], bytes) else _written(field[2]))
    kind, at = chance.randrange(4), chance.randrange(len(raw) + 1)
    if kind == 0 and raw:
        raw[at % len(raw)] = chance.randrange(256)
    elif field[1] != 2:
        raw[:] = chance.choice((bytes(len(raw)), b"\xff" * len(raw), chance.randbytes(len(raw))))
    elif kind == 1:
        del raw[at : at + chance.randrange(1, 9)]
    elif kind == 2:
        raw[at:at] = chance.choice((b"\0", bytes(4), bytes(8), b"\xff" * 8, chance.randbytes(3)))
    else:
        raw[at:at] = raw[at : at + 8]
    field[2] = bytes(raw)


def _written(fields: list[Field]) -> bytes:
    out = bytearray()
    for number, wire, value in fields:
        out += varints.written(number << 3 | wire)
        if wire == 0:
            out += varints.written(value)
            continue
        raw = _written(value) if isinstance(value, list) else value
        out += (varints.written(len(raw)) if wire == 2 else b"") + raw
    return bytes(out)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(the value, or -1; where it ends)"""
    value, at = varints.read(data, at, len(data))
    return -1 if value is None else value, at


# ---- JSON ------------------------------------------------------------------------------


def json(data: bytes, chance: Random) -> bytes:
    """JSON with one or two of its values changed."""
    try:
        value = json_text.loads(data)
    except (ValueError, RecursionError):
        return data
    for _ in range(chance.randrange(1, 3)):
        value = _changed(value, chance)
    return json_text.dumps(value, separators=(",", ":"), ensure_ascii=chance.random() < 0.5).encode(
        errors="surrogatepass"
    )


def safetensors(data: bytes, chance: Random) -> bytes:
    """The header of a safetensors file changed, or the notes in it."""
    size = int.from_bytes(data[:8], "little")
    head = json(data[8 : 8 + size], chance)
    return struct.pack("<Q", len(head)) + head + data[8 + size :]


def _changed(value: Any, chance: Random) -> Any:
    if isinstance(value, str) and value[:1] in ("{", "[") and chance.random() < 0.8:  # JSON in JSON
        return json(value.encode(errors="replace"), chance).decode(errors="replace")
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return chance.choice(_VALUES)
    if isinstance(value, list):
        at = chance.randrange(len(value))
        return [*value[:at], *chance.choice(([], [_changed(value[at], chance)], [value[at]] * 2)), *value[at + 1 :]]
    key = chance.choice(list(value))
    made = dict(value)
    kind = chance.randrange(8)
    if kind == 0:
        del made[key]
    elif kind == 1:
        made[chance.choice(("a", "", "é", "__metadata__", "dtype", "shape", "of", "parts", "path"))] = value[key]
    elif kind == 2:
        made[key] = value[chance.choice(list(value))]
    else:
        made[key] = _changed(value[key], chance)
    return made


# ---- pickles -----------------------------------------------------------------------------

_OPCODES = (
    b"N", b"\x88", b"\x89", b"K\0", b"K\1", b"K\2", b"J\xff\xff\xff\xff", b"\x8a\x09" + b"\xff" * 8 + b"\0", b"}", b"]",
    b")", b"(", b"t", b"R", b"b", b"s", b"u", b"e", b"a", b"Q", b"\x85", b"\x86", b"\x87", b"G" + bytes(8), b"q\x7f",
    b"h\x7f", b"h\0", b"h\1", b"X\1\0\0\0a", b"X\5\0\0\0torch", b"C\4\0\0\0\0", b"\x81", b"\x8f", b"\x90",
    b"ctorch\nSize\n", b"ctorch\nfloat32\n", b"ccollections\nOrderedDict\n)R", b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch._utils\n_rebuild_parameter\n", b"cnumpy\ndtype\n", b"ctorch\nQInt8Storage\n", b"c_codecs\nencode\n",
    b"cbuiltins\ncomplex\n",
)  # fmt: skip


def pickle(data: bytes, chance: Random) -> bytes:
    """A pickle with some of its opcodes left out, doubled, exchanged or put in."""
    parts = _opcodes(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(parts) + 1)
        kind = chance.randrange(6)
        if kind == 0:
            del parts[at : at + 1]
        elif kind == 1 and parts:
            parts.insert(at, chance.choice(parts))
        elif kind == 2 and parts:
            other = chance.randrange(len(parts))
            parts[at % len(parts)], parts[other] = parts[other], parts[at % len(parts)]
        elif kind == 3 and parts:
            raw = bytearray(parts[at % len(parts)])
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            parts[at % len(parts)] = bytes(raw)
        else:
            parts.insert(at, chance.choice(_OPCODES))
    return b"".join(parts)


def _opcodes(data: bytes) -> list[bytes]:
    """The opcodes of a pickle with their arguments, as far as it is one, and the rest."""
    places = [0]
    with contextlib.suppress(ValueError, IndexError, struct.error):
        places.extend(place for _, _, place in pickletools.genops(data) if place)
    parts = [data[start:end] for start, end in itertools.pairwise([*places, len(data)])]
    return [part for part in parts if part]
