"""Files that are not whole yet: they have names of their own beside the one they will get.

A live writer holds a lock on its file. One without a lock was left by a process that died, and the next
writer of the same name removes it. So names are few and not random: nobody has to search the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import IO, Any

try:
    import fcntl
except ModuleNotFoundError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

# What a hidden name has behind that of the file: a number, and this.
SUFFIX = ".tmp"
_MARK = ".tensorbytes-"
# So many writers of one name are looked for; more get random names.
_MOST = 8
_MOST_LINKS = 40  # as many as Linux follows


def is_hidden(name: str) -> bool:
    """Whether a file of this name is one that is being written, or never was to its end."""
    return name.endswith(SUFFIX) and _MARK in name


def names(path: str) -> Iterator[str]:
    """Names under which `path` may be written, one after the other, without those that are in use."""
    for number in range(_MOST if fcntl is not None else 0):
        name = f"{path}{_MARK}{number}{SUFFIX}"
        if _free(name):
            yield name
    while True:
        yield f"{path}{_MARK}{os.urandom(4).hex()}{SUFFIX}"


def _free(name: str) -> bool:
    """Whether nobody uses a name; the file of a writer that is no more is removed."""
    if os.path.lexists(name):
        remove_dead(name)
    return not os.path.lexists(name)


def remove_dead(name: str) -> None:
    """Remove a hidden file, unless a writer holds it or the system can't tell."""
    with contextlib.suppress(OSError):
        fd = os.open(name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            if fcntl is not None:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and os.path.samestat(found, os.lstat(name)):
                os.unlink(name)
        finally:
            os.close(fd)


def create(name: str, private: bool) -> Any:
    """A new hidden file, locked. FileExistsError: another writer was quicker, so take another name."""
    mode = 0o600 if private else 0o666
    file = open(name, "xb", buffering=0, opener=lambda path, flags: os.open(path, flags, mode))  # noqa: SIM115
    try:
        if fcntl is not None:
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # somebody takes it for a dead one's, and is about to remove it
                raise FileExistsError(name) from None
            except OSError:  # some network filesystems have no locks
                pass
            if not os.fstat(file.fileno()).st_nlink:
                raise FileExistsError(name)
    except BaseException:
        file.close()
        raise
    return file


def held(file: IO[bytes]) -> int:
    """A descriptor by which the lock outlives the file, until it is closed; -1 where there are no locks."""
    return -1 if fcntl is None else os.dup(file.fileno())


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


def unlock(file: IO[bytes]) -> None:
    """Let others have the file: processes that were forked off meanwhile would keep it until they end."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(file.fileno(), fcntl.LOCK_UN)


def in_use(path: str) -> bool:
    """Whether a writer holds the file that is there now."""
    if fcntl is None or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb", buffering=0) as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)  # which others who ask may have too
    except BlockingIOError:
        return True
    except OSError:  # no locks here, or not readable for us: the system decides whether it can be replaced
        pass
    return False


def absolute(path: str) -> str:
    """A path that stays the same when the working folder changes. ".." is left to the system, which knows of links."""
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def followed(path: str) -> str:
    """Where a link leads that stands at the end of a path: the link stays, what it leads to is replaced.

    In a folder that everybody may write to, only links of ours or of the folder's owner are followed, as Linux does
    it where this is done by the system (fs.protected_symlinks). Folders on the way are left to the system.
    """
    path = absolute(path)
    for _ in range(_MOST_LINKS):
        if not os.path.islink(path):
            return path
        folder = os.path.dirname(path)
        _check_link(path, folder)
        path = os.path.join(folder, os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _check_link(path: str, folder: str) -> None:
    if not hasattr(os, "geteuid"):
        return
    around, owner = os.stat(folder), os.lstat(path).st_uid
    shared = around.st_mode & stat.S_ISVTX and around.st_mode & stat.S_IWOTH
    if shared and owner not in (os.geteuid(), around.st_uid):
        raise PermissionError(
            errno.EACCES, "a link that another user put into a folder for everybody is not followed", path
        )


def take_over(path: str, fd: int) -> None:
    """Give a file the owner, the mode and the extended attributes of the one that it will replace."""
    old = os.stat(path)
    with contextlib.suppress(OSError):  # another owner's file: the mode matters more than the owner
        os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, old.st_mode & 0o777)  # the right to run as its owner was given to the old content
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):  # no such thing on this filesystem
            for name in os.listxattr(path):
                with contextlib.suppress(OSError):  # some belong to the system
                    os.setxattr(fd, name, os.getxattr(path, name))


class Claim:
    """Names for several files that will get theirs together, which nobody else uses meanwhile."""

    def __init__(self, path: str) -> None:
        for self._name in names(path):
            try:
                self._file = create(self._name, private=True)
                break
            except FileExistsError:
                continue
            except OSError as error:
                raise OSError(error.errno, error.strerror, path) from None  # the name that the caller knows
            except BaseException:
                remove_dead(self._name)  # Ctrl-C may come when it is there and nobody holds it yet
                raise
        self._given: set[str] = set()
        self._remove()

    def name(self, number: int) -> str:
        name = f"{self._name.removesuffix(SUFFIX)}-{number}{SUFFIX}"
        self._given.add(name)
        return name

    def _remove(self) -> None:
        """Remove what is there under these names: what is left of them, or of a dead writer's."""
        folder, base = os.path.split(self._name.removesuffix(SUFFIX))
        left = set(self._given)
        with contextlib.suppress(OSError):  # not every folder that can be written to can be listed
            found = [name for name in os.listdir(folder or ".") if name.startswith(f"{base}-") and is_hidden(name)]
            left.update(os.path.join(folder, name) for name in found)
        for path in left:
            with contextlib.suppress(OSError):
                if os.path.isdir(path) and not os.path.islink(path):
                    import shutil  # commands that write nothing need not wait for it

                    shutil.rmtree(path, ignore_errors=True)
                else:
                    os.unlink(path)

    def close(self) -> None:
        """Give the names back, and remove what is still called by them."""
        if self._file.closed:
            return
        try:
            self._remove()
            with contextlib.suppress(OSError):
                os.unlink(self._name)
        finally:
            with contextlib.suppress(OSError):
                self._file.close()
