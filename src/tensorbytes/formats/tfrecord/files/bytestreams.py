"""Where plain bytes are read from: a file as it is, or what a decoder makes of it; in sequence, or at any place."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from tensorbytes._wire.portions import Stopped
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, CorruptError, Hint, Limits, UsageError
from tensorbytes.io import storage, workers
from tensorbytes.io.streams import detection
from tensorbytes.io.streams.decoders import Decoder, Feed, SeekableDecoder, open_decoder
from tensorbytes.io.streams.detection import HEAD_BYTES, check_name
from tensorbytes.tfrecord import HEADER_BYTES, is_record_header
from tensorbytes.typing import Buffer, bytes_view

_READ_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
# Pieces below this size are joined, as long as that needs no further reading.
_SMALL_PIECE = 1 << 19
_DEPTH = 4
# A thread that is stopped ends within milliseconds, unless it waits for bytes: that can't be broken off.
_PATIENCE_SECONDS = 1.0


class _LocalFile:
    """A regular file, read from a place of its own: the system's is one for a process and all it forks off."""

    def __init__(self, file: io.FileIO) -> None:
        self._file, self._at = file, 0
        self.close = file.close

    def readinto(self, room: memoryview) -> int:
        count = os.preadv(self._file.fileno(), [room], self._at)
        self._at += count
        return count

    def read(self, size: int) -> bytes:
        piece = os.pread(self._file.fileno(), size, self._at)
        self._at += len(piece)
        return piece

    def seek(self, offset: int) -> None:
        self._at = offset


# Their own methods fill memory, and return when some bytes are there. A subclass may change only read().
_FILLERS: dict[Any, tuple[str, str]] = {
    _LocalFile: ("readinto", "read"),
    io.FileIO: ("readinto", "read"),
    io.BytesIO: ("readinto", "read"),
    io.BufferedReader: ("readinto1", "read1"),
    io.BufferedRandom: ("readinto1", "read1"),
}


class ByteStream:
    """The plain bytes of a target, from the first to the last. Use it in a with block, or close it."""

    path: str
    compression: str
    size: int | None = None  # plain bytes of the whole file, where known without reading
    total: int | None = None  # compressed bytes to be read, where known
    consumed: int = 0  # compressed bytes read so far
    unfinished: bool = False  # at its end: whether the compressed stream was flushed there, and lacks its own end
    _rest: memoryview = memoryview(b"")
    _counted: int = 0

    def count_into(self, budget: Budget) -> None:
        """Let a budget know of the bytes of the file: all of them, or those read so far where the rest is unknown."""
        known = self.consumed if self.total is None else self.total
        budget.add_input(known - self._counted)
        self._counted = known

    def readinto(self, view: memoryview) -> int:
        """Fill memory with the next bytes; gives how many: 0 at the end, otherwise any number up to all."""
        if not len(self._rest):
            self._rest = bytes_view(self._read_piece())
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def next_piece(self) -> Buffer:
        """The next bytes, as many as come at a time; none at the end."""
        if len(self._rest):
            piece, self._rest = self._rest, memoryview(b"")
            return piece
        return self._read_piece()

    def _read_piece(self) -> Buffer:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


# ---- a file as it is ---------------------------------------------------------


