"""Plain bytes out of gzip, zlib and snappy, in pieces of bounded size.

    gzip      members, one after another; zero bytes may pad the end
    zlib      one stream
    snappy    blocks: u32be length of what follows, then a raw snappy block

A decoder hands out everything that can be decoded before it reports damage, and reports
it again whenever it is asked for more: a damaged stream never looks like a short one.

A deflate stream that was flushed, and lacks its end because its writer died or still writes, is not
damage: it ends there, and is said to be `unfinished`. It is told from one that was cut by the empty block
that a flush leaves at the end. What a file lost that was cut just there is for its reader to see: the
last record is not whole, or nothing tells.
"""

from __future__ import annotations

import bisect
import threading
from typing import Any, Protocol, TypeAlias

from tensorbytes.errors import LIMITS, MORE_BYTES, CorruptError, LimitError, Limits, UsageError
from tensorbytes.io.streams import engines, snappy
from tensorbytes.io.streams.engines import DamagedError
from tensorbytes.typing import Buffer, bytes_view

# Input given to a decompressor at a time. A member starts with little: what it leaves over is
# copied, and a file may hold very many very small members.
_FIRST_INPUT = 1 << 13
_MOST_INPUT = 1 << 17
_GZIP_MAGIC = b"\x1f\x8b\x08"
# An empty block of stored bytes, without its first bits: what a sync flush leaves at the end. Then a block of
# some bytes.
_SYNC_MARK = b"\0\0\xff\xff"
_PROBE = b"tb?"
_PROBE_BLOCK = b"\0\x03\0\xfc\xff" + _PROBE
# A partial flush, such as TensorFlow's, leaves an empty block of ten bits at the end: 010, and zeros of which up to
# seven are held back.
_PARTIAL_BITS, _MOST_HELD = 10, 7
# Of random access: how far the places are apart where decoding can be taken up, and how much is decoded at a time.
_SPACING = 8 << 20
_PIECE_BYTES = 1 << 20

# Where decoding can be taken up again: offset in the compressed file, and a decompressor's state there.
Checkpoint: TypeAlias = "tuple[int, Any]"


class Raw(Protocol):
    """Where compressed bytes come from: see formats/tfrecord/files/bytestreams.py."""

    path: str
    seekable: bool
    total: int | None

    def next_piece(self) -> Buffer: ...

    def seek(self, offset: int, /) -> None: ...


class Decoder(Protocol):
    """Plain bytes from compressed ones."""

    unfinished: bool  # whether the stream ended after a flush, without its end

    def next(self, limit: int, /) -> Buffer:
        """Some bytes, at most `limit`; none at the end of the stream."""
        ...

    def checkpoint(self) -> Checkpoint | None:
        """Where decoding can be taken up again, if that is possible at this point."""
        ...

    def resume(self, checkpoint: Checkpoint, /) -> None: ...


class Feed:
    """Compressed bytes that can be looked at before they are taken."""

    def __init__(self, raw: Raw) -> None:
        self.path, self.seekable, self.total = raw.path, raw.seekable, raw.total
        self.offset = 0  # of the next byte
        self._raw = raw
        self._data = memoryview(b"")

    @property
    def buffered(self) -> int:
        return len(self._data)

    def peek(self, least: int = 1) -> memoryview:
        """The next bytes: at least this many, unless the file ends first."""
        if len(self._data) < least:
            parts, size = [self._data], len(self._data)
            while size < least and (piece := bytes_view(self._raw.next_piece())):
                parts.append(piece)
                size += len(piece)
            self._data = memoryview(b"".join(parts)) if parts[0] or len(parts) > 2 else parts[-1]
        return self._data

    def skip(self, count: int) -> None:
        self._data = self._data[count:]
        self.offset += count

    def seek(self, offset: int) -> None:
        self._raw.seek(offset)
        self._data, self.offset = memoryview(b""), offset


def open_decoder(name: str, feed: Feed, limits: Limits, *, seekable: bool = False) -> Decoder:
    """A decoder for a compression; a seekable one gives checkpoints."""
    return Unsnapper(feed, limits) if name == "snappy" else Inflater(feed, name, seekable=seekable)


# ---- gzip and zlib -----------------------------------------------------------


