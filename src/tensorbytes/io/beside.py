"""Files beside files: the index of a record file, its schema, a list of checksums.

They are found by their names, so whoever may write to a folder can plant one. Each is opened without following a
link, must be a regular file, and is read up to a limit. What is not so is not used, with a warning. None is written
by reading.
"""

from __future__ import annotations

import os
import stat
import warnings

from tensorbytes.errors import SidecarWarning

_READ_BYTES = 1 << 20


def read(path: str, most: int) -> bytes | None:
    """The bytes of a file beside another; None if there is none that is used."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for whoever writes to it.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        fd = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        warn(path, "is a symbolic link" if os.path.islink(path) else f"can't be opened: {error.strerror}")
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or (not hasattr(os, "O_NOFOLLOW") and os.path.islink(path)):
            warn(path, "is not a regular file")
            return None
        if found.st_size > most:
            warn(path, f"has {found.st_size} bytes, and at most {most} are read")
            return None
        # It may grow while it is read: no more than the limit is taken.
        pieces, left = [], most
        while left and (piece := os.read(fd, min(left, _READ_BYTES))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def warn(path: str, what: str, stacklevel: int = 3) -> None:
    """Say that a file beside another is not used, and why."""
    warnings.warn(f"{path} {what}; it is not used", SidecarWarning, stacklevel=stacklevel)
