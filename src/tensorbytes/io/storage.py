"""Where bytes live: a path, a URL, a file object or a buffer; reading and writing. io/publish.py replaces files."""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import IO, Any, TypeAlias

import numpy as np

from tensorbytes._wire import prefault, reserve
from tensorbytes._wire.portions import portions
from tensorbytes.errors import CorruptError, Hint, LimitError, MissingDependencyError, TensorbytesError, UsageError
from tensorbytes.io import workers
from tensorbytes.io.holding import Hold
from tensorbytes.io.publish import is_special, replacing
from tensorbytes.typing import Buffer, bytes_view, pinned

Target: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
# Pieces below this size are joined before they are written.
_SMALL = 1 << 16
_READ_BYTES = 1 << 20
# This much is written before the disk is first told to take it.
_FLUSH_BYTES = 1 << 25
# This much waits for it at most.
_MOST_WAITING = 1 << 28
# Files from this size on are read by two threads.
_LARGE_READ = 1 << 24
# Larger writes make the system look for large pages to cache them in, which may take far longer
# than many small ones (spec/decisions/0004).
_WRITE_BYTES = 1 << 20
# Files from this size on have their blocks set aside first.
_RESERVED_BYTES = 1 << 24
# As many as any system takes at once.
_MOST_PARTS = 16


_watcher: ContextVar[Callable[[int], None] | None] = ContextVar("watcher", default=None)


def is_path(target: Any) -> bool:
    return isinstance(target, str | os.PathLike)


def is_url(target: Any) -> bool:
    return isinstance(target, str) and "://" in target


def is_local(target: Any) -> bool:
    return is_path(target) and not is_url(target)


def describe(target: Any) -> str:
    """The name of a target in messages."""
    name = target if is_path(target) else getattr(target, "name", None)
    if name and isinstance(name, str | bytes | os.PathLike):  # a file without a path has a number instead
        return os.fsdecode(name)
    return f"<{type(target).__name__}>"


def check_target(target: Any, verb: str) -> None:
    """Swapped arguments are the likeliest mistake: say so."""
    if not is_path(target) and not hasattr(target, verb):
        raise UsageError(
            expected=f"a path or a file object with {verb}()",
            got=type(target).__qualname__,
            hints=[Hint(purpose="the object comes first, the path second")],
        )
    if isinstance(target, io.TextIOBase) or isinstance(getattr(target, "file", None), io.TextIOBase):
        raise UsageError("it was opened as text", path=describe(target), hints=[Hint(purpose="open it in binary mode")])


def open_url(url: str, mode: str) -> Any:
    try:
        import fsspec
    except ModuleNotFoundError:
        raise MissingDependencyError(f"the URL {url!r}", "cloud") from None
    try:
        return fsspec.open(url, mode).open()
    except FileNotFoundError as error:
        # fsspec says so of a server that can't be reached, too.
        if isinstance(error.__cause__, OSError):
            raise ConnectionError(f"{url}: the server can't be reached: {error.__cause__}") from error
        raise
    except ImportError as error:  # known to fsspec, but the package that speaks it is not installed
        raise UsageError(str(error), path=url) from None
    except ValueError as error:
        if "not known" not in str(error):
            raise
        raise UsageError(f"fsspec knows no {url.partition('://')[0]}:// URLs", path=url) from None


# ---- writing ----------------------------------------------------------------


def gather(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    """The same bytes in fewer pieces: small ones are joined, large ones pass as they are."""
    small: list[memoryview] = []
    size = 0
    for piece in pieces:
        view = bytes_view(piece)
        if len(view) >= _SMALL:
            if small:
                yield b"".join(small)
                small, size = [], 0
            yield view
            continue
        small.append(view)
        size += len(view)
        if size >= _SMALL:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)


def write_all(file: Any, piece: Buffer) -> None:
    """Write every byte; a raw file may take fewer than it was given."""
    view = bytes_view(piece)
    while view:
        written = file.write(view)
        if written is None and isinstance(file, io.RawIOBase):  # a pipe that does not wait, and is full
            raise BlockingIOError(errno.EAGAIN, "it takes no more now, and does not wait", describe(file))
        if written is None or written >= len(view):
            return
        view = view[written:]


def write_pieces(file: Any, pieces: Iterable[Buffer]) -> None:
    for parts in _portions(pieces):
        _write_parts(file, parts)


def _portions(pieces: Iterable[Buffer]) -> Iterator[list[memoryview]]:
    """The same bytes as they are handed to the system: parts that together are neither little nor much, and end where
    pages of the file do, so that few pages are written by two calls."""
    parts: list[memoryview] = []
    room = _WRITE_BYTES
    for piece in gather(pieces):
        view = bytes_view(piece)
        while view:
            parts.append(view[:room])
            view = view[room:]
            room -= len(parts[-1])
            if not room or len(parts) == _MOST_PARTS:
                yield parts
                tell(sum(map(len, parts)))
                parts, room = [], room or _WRITE_BYTES
    if parts:
        yield parts
        tell(sum(map(len, parts)))


