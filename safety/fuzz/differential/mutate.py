"""Small, deterministic damage to bytes: what bad memory, bad disks and bad programs do, and what attackers try."""

import struct
from collections.abc import Callable, Sequence
from random import Random

Edit = Callable[[Random, bytes], bytes]

EDGES = [0, 1, 2, 3, 4, 7, 8, 12, 16, 63, 64, 100, 127, 128, 255, 256, 4096, 65535, 65536, (1 << 31) - 1, 1 << 31]
WIDE = [*EDGES, (1 << 32) - 1, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 4, (1 << 64) - 1]
_WIDTHS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


def flip_bit(rng: Random, raw: bytes) -> bytes:
    at = rng.randrange(len(raw) * 8)
    out = bytearray(raw)
    out[at >> 3] ^= 1 << (at & 7)
    return bytes(out)


def set_byte(rng: Random, raw: bytes) -> bytes:
    out = bytearray(raw)
    out[rng.randrange(len(raw))] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
    return bytes(out)


def cut(rng: Random, raw: bytes) -> bytes:
    return raw[: rng.randrange(len(raw))]


def remove(rng: Random, raw: bytes) -> bytes:
    start = rng.randrange(len(raw))
    return raw[:start] + raw[start + rng.choice([1, 2, 4, 8, 16, rng.randrange(1, 64)]) :]


def repeat(rng: Random, raw: bytes) -> bytes:
    start = rng.randrange(len(raw))
    stop = start + rng.choice([1, 2, 4, 8, 16, rng.randrange(1, 64)])
    return raw[:stop] + raw[start:]


def insert(rng: Random, raw: bytes) -> bytes:
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + rng.choice([b"\0", b"\xff", b" ", rng.randbytes(rng.randrange(1, 9))]) + raw[at:]


def swap(rng: Random, raw: bytes) -> bytes:
    size = rng.choice([1, 2, 4, 8, 16])
    a, b = sorted((rng.randrange(len(raw)), rng.randrange(len(raw))))
    if a + size > b or b + size > len(raw):
        return flip_bit(rng, raw)
    return raw[:a] + raw[b : b + size] + raw[a + size : b] + raw[a : a + size] + raw[b + size :]


def number(rng: Random, raw: bytes) -> bytes:
    """A little-endian number somewhere becomes another: an edge, or a near one."""
    width = rng.choice([1, 2, 4, 4, 8, 8])
    if len(raw) < width:
        return flip_bit(rng, raw)
    at = rng.randrange(len(raw) - width + 1)
    if rng.random() < 0.5:
        at -= at % width
    (value,) = struct.unpack_from(_WIDTHS[width], raw, at)
    value = rng.choice([rng.choice(WIDE), value + rng.choice([-8, -4, -1, 1, 4, 8, 64]), value * 2, -value])
    return raw[:at] + struct.pack(_WIDTHS[width], value % (1 << 8 * width)) + raw[at + width :]


def append(rng: Random, raw: bytes) -> bytes:
    return raw + rng.choice([b"\0", bytes(8), bytes(64), rng.randbytes(rng.randrange(1, 40)), raw])


def zero_tail(rng: Random, raw: bytes) -> bytes:
    start = rng.randrange(len(raw))
    return raw[:start] + bytes(len(raw) - start)


def pool(make: Callable[[Random], bytes], count: int = 3000) -> list[bytes]:
    """Valid inputs to start from, the same in every run: making one takes longer than editing it."""
    return [make(Random(f"pool:{n}")) for n in range(count)]


EDITS: list[Edit] = [
    flip_bit, flip_bit, flip_bit, set_byte, cut, remove, repeat, insert, swap, number, number, append, zero_tail,
]  # fmt: skip


def damage(rng: Random, raw: bytes) -> bytes:
    """One edit that knows nothing of the format."""
    return rng.choice(EDITS)(rng, raw) if raw else rng.randbytes(rng.randrange(1, 9))


def splice(rng: Random, raw: bytes, other: bytes) -> bytes:
    """The head of one input and the tail of another."""
    if not raw or not other:
        return raw or other
    return raw[: rng.randrange(len(raw))] + other[rng.randrange(len(other)) :]


def often_one(rng: Random) -> int:
    """How many edits: mostly one, at most five."""
    return rng.choice([1, 1, 1, 1, 2, 2, 3, 5])


def with_edits(rng: Random, raw: bytes, edits: Sequence[Edit]) -> bytes:
    for _ in range(often_one(rng)):
        raw = rng.choice(edits)(rng, raw)
    return raw
