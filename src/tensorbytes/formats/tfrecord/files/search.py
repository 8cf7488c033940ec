"""Where records go on after damage.

A record is found again by the checksum of its length, and confirmed by that of its data. What
makes this more than a search is that payloads may hold TFRecords themselves: a record inside a
payload must not come out as one of the file's, whatever was damaged around it. So a payload whose
header is lost is first given the chance to end where its own checksum stands, and records that
end early, in front of what can only be the rest of a payload, are left alone.

Some things can't be told apart. Records right after a header, or where a protobuf field starts,
may have been appended after a torn write, or be what the payload holds: those that fit into it are
taken for held, so lost rather than made up. A payload that holds records may still set some free
if it is damaged in two places, if its header vanished without a trace, or if it is not a protobuf
message and cut exactly between two of them.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

import numpy as np

from tensorbytes import _wire
from tensorbytes.budget import Budget
from tensorbytes.formats.tfrecord.files.window import Window
from tensorbytes.tfrecord import FRAME_BYTES, HEADER_BYTES

# Records are followed this far before they are believed to be the file's own.
_LOOK_BYTES = 16 << 20
# What guesses that fail may cost, beside _LOOK_BYTES: so much for each byte of the file so far.
# Time stays linear, whatever the file.
_GUESSES = 4
# A payload whose header is lost is looked for in this many bytes at most.
_SPAN_BYTES = 64 << 20
_LEAST_SPAN = 2 << 20
# And in this many after records that end early, which may be some that it holds.
_REST_BYTES = 4 << 20
_STEP_BYTES = 1 << 16
_FOOTER_BYTES = 4
_MOST_FIELDS = 1 << 16


class Fault(NamedTuple):
    """What to make of a place where the walk from record to record broke."""

    kind: str
    stop: int  # where reading goes on
    recovered: bool = False  # only the header is damaged; the payload ends at stop - 4


class Search:
    """Looks around in a window; all positions are those of the stream."""

    def __init__(self, window: Window, budget: Budget) -> None:
        self._window, self._budget = window, budget
        self._look, self._span = _LOOK_BYTES, _SPAN_BYTES
        if window.last is None:  # compressed: what is looked at is not in the file, and takes memory beside its record
            self._look, self._span = _LOOK_BYTES // 2, min(_SPAN_BYTES, max(budget.left // 4, _LEAST_SPAN))
        self._origin, self._spent = window.end, 0
        self._found = np.empty((1024, 2), np.int64)

    def fault(self, at: int, status: int) -> Fault:
        """Explain why no record starts at `at`, as `scan` put it."""
        if status == _wire.BAD_LENGTH:
            return self._unsound(at)
        end = at + FRAME_BYTES + self._length(at)
        if status == _wire.BAD_DATA:
            return self._extent(at, end, "payload")
        return self._cut(at, end, "cut header" if status == _wire.CUT_HEADER else "cut payload")

    def is_header(self, at: int) -> bool:
        """Whether the last 12 bytes of a record of 8 bytes are the header of another one, from which records go on.

        So it is if the first was torn right after its own header, and others appended.
        """
        payload = at + HEADER_BYTES
        if not self._window.reach(payload + 1) or self._follow(payload, payload + 1)[0] > payload:
            return False
        end = at + FRAME_BYTES + self._length(at)
        stop, status = self._follow(at, end + 1)
        return stop >= end and status == _wire.OK

    # ---- one header ----------------------------------------------------------

    def _length(self, at: int) -> int:
        return int.from_bytes(self._window.view(at, at + 8), "little")

    def _is_sound(self, at: int) -> bool:
        if not self._window.reach(at + HEADER_BYTES):
            return False
        return _wire.resync(self._window.view(at, at + HEADER_BYTES), 0, HEADER_BYTES) == 0

    def _goes_on(self, at: int) -> bool:
        """Whether a record ends here: at the end of the file, or in front of a sound header."""
        return self._is_sound(at) or (self._window.whole and at == self._window.end)

    def _confirmed(self, start: int, end: int, crc: int = 0) -> bool:
        """Whether the checksum of a payload stands after it; `crc` is that of what comes before `start`."""
        stored = int.from_bytes(self._window.view(end, end + _FOOTER_BYTES), "little")
        return stored == _wire.mask(_wire.crc32c(self._window.view(start, end), crc))

    def _relength(self, at: int) -> tuple[int, bool] | None:
        """The length that an unsound header must have had, and whether its data is confirmed.

        One wrong bit in the length is put right by its checksum. Otherwise it may be the checksum that
        is wrong: then the data tells, or another header where the length leads to.
        """
        if not self._window.reach(at + HEADER_BYTES):
            return None
        length, stored = struct.unpack("<QI", self._window.view(at, at + HEADER_BYTES))
        flipped = _flips().get(_wire.crc32c(struct.pack("<Q", length)) ^ _unmask(stored), 0)
        length ^= flipped
        end = at + FRAME_BYTES + length
        worth = flipped or (length <= self._span and self._may_spend(at))
        if worth and self._obtain(at, end):
            if self._confirmed(at + HEADER_BYTES, end - _FOOTER_BYTES):
                return length, True
            self._spent += length
            # A length of zero means nothing, since lost bytes are often zeros.
            leads = length and self._is_sound(end) and self._next_header(at + 1, at + HEADER_BYTES) is None
            # A header alone may be the content of a payload: a record that it starts, or one after that, must be there.
            if leads and self._follow(end, end + 1, patient=True)[0] > end:
                return length, False
        return (length, False) if flipped else None

    def _may_spend(self, at: int) -> int:
        """How many bytes may still be spent on guesses."""
        return max(0, _LOOK_BYTES + _GUESSES * (at - self._origin) - self._spent)

    def _obtain(self, at: int, end: int) -> bool:
        """Have the bytes of a record that claims [at, end), unless it claims too much."""
        window, most = self._window, self._budget.left
        if at > window.start:
            most //= 2  # with those before it, which may have to be moved
        if end > window.last if window.last is not None else end - window.start > most + FRAME_BYTES:
            return False
        return window.reach(end)

    # ---- chains of records ---------------------------------------------------

    def _next_header(self, at: int, stop: int) -> int | None:
        """The first sound header that starts in [at, stop)."""
        last = stop + HEADER_BYTES - 1
        while at < stop and self._window.reach(at + HEADER_BYTES):
            self._window.reach(min(at + _STEP_BYTES, last))  # however small the pieces are that a stream gives
            end = min(self._window.end, last)
            found = at + _wire.resync(self._window.view(at, end), 0, end - at)
            if found + HEADER_BYTES <= end:
                return found
            at = found
        return None

    def _follow(self, at: int, stop: int, patient: bool = False) -> tuple[int, int]:
        """Follow confirmed records to `stop` or as far as they go: where they end, and the status there.

        OK means `stop` or the end of the stream. A patient walk passes records of which only the
        data is damaged. Data that is not confirmed is paid for; when all is spent, nothing is.
        """
        if not self._may_spend(at):
            return at, _wire.BAD_DATA
        while at < stop:
            self._window.reach(at + HEADER_BYTES)
            found, after, status = _wire.scan(self._window.view(at), 0, True, self._found)
            at += after
            if found:
                continue
            if status == _wire.OK:  # the end of what is in the window
                if not self._window.reach(at + 1):
                    break
            elif status == _wire.CUT_PAYLOAD and self._obtain(at, at + FRAME_BYTES + self._length(at)):
                continue
            elif status == _wire.BAD_DATA:
                end = at + FRAME_BYTES + self._length(at)
                if not patient or not self._goes_on(end):
                    self._spent += end - at
                    return at, status
                at = end
            else:
                return at, status
        return at, _wire.OK

    def _nested(self, end: int, status: int) -> bool:
        """Whether records that end here, where no header is, look like part of a payload."""
        window = self._window
        if status in (_wire.CUT_PAYLOAD, _wire.BAD_DATA) or self._relength(end) is not None:
            return False  # a record, damaged by itself
        after = self._next_header(end + 1, end + self._look)
        rest = (window.end if after is None else after) - _FOOTER_BYTES
        if after is None and (not window.whole or rest > end + self._look):
            return False
        if after is not None and self._follow(after, after + 1)[0] == after:
            return False
        if rest >= end and _content(window.view(end, rest)) == 0:
            return True  # nothing but whole fields of a protobuf message, and a checksum
        return after is not None and bool(_content(window.view(end, after)))  # a field that holds more records

    # ---- faults --------------------------------------------------------------

    def _unsound(self, at: int) -> Fault:
        relength = self._relength(at)
        if relength is None:
            return self._lost_header(at)
        length, confirmed = relength
        end = at + FRAME_BYTES + length
        if confirmed:
            return Fault("header", end, recovered=True)
        return self._extent(at, end, "header") if self._obtain(at, end) else self._cut(at, end, "header")

    def _extent(self, at: int, end: int, kind: str) -> Fault:
        """A record in [at, end) whose data is not what was written, or not all of it."""
        inside = self._inside(at, end)
        if inside is not None:
            return Fault(kind, inside)
        self._window.forget(end)  # this one is lost: only what is after it is looked at
        here = end
        if self._is_sound(end):
            here, status = self._follow(end, end + self._look)
            if status == _wire.OK or not self._nested(here, status):
                return Fault(kind, end)
        elif not self._window.reach(end + HEADER_BYTES) or self._relength(end) is not None:
            return Fault(kind, end)
        behind = self._lost_header(end, here)
        return Fault(kind, end if behind.recovered else behind.stop)

    def _cut(self, at: int, end: int, kind: str) -> Fault:
        """A record that runs past the end: what is after its header may have been appended after a torn write."""
        window, most = self._window, self._budget.left
        large = window.reach(at + most + 1) if window.last is None else window.last - at > most
        if large:
            window.skip()
            return Fault(kind if window.whole else "compression", window.end)
        while window.reach(window.end + 1):
            pass
        if not window.whole:
            return Fault("compression", window.end)
        if window.end - at < HEADER_BYTES:
            return Fault(kind, window.end)
        inside = self._inside(at, end)
        return Fault(kind, window.end if inside is None else inside)

    def _inside(self, at: int, end: int) -> int | None:
        """Where the file's own records go on within [at, end), which a record claims whose data is damaged.

        They do if they run over the claim's end, or at least over the checksum in front of it, which
        no record of a payload does; if that is beyond the end of the file, exactly to the end of the
        file. Where they start right where a payload may start to hold them, those that it may hold
        are not taken for the file's own.
        """
        window = self._window
        payload, held = at + HEADER_BYTES, end - _FOOTER_BYTES
        here, cut = payload, end > window.end
        border = window.end if cut else end
        while (start := self._next_header(here, border)) is not None:
            stop, status = self._follow(start, border + (0 if cut else self._look))
            over = stop == border if cut else stop > end - _FOOTER_BYTES
            if over and (status == _wire.OK or not self._nested(stop, status)):
                size = _content(window.view(payload, start), held - payload) or 0
                holder = held if start == payload else start + size
                own = self._first_beyond(min(holder, end - _FOOTER_BYTES), start, stop)
                if own < stop:
                    return own
            here = stop
            if status in (_wire.CUT_PAYLOAD, _wire.BAD_DATA):  # a record by itself, which may hold others
                payload = here = stop + HEADER_BYTES
                held = payload + self._length(stop)
        return None

    def _first_beyond(self, holder: int, at: int, stop: int) -> int:
        """Where the first of the records in [at, stop) starts that ends beyond `holder`; `stop` if none does."""
        while at < stop:
            end = at + FRAME_BYTES + self._length(at)
            if end > holder:
                break
            at = end
        return at

    def _lost_header(self, at: int, here: int | None = None) -> Fault:
        """Nothing is known about the record at `at`: look for its end, or for the next one's start."""
        window, here = self._window, at + 1 if here is None else here
        crc, summed = 0, at + HEADER_BYTES
        near = True  # whether the bytes from `at` on are still in the window
        while True:
            if here - at > self._span:
                near = False
                window.forget(here)
            start = self._next_header(here, here + self._span)
            if start is None and (not window.ended or here + self._span < window.end):
                here += self._span
                continue
            footer = (window.end if start is None else start) - _FOOTER_BYTES
            closed = False
            if near and footer >= summed and (start is not None or window.whole):
                crc, summed = _wire.crc32c(window.view(summed, footer), crc), footer
                closed = self._confirmed(footer, footer, crc)
            if start is None:
                return Fault("header", window.end, closed)
            stop, status = self._follow(start, start + self._look, patient=True)
            if status == _wire.OK and stop > start:
                return Fault("header", start, closed)
            if stop == start:
                if closed:
                    return Fault("header", start, recovered=True)
                here = self._behind(start)
                continue
            end = self._closing(at, summed, stop, crc) if near else None
            if end is not None:
                return Fault("header", end + _FOOTER_BYTES, recovered=True)
            size = _content(window.view(at + HEADER_BYTES if near else start, start)) or 0
            if size < stop - start and not self._nested(stop, status):
                return Fault("header", start, closed)
            here = stop

    def _behind(self, at: int) -> int:
        """Where to look on after a sound header whose data is not confirmed."""
        end = at + FRAME_BYTES + self._length(at)
        if not self._obtain(at, end):
            return at + HEADER_BYTES
        inside = self._inside(at, end)
        return end if inside is None else inside

    def _closing(self, at: int, summed: int, start: int, crc: int) -> int | None:
        """Where the payload of the record at `at` ends, from `start` on, as far as there is time to look."""
        window = self._window
        limit = min(start + min(_REST_BYTES, self._may_spend(at) // 2), at + self._span)
        crc = _wire.crc32c(window.view(summed, start), crc)
        here = start
        while here < limit and window.reach(here + FRAME_BYTES):
            end = min(window.end, limit + FRAME_BYTES)
            found, crc = _wire.closing(window.view(here, end), 0, end - here, crc)
            here += found
            if here + FRAME_BYTES <= end:
                return here
        self._spent += max(0, here - start)
        footer = window.end - _FOOTER_BYTES
        if here < limit and window.whole and footer >= here and self._confirmed(here, footer, crc):
            return footer
        return None


# ---- small parts ------------------------------------------------------------


@cache
def _flips() -> dict[int, int]:
    """What one wrong bit of a length does to its checksum: the bit, by the difference."""
    zeros = _wire.crc32c(bytes(8))
    return {_wire.crc32c(struct.pack("<Q", 1 << bit)) ^ zeros: 1 << bit for bit in range(64)}


def _unmask(masked: int) -> int:
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def _content(data: memoryview, room: int = 1 << 64) -> int | None:
    """Read bytes as protobuf fields, entering those that reach beyond them, but not beyond `room` bytes.

    0 if a field ends where the bytes end; the length of the field whose content starts there;
    None for anything else.
    """
    at = 0
    for _ in range(_MOST_FIELDS):
        if at >= len(data):
            return 0 if at == len(data) else None
        tag, at = _varint(data, at)
        wire, size = tag & 7, 0
        if at < 0 or not 0 < tag >> 3 < 1 << 29:
            return None
        if wire == 2:
            size, at = _varint(data, at)
        elif wire == 0:
            _, at = _varint(data, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            return None
        if at < 0 or at + size > room:
            return None
        if at + size <= len(data):
            at += size
        elif at == len(data):
            return size
    return None


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """(value, next position); the position is -1 when there is no varint."""
    value = 0
    for shift, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    return 0, -1
