"""One way for everything that is written to get its name: whole, or not at all.

A file (or a folder, or several files that belong together) is written under hidden names beside the one that it
will get, and takes its place by a rename, while no other writer has the path: at any moment there is the old one or
the new one, never a mix. Whoever fails, or is interrupted, leaves what was there.

- `Pending` is one file on its way, `replacing` the same as a block, `Names` gives names for several.
- `put` is the rename: it waits for others who are about to do the same, and refuses where a stream writer has the
  path (see holding.py). Writers that add to a file hold it all the time, and hand their hold over.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterator

from tensorbytes.errors import Hint, UsageError
from tensorbytes.io import hidden
from tensorbytes.io.holding import Hold, check_free, check_unlocked, unlock

_MOST_LINKS = 40  # as many as Linux follows
# What the system says of a file that can't grow.
_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
# Hidden names that are written to like those of callers.
_ours: set[str] = set()


class Pending:
    """A file on its way to `path`, under a hidden name. One that is given up, or forgotten, is removed.

    `given` is what the caller called the path: errors name that.
    """

    waits = False  # whether it is still to take its place

    def __init__(self, path: str, given: str) -> None:
        self.path, self._given, self._owner = path, given, os.getpid()
        self._made: os.stat_result | None = None
        self.file: io.FileIO | None = None
        for self.name in hidden.names(path):
            try:
                self.file = hidden.create(self.name, private=os.path.exists(path))
                self._made = os.fstat(self.file.fileno())
                self.waits = True
                return
            except FileExistsError:
                continue
            except OSError as error:
                check_folder(given)
                raise OSError(error.errno, error.strerror, given) from None  # of the same class
            except BaseException:  # Ctrl-C may come when it is there and nobody holds it yet
                if self.file is not None:
                    self.file.close()
                hidden.remove_dead(self.name)
                raise

    def put(self, sync: bool, hold: Hold | None = None, close: bool = False) -> None:
        """Let it take its place, with the rights of what it replaces. `hold` is that of a writer that has the path."""
        assert self.file is not None
        hidden.take_over(self.path, self.file.fileno())
        if sync:
            os.fsync(self.file.fileno())
        held = os.dup(self.file.fileno()) if close else -1  # the lock, by which others know that it is not a dead one's
        try:
            if close:
                self.file.close()  # some file systems tell only now that there was no room
            with _holding(self.path, hold):
                self._check_there()
                os.replace(self.name, self.path)
                self.waits = False
                if close:  # or the next would see the lock, as would others while a process lives that was forked off
                    unlock(held)
                    os.close(held)
                    held = -1
        finally:
            if held >= 0:
                os.close(held)

    def leave(self, name: str) -> None:
        """Let it have another name than the one that was meant: it is kept, and replaces nothing."""
        if os.path.lexists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self._check_there()
        os.rename(self.name, name)
        self.waits = False

    def _is_there(self) -> bool:
        """Whether the hidden name is still that of this file: others remove files, and rename folders."""
        try:
            return self._made is not None and os.path.samestat(self._made, os.lstat(self.name))
        except OSError:
            return False

    def _check_there(self) -> None:
        if not self._is_there():
            raise FileNotFoundError(
                errno.ENOENT, "what was written so far was removed by another program, or its folder moved", self._given
            )

    def discard(self) -> None:
        """Close and remove it, unless it took its place; a forked process leaves it to its parent."""
        try:
            if self.waits and self._owner == os.getpid():
                self.waits = False
                if self._is_there():
                    with contextlib.suppress(OSError):
                        os.unlink(self.name)
        finally:
            if self.file is not None:
                with contextlib.suppress(OSError):
                    self.file.close()

    def __del__(self) -> None:
        if self.waits:
            self.discard()

    def error(self, error: OSError) -> OSError | None:
        """An error of the system that names the hidden file, or none, as one that names what the caller named."""
        if error.filename == self.name or (error.filename is None and error.errno in _FULL):
            return OSError(error.errno, error.strerror, self._given)  # of the same class
        return None


@contextlib.contextmanager
def replacing(path: str, *, sync: bool = True, follow: bool = True, hold: Hold | None = None) -> Iterator[io.FileIO]:
    """A new file that takes the place of `path` when the block ends well, and vanishes when not.

    A link that stands there is followed, or with follow=False replaced: for names that the caller did not choose.
    """
    given = path
    path = follow_link(path) if follow else absolute(path)
    if follow and is_special(path):
        with open(path, "wb", buffering=0) as special:
            yield special
        return
    if hold is None:
        check_free(path)
    pending = Pending(path, given)
    try:
        assert pending.file is not None
        yield pending.file
        pending.put(sync, hold, close=True)
    except BaseException as error:
        pending.discard()
        if isinstance(error, OSError) and (named := pending.error(error)):
            raise named from None
        raise
    if sync:
        sync_folder(path)


def put(name: str, path: str, hold: Hold | None = None) -> None:
    """Give what is whole its name, in the place of what stands there, unless a writer has that."""
    with _holding(path, hold):
        os.replace(name, path)


@contextlib.contextmanager
def _holding(path: str, hold: Hold | None) -> Iterator[None]:
    """A block in which no other writer has a path: that of `hold`, if it has one."""
    if hold is not None and hold.kept:
        yield
        return
    with Hold(path):
        # A writer whose lock file was removed, or who could make none, has only that on the file itself.
        check_unlocked(path)
        yield


class Names:
    """Names for several files or folders that will get theirs together, which nobody else uses meanwhile."""

    def __init__(self, path: str) -> None:
        check_name(path)
        check_free(path)
        self._claim = Pending(absolute(path), path)  # an empty file, which never takes its place
        self._given: set[str] = set()
        self._remove()

    def name(self, number: int) -> str:
        name = f"{self._claim.name.removesuffix(hidden.SUFFIX)}-{number}{hidden.SUFFIX}"
        self._given.add(name)
        _ours.add(name)
        return name

    def _remove(self) -> None:
        """Remove what is there under these names: what is left of them, or of a dead writer's."""
        folder, base = os.path.split(self._claim.name.removesuffix(hidden.SUFFIX))
        left = set(self._given)
        with contextlib.suppress(OSError):  # not every folder that can be written to can be listed
            found = [name for name in os.listdir(folder or ".") if name.startswith(f"{base}-")]
            left.update(os.path.join(folder, name) for name in found if hidden.is_hidden(name))
        for path in left:
            with contextlib.suppress(OSError):
                if os.path.isdir(path) and not os.path.islink(path):
                    import shutil  # commands that write nothing need not wait for it

                    shutil.rmtree(path, ignore_errors=True)
                else:
                    os.unlink(path)

    def close(self) -> None:
        """Give the names back, and remove what is still called by them."""
        if self._claim.waits:
            try:
                self._remove()
            finally:
                _ours.difference_update(self._given)  # first: who takes the claim next has the same names
                self._claim.discard()


