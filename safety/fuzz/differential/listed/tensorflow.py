"""Against TensorFlow's parsers of Examples, which depart from protobuf: ours is held to protobuf's reading."""

import struct
from typing import Any

from safety.fuzz.differential import protobytes
from safety.fuzz.differential.listed.protobuf import _entries
from safety.fuzz.differential.listing import BOTH, OURS, THEIRS, Divergence
from safety.fuzz.differential.pairs.tensorflow import _KEYS, FIXED
from tests.support.wire_bytes import field

_DEFAULTS = {1: [b"?", b"?"], 2: struct.pack("<2f", -7, -7), 3: struct.pack("<2q", -7, -7)}


def by_protobuf(raw: bytes, sequence: bool, long: bool = True) -> Any:
    """What the schema makes of protobuf's reading; None where either refuses. `long` excuses long tags and odd keys."""
    kind, mode = raw[0] & 15, raw[0] >> 4
    found = _entries(raw[1:], sequence)
    if found is None and long:
        found = _entries(_sound(raw[1:], protobytes.SEQUENCE if sequence else protobytes.EXAMPLE), sequence)
    if found is None:
        return None
    features, lists = found if sequence else (found, {})
    try:
        plain = {key: _values(features.get(key, (0, None)), kind, mode) for key in _KEYS}
        steps = {key: [_values(step, kind, mode) for step in lists.get(key, [])] for key in _KEYS}
    except ValueError:
        return None
    return (plain, steps) if sequence else plain


def _sound(raw: bytes, schema: protobytes.Schema) -> bytes:
    """The record with tags and lengths in short form, and with keys that are text."""
    try:
        fields = protobytes.parse(raw, schema)
    except ValueError:
        return raw
    for features in fields:
        for entry in features.payload if isinstance(features.payload, list) else ():
            for part in entry.payload if isinstance(entry.payload, list) else ():
                if part.number == 1 and isinstance(part.payload, bytes):
                    part.payload = part.payload.decode(errors="replace").encode()
    return protobytes.write(fields)


def _values(feature: Any, kind: int, mode: int) -> Any:
    held, values = feature
    if held == 0:
        return _DEFAULTS[kind] if mode == FIXED else b""
    if held != kind:
        raise ValueError("another kind")
    if kind == 3:
        values = struct.pack(f"<{len(values)}q", *values)
    count = len(values) // {1: 1, 2: 4, 3: 8}[kind]
    if mode == FIXED and count != 2:
        raise ValueError("another number of values")
    return values if count else b""


def _as_protobuf(raw: bytes, ours: Any, _: Any) -> bool:
    return by_protobuf(raw, isinstance(ours, tuple)) == ours


def _refused_by_protobuf(sequence: bool) -> Any:
    return lambda raw, ours, theirs: by_protobuf(raw, sequence, long=False) is None


def _feature(*lists: bytes) -> bytes:
    return field(1, field(1, field(1, "a") + field(2, b"".join(lists))))


_CHUNKS = _feature(field(3, field(1, b"\1") + field(1, b"\2")))
ROWS = [
    *(
        Divergence(
            (pair,),
            BOTH,
            "",
            "several packed chunks, repeated lists and entries, unknown fields",
            "TensorFlow keeps the first and drops the rest; protobuf, and we, join them",
            b"\3" + _CHUNKS,
            _as_protobuf,
            theirs="fewer values",
        )
        for pair in ("tf-example", "tf-sequence")
    ),
    *(
        Divergence(
            (pair,),
            OURS,
            "",
            "unknown fields below the top, missing keys or values, keys nobody asks for that are not text",
            "TensorFlow's parser knows one form; protobuf reads them all, as we do",
            b"\3" + field(1, field(1, field(1, "a"))),
            _as_protobuf,
        )
        for pair in ("tf-example", "tf-sequence")
    ),
    *(
        Divergence(
            (pair,),
            THEIRS,
            "",
            "malformed bytes where TensorFlow does not look",
            "protobuf refuses them, as we do",
            b"\3\2\0",
            _refused_by_protobuf(pair == "tf-sequence"),
        )
        for pair in ("tf-example", "tf-sequence")
    ),
    *(
        Divergence(
            (pair,),
            THEIRS,
            "records of bytes, not Examples",
            "a first record that has fields, but none of an Example's",
            "a message of another kind: TensorFlow reads it as one without features",
            b"\3\x3a\0",
        )
        for pair in ("tf-example", "tf-sequence")
    ),
]