class FileStream(ByteStream):
    """A file, or a range of its bytes, read straight into the memory that asks for them."""

    compression = "none"

    def __init__(self, file: Any, path: str, *, owned: bool, base: int | None) -> None:
        self.path = path
        self.seekable = base is not None
        self._file, self._owned = file, owned
        self.base = base or 0  # the file's position at offset 0
        self._start = 0
        self._end: int | None = None
        fill, read = _FILLERS.get(type(file), ("", "read"))
        self._fill: Callable[[memoryview], int | None] | None = getattr(file, fill) if fill else None
        self._some: Callable[[int], Any] = getattr(file, read)

    def limit(self, start: int, end: int | None) -> None:
        """Read only the bytes from start to end."""
        if self.size is not None:
            self.total = max(self.size if end is None else end, start) - start
        self._start, self._end = start, end
        self.seek(0)

    def seek(self, offset: int) -> None:
        self._file.seek(self.base + self._start + offset)
        self._rest, self.consumed = memoryview(b""), offset

    def peek(self, least: int) -> bytes:
        """The first bytes, at least `least` unless the file ends first; they are still to be read."""
        while len(self._rest) < least:
            piece = self._read(max(64, least) - len(self._rest))
            if not len(piece):
                break
            self._rest = bytes_view(bytes(self._rest) + piece)
        return bytes(self._rest)

    def readinto(self, view: memoryview) -> int:
        if self._fill is None or len(self._rest):
            count = super().readinto(view)
        else:
            room = self._within(len(view))
            filled = self._fill(view if room == len(view) else view[:room])
            count = self._checked(filled, room)
        self.consumed += count
        return count

    def next_piece(self) -> Buffer:
        piece = super().next_piece()
        self.consumed += len(piece)
        return piece

    def _read_piece(self) -> Buffer:
        return self._read(_READ_BYTES)

    def _within(self, count: int) -> int:
        return count if self._end is None else min(count, self._end - self._start - self.consumed)

    def _read(self, count: int) -> bytes:
        room = self._within(count)
        piece = self._some(room)
        if isinstance(piece, str):
            raise UsageError(
                "it gives text", path=self.path, hints=[Hint(purpose="open the file in binary mode, with 'rb'")]
            )
        if self._checked(None if piece is None else len(piece), room) > room:
            raise UsageError(f"it gave {len(piece)} bytes when asked for {room}", path=self.path)
        return bytes(piece)

    def _checked(self, count: int | None, room: int) -> int:
        if count is None:
            raise UsageError("no bytes are ready: a file object must wait for them, not return None", path=self.path)
        if not count and room and self._end is not None:
            raise CorruptError(
                f"the file ends before the range of bytes {self._start} to {self._end} does: has it become shorter?",
                at=self._start + self.consumed,
                path=self.path,
            )
        return count

    def close(self) -> None:
        self._rest = memoryview(b"")
        if self._owned:
            self._file.close()


def open_plain(target: Any) -> FileStream:
    """A target's bytes as they are. File objects are read from where they stand, and never closed."""
    storage.check_target(target, "read")
    path = storage.describe(target)
    if not storage.is_path(target):
        stream = FileStream(target, path, owned=False, base=_position(target))
        if stream.seekable and type(target) in _FILLERS:
            stream.size = stream.total = max(target.seek(0, os.SEEK_END) - target.seek(stream.base), 0)
        return stream
    file: Any
    if storage.is_url(target):
        file = storage.open_url(target, "rb")
        stream = FileStream(file, path, owned=True, base=_position(file))
        size = getattr(file, "size", None)
        stream.size = stream.total = size if isinstance(size, int) else None
        return stream
    file = open(path, "rb", buffering=0)  # noqa: SIM115 - the stream closes it
    status = os.fstat(file.fileno())
    regular = stat.S_ISREG(status.st_mode)
    if regular and hasattr(os, "preadv"):
        file = _LocalFile(file)
    stream = FileStream(file, path, owned=True, base=0 if regular else None)
    stream.size = stream.total = status.st_size if regular else None
    return stream


def _position(file: Any) -> int | None:
    """Where a file object stands, if it can be moved."""
    try:
        return int(file.tell()) if file.seekable() else None
    except (AttributeError, OSError):
        return None


# ---- compressed files --------------------------------------------------------


class DecodedStream(ByteStream):
    """What a decoder makes of a compressed file."""

    def __init__(self, raw: FileStream, compression: str, feed: Feed, decoder: Decoder) -> None:
        self.path, self.total, self.compression = raw.path, raw.total, compression
        self._raw, self._feed, self._decoder = raw, feed, decoder
        self._failure: Exception | None = None

    def _read_piece(self) -> Buffer:
        if self._failure is not None:
            raise self._failure
        parts: list[Buffer] = []
        size = 0
        try:
            while piece := self._decoder.next(_PIECE_BYTES - size):
                parts.append(piece)
                size += len(piece)
                if size >= _SMALL_PIECE or not self._feed.buffered:
                    break
        except Exception as failure:  # raised when what came before it was handed out
            self._failure = failure
            if not parts:
                raise
        self.consumed, self.unfinished = self._feed.offset, self._decoder.unfinished
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        self._rest = memoryview(b"")
        self._raw.close()


def _read_pieces(stream: ByteStream) -> Iterator[tuple[Buffer | BaseException, int, bool]]:
    """Each piece, with how far the file was read, and if it is unfinished; the last is empty, or what went wrong."""
    piece: Buffer | BaseException = b" "
    while not isinstance(piece, BaseException) and len(piece):
        try:
            piece = stream.next_piece()
        except BaseException as error:
            piece = error
        yield piece, stream.consumed, stream.unfinished