# ---- places -------------------------------------------------------------------------


def absolute(path: str) -> str:
    """A path that stays the same when the working folder changes. ".." is left to the system, which knows of links."""
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def follow_link(path: str) -> str:
    """Where a link leads that stands at the end of a path: the link stays, what it leads to is replaced.

    In a folder that everybody may write to, only links of ours or of the folder's owner are followed, as Linux does
    it where this is done by the system (fs.protected_symlinks). Folders on the way are left to the system.
    """
    path = absolute(path)
    for _ in range(_MOST_LINKS):
        if not os.path.islink(path):
            check_name(path)
            return path
        folder = os.path.dirname(path)
        _check_link(path, folder)
        path = os.path.join(folder, os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def check_name(path: str) -> None:
    """Refuse to write what the next writer of another name would take for its own, or for a dead one's, and remove."""
    if hidden.is_hidden(os.path.basename(path)) and path not in _ours:
        raise UsageError(
            f"names with {hidden.MARK!r} are those of files that are not whole yet",
            path=path,
            hints=[Hint(purpose="take another")],
        )


def _check_link(path: str, folder: str) -> None:
    if not hasattr(os, "geteuid"):
        return
    around, owner = os.stat(folder), os.lstat(path).st_uid
    shared = around.st_mode & stat.S_ISVTX and around.st_mode & stat.S_IWOTH
    if shared and owner not in (os.geteuid(), around.st_uid):
        raise PermissionError(
            errno.EACCES, "a link that another user put into a folder for everybody is not followed", path
        )


def is_special(path: str) -> bool:
    """Whether there is a device, a pipe or a folder: nothing whose content could be replaced."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def check_folder(target: str) -> None:
    """Say that the folder of a file to be created is not there: the system would name a file, and a hidden one."""
    for path in (target, os.path.realpath(target)):  # a link may lead to where there is no folder
        folder = os.path.dirname(path)
        if folder and not os.path.exists(folder):
            raise FileNotFoundError(errno.ENOENT, f"the folder {folder} does not exist", target)


def sync_folder(path: str) -> None:
    """Make a rename last through a power cut."""
    if os.name != "posix":
        return
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
