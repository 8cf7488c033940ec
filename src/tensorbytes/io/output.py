"""A file being written to as a stream: hidden until it is first flushed, appended to safely, rolled back on failure.

A local path is held from before anything is decided about it until the writer is closed (io/holding.py). A new file
is written under a hidden name beside the old one, and takes its place at the first flush(), sync() or close()
(io/publish.py). What flush() returned for survives the death of the process, sync() a power cut. A writer that is
never closed keeps what it has under a name that a warning tells. URLs and file objects are written onwards; when an
object at a URL becomes visible is up to its filesystem.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tensorbytes import _wire
from tensorbytes.errors import Hint, InUseError, TensorbytesError, UnclosedWriterWarning, UsageError
from tensorbytes.io import hidden, holding, publish, storage
from tensorbytes.io.holding import Hold
from tensorbytes.io.publish import Pending
from tensorbytes.typing import Buffer

# The disk is told of this much at a time, while more is written.
_WRITEBACK_BYTES = 4 << 20

# Looks at a file to append to (the file, its path) and gives the place to go on from.
Resume = Callable[[Any, str], int]


class OutputFile:
    """A path, a URL or a file object, written from the start or, with `resume`, from where that says.

    With durable=False, close() does not wait for the disk.
    """

    def __init__(self, target: Any, resume: Resume | None = None, durable: bool = True) -> None:
        storage.check_target(target, "write")
        self._target = target
        self.size = 0  # bytes of the file that are whole, so are never taken back
        self._written = 0  # bytes of it in all
        self._loose = False  # whether there may be bytes that are not whole
        self._synced = False  # whether the disk has all of them
        self._begun = 0  # bytes that the disk was told to take
        self._durable = durable
        self._failure: BaseException | None = None  # why it was closed before its time, until that was told
        self._forgotten = False  # whether nobody will close it
        self._owner = os.getpid()
        self.published = False  # whether it took its place
        self._pending: Pending | None = None  # none: it is visible
        self._path: str | None = None
        self._hold: Hold | None = None
        self._owned = storage.is_path(target)
        self._remote = self._owned and storage.is_url(target)
        self._file: Any = target
        if not self._owned:
            if resume is not None:
                raise UsageError("appending needs a path, to look at what is there; a file object is written onwards")
        elif self._remote:
            if resume is not None:
                raise UsageError(
                    "a URL can't be appended to", path=str(target), hints=[Hint(purpose="write a new object")]
                )
            self._file = storage.open_url(target, "wb")
        else:
            self._path = publish.follow_link(os.fspath(target))
            self._file = self._open(self._path, resume, os.fspath(target))
            _live.add(self)
        self._written = self._begun = self.size

    def _open(self, path: str, resume: Resume | None, given: str) -> Any:
        if publish.is_special(path):
            return open(path, "r+b" if resume is not None else "wb", buffering=0)
        self._hold = Hold(path, "write" if resume is None else "append")
        try:
            if resume is None or not os.path.exists(path):
                holding.check_unlocked(path)
                self._pending = Pending(path, given)
                return self._pending.file
            file = open(path, "r+b", buffering=0)  # noqa: SIM115 - lives as long as the writer
            try:
                if not holding.lock(file):  # by another name, or where no lock file can be made
                    raise InUseError("it is being written by another process or writer", path=path)
                self.size = resume(file, path)
                file.seek(self.size)
            except BaseException:
                file.close()
                raise
            return file
        except BaseException:
            self._hold.release()
            raise

    @property
    def closed(self) -> bool:
        return self._file is None

    @property
    def hidden(self) -> bool:
        """Whether readers don't see any of it yet; an object at a URL is seen when it is closed."""
        return self._pending is not None or self._remote

    @property
    def replaces(self) -> bool:
        """Whether there is an old file, whose place it will take."""
        return self._pending is not None and os.path.exists(self._pending.path)

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
        with closing_on_failure(self):
            storage.write_pieces(self._file, pieces)
        self._written += size
        if whole:
            self.size, self._loose = self._written, False
        if self._written - self._begun >= _WRITEBACK_BYTES and self.waits_for_disk:
            # What is waited for at the end is on its way by then; the wait is as long as the rest takes, and as sure.
            _wire.start_writeback(self._file.fileno(), self._begun, self._written - self._begun)
            self._begun = self._written

    def check_open(self) -> None:
        if self.foreign:
            raise TensorbytesError("the writer belongs to the process that opened it: this one was forked off later")
        if self._file is None:
            why = "" if self._failure is None else f", since a call failed: {self._failure}"
            raise TensorbytesError(f"the writer is closed{why}")

    def settle(self, sync: bool) -> None:
        """Hand all that was written to the system, or to the disk, without making it visible."""
        self.check_open()
        with closing_on_failure(self):
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
        with closing_on_failure(self):
            if self._pending is not None:
                # Where it replaces another, a power cut might else leave neither of them.
                self._pending.put(self._durable and not self._synced and self.replaces, self._hold)
                self._pending, self.published = None, True
            else:
                self._check_there()
            if sync:
                publish.sync_folder(self._path)

    def _check_there(self) -> None:
        """Acknowledge nothing in a file that somebody who knows of no locks has replaced or removed."""
        if self._hold is None:  # a device or a pipe
            return
        assert self._path is not None
        try:
            there = os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._path))
        except FileNotFoundError:
            there = False
        if not there:
            raise TensorbytesError(
                "it was replaced or removed by another program while it was written: what was written "
                "since it was opened is lost",
                path=self._path,
            )

    def flush(self) -> None:
        self.settle(sync=False)
        self.publish(sync=False)

    def sync(self) -> None:
        self.settle(sync=True)
        self.publish(sync=True)

    @property
    def waits_for_disk(self) -> bool:
        """Whether close() waits for the disk: it is wanted, and a regular file."""
        return self._durable and self._hold is not None

    def close(self) -> None:
        """sync(), where there is a disk to wait for, and close. One that was closed by a failure says so, once."""
        failure, self._failure = self._failure, None
        if failure is not None and not self.foreign:
            what = "the writer was closed when a call failed, and what was not flushed before is lost"
            raise TensorbytesError(f"{what}: {failure}", path=storage.describe(self._target)) from failure
        if self._file is None:
            return
        try:
            if self.foreign:
                self.abort()
            elif self.waits_for_disk:
                self.sync()
            else:
                self.flush()
        except BaseException:
            self._failure = None  # it is being told
            raise
        self._release()

    def abort(self) -> None:
        """Close without publishing; a file that was not visible yet is removed. A forked process only lets go of it."""
        if self._forgotten:  # nobody gave it up: what is there of it is kept
            return
        pending, self._pending = self._pending, None
        self._failure = None
        try:
            if pending is not None:
                pending.discard()
            elif not self.foreign and self._loose and self._path is not None and self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.truncate(self.size)
            elif self._remote and self._file is not None:
                storage.give_up(self._file)
        finally:
            with contextlib.suppress(OSError):
                self._release()

    def fail(self, error: BaseException) -> None:
        """Close after a failure: the system tells of lost data once, and nothing may be written after that."""
        failure = error if self._file is not None and not self._forgotten else self._failure
        try:
            self.abort()
        finally:
            self._failure = failure

    @property
    def failed(self) -> bool:
        """Whether a failure closed it, which close() did not tell of yet."""
        return self._failure is not None

    def forget(self) -> None:
        """Nobody will close it: from here on a failure leaves what is whole."""
        self._forgotten = True

    def leave(self) -> str | None:
        """Close a writer that was forgotten: where its bytes are now, if they are anywhere."""
        path = self._path
        if self._loose and path is not None:
            self._file.truncate(self.size)
        if self._pending is not None:
            for path in hidden.kept_names(self._pending.path, "unclosed"):
                try:
                    self._pending.leave(path)
                    break
                except FileExistsError:
                    continue
            self._pending = None
        self._release()
        return path

    def _release(self) -> None:
        file, self._file = self._file, None
        try:
            if file is not None and self._owned:
                if self._hold is not None and not self.foreign and not file.closed:
                    holding.unlock(file)
                file.close()
        finally:  # a disk that fails even when a file is closed holds nobody up
            if self._hold is not None:
                self._hold.release()

    def _drop(self) -> None:
        """Let go of the file in a forked child, or the lock on it would outlive the parent."""
        if self._file is not None and self._hold is not None:
            with contextlib.suppress(OSError):
                self._file.close()


