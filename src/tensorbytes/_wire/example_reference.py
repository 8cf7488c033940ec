"""The kernel's functions over Examples in Python and NumPy: the definition of correct, and the fallback.

Each function computes exactly what its twin in example.c and example_write.c does. None of them
raises for bad data. Reading takes the usual form of a message only and says where it is left:

    Example, SequenceExample   features (0a) once, feature_lists (12) once, either may be missing
    Features, FeatureLists     entries (0a), each of key (0a) and value (12)
    Feature                    nothing, or one list (0a bytes, 12 float, 1a int64)
    lists                      values (0a), for numbers also single ones (float 0d, int64 08)

Lengths take up to five bytes. All else, sound or not, is for the general parser. Arrays are
taken as the bytes they have; larger ones than needed are not refused.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tensorbytes._wire.example_write_reference import (
    BYTES,
    FLOAT,
    INT64,
    MISSING,
    Array,
    bytes_offsets,
    collect_row,
    example_records,
    items_of,
    known_kind,
    rising,
)
from tensorbytes.typing import Buffer, bytes_view

__all__ = [
    "bytes_offsets",
    "collect_row",
    "example_count",
    "example_fill",
    "example_fill_bytes",
    "example_locate",
    "example_records",
    "example_steps",
]

_ODD, _OTHER_KEY = 1, 2
NOWHERE = (0, -1)
# Pairs that are Python objects at a time, and bytes whose numbers are taken apart at a time: each takes many times
# the memory of what it is made of.
_SOME_PAIRS, _SOME_BYTES = 1 << 12, 1 << 16


def _pairs(buffer: Buffer) -> Array:
    items = items_of(buffer, np.int64)
    return items[: len(items) // 2 * 2].reshape(-1, 2)


def _spans(buffer: Buffer, size: int) -> Array:
    spans = _pairs(buffer)
    if ((spans[:, 0] < 0) | (spans[:, 0] > spans[:, 1]) | (spans[:, 1] > size)).any():
        raise ValueError("a span is outside the buffer")
    return spans


def _each(pairs: Array) -> Iterator[list[int]]:
    for first in range(0, len(pairs), _SOME_PAIRS):
        yield from pairs[first : first + _SOME_PAIRS].tolist()


def _joined(data: memoryview, runs: Array) -> bytearray:
    """The bytes of these places, end to end."""
    out = bytearray()
    for start, stop in _each(runs):
        out += data[start:stop]
    return out


# ---- locate -----------------------------------------------------------------


def enter(data: memoryview, at: int, end: int, tag: int) -> tuple[int, int]:
    """(start, stop) of a length-delimited field with this tag; NOWHERE if there is none."""
    if end - at < 2 or data[at] != tag:
        return NOWHERE
    length = shift = 0
    at += 1
    while at < end and shift < 35:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (at, at + length) if length <= end - at else NOWHERE
        shift += 7
    return NOWHERE


def _feature(data: memoryview, at: int, end: int) -> tuple[int, int, int] | None:
    """(kind, start, stop) of a Feature's list, None if it is unusual."""
    if at == end:
        return MISSING, 0, 0
    tag = data[at]
    start, stop = enter(data, at, end, tag) if tag in (0x0A, 0x12, 0x1A) else NOWHERE
    return (tag >> 3, start, stop) if stop == end else None


def entries(data: memoryview, at: int, end: int) -> Iterator[tuple[bytes, int, int] | None]:
    """The key and where the value lies, of each entry of a map; None for an unusual one."""
    while at < end:
        start, stop = enter(data, at, end, 0x0A)
        key, key_end = enter(data, start, stop, 0x0A) if stop >= 0 else NOWHERE
        value, value_end = enter(data, key_end, stop, 0x12) if key_end >= 0 else NOWHERE
        if value_end < 0 or value_end != stop:
            yield None
            return
        yield bytes(data[key:key_end]), value, value_end
        at = stop


def _map_of_record(data: memoryview, at: int, end: int, lists: bool) -> tuple[int, int] | None:
    """Where the wanted one of a record's two maps lies, None if the record is unusual."""
    found = [(0, 0), (0, 0)]
    for which, tag in enumerate((0x0A, 0x12)):
        if at < end and data[at] == tag:
            start, stop = enter(data, at, end, tag)
            if stop < 0:
                return None
            found[which] = start, stop
            at = stop
    return found[lists] if at == end else None


