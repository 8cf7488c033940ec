"""A file being written: hidden until it is first flushed, appended to safely, rolled back on failure.

A local file is written under a temporary name beside the old one, and takes its place at
the first flush(), sync() or close(). What flush() returned for survives the death of the
process, sync() a power cut. A writer that is dropped without either, or still open when the
interpreter ends, leaves nothing behind. URLs and file objects are written onwards; when an object at a
URL becomes visible is up to its filesystem.
"""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tensorbytes import hidden, storage
from tensorbytes.errors import TensorbytesError, UsageError
from tensorbytes.typing import Buffer


class TornTailWarning(UserWarning):
    """The end of a file was not a whole object, and was cut off before appending."""


# Looks at a file that is to be appended to (the file, its path) and gives the place to go on from.
Resume = Callable[[Any, str], int]


class Output:
    """A path, a URL or a file object, written from the start or, with `resume`, from where that says.

    With durable=False, close() does not wait for the disk.
    """

    def __init__(self, target: Any, resume: Resume | None = None, durable: bool = True) -> None:
        storage.check_target(target, "write")
        self.size = 0  # bytes of the file that are whole, so are never taken back
        self._written = 0  # bytes of it in all
        self._loose = False  # whether there may be bytes that are not whole
        self._synced = False  # whether the disk has all of them
        self._durable = durable
        self._owner = os.getpid()
        self.published = False  # whether it took its place
        self._temporary: str | None = None
        self._dropped: weakref.finalize[[str, int], Output] | None = None  # removes the temporary file
        self._path: str | None = None
        self._owned = storage.is_path(target)
        self._file: Any = target
        if not self._owned:
            if resume is not None:
                raise UsageError("appending needs a path, to look at what is there; a file object is written onwards")
        elif storage.is_url(target):
            if resume is not None:
                raise UsageError(f"{target}: a URL can't be appended to; write a new object")
            self._file = storage.open_url(target, "wb")
        else:
            self._path = hidden.followed(os.fspath(target))
            self._file = self._open(self._path, resume, os.fspath(target))
        self._written = self.size

    def _open(self, path: str, resume: Resume | None, given: str) -> Any:
        if resume is not None and os.path.exists(path):
            file = _opened(path)
            try:
                self.size = resume(file, path)
                file.seek(self.size)
            except BaseException:
                file.close()
                raise
            return file
        if os.path.exists(path) and not os.path.isfile(path):
            return open(path, "wb", buffering=0)  # a device or a named pipe
        _check_unused(path)
        for name in hidden.names(path):
            # Before there is a file: Ctrl-C may come when it is there and nobody holds it yet.
            self._temporary = name
            self._dropped = weakref.finalize(self, _discard, name, os.getpid())
            try:
                return storage.open_hidden(name, given)
            except FileExistsError:
                self._dropped.detach()
            except BaseException:
                self._dropped()
                raise
        raise AssertionError("there is always another name")

    @property
    def closed(self) -> bool:
        return self._file is None

    @property
    def hidden(self) -> bool:
        """Whether readers don't see any of it yet."""
        return self._temporary is not None

    @property
    def replaces(self) -> bool:
        """Whether there is an old file, whose place it will take."""
        return self._temporary is not None and self._path is not None and os.path.exists(self._path)

    @property
    def foreign(self) -> bool:
        """Whether it belongs to the process that this one was forked off: that one writes, this one must not."""
        return os.getpid() != self._owner

    def write(self, pieces: Iterable[Buffer], size: int, whole: bool = True) -> None:
        """Write `size` bytes. After a failure all that is not whole is taken back, and the file closed.

        whole=False: what has been written so far makes sense only with what follows.
        """
        self.check_open()
        self._loose, self._synced = True, False
        with whole_or_closed(self):
            storage.write_pieces(self._file, pieces)
        self._written += size
        if whole:
            self.size, self._loose = self._written, False

    def check_open(self) -> None:
        if self._file is None:
            raise TensorbytesError("the writer is closed")
        if self.foreign:
            raise TensorbytesError("the writer belongs to the process that opened it: this one was forked off later")

    def settle(self, sync: bool) -> None:
        """Hand all that was written to the system, or to the disk, without making it visible."""
        self.check_open()
        with whole_or_closed(self):
            if sync and self._path is not None:
                self._sync()
            elif hasattr(self._file, "flush"):
                self._file.flush()

    def _sync(self) -> None:
        if not self._synced:
            os.fsync(self._file.fileno())
            self._synced = True

    def publish(self, sync: bool) -> None:
        """Make the file visible; with `sync` that lasts through a power cut too."""
        if self._path is None:
            return
        self.check_open()
        with whole_or_closed(self):
            if self._temporary is not None:
                self._replace(self._temporary, self._path)
            if sync:
                storage.sync_folder(self._path)

    def _replace(self, temporary: str, path: str) -> None:
        _check_unused(path)
        if os.path.exists(path):
            hidden.take_over(path, self._file.fileno())
            if self._durable:
                self._sync()  # or a power cut might leave neither the old file nor the new one
        os.replace(temporary, path)
        self.published = True
        self._settled()

    def flush(self) -> None:
        self.settle(sync=False)
        self.publish(sync=False)

    def sync(self) -> None:
        self.settle(sync=True)
        self.publish(sync=True)

    @property
    def lasting(self) -> bool:
        """Whether close() waits for the disk: it is wanted, and a regular file."""
        return self._durable and self._path is not None and os.path.isfile(self._temporary or self._path)

    def close(self) -> None:
        """sync(), where there is a disk to wait for, and close."""
        if self._file is None:
            return
        if self.foreign:
            self.abort()
        elif self.lasting:
            self.sync()
        else:
            self.flush()
        self._release()

    def abort(self) -> None:
        """Close without publishing; a file that was not visible yet is removed. A forked process only lets go of it."""
        if self.foreign:
            self._settled()
        elif self._temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            self._settled()
        elif self._loose and self._path is not None and self._file is not None:
            with contextlib.suppress(OSError):
                self._file.truncate(self.size)
        with contextlib.suppress(OSError):
            self._release()

    def _settled(self) -> None:
        """There is no temporary file any more."""
        self._temporary = None
        if self._dropped is not None:
            self._dropped.detach()

    def _release(self) -> None:
        file, self._file = self._file, None
        if file is not None and self._owned:
            if self._path is not None and not self.foreign:
                hidden.unlock(file)
            file.close()