_live: weakref.WeakSet[OutputFile] = weakref.WeakSet()


def _drop_in_child() -> None:
    for output in list(_live):
        output._drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_in_child)


# The methods of writers that do their work under its lock.
_LOCKING = frozenset({"write", "write_document", "write_batch", "write_raw", "_show", "close", "abort"})


@contextlib.contextmanager
def closing_on_failure(output: OutputFile | Any) -> Iterator[None]:
    """A block after whose failure nothing more may be written: see OutputFile.fail."""
    try:
        yield
    except BaseException as error:
        output.fail(error)
        raise


def check_between_calls(writer: Any, lock: Any) -> None:
    """Refuse a call of a writer from inside another one of the same thread, as a signal handler makes it.

    It would find the writer halfway: columns of different lengths, a record without its end. The lock alone does not
    tell: an interrupt at the very end of a call may leave it held.
    """
    if not lock._is_owned():
        return
    frame = sys._getframe(1).f_back
    while frame is not None:
        if frame.f_code.co_name in _LOCKING and frame.f_locals.get("self") is writer:
            raise TensorbytesError(
                "the writer is in the middle of another call of this thread, "
                "which a signal handler or a finalizer interrupted",
                hints=[Hint(purpose="note there that it is to be closed, and close it when that call is done")],
            )
        frame = frame.f_back


# ---- writers that are never closed ---------------------------------------------------


class Closable:
    """What stream writers have in common: one that is collected, or alive when the interpreter ends, loses nothing.

    `_leave` writes out what is waiting, and closes.
    """

    _open = False

    def _mark_open(self) -> None:
        """From here on, until `_mark_closed`, it is missed when nobody closes it."""
        self._open = True
        _unclosed.add(self)

    def _mark_closed(self) -> None:
        self._open = False

    def _leave(self) -> tuple[str, str, list[str]] | None:
        """(the path that was meant, what there is, the files that it is in); None if there is nothing to tell of."""
        raise NotImplementedError

    def _keep_forgotten(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            left = self._leave()
        except Exception as error:
            what = f"a writer was never closed, and can't keep what it has: {error}"
            warnings.warn(what, UnclosedWriterWarning, stacklevel=3)
            return
        if left is not None:
            path, what, places = left
            where = places[0] if len(places) == 1 else f"{len(places)} files, the first of them {places[0]}"
            warnings.warn(
                f"{path}: the writer was never closed. What it wrote ({what}) is kept in {where}; "
                "use `with`, or call close()",
                UnclosedWriterWarning,
                stacklevel=3,
            )

    def __del__(self) -> None:
        self._keep_forgotten()


_unclosed: weakref.WeakSet[Closable] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    for writer in list(_unclosed):
        writer._keep_forgotten()