def example_locate(
    buffer: Buffer, records: Buffer, key_data: Buffer, key_offsets: Buffer, lists: int,
    kinds: Buffer, spans: Buffer, notes: Buffer,
) -> None:  # fmt: skip
    """Where each record has the lists of the wanted keys: kinds[key, record], spans[key, record] = start, end.

    Keys must rise, by their bytes.
    With lists=1 the records are SequenceExamples, the spans those of FeatureList messages and the
    kind 1. Notes: 1 for an unusual or malformed record, whose kinds and spans mean nothing, 2 for
    one with keys that are not among the wanted.
    """
    data = bytes_view(buffer)
    places = _pairs(records)
    if (places < 0).any() or (places[:, 0] > len(data) - places[:, 1]).any() or lists not in (0, 1):
        raise ValueError("a record is outside the buffer, or lists is neither 0 nor 1")
    names = bytes_view(key_data)
    bounds = items_of(key_offsets, np.int64)
    bounds = rising(bounds, 0, len(bounds) - 1, len(names))
    keys = [bytes(names[start:stop]) for start, stop in pairwise(bounds.tolist())]
    if any(one >= other for one, other in pairwise(keys)):
        raise ValueError("keys must rise")
    cells = len(keys) * len(places)
    kinds, spans = items_of(kinds, np.uint8, cells)[:cells], items_of(spans, np.int64, 2 * cells)[: 2 * cells]
    notes = items_of(notes, np.uint8, len(places))
    kinds[:] = spans[:] = 0
    wanted = {key: slot for slot, key in enumerate(keys)}
    for number, (start, size) in enumerate(_each(places)):
        notes[number], found = _locate(data, start, start + size, wanted, bool(lists))
        for slot, (kind, first, last) in found.items():
            cell = slot * len(places) + number
            kinds[cell] = kind
            spans[2 * cell : 2 * cell + 2] = first, last


def _locate(
    data: memoryview, start: int, end: int, wanted: dict[bytes, int], lists: bool
) -> tuple[int, dict[int, tuple[int, int, int]]]:
    """The notes on a record, and (kind, start, stop) for each wanted key that it has."""
    found: dict[int, tuple[int, int, int]] = {}
    place = _map_of_record(data, start, end, lists)
    if place is None:
        return _ODD, {}
    notes = 0
    for entry in entries(data, *place):
        if entry is None:
            return _ODD, {}
        key, first, last = entry
        if key not in wanted:
            notes = _OTHER_KEY
            continue
        feature = (1, first, last) if lists else _feature(data, first, last)
        if feature is None:
            return _ODD, {}
        found[wanted[key]] = feature  # of a key that comes twice, the last entry counts
    return notes, found


def example_steps(buffer: Buffer, spans: Buffer, offsets: Buffer, kinds: Buffer | None, steps: Buffer | None) -> int:
    """The Features in FeatureLists: running offsets and, with room for them, the kind and span of each.

    Returns how many lists were read: all, or those before the first that is unusual or finds no room.
    """
    data = bytes_view(buffer)
    places = _spans(spans, len(data))
    offsets = items_of(offsets, np.int64, len(places) + 1)
    if (kinds is None) != (steps is None):
        raise ValueError("kinds and steps go together")
    kinds_out, steps_out = items_of(kinds, np.uint8), _pairs(steps)
    room = None if kinds is None else min(len(kinds_out), len(steps_out))
    offsets[0] = total = 0
    for index, (at, end) in enumerate(_each(places)):
        while at < end:
            start, stop = enter(data, at, end, 0x0A)
            feature = _feature(data, start, stop) if stop >= 0 else None
            if feature is None or total == room:
                return index
            if room is not None:
                kinds_out[total], steps_out[total] = feature[0], feature[1:]
            total += 1
            at = stop
        offsets[index + 1] = total
    return len(places)


# ---- count and fill ---------------------------------------------------------


def each_run(data: memoryview, at: int, end: int, kind: int) -> Iterator[tuple[int, int]]:
    """Where the values of a list lie, a string, a single number or packed ones each; NOWHERE where it is malformed."""
    while at < end:
        start, stop = enter(data, at, end, 0x0A)
        if stop < 0 and kind == FLOAT and data[at] == 0x0D and end - at >= 5:
            start, stop = at + 1, at + 5
        elif stop < 0 and kind == INT64 and data[at] == 0x08:
            start = at = at + 1
            while at < end and data[at] >= 0x80:
                at += 1
            stop = at + 1 if at < end else -1
        cut = kind == INT64 and stop > start and data[stop - 1] >= 0x80
        if stop < 0 or cut or (kind == FLOAT and (stop - start) % 4):
            yield NOWHERE
            return
        yield start, stop
        at = stop


def _runs(data: memoryview, at: int, end: int, kind: int) -> Array | None:
    """All of them; None if the list is malformed."""
    found = array("q")
    for start, stop in each_run(data, at, end, kind):
        if stop < 0:
            return None
        found.append(start)
        found.append(stop)
    return np.array(found, np.int64).reshape(-1, 2)


