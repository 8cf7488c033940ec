"""A golden TFRecord file for the tests of damage, ways to damage it, and what must hold then."""

from typing import NamedTuple

import numpy as np

from tensorbytes._wire import frame_header, frames, varint
from tensorbytes.damage import Damage
from tensorbytes.formats.tfrecord.files.salvage import intact

_RANDOM = np.random.default_rng(20)


def framed(payloads):
    return frames([[payload] for payload in payloads])


def field(number, content):
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def example(**features):
    """An Example of bytes features."""
    entries = [
        field(1, field(1, name.encode()) + field(2, field(1, field(1, value))))
        for name, value in sorted(features.items())
    ]
    return field(1, b"".join(entries))


# A file of its own, which payloads hold.
INNER = [b"inner one", b"", _RANDOM.bytes(40)]
# Nothing but records after each other; among them zeros, text and bytes that look like headers.
PLAIN = [
    b"",
    b"x",
    b"12345",
    _RANDOM.bytes(100),
    _RANDOM.bytes(30) + frame_header(7) + _RANDOM.bytes(30) + frame_header(1 << 40) + _RANDOM.bytes(9),
    bytes(300),
    b"",
    b"",
    b"some text, and more of it",
    _RANDOM.bytes(500),
    _RANDOM.bytes(33),
    b"the last",
]
# The same with two payloads that hold records: as a field among others, and as they are.
NESTED = [*PLAIN]
NESTED[5] = example(data=framed(INNER), label=b"seven", more=_RANDOM.bytes(20))
NESTED[8] = framed(INNER)


class Golden(NamedTuple):
    payloads: list
    data: bytes
    borders: list  # where records start, and where the last ends

    def record_at(self, position):
        return int(np.searchsorted(self.borders, position, side="right")) - 1

    def touched(self, start, end):
        """The records that have bytes in a range."""
        return [i for i in range(len(self.payloads)) if self.borders[i] < end and start < self.borders[i + 1]]


def golden(payloads):
    return Golden(payloads, framed(payloads), np.cumsum([0] + [16 + len(p) for p in payloads]).tolist())


class MemorySource:
    """Bytes as a source; `step` gives them in small pieces, `sized` tells how many there are."""

    path = "memory"

    def __init__(self, data, step=None, sized=True):
        self._rest = memoryview(data)
        self._step = step
        self.size = len(data) if sized else None

    def readinto(self, view):
        count = min(len(view), len(self._rest), self._step or len(view))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


class Outcome(NamedTuple):
    payloads: list
    damages: list[Damage]
    numbers: list


def salvaged(data, source=None, **options):
    """What comes out of damaged bytes. Records and lost ranges must cover them exactly, in order."""
    payloads, numbers, damages, covered = [], [], [], []

    def note(damage):
        damages.append(damage)
        assert len(covered) == 0 or damage.start >= covered[-1][1]  # in order
        if not damage.recovered:
            covered.append((damage.start, damage.end))

    for block in intact(source or MemorySource(data), note, **options):
        for index, (offset, length) in enumerate(block.records.tolist()):
            payloads.append(bytes(block.data[offset : offset + length]))
            numbers.append(block.first + index)
            covered.append((block.base + offset - 12, block.base + offset + length + 4))
    at = 0
    for start, end in covered:
        assert start == at
        at = end
    assert at == len(data)
    assert numbers == sorted(set(numbers))
    return Outcome(payloads, damages, numbers)


def in_order(some, others):
    """Whether all of `some` are among the others, in the same order."""
    rest = iter(others)
    return all(any(item == other for other in rest) for item in some)


# ---- mutations: (bytes, where each comes from) -> the same ---------------------


class Marked(NamedTuple):
    """Bytes, and for each its place in the golden file; -1 if it is not from there."""

    data: bytes
    origin: list

    def with_bytes(self, start, new):
        kept = [
            place if old == byte else -1
            for place, old, byte in zip(self.origin[start:], self.data[start:], new, strict=False)
        ]
        end = start + len(kept)
        return Marked(
            self.data[:start] + new[: len(kept)] + self.data[end:], self.origin[:start] + kept + self.origin[end:]
        )

    def without(self, start, end):
        return Marked(self.data[:start] + self.data[end:], self.origin[:start] + self.origin[end:])

    def with_insertion(self, start, new):
        return Marked(
            self.data[:start] + new + self.data[start:],
            self.origin[:start] + [-1] * len(new) + self.origin[start:],
        )

    def survivors(self, file):
        """The payloads of the records whose bytes are all there, one after the other."""
        place = {origin: index for index, origin in enumerate(self.origin) if origin >= 0}
        found = []
        for number, payload in enumerate(file.payloads):
            start, end = file.borders[number : number + 2]
            at = place.get(start)
            if at is not None and self.origin[at : at + end - start] == list(range(start, end)):
                found.append((at, payload))
        return [payload for _, payload in sorted(found, key=lambda pair: pair[0])]


def marked(file):
    return Marked(file.data, list(range(len(file.data))))