def _write_parts(file: Any, parts: list[memoryview]) -> None:
    """Write all of them, in one call where the file is one of the system's."""
    if len(parts) > 1 and type(file) is io.FileIO and hasattr(os, "writev"):
        written = os.writev(file.fileno(), parts)
        for part in parts:
            write_all(file, part[written:])
            written -= min(written, len(part))
        return
    for part in parts:
        write_all(file, part)


@contextlib.contextmanager
def watching(watcher: Callable[[int], None]) -> Iterator[None]:
    """`watcher` is told of the bytes that this thread writes in the block, in whichever format.

    Those that are compressed first count as what they were: all of them before they are written, when
    what will be written of them is taken back.
    """
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


def tell(size: int) -> None:
    """This many bytes are done."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(size)


def write(
    target: Target,
    pieces: Iterable[Buffer],
    *,
    sync: bool = True,
    follow: bool = True,
    hold: Hold | None = None,
    finish: Callable[[Any], None] | None = None,
    size: int = 0,
) -> None:
    """Write the pieces to a target; a local path is replaced atomically, see publish.replacing.

    `size` is how many bytes they have together, or fewer: for so many the disk sets blocks aside at once, which takes
    it less time than piece by piece. `finish` may write into the file once more before it becomes visible: see
    is_rewritable.
    """
    check_target(target, "write")
    with writing(target, sync=sync, follow=follow, hold=hold) as file:
        if size >= _RESERVED_BYTES and type(file) is io.FileIO:
            reserve(file.fileno(), 0, size)
        if sync and is_local(target) and hasattr(os, "fdatasync") and os.path.isfile(file.name):
            _write_flushing(file, pieces)
        else:
            write_pieces(file, pieces)
        if finish is not None:
            finish(file)


def is_rewritable(target: Any) -> bool:
    """Whether what was written of a target can be changed before it becomes visible."""
    return is_local(target) and not is_special(os.fspath(target))


def _write_flushing(file: io.FileIO, pieces: Iterable[Buffer]) -> None:
    """Write pieces while a second thread has the disk take what was written before: less is left to wait for."""
    flushed: workers.Task[None] | None = None
    waiting = 0
    with workers.Crew(1) as crew:
        for parts in _portions(pieces):
            _write_parts(file, parts)
            waiting += sum(map(len, parts))
            # What waits for the disk stays bounded: Ctrl-C has to wait for it too.
            if waiting < _FLUSH_BYTES or (waiting < _MOST_WAITING and flushed is not None and not flushed.finished):
                continue
            if flushed is not None:
                flushed.take()  # the system tells of a failed disk once, so perhaps here
            flushed, waiting = crew.start(os.fdatasync, file.fileno()), 0
        if flushed is not None:
            flushed.take()


def writing(
    target: Target, *, sync: bool = True, follow: bool = True, hold: Hold | None = None
) -> contextlib.AbstractContextManager[Any]:
    """A target open for writing; a local path is replaced when the block ends well."""
    if not is_path(target):
        return contextlib.nullcontext(target)
    if is_url(target):
        return _new_object(str(target))
    return replacing(os.fspath(target), sync=sync, follow=follow, hold=hold)  # type: ignore[arg-type]


@contextlib.contextmanager
def _new_object(url: str) -> Iterator[Any]:
    file = open_url(url, "wb")
    try:
        yield file
    except BaseException:
        give_up(file)
        with contextlib.suppress(Exception):
            file.close()
        raise
    file.close()


def give_up(file: Any) -> None:
    """Let go of what was written to a URL without making it visible, where its file system can do that."""
    with contextlib.suppress(Exception):
        file.discard()
        file.closed = True  # else closing it, as the collector does, would make it visible after all


# ---- reading ----------------------------------------------------------------


def read(target: Any) -> memoryview:
    """Everything a target holds, in memory of our own."""
    check_target(target, "read")
    if not is_path(target):
        data = target.read()
        if isinstance(data, str):
            raise UsageError(
                "it was opened as text", path=describe(target), hints=[Hint(purpose="open it in binary mode")]
            )
        return pinned(memoryview(data))
    if is_url(target):
        with open_url(str(target), "rb") as file:
            return memoryview(file.read())
    with open(target, "rb", buffering=0) as file:
        return read_whole(file)


def read_whole(file: io.FileIO) -> memoryview:
    """A file's bytes in writable memory, aligned to 64 bytes."""
    size = os.fstat(file.fileno()).st_size
    if not size:  # a pipe or a device: its size is known at its end
        return memoryview(file.readall())
    data = aligned_memory(size, 0)
    if size < _LARGE_READ or not hasattr(os, "preadv"):
        read_at(file, data, 0)
    else:
        _read_halves(file, data)
    return data


