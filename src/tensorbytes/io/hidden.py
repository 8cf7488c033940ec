"""Names beside the one that a file will get: of files that are not whole yet, and of what is kept of them.

A live writer holds a lock on its hidden file. One without a lock was left by a process that died, and the next
writer of the same name removes it. So names are few and not random: nobody has to search the folder. What is kept
(`NAME.tensorbytes-cut-1`, `NAME.tensorbytes-unclosed-1`) is for the user to look at, and removed by nobody.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Any

try:
    import fcntl
except ModuleNotFoundError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

# What a hidden name has after that of the file: a number, and this.
SUFFIX = ".tmp"
MARK = ".tensorbytes-"
# So many writers of one name are looked for; more get random names.
_MOST = 8
_KEPT = ("cut-", "unclosed-")
# Of most file systems 255, less what several files of one writer have after it.
_MOST_NAME_BYTES = 245


def name_beside(path: str, what: str) -> str:
    """The name that something of ours has beside `path`; of a name that leaves no room for it, the start and a hash."""
    folder, base = os.path.split(path)
    name = os.fsencode(base)
    room = _MOST_NAME_BYTES - len(MARK) - len(what)
    if len(name) <= room:
        return f"{path}{MARK}{what}"
    import hashlib  # hardly anybody needs it

    short = hashlib.sha256(name).hexdigest()[:16]
    start = name[: room - len(short) - 1].decode(errors="ignore")
    return os.path.join(folder, f"{start}~{short}{MARK}{what}")


def is_hidden(name: str) -> bool:
    """Whether a file of this name is one that is being written, or was kept of one that never was to its end."""
    return MARK in name and (name.endswith(SUFFIX) or name.rpartition(MARK)[2].startswith(_KEPT))


def kept_names(path: str, why: str) -> Iterator[str]:
    """Names for what is kept of a file, "cut" or "unclosed", without those that are there."""
    number = 0
    while True:
        number += 1
        name = name_beside(path, f"{why}-{number}")
        if not os.path.lexists(name):
            yield name


def names(path: str) -> Iterator[str]:
    """Names under which `path` may be written, one after the other, without those that are in use."""
    for number in range(_MOST if fcntl is not None else 0):
        name = name_beside(path, f"{number}{SUFFIX}")
        if _is_free(name):
            yield name
    while True:
        yield name_beside(path, f"{os.urandom(4).hex()}{SUFFIX}")


def _is_free(name: str) -> bool:
    """Whether nobody uses a name; the file of a dead writer is removed."""
    if not os.path.lexists(name):
        return True
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


def take_over(path: str, fd: int) -> None:
    """Give a file the owner, the mode and the extended attributes of the one that it will replace, if there is one."""
    try:
        old = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISREG(old.st_mode):
        return
    with contextlib.suppress(OSError):  # another owner's file: the mode matters more than the owner
        os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, old.st_mode & 0o777)  # the right to run as its owner was given to the old content
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):  # no such thing on this filesystem
            for name in os.listxattr(path):
                with contextlib.suppress(OSError):  # some belong to the system
                    os.setxattr(fd, name, os.getxattr(path, name))