class Inflater:
    """gzip and zlib.

    zlib's decompressor is copied before each call, and damage is closed in on, from the copy. isal's
    can't be copied: where it fails, zlib decodes the member a second time, and has the last word.
    (Where isal takes a code table that zlib refuses, the checksum tells if it may.)
    """

    def __init__(self, feed: Feed, name: str, *, seekable: bool) -> None:
        self._feed, self._name = feed, name
        self._quick = engines.find_isal() is not None and name == "gzip" and feed.seekable and not seekable
        self._most_input = _FIRST_INPUT if seekable else _MOST_INPUT  # a copy holds the input left over
        self._object: Any = None  # none: before a member
        self._copies = True
        self._input = _FIRST_INPUT
        self._member = 0  # where this member starts
        self._given = 0  # plain bytes of it handed out so far
        self._again = 0  # plain bytes of it to be decoded a second time
        self._past: list[tuple[Any, bytes]] = []  # two states on the way to this one, and the input after each
        self._failure: CorruptError | None = None
        self.unfinished = False

    def next(self, limit: int) -> bytes:
        while True:
            if self._failure is not None:
                raise self._failure
            if self.unfinished:
                return b""
            if self._object is None and not self._begin():
                if self._failure is None:
                    return b""
                continue
            piece = self._inflate(limit)
            if self._again:
                repeated = min(self._again, len(piece))
                self._again -= repeated
                piece = piece[repeated:]
            if piece:
                self._given += len(piece)
                return piece

    def checkpoint(self) -> Checkpoint | None:
        return self._feed.offset, None if self._object is None else self._object.copy()

    def resume(self, checkpoint: Checkpoint) -> None:
        offset, state = checkpoint
        self._feed.seek(offset)
        self._object = None if state is None else state.copy()
        self._past, self._failure, self.unfinished = [], None, False

    def _fail(self, what: str, at: int) -> None:
        self._failure = CorruptError(what, at=at, path=self._feed.path)

    def _begin(self) -> bool:
        """Get ready for the next member; false when there is none."""
        feed, head = self._feed, bytes(self._feed.peek(4)[:4])
        if not head or (feed.offset and not self._another(head)):
            return False
        if self._name == "gzip":
            if not head.startswith(_GZIP_MAGIC[: len(head)]):
                self._fail(f"not gzip data: expected {_GZIP_MAGIC.hex(' ')}, got {head[:3].hex(' ')}", feed.offset)
                return False
            if len(head) == 4 and head[3] & 0xE0:  # isal does not mind
                self._fail(f"gzip flags that have no meaning: {head[3]:#04x}", feed.offset + 3)
                return False
        self._member, self._given, self._input = feed.offset, 0, _FIRST_INPUT
        self._open(quick=self._quick)
        return True

    def _another(self, head: bytes) -> bool:
        """Whether the bytes after a member, or after the stream, are a further member."""
        what = f"further bytes after the end of the {self._name} stream"
        if self._name == "gzip":
            if head.startswith(_GZIP_MAGIC[: len(head)]):
                return True
            self._skip_padding()
            if not len(self._feed.peek()):
                return False
            what += " that are not a gzip member"
        self._fail(what, self._feed.offset)
        return False

    def _skip_padding(self) -> None:
        while len(rest := self._feed.peek()):
            padding = len(rest) - len(bytes(rest).lstrip(b"\0"))
            self._feed.skip(padding)
            if padding < len(rest):
                break

    def _open(self, *, quick: bool) -> None:
        self._past = []
        self._object = engines.open_inflater(self._name, quick=quick)
        self._copies = not quick

    def _inflate(self, limit: int) -> bytes:
        """Some bytes of this member; perhaps none, where the input at hand makes none."""
        chunk = self._feed.peek()[: self._input]
        before = self._object.copy() if self._copies else None
        try:
            piece: bytes = self._object.decompress(chunk, limit)
        except engines.inflate_errors() as error:
            return self._start_over() if before is None else self._until_damage(before, chunk, error)
        if self._object.eof:
            self._feed.skip(len(chunk) - len(self._object.unused_data))
            self._object = None
            return piece
        taken = chunk[: len(chunk) - len(self._object.unconsumed_tail)]
        if before is not None and len(taken):
            self._remember(before, bytes(taken))
        self._feed.skip(len(taken))
        self._input = min(2 * self._input, self._most_input)
        if not piece and not len(chunk):
            if before is None:
                return self._start_over()
            self.unfinished = self._given > 0 and bool(self._past) and self._is_flushed()
            if not self.unfinished:
                self._fail(f"the file ends inside its {self._name} stream", self._feed.offset)
        return piece

    def _remember(self, state: Any, taken: bytes) -> None:
        """Keep as much of the input as tells at the end whether it was flushed there."""
        if self._past and len(self._past[-1][1]) < len(_SYNC_MARK):
            self._past[-1] = self._past[-1][0], self._past[-1][1] + taken
        else:
            self._past = [*self._past[-1:], (state, taken)]

    def _is_flushed(self) -> bool:
        return _ends_flushed(self._past[0][0], b"".join(given for _, given in self._past))

    def _start_over(self) -> bytes:
        """Decode this member once more, now with zlib, and pass over what was handed out."""
        self._feed.seek(self._member)
        self._again = self._given
        self._open(quick=False)
        return b""

    def _until_damage(self, state: Any, chunk: memoryview, error: Exception) -> bytes:
        """What a chunk holds before the byte at which decoding fails. `state` is that before the chunk."""
        parts: list[bytes] = []
        state = _drained(state, b"", parts)  # which may hold codes for which there was no room
        good, bad = 0, len(chunk)
        while bad - good > 1:
            middle = (good + bad) // 2
            trial = state.copy()
            try:
                parts.append(trial.decompress(chunk[good:middle]))
                state, good = trial, middle
            except engines.inflate_errors():
                bad = middle
        _drained(state, chunk[good:bad], parts)  # one byte, which may hold the ends of several sound codes
        reason = str(error).rpartition(": ")[2]
        self._fail(f"damaged {self._name} data: {reason}", self._feed.offset + good)
        return b"".join(parts)