def _size(runs: Array) -> int:
    return int((runs[:, 1] - runs[:, 0]).sum())


def _count(data: memoryview, runs: Array, kind: int) -> int:
    if kind == BYTES:
        return len(runs)
    if kind == FLOAT:
        return _size(runs) // 4
    return sum(int(np.count_nonzero(np.frombuffer(data[start:stop], np.uint8) < 0x80)) for start, stop in _each(runs))


def example_count(buffer: Buffer, spans: Buffer, kind: int, offsets: Buffer) -> tuple[int, int]:
    """Running offsets of the values in lists of one kind.

    Returns how many lists were read, all or those before the first malformed one, and the bytes of
    all strings in them. A number of more than ten bytes only comes to light when it is read.
    """
    data = bytes_view(buffer)
    places = _spans(spans, len(data))
    offsets = items_of(offsets, np.int64, len(places) + 1)
    known_kind(kind)
    offsets[0] = total = size = 0
    for index, (at, end) in enumerate(_each(places)):
        runs = _runs(data, at, end, kind)
        if runs is None:
            return index, size
        total += _count(data, runs, kind)
        offsets[index + 1] = total
        if kind == BYTES:
            size += _size(runs)
    return len(places), size


def example_fill(buffer: Buffer, spans: Buffer, kind: int, width: int, out: Buffer) -> int:
    """The values of lists of float or int64; with width >= 0, of which each must have so many.

    Returns how many lists were read: all, or those before the first that is malformed, of another
    width, or finds no room.
    """
    data = bytes_view(buffer)
    places = _spans(spans, len(data))
    if kind not in (FLOAT, INT64):
        raise ValueError("only lists of float and int64 are filled here")
    target = items_of(out, np.float32 if kind == FLOAT else np.int64)
    content, totals = bytearray(), array("q", [0])
    for at, end in _each(places):
        runs = _runs(data, at, end, kind)
        count = -1 if runs is None else _count(data, runs, kind)
        if runs is None or (width >= 0 and count != width) or count > len(target) - totals[-1]:
            break
        content += _joined(data, runs)
        totals.append(totals[-1] + count)
    if kind == FLOAT:
        target[: totals[-1]] = np.frombuffer(content, "<f4")
        return len(totals) - 1
    raw = np.frombuffer(content, np.uint8)
    sound = sum(len(starts) for starts, _ in varints(raw))
    filled = int(np.searchsorted(totals, sound, "right")) - 1  # lists whose values are all sound
    room = target[: totals[filled]]
    for starts, stops in varints(raw):
        some = min(len(starts), len(room))
        room[:some] = decode_varints(raw, starts[:some], stops[:some])
        room = room[some:]
    return filled


def varints(raw: Array) -> Iterator[tuple[Array, Array]]:
    """Where the varints end to end in `raw` start and stop, some at a time, up to the first of over ten bytes."""
    at = 0
    while at < len(raw):
        stops = np.flatnonzero(raw[at : at + _SOME_BYTES] < 0x80) + (at + 1)
        if not len(stops):
            return
        starts = np.concatenate(([at], stops[:-1]))
        overlong = np.flatnonzero(stops - starts > 10)
        if len(overlong):
            yield starts[: overlong[0]], stops[: overlong[0]]
            return
        yield starts, stops
        at = int(stops[-1])


def decode_varints(raw: Array, starts: Array, stops: Array) -> Array:
    """The varints in these places, as int64."""
    sizes = stops - starts
    values = np.zeros(len(stops), np.uint64)
    for position in range(sizes.max(initial=0)):
        longer = sizes > position
        byte = raw[starts[longer] + position].astype(np.uint64) & np.uint64(0x7F)
        values[longer] |= byte << np.uint64(7 * position)
    return values.view(np.int64)


def example_fill_bytes(buffer: Buffer, spans: Buffer, string_offsets: Buffer, data: Buffer) -> int:
    """The strings of lists end to end, and their offsets. Returns as `example_fill` does."""
    source = bytes_view(buffer)
    places = _spans(spans, len(source))
    offsets, target = items_of(string_offsets, np.int64, 1), items_of(data, np.uint8)
    offsets[0] = filled = count = total = 0
    for at, end in _each(places):
        runs = _runs(source, at, end, BYTES)
        if runs is None or count + len(runs) >= len(offsets) or _size(runs) > len(target) - total:
            break
        ends = offsets[count + 1 : count + len(runs) + 1]
        np.cumsum(runs[:, 1] - runs[:, 0], out=ends)
        ends += total
        content = np.frombuffer(_joined(source, runs), np.uint8)
        target[total : total + len(content)] = content
        count, total, filled = count + len(runs), total + len(content), filled + 1
    return filled
