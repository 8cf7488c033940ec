"""Who writes a path: one writer at a time, whether or not there is a file yet.

    NAME.tensorbytes-lock.tmp      append 4711 host 2026-11-17T01:02:03Z

A writer holds a lock on this file beside the one that it writes, as long as it may change what stands there: a stream
writer and an appender from before they look at the file until they are closed, all others for the moment in which
their file takes its place. The content says who a stream writer is; those who hold it for a moment write none. The
lock counts, not the file: one that a dead process left is taken over, and removed with the next release. A forked
child closes what it inherited, so it holds nobody up when its parent is gone.

Where the folder can't be written to, an appender's lock on the file itself is all there is. Where the system has no
such locks nobody is kept out; docs/safety-promise.md has the table.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import time
import weakref
from typing import IO

from tensorbytes.errors import InUseError
from tensorbytes.io import hidden

try:
    import fcntl
except ModuleNotFoundError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
# How long others are waited for who hold a path for a moment, and how long one is believed to be a stream writer
# before that is said: a lock file may still tell of a dead one while somebody takes it over.
_MOMENT_SECONDS = 60.0
_SURE_SECONDS = 0.05
_MOST_BYTES = 512
# No such folder, or not ours to write to. Anything else does not tell whether another has the path.
_NOT_HERE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS)
_TRIES = 1000
_ODD = re.compile(r"[^\x21-\x7e]")

_live: weakref.WeakSet[Hold] = weakref.WeakSet()


class Hold:
    """The right to decide what stands at a path. A verb ("write", "append") says that it may be kept for long."""

    def __init__(self, path: str, verb: str = "") -> None:
        self.path, self._owner, self._long = path, os.getpid(), bool(verb)
        self._name = _lock_name(path)
        # A file object: it is closed in one step when it is dropped, wherever Ctrl-C comes.
        self._file: io.FileIO | None = None
        if fcntl is not None:
            _live.add(self)
            self._take(verb)

    def _take(self, verb: str) -> None:
        started, pause = time.monotonic(), 0.0005
        while not self._try_lock():
            waited = time.monotonic() - started
            who = _holder(self._name)
            if (who and waited > _SURE_SECONDS) or waited > _MOMENT_SECONDS:
                raise InUseError(f"it is being written by {who or 'another writer'}", path=self.path)
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        if verb and self._file is not None and self._file.writable():
            os.truncate(self._file.fileno(), 0)
            os.pwrite(self._file.fileno(), _words(verb), 0)

    def _try_lock(self) -> bool:
        """Take the lock, if nobody has it; true without one where there can be none."""
        for _ in range(_TRIES):
            try:
                file = _open_lock_file(self._name)
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                return not os.path.lexists(self._name)  # no lock can be made: whoever writes there says so
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_current(file, self._name):
                    self._file = file
                    return True
            except BlockingIOError:
                return False
            except OSError:  # no locks here
                with contextlib.suppress(OSError):
                    os.unlink(self._name)
                return True
            finally:
                if self._file is not file:
                    file.close()
        return False

    @property
    def kept(self) -> bool:
        """Whether it is this process that holds the path, by a lock that others see."""
        if self._file is None or self._file.closed or self._owner != os.getpid():
            return False
        return not self._long or _is_current(self._file, self._name)  # one who holds it for long may find it removed

    def release(self) -> None:
        if self._file is None or self._file.closed:
            return
        try:
            # Whoever holds it for long may find that somebody removed the file, and another made one.
            if self._owner == os.getpid() and (not self._long or _is_current(self._file, self._name)):
                with contextlib.suppress(OSError):
                    os.unlink(self._name)
        finally:
            self._file.close()

    def _drop(self) -> None:
        """Close what a fork inherited; the parent keeps its own."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


def check_free(path: str) -> None:
    """Raise InUseError if a stream writer has a path, before much is written that could not take its place."""
    if os.path.lexists(_lock_name(path)):
        Hold(path).release()


def _lock_name(path: str) -> str:
    return hidden.name_beside(path, f"lock{hidden.SUFFIX}")


def _open_lock_file(name: str) -> io.FileIO:
    """A lock file, which is made if there is none. What else stands under the name is removed."""
    for _ in range(_TRIES):
        try:
            file = io.FileIO(name, "r+", opener=lambda path, flags: os.open(path, flags | os.O_CREAT | _FLAGS, 0o666))
        except PermissionError:  # another user's: whether it is locked can be seen
            file = io.FileIO(name, "r", opener=lambda path, flags: os.open(path, flags | _FLAGS))
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
                raise
            os.unlink(name)  # a link
            continue
        found = os.fstat(file.fileno())
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            _let_others_look(file, found)
            return file
        file.close()
        if found.st_nlink:  # else it was released meanwhile
            os.unlink(name)  # a pipe or a device, or another name of somebody's file
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)


def _let_others_look(file: io.FileIO, found: os.stat_result) -> None:
    """Whatever our umask: others can tell that the lock is held only if they may open the file."""
    if found.st_mode & 0o444 != 0o444 and hasattr(os, "fchmod"):
        with contextlib.suppress(OSError):  # not ours
            os.fchmod(file.fileno(), 0o644)


def _is_current(file: io.FileIO, name: str) -> bool:
    """Whether an open file is the one that has the name now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.lstat(name))
    except OSError:
        return False


def _words(verb: str) -> bytes:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    host = _ODD.sub("?", os.uname().nodename) or "?"
    return f"{verb} {os.getpid()} {host} {now}\n".encode()


def _holder(name: str) -> str:
    """What a lock file says of its holder; empty if it says nothing."""
    try:
        fd = os.open(name, os.O_RDONLY | _FLAGS)
    except PermissionError:
        return f"another user, whose {name} can't be read; remove it if nobody writes there"
    except OSError:
        return ""
    try:
        words = [_ODD.sub("?", word) for word in os.read(fd, _MOST_BYTES).decode("latin-1").split()]
    except OSError:
        return ""
    finally:
        os.close(fd)
    if len(words) != 4:
        return ""
    verb, number, host, since = words
    return f"process {number} on {host} ({verb}, since {since})"


if hasattr(os, "register_at_fork"):

    def _drop_in_child() -> None:
        for hold in list(_live):
            hold._drop()

    os.register_at_fork(after_in_child=_drop_in_child)


# ---- locks of the files themselves --------------------------------------------------


def lock(file: IO[bytes]) -> bool:
    """Whether no other writer has the file, where the system can tell; from now on it is ours."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks here
        pass
    return True


def unlock(file: IO[bytes] | int) -> None:
    """Let others have the file: processes that were forked off meanwhile would keep it until they end."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)


def check_unlocked(path: str) -> None:
    """Raise InUseError if a writer has a lock on the file that is there now: what it acknowledges would be lost."""
    if fcntl is None or not os.path.isfile(path):
        return
    try:
        with open(path, "rb", buffering=0) as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)  # which others who ask may have too
    except BlockingIOError:
        raise InUseError("it is being written by another process or writer", path=path) from None
    except OSError:  # no locks here, or not readable for us: the system decides whether it can be replaced
        pass