def _ends_flushed(state: Any, given: bytes) -> bool:
    """Whether input that a stream ends with, after a state, ends as a flush does: zlib would go on with a new block."""
    end = max(len(given) - 2, 0)
    state, last = _after(state, given[:end]), int.from_bytes(given[end:], "little")
    made = state.copy().decompress(given[end:])
    if given.endswith(_SYNC_MARK) and _goes_on(state, given[end:] + b"\0" + _SYNC_MARK, made):
        return True
    for held in range(_MOST_HELD + 1):
        start = 16 - _PARTIAL_BITS + held  # of the empty block, in the last two bytes
        if last >> start == 0b010:
            # A block of stored bytes in the place of it: three zeros, and anything up to the next byte.
            other = last & ((1 << start) - 1) | (0xFFFF << start + 3) & 0xFFFF
            return _goes_on(state, other.to_bytes(2, "little") + _SYNC_MARK, made)
    return False


def _goes_on(state: Any, data: bytes, made: bytes) -> bool:
    """Whether a block may follow some bytes, which give what was made of them before."""
    try:
        return bool(state.copy().decompress(data + _PROBE_BLOCK, _PIECE_BYTES) == made + _PROBE)
    except engines.inflate_errors():
        return False


def _after(state: Any, data: bytes) -> Any:
    """The state after some bytes that it can decode."""
    state = state.copy()
    while state.decompress(data, _PIECE_BYTES) or state.unconsumed_tail:
        data = state.unconsumed_tail
    return state


def _drained(state: Any, rest: Buffer, parts: list[bytes]) -> Any:
    """The state after the last sound code of some bytes; what the codes give is added to `parts`."""
    while True:
        trial = state.copy()
        try:
            part = trial.decompress(rest, 1)
        except engines.inflate_errors():
            return state
        if not part:
            return state
        parts.append(part)
        state, rest = trial, trial.unconsumed_tail


# ---- snappy ------------------------------------------------------------------

_LENGTH_BYTES = snappy.LENGTH_BYTES


