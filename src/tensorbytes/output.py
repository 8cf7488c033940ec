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
from collections.abc import Callable, Iterable
from typing import Any

from tensorbytes import storage
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
            self._path = os.path.realpath(os.fspath(target))
            self._file = self._open(self._path, resume, os.fspath(target))
        self._written = self.size

    def _open(self, path: str, resume: Resume | None, given: str) -> Any:
        if resume is not None and os.path.exists(path):
            file = open(path, "r+b", buffering=0)  # noqa: SIM115 - lives as long as the writer
            try:
                _lock(file, path)
                self.size = resume(file, path)
                file.seek(self.size)
            except BaseException:
                file.close()
                raise
        elif os.path.exists(path) and not os.path.isfile(path):
            file = open(path, "wb", buffering=0)  # noqa: SIM115 - a device or a named pipe
        else:
            self._temporary = f"{path}.{os.urandom(4).hex()}.tmp"
            # Before there is a file: Ctrl-C may come when it is there and nobody holds it yet.
            self._dropped = weakref.finalize(self, _discard, self._temporary, os.getpid())
            try:
                file = storage.open_hidden(self._temporary, given)
                _lock(file, path)
            except BaseException:
                self._dropped()
                raise
        return file

    @property
    def closed(self) -> bool:
        return self._file is None

    @property
    def hidden(self) -> bool:
        """Whether readers don't see any of it yet."""
        return self._temporary is not None

    def write(self, pieces: Iterable[Buffer], size: int, whole: bool = True) -> None:
        """Write `size` bytes. After a failure all that is not whole is taken back, and the file closed.

        whole=False: what has been written so far makes sense only with what follows.
        """
        self.check_open()
        self._loose, self._synced = True, False
        try:
            storage.write_pieces(self._file, pieces)
        except BaseException:
            self.abort()
            raise
        self._written += size
        if whole:
            self.size, self._loose = self._written, False

    def check_open(self) -> None:
        if self._file is None:
            raise TensorbytesError("the writer is closed")

    def settle(self, sync: bool) -> None:
        """Hand all that was written to the system, or to the disk, without making it visible."""
        self.check_open()
        if sync and self._path is not None:
            if not self._synced:
                os.fsync(self._file.fileno())
                self._synced = True
        elif hasattr(self._file, "flush"):
            self._file.flush()

    def publish(self, sync: bool) -> None:
        """Make the file visible; with `sync` that lasts through a power cut too."""
        if self._path is None:
            return
        if self._temporary is not None:
            if os.path.exists(self._path):
                storage.keep_mode(self._path, self._file.fileno())
            os.replace(self._temporary, self._path)
            self._settled()
        if sync:
            storage.sync_folder(self._path)

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
        try:
            if self.lasting:
                self.sync()
            else:
                self.flush()
        except BaseException:
            self.abort()
            raise
        self._release()

    def abort(self) -> None:
        """Close without publishing; a file that was not visible yet is removed."""
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary)
            self._settled()
        elif self._loose and self._path is not None and self._file is not None:
            with contextlib.suppress(OSError):
                self._file.truncate(self.size)
        self._release()

    def _settled(self) -> None:
        """There is no temporary file any more."""
        self._temporary = None
        if self._dropped is not None:
            self._dropped.detach()

    def _release(self) -> None:
        file, self._file = self._file, None
        if file is not None and self._owned:
            file.close()


def _discard(temporary: str, owner: int) -> None:
    """Remove the file of a writer that was never closed; a process that was forked off leaves it to its parent."""
    if os.getpid() == owner:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _lock(file: Any, path: str) -> None:
    """One writer at a time, where the system can tell."""
    try:
        import fcntl
    except ModuleNotFoundError:  # not a POSIX system
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise TensorbytesError(f"{path} is being written by another process or writer") from None


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
