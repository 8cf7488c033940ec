"""What the records of a file are, by the first of them."""

from __future__ import annotations

from tensorbytes.tfrecord import HEADER_BYTES

EXAMPLES, EVENTS, OTHERS = "tfrecord", "events", "other records"


def kind_of(plain: bytes) -> str:
    """What the records of a file are that starts like this, once it is inflated."""
    length, first = int.from_bytes(plain[:8], "little"), plain[HEADER_BYTES:]
    payload = first[: min(length, len(first))]
    if payload[:1] == b"\x09" and b"brain.Event:" in payload[9:32]:
        return EVENTS
    return EXAMPLES if not length or _may_be_example(payload, length) else OTHERS


def _may_be_example(payload: bytes, length: int) -> bool:
    """Whether a record starts as an Example or SequenceExample does: with a part that fits into it."""
    if payload[:1] not in (b"\x0a", b"\x12"):
        return False
    size = shift = 0
    for at, byte in enumerate(payload[1:11], 2):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            # In it, if there is anything, the first entry of a map.
            return at + size <= length and (not size or payload[at : at + 1] in (b"\x0a", b""))
    return False