class Unsnapper:
    """TensorFlow's stream of snappy blocks.

    A block is decoded whole, so it takes memory for its own size; that is believed only as far
    as the bytes of the block can make it up, and up to limits.max_bytes.
    """

    def __init__(self, feed: Feed, limits: Limits) -> None:
        self._feed, self._limits = feed, limits
        self.unfinished = False  # each block has its own end
        self._rest = memoryview(b"")  # of the block that was decoded last
        self._failure: Exception | None = None

    def next(self, limit: int) -> memoryview:
        while not len(self._rest):
            if self._failure is not None:
                raise self._failure
            if not self._block():
                break
        piece, self._rest = self._rest[:limit], self._rest[limit:]
        return piece

    def checkpoint(self) -> Checkpoint | None:
        return None if len(self._rest) else (self._feed.offset, None)

    def resume(self, checkpoint: Checkpoint) -> None:
        self._feed.seek(checkpoint[0])
        self._rest, self._failure = memoryview(b""), None

    def _fail(self, what: str, at: int) -> None:
        self._failure = CorruptError(what, at=at, path=self._feed.path)

    def _block(self) -> bool:
        """Decode the next block; false at the end of the file."""
        feed = self._feed
        head = feed.peek(_LENGTH_BYTES + snappy.SIZE_BYTES)
        if not len(head):
            return False
        length = int.from_bytes(head[:_LENGTH_BYTES], "big")
        plain, start = snappy.read_size(bytes(head[_LENGTH_BYTES : _LENGTH_BYTES + length]))
        if not start:
            self._without_size(length)
        elif not snappy.can_hold(length, plain):
            self._fail(f"impossible snappy block: {length} bytes that should hold {plain}", feed.offset)
            self._until_damage(min(length, snappy.SIZE_BYTES + snappy.MOST_INPUT * plain), plain, start)
        elif max(plain, length) > self._limits.max_bytes:
            self._too_large(length, plain)
        else:
            self._decode(length, plain, start)
        return True

    def _decode(self, length: int, plain: int, start: int) -> None:
        feed = self._feed
        block = feed.peek(_LENGTH_BYTES + length)[_LENGTH_BYTES : _LENGTH_BYTES + length]
        if len(block) == length:
            try:
                self._rest = memoryview(engines.decompress_block(block))
                feed.skip(_LENGTH_BYTES + length)
                return
            except DamagedError as error:
                self._fail(f"damaged snappy block: {error}", feed.offset)
        else:
            self._fail("the file ends inside a snappy block", feed.offset + feed.buffered)
        self._until_damage(length, plain, start)

    def _until_damage(self, length: int, plain: int, start: int) -> None:
        """Hand out what the elements in this many bytes give, up to the first that gives nothing."""
        if length <= self._limits.max_bytes:
            block = self._feed.peek(_LENGTH_BYTES + length)
            elements = bytes(block[_LENGTH_BYTES + start : _LENGTH_BYTES + length])
            self._rest = memoryview(snappy.decode_start(elements, plain))

    def _without_size(self, length: int) -> None:
        feed = self._feed
        if feed.buffered < _LENGTH_BYTES + min(length, snappy.SIZE_BYTES):
            self._fail("the file ends at the start of a snappy block", feed.offset + feed.buffered)
        else:
            self._fail(f"impossible snappy block: {length} bytes without a size", feed.offset)

    def _too_large(self, length: int, plain: int) -> None:
        feed = self._feed
        if feed.total is not None and feed.offset + _LENGTH_BYTES + length > feed.total:
            self._fail("the file ends inside a snappy block", feed.total)
        else:
            self._failure = LimitError(
                f"a snappy block of {max(plain, length)} bytes, over the limit of {self._limits.max_bytes}",
                path=feed.path,
                at=feed.offset,
                hints=[MORE_BYTES],
            )


# ---- at any place --------------------------------------------------------------


class SeekableDecoder:
    """The plain bytes of a gzip, zlib or snappy file, at any place.

    The first time a place is reached, everything before it is inflated, and the decoder's
    state is kept every 8 MiB of plain bytes: about 40 KiB each, a 200th of the file. From
    then on no more than 8 MiB are inflated to get to a place, and none to go on from the
    last one. (Of snappy, whose blocks are decoded whole, up to the size of a block more.)
    """

    def __init__(self, raw: Raw, name: str, limits: Limits = LIMITS) -> None:
        self._decoder = open_decoder(name, Feed(raw), limits, seekable=True)
        self._plain = 0  # where the decoder stands
        self._places = [0]  # plain offsets of the checkpoints, rising
        self._checkpoints: list[Checkpoint] = [(0, None)]
        self._lock = threading.Lock()

    def read_at(self, start: int, size: int) -> bytearray:
        """`size` plain bytes from `start` on, fewer only where the stream ends before that."""
        if start < 0 or size < 0:
            raise UsageError(expected="a start and a size of 0 or more", got=f"{start} and {size}")
        with self._lock:
            self._go_near(start)
            end, out = start + size, bytearray()
            while self._plain < end:
                at = self._plain
                piece = self._next(end - at)
                if not len(piece):
                    break
                if self._plain > start:
                    out += piece[max(start - at, 0) :]
            return out

    def _go_near(self, start: int) -> None:
        """Take up decoding at the last checkpoint before a place, unless the decoder stands closer."""
        index = bisect.bisect_right(self._places, start) - 1
        if not self._places[index] <= self._plain <= start:
            self._decoder.resume(self._checkpoints[index])
            self._plain = self._places[index]

    def _next(self, wanted: int) -> Any:
        """Some of the next bytes. Pieces end where checkpoints go."""
        due = self._places[-1] + _SPACING
        if self._plain >= due and (checkpoint := self._decoder.checkpoint()):
            self._places.append(self._plain)
            self._checkpoints.append(checkpoint)
            due = self._plain + _SPACING
        limit = min(wanted, _PIECE_BYTES)
        if due > self._plain:
            limit = min(limit, due - self._plain)
        piece = self._decoder.next(limit)
        self._plain += len(piece)
        return piece