def _read_halves(file: io.FileIO, room: memoryview) -> None:
    """The same in two threads: the system copies a cached file no faster than one core can."""
    middle = len(room) // 2 & -4096
    with workers.Crew(1) as crew:
        rest = crew.start(read_at, file, room[middle:], middle)
        read_at(file, room[:middle], 0)
        rest.take()


def read_through(path: str) -> Iterator[int]:
    """Read a file for nothing but whether it can be read; the size of each piece. Memory is a piece's."""
    room = memoryview(bytearray(_READ_BYTES))
    with open(path, "rb", buffering=0) as file:
        try:
            while count := file.readinto(room):
                yield count
        except OSError as error:
            at = file.tell()  # the system does not say in which file, nor where
            raise OSError(error.errno, f"{error.strerror} (after byte {at})", path) from None


def read_at(file: io.FileIO, room: memoryview, at: int) -> None:
    """Fill memory with a file's bytes from `at` on. Threads may do so at once where the system has pread."""
    if not hasattr(os, "preadv"):
        file.seek(at)
    for part in portions(len(room)):
        _fill(file, room[part], at + part.start)


def _fill(file: io.FileIO, room: memoryview, at: int) -> None:
    done = 0
    while done < len(room):
        rest = room[done:]
        count = os.preadv(file.fileno(), [rest], at + done) if hasattr(os, "preadv") else file.readinto(rest)
        if not count:
            raise CorruptError("the file became shorter while it was read", at=at + done, path=str(file.name))
        done += count


def aligned_memory(size: int, phase: int) -> memoryview:
    """Fresh memory whose address leaves `phase` when divided by 64."""
    try:
        room = np.empty(size + 64, np.uint8)
    except MemoryError:
        raise LimitError(f"no memory for {size} bytes") from None
    prefault(room)
    start = (phase - room.ctypes.data) % 64
    return bytes_view(room[start : start + size])


def read_exactly(file: Any, size: int) -> memoryview:
    """Up to `size` bytes from a stream, fewer only at its end; memory grows as bytes arrive."""
    first = file.read(min(size, _READ_BYTES)) or b""
    if len(first) == size:
        return memoryview(first)
    data = bytearray(first)
    while len(data) < size:
        piece = file.read(min(size - len(data), max(_READ_BYTES, len(data))))
        if not piece:
            break
        data += piece
    return memoryview(data)


def map_file(path: Any, private: bool = False) -> memoryview:
    """A file's bytes as a read-only memory map, which lives as long as views of it do.

    A `private` one can be written to: such changes are seen by this process alone, and
    never reach the file.
    """
    with open(path, "rb") as file:
        return map_open(file, private)


def map_open(file: Any, private: bool = False) -> memoryview:
    """The same of a file that is open; it may be closed afterwards."""
    if not os.fstat(file.fileno()).st_size:
        return memoryview(file.read())
    if private:
        with contextlib.suppress(OSError):  # more than the system would promise memory for
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def check_whole(mapped: memoryview, path: str) -> None:
    """Refuse a mapped file that was cut since: touching what is gone would end the process."""
    if isinstance(mapped.obj, mmap.mmap) and (left := mapped.obj.size()) < len(mapped.obj):
        was = len(mapped.obj)
        raise CorruptError(f"the file was cut to {left} bytes, from {was}, since it was opened", at=left, path=path)


def copy_mapped(buffer: Any) -> Any:
    """An array or a view, copied unless its memory is surely not a file's."""
    holder = buffer
    while isinstance(holder, memoryview) or (isinstance(holder, np.ndarray) and holder.base is not None):
        holder = holder.obj if isinstance(holder, memoryview) else holder.base
    if isinstance(holder, np.ndarray | bytes | bytearray):
        return buffer
    return buffer.copy() if isinstance(buffer, np.ndarray) else bytes_view(np.array(buffer))


class naming:
    """Adds the file's name to errors that don't tell it."""

    def __init__(self, path: str, mapped: memoryview | None = None) -> None:
        self.path, self.mapped = path, mapped

    def __enter__(self) -> None:
        if self.mapped is not None:
            check_whole(self.mapped, self.path)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, TensorbytesError) or isinstance(error, MissingDependencyError):
            return
        nameless = self.path == "<bytes>" and not isinstance(error, CorruptError)
        if error.path is None and not nameless and not error.what.startswith(self.path):
            error.path = self.path