class PrefetchedStream(ByteStream):
    """A stream that is read ahead by a thread, up to `depth` pieces of about a mebibyte."""

    def __init__(self, stream: ByteStream, depth: int = _DEPTH) -> None:
        self.path, self.compression = stream.path, stream.compression
        self.size, self.total = stream.size, stream.total
        self._last: Buffer | BaseException | None = None  # the end, or what went wrong
        # The thread closes the stream: it may stand in the middle of reading it.
        self._crew = workers.Crew(1, f"{workers.NAME}: {self.path}", _PATIENCE_SECONDS, stream.close)
        self._pieces = workers.Ahead(_read_pieces(stream), self._crew, depth)

    def _read_piece(self) -> Buffer:
        if self._last is None:
            if self._crew.forked:
                raise UsageError(
                    "it was opened before a fork",
                    path=self.path,
                    hints=[Hint(purpose="open it in the process that reads it")],
                )
            if self._crew.closed:
                raise UsageError("it is closed", path=self.path)
            try:
                piece, self.consumed, self.unfinished = next(self._pieces)
            except Stopped:  # by another thread, meanwhile
                raise UsageError("it is closed", path=self.path) from None
            if isinstance(piece, BaseException) or not len(piece):
                self._last = piece
            else:
                return piece
        if isinstance(self._last, BaseException):
            raise self._last
        return b""

    def close(self) -> None:
        """Stop the thread, which closes the stream it reads."""
        self._rest = memoryview(b"")
        self._crew.close()


# ---- any target ----------------------------------------------------------------


def detect(head: bytes) -> str:
    """The compression of a file of records that starts with these bytes: 64 of them, or all it has; 12 do for most."""
    return detection.detect(head, is_record_header)


def likely_compression(head: bytes) -> str:
    """The same of a file that may be of any kind."""
    # The first byte tells most other files: no snappy file starts with a block of 16 MiB or more.
    return detect(head) if head[:1] in (b"\0", b"\x1f", b"\x78") and not is_record_header(head) else "none"


def holds_nothing(head: bytes) -> bool:
    """Whether a file that starts like this has nothing in it, perhaps compressed."""
    return not head or (
        head[:1] in (b"\x1f", b"\x78") and detect(head) != "none" and not detection.decode_start(head, detect(head))
    )


def open_stream(
    target: Any,
    compression: str | None = "auto",
    start: int = 0,
    end: int | None = None,
    *,
    prefetch: bool = True,
    limits: Limits = LIMITS,
) -> ByteStream:
    """The plain bytes of a path, a URL or a file object.

    start, end: read only these bytes of an uncompressed file. prefetch: compressed files are
    inflated ahead, in a thread. A file object is read from where it stands, and left open.
    """
    name = check_name(compression)
    whole = start == 0 and end is None
    if not whole and not 0 <= start <= (start if end is None else end):
        raise UsageError(expected="a range of bytes", got=f"{start} to {end}")
    raw = open_plain(target)
    try:
        if not whole and not raw.seekable:
            raise UsageError("a range of bytes needs a file that can be read at any place", path=raw.path)
        if name == "auto":
            name = _detect(raw)
        if not whole and name != "none":
            raise UsageError(
                f"a range of bytes can be read of uncompressed files only, and this one is {name}", path=raw.path
            )
        if not whole:
            raw.limit(start, end)
        if name == "none":
            return raw
        feed = Feed(raw)
        stream = DecodedStream(raw, name, feed, open_decoder(name, feed, limits))
        return PrefetchedStream(stream) if prefetch else stream
    except BaseException:
        raw.close()
        raise


def _detect(raw: FileStream) -> str:
    head = raw.peek(HEADER_BYTES)
    name = detect(head)
    if name != "none" or is_record_header(head):
        return name
    return detect(raw.peek(HEAD_BYTES))


class SeekableStream(SeekableDecoder):
    """A compressed file that can be read at any place, by several threads."""

    def __init__(self, target: Any, compression: str = "auto", *, limits: Limits = LIMITS) -> None:
        self._raw = open_plain(target)
        try:
            if not self._raw.seekable:
                raise UsageError("it can't be read at any place: it has no seek()", path=self._raw.path)
            name = check_name(compression)
            if name == "auto":
                name = detect(self._raw.peek(HEAD_BYTES))
            if name == "none":
                raise UsageError("it is not compressed", path=self._raw.path)
            self._raw.seek(0)
            super().__init__(self._raw, name, limits)
        except BaseException:
            self._raw.close()
            raise

    def close(self) -> None:
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