@contextlib.contextmanager
def whole_or_closed(writer: Any) -> Iterator[None]:
    """Abort a writer that fails: the system tells of lost data once, and nothing may be written after that."""
    try:
        yield
    except BaseException:
        writer.abort()
        raise


def _discard(temporary: str, owner: int) -> None:
    """Remove the file of a writer that was never closed; a process that was forked off leaves it to its parent."""
    if os.getpid() == owner:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _opened(path: str) -> Any:
    """A file that exists, to be written by nobody else."""
    while True:
        file = open(path, "r+b", buffering=0)  # noqa: SIM115 - lives as long as the writer
        try:
            if not hidden.lock(file):
                raise _in_use(path)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # it was replaced before we had it


def _check_unused(path: str) -> None:
    """A file that is being written must not be replaced: what its writer acknowledges would be lost."""
    if hidden.in_use(path):
        raise _in_use(path)


def _in_use(path: str) -> TensorbytesError:
    return TensorbytesError(f"{path} is being written by another process or writer")


def cut_tail(file: Any, path: str, good: int, what: str, stacklevel: int) -> None:
    """Cut a file off behind its last whole object, and say so if there was more."""
    torn = os.fstat(file.fileno()).st_size - good
    if torn:
        warnings.warn(
            f"{path}: cut off {torn} bytes of an unfinished {what} at byte {good}",
            TornTailWarning,
            stacklevel=stacklevel + 1,
        )
        file.truncate(good)
